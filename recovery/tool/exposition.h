// SPDX-License-Identifier: BSD-3-Clause
//
// The text format of Prometheus, version 0.0.4.
#ifndef NVCACHE_RECOVERY_TOOL_EXPOSITION_H_
#define NVCACHE_RECOVERY_TOOL_EXPOSITION_H_

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "src/pool/mirror_words.h"

namespace nvcache::tool {

// `name="value"`.
std::string MetricLabel(std::string_view name, std::string_view value);

// "socket": a kind of pool::Output.
const char* OutputName(uint32_t output);

class Exposition {
 public:
  // All names begin with `prefix`; all samples have `labels`.
  explicit Exposition(std::string prefix, std::string labels = "")
      : prefix_(std::move(prefix)), labels_(std::move(labels)) {}

  // The samples of it follow. `kind`: gauge, counter or histogram.
  void Begin(std::string_view name, const char* kind, std::string_view help);
  template <typename Number>
  void Add(const std::string& labels, Number value, const char* suffix = "") {
    const std::string all = labels_ + (labels_.empty() || labels.empty() ? "" : ",") + labels;
    text_ += fmt::format("{}{}{} {}\n", name_, suffix, all.empty() ? "" : "{" + all + "}", value);
  }
  template <typename Number>
  void One(std::string_view name, const char* kind, std::string_view help, Number value) {
    Begin(name, kind, help);
    Add("", value);
  }
  // wait_seconds, a histogram, and waits_failed_total.
  void Waits(const pool::MirrorWaits& waits);
  // Those of commit at output.
  void Outputs(const pool::OutputWaits& outputs);
  std::string Take() { return std::move(text_); }

 private:
  const std::string prefix_, labels_;
  std::string name_, text_;
};

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_EXPOSITION_H_
