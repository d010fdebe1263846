// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/exposition.h"

#include <iterator>

namespace nvcache::tool {
namespace {

constexpr double kMicroseconds = 1e-6;

}  // namespace

std::string MetricLabel(std::string_view name, std::string_view value) {
  std::string escaped;
  for (const char c : value) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return fmt::format("{}=\"{}\"", name, escaped);
}

const char* OutputName(uint32_t output) {
  static constexpr const char* kNames[] = {"socket", "pipe", "file", "name", "exit", "other"};
  static_assert(std::size(kNames) == pool::kOutputs);
  return kNames[output];
}

void Exposition::Begin(std::string_view name, const char* kind, std::string_view help) {
  name_ = fmt::format("{}{}", prefix_, name);
  text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name_, help, kind);
}

void Exposition::Waits(const pool::MirrorWaits& waits) {
  Begin("wait_seconds", "histogram", "How long calls of programs waited that succeeded.");
  uint64_t count = 0;
  for (uint32_t i = 0; i < pool::kMirrorBuckets; ++i) {
    count += waits.counts[i];
    const bool is_last = i == pool::kMirrorBuckets - 1;
    const double end = static_cast<double>(pool::MirrorBucketEnd(i)) * kMicroseconds;
    Add(is_last ? "le=\"+Inf\"" : fmt::format("le=\"{}\"", end), count, "_bucket");
  }
  Add("", static_cast<double>(waits.waited) * kMicroseconds, "_sum");
  Add("", count, "_count");
  One("waits_failed_total", "counter", "Calls of programs that waited and failed.", waits.failed);
}

void Exposition::Outputs(const pool::OutputWaits& outputs) {
  One("told_syncs_total", "counter", "Syncs that returned before the images had what they cover.",
      outputs.told);
  One("told_longest_seconds", "gauge", "The longest that one was ahead, as far as somebody looked.",
      static_cast<double>(outputs.longest) * kMicroseconds);
  const auto kind = [](uint32_t i) { return MetricLabel("kind", OutputName(i)); };
  Begin("output_waits_total", "counter", "Outputs that waited for what was told.");
  for (uint32_t i = 0; i < pool::kOutputs; ++i) Add(kind(i), outputs.counts[i]);
  Begin("output_wait_seconds_total", "counter", "How long they waited.");
  for (uint32_t i = 0; i < pool::kOutputs; ++i) {
    Add(kind(i), static_cast<double>(outputs.waited[i]) * kMicroseconds);
  }
}

}  // namespace nvcache::tool
