// SPDX-License-Identifier: BSD-3-Clause
//
// A progress bar on stderr: on a terminal, and only for what takes longer than two seconds.
#ifndef NVCACHE_RECOVERY_TOOL_PROGRESS_H_
#define NVCACHE_RECOVERY_TOOL_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace nvcache::tool {

class Progress {
 public:
  explicit Progress(const char* what);
  ~Progress();  // wipes the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Update(uint64_t done, uint64_t total);

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point next_;  // when to draw
};

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_PROGRESS_H_
