// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/exposition.h"

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

}  // namespace nvcache::tool
