// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace nvcache::tool {
namespace {

constexpr std::chrono::seconds kPatience{2};
constexpr std::chrono::milliseconds kInterval{100};
constexpr uint64_t kWidth = 40;

}  // namespace

Progress::Progress(const char* what)
    : what_(what), terminal_(isatty(STDERR_FILENO) == 1), next_(Clock::now() + kPatience) {}

Progress::~Progress() {
  if (drawn_) fmt::print(stderr, "\r\x1b[K");
}

void Progress::Update(uint64_t done, uint64_t total) {
  if (!terminal_ || total == 0 || Clock::now() < next_) return;
  next_ = Clock::now() + kInterval;
  drawn_ = true;
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const auto filled = static_cast<size_t>(share * kWidth);
  fmt::print(stderr, "\r{} [{:-<{}}] {:3.0f} %", what_, std::string(filled, '#'), kWidth,
             share * 100);
  fflush(stderr);
}

}  // namespace nvcache::tool
