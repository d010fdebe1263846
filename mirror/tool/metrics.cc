// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/tool/metrics.h"

#include <fmt/format.h>

#include <cstdlib>
#include <iterator>
#include <utility>

#include "recovery/tool/exposition.h"

namespace nvcache::tool {
namespace {

using mirror::Link;
using mirror::Mode;

constexpr double kNanoseconds = 1e-9;
constexpr const char* kStages[] = {"closed", "connecting", "promising", "copying", "following"};
static_assert(std::size(kStages) == static_cast<size_t>(Link::Stage::kFollowing) + 1);
constexpr const char* kModes[] = {"real", "mirrored", "recovering"};
static_assert(std::size(kModes) == static_cast<size_t>(Mode::kRecovering) + 1);
constexpr mirror::State kStates[] = {mirror::State::kNone,    mirror::State::kReal,
                                     mirror::State::kJoining, mirror::State::kMirrored,
                                     mirror::State::kLeaving, mirror::State::kFailing,
                                     mirror::State::kFenced};

std::string Server(const ServerMetrics& server) { return MetricLabel("server", server.address); }

void AddMirror(const MirrorMetrics& metrics, Exposition* writer) {
  writer->Begin("state", "gauge", "What a sync of a program has to do: 1 for the state that is.");
  for (const mirror::State state : kStates) {
    writer->Add(fmt::format("state=\"{}\"", Text(state)), metrics.state == state ? 1 : 0);
  }
  writer->One("epoch", "gauge", "Of this mirror; 0: it has none yet.", metrics.epoch);
  writer->Begin("mode", "gauge", "Of the record in etcd, as it was seen last.");
  for (size_t i = 0; i < std::size(kModes); ++i) {
    const bool is = metrics.mode && static_cast<size_t>(*metrics.mode) == i;
    writer->Add(fmt::format("mode=\"{}\"", kModes[i]), is ? 1 : 0);
  }
  writer->One("position", "gauge", "LSN below which a majority has everything.", metrics.position);
  writer->One("next_lsn", "gauge", "LSN that is drawn next in the pool.", metrics.next);
  writer->One("below_quorum_seconds_total", "counter", "Time during which no majority followed.",
              static_cast<double>(metrics.below_quorum) * kNanoseconds);
  Link::Counters sum;
  for (const ServerMetrics& server : metrics.servers) {
    sum.batches += server.counters.batches;
    sum.bytes += server.counters.bytes;
  }
  writer->One("batches_total", "counter", "Batches that were sent, to all servers.", sum.batches);
  writer->One("sent_bytes_total", "counter", "Bytes of the pool in these.", sum.bytes);
}

void AddServers(const MirrorMetrics& metrics, Exposition* writer) {
  // A `value` of none: there is no sample.
  const auto each = [&](const char* name, const char* kind, const char* help, const auto& value) {
    writer->Begin(name, kind, help);
    for (const ServerMetrics& server : metrics.servers) {
      if (const auto is = value(server)) writer->Add(Server(server), *is);
    }
  };
  using Number = std::optional<uint64_t>;
  using Seconds = std::optional<double>;
  each("server_connected", "gauge", "1: there is a connection.", [](const ServerMetrics& server) {
    return Number(server.stage > Link::Stage::kConnecting ? 1 : 0);
  });
  writer->Begin("server_stage", "gauge",
                "How far the way to the server is: 1 for the one that is.");
  for (const ServerMetrics& server : metrics.servers) {
    for (size_t i = 0; i < std::size(kStages); ++i) {
      writer->Add(fmt::format("{},stage=\"{}\"", Server(server), kStages[i]),
                  static_cast<size_t>(server.stage) == i ? 1 : 0);
    }
  }
  each("server_epoch", "gauge", "That the server has promised; 0: none, to this mirror.",
       [](const ServerMetrics& server) { return Number(server.epoch); });
  writer->Begin("server_incarnation", "gauge", "1: the record has it, and the server counts.");
  for (const ServerMetrics& server : metrics.servers) {
    if (server.incarnation.IsNone()) continue;
    writer->Add(fmt::format("{},incarnation=\"{}\"", Server(server), server.incarnation.Text()),
                server.counts ? 1 : 0);
  }
  each("server_position", "gauge", "LSN below which it has everything, as it last said.",
       [](const ServerMetrics& server) { return Number(server.position); });
  each("server_lag_bytes", "gauge",
       "Of the logs that it lacks, by whole segments; not if it has never followed.",
       [](const ServerMetrics& server) {
         return server.lag ? Number(server.lag_bytes) : std::nullopt;
       });
  each("server_lag_seconds", "gauge",
       "Since when it lacks something; not if it has never followed.",
       [](const ServerMetrics& server) {
         return server.lag ? Seconds(static_cast<double>(server.lag->time) * kNanoseconds)
                           : std::nullopt;
       });
  each("server_copies_total", "counter", "Copies of the whole pool that it was given.",
       [](const ServerMetrics& server) { return Number(server.counters.copies); });
  each("server_reconnects_total", "counter", "Connections after the first one.",
       [](const ServerMetrics& server) {
         const uint64_t connections = server.counters.connections;
         return Number(connections > 0 ? connections - 1 : 0);
       });
}

// `name="value",...}`: takes them from the text; false: they are none.
bool TakeLabels(std::string_view* text, MetricLine* line) {
  while (!text->empty() && text->front() != '}') {
    const size_t equals = text->find("=\"");
    if (equals == std::string_view::npos) return false;
    std::pair<std::string, std::string> label = {std::string(text->substr(0, equals)), ""};
    size_t at = equals + 2;
    for (; at < text->size() && (*text)[at] != '"'; ++at) {
      const bool is_escape = (*text)[at] == '\\' && at + 1 < text->size();
      if (is_escape) ++at;
      label.second += is_escape && (*text)[at] == 'n' ? '\n' : (*text)[at];
    }
    if (at >= text->size()) return false;
    line->labels.push_back(std::move(label));
    text->remove_prefix(at + 1);
    if (!text->empty() && text->front() == ',') text->remove_prefix(1);
  }
  if (text->empty()) return false;
  text->remove_prefix(1);
  return true;
}

std::optional<MetricLine> ParseLine(std::string_view text) {
  MetricLine line;
  const size_t end = text.find_first_of("{ ");
  if (end == 0 || end == std::string_view::npos || text.front() == '#') return std::nullopt;
  line.name = text.substr(0, end);
  text.remove_prefix(end);
  if (text.front() == '{') {
    text.remove_prefix(1);
    if (!TakeLabels(&text, &line)) return std::nullopt;
  }
  const std::string number(text);
  char* rest = nullptr;
  line.value = strtod(number.c_str(), &rest);
  if (rest == number.c_str() || *rest != '\0') return std::nullopt;
  return line;
}

}  // namespace

std::string Text(const MirrorMetrics& metrics) {
  Exposition writer("nvcache_mirror_");
  AddMirror(metrics, &writer);
  // Since the pool was made, and not since the mirror runs.
  writer.Waits(metrics.waits);
  AddServers(metrics, &writer);
  return writer.Take();
}

std::string MetricLine::Label(std::string_view label) const {
  for (const auto& [key, text] : labels) {
    if (key == label) return text;
  }
  return "";
}

std::vector<MetricLine> ParseMetrics(std::string_view text) {
  std::vector<MetricLine> lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (auto parsed = ParseLine(line)) lines.push_back(std::move(*parsed));
  }
  return lines;
}

}  // namespace nvcache::tool
