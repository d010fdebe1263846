// SPDX-License-Identifier: BSD-3-Clause
//
// What the runner's processes and the driver share: whose turn it is, and the trace. It lies in a
// file on /dev/shm that all of them map, so it outlives whoever is killed.
#ifndef NVCACHE_TESTS_DIFFERENTIAL_SHARED_H_
#define NVCACHE_TESTS_DIFFERENTIAL_SHARED_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>

namespace nvcache::differential {

inline constexpr int kMaxOperations = 8192;
inline constexpr int kLineSize = 240;
inline constexpr int kProcesses = 4;  // 0 is the first one
inline constexpr int kThreads = 3;
inline constexpr int kDescriptors = 12;
inline constexpr int kTimes = 4096;

// When a file was changed, as it was last seen.
struct SeenTimes {
  uint64_t identity;
  int64_t modified;
  int64_t changed;
};

struct ProcessState {
  bool alive;
  bool used_aio;  // glibc's AIO does not survive a fork
  int parent;
  pid_t pid;
  int descriptors[kDescriptors];
};

struct Shared {
  std::atomic<uint32_t> next;  // the operation whose turn it is; a futex
  ProcessState processes[kProcesses];
  uint32_t killed;  // a process was: times may be those of the recovery
  uint32_t times_used;
  SeenTimes times[kTimes];
  char lines[kMaxOperations + 1][kLineSize];  // empty: not done yet
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace nvcache::differential

#endif  // NVCACHE_TESTS_DIFFERENTIAL_SHARED_H_
