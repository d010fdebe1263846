// SPDX-License-Identifier: BSD-3-Clause
//
// How a mirror and its servers are, as Prometheus and `nvcache status --mirror` read it.
#ifndef NVCACHE_MIRROR_TOOL_METRICS_H_
#define NVCACHE_MIRROR_TOOL_METRICS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mirror/core/lag.h"
#include "mirror/core/link.h"
#include "mirror/core/record.h"
#include "mirror/core/state.h"
#include "src/pool/mirror_words.h"

namespace nvcache::tool {

struct ServerMetrics {
  std::string address;
  mirror::Link::Stage stage = mirror::Link::Stage::kClosed;
  mirror::Epoch epoch = 0;        // that it has promised last; 0: none, to this mirror
  mirror::Id incarnation = {};    // none: it has never answered this mirror
  bool counts = false;            // the record has this incarnation
  mirror::Position position = 0;  // the last one that is known; 0: none
  std::optional<mirror::Lag::Behind> lag = {};  // none: it has never followed
  uint64_t lag_bytes = 0;
  mirror::Link::Counters counters = {};
};

struct MirrorMetrics {
  mirror::State state = mirror::State::kNone;
  mirror::Epoch epoch = 0;                // 0: it has none yet
  std::optional<mirror::Mode> mode = {};  // the record's, as it was seen last
  mirror::Position position = 0;
  mirror::Position next = 0;      // LSN of the pool
  mirror::Time below_quorum = 0;  // ns during which no majority has followed
  pool::MirrorWaits waits = {};
  std::vector<ServerMetrics> servers = {};
};

// In the text format of Prometheus, version 0.0.4.
std::string Text(const MirrorMetrics& metrics);

// A line of that: `name{label="value",...} number`.
struct MetricLine {
  std::string name;
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;

  // The value of the label; empty: there is none of this name.
  std::string Label(std::string_view label) const;
};
// Those of a text that are whole; comments and what cannot be read are left out.
std::vector<MetricLine> ParseMetrics(std::string_view text);

}  // namespace nvcache::tool

#endif  // NVCACHE_MIRROR_TOOL_METRICS_H_
