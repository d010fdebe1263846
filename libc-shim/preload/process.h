// SPDX-License-Identifier: BSD-3-Clause
//
// What is done around a call that makes, replaces or ends a process.
//
// fork itself has no wrapper: its preparation is registered with pthread_atfork (process.cc), which
// also reaches the forks inside libc (daemon, forkpty), runs exactly once for each, and runs next
// to the fork, inside of whatever other libraries have registered: their handlers may still use
// files.
#ifndef NVCACHE_LIBC_SHIM_PRELOAD_PROCESS_H_
#define NVCACHE_LIBC_SHIM_PRELOAD_PROCESS_H_

#include <sched.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "libc-shim/preload/calls.h"

namespace nvcache::preload {

// To be called once, from the constructor.
void RegisterForkHandlers();

// Whether `id` stands for this process: 0, or one of its threads.
bool IsThread(long id);

// A fork that runs no such handlers.
template <typename RealCall>
inline auto Fork(RealCall real) {
  vfs::BeforeFork();
  const auto child = real();
  vfs::AfterFork();
  return child;
}

// What a clone() with these flags makes.
enum class CloneKind {
  kThread,   // shares memory and descriptors: our tables are its tables
  kProcess,  // shares neither: a fork
  kMixture,  // shares one of the two: the tables cannot be right for both
};

inline CloneKind KindOfClone(unsigned long flags) {
  const bool memory = (flags & CLONE_VM) != 0;
  const bool descriptors = (flags & CLONE_FILES) != 0;
  if (memory != descriptors) return CloneKind::kMixture;
  return memory ? CloneKind::kThread : CloneKind::kProcess;
}

// Around setrlimit and prlimit. `limit` is the program's struct rlimit, which is the kernel's.
template <typename RealCall>
inline auto SetLimit(long process, int resource, const void* limit, RealCall real) {
  rlim_t soft;  // its first member
  const bool ours =
      resource == RLIMIT_FSIZE && !InsideLibpmem() && Fetch(&soft, limit) && IsThread(process);
  if (!ours) return real();
  vfs::BeforeSizeLimit(soft);
  const auto result = real();
  vfs::AfterSizeLimit();
  return result;
}

// Before a program is started in a new process.
template <typename RealCall>
inline auto Spawn(RealCall real) {
  Tell<vfs::BeforeSpawn>();
  return real();
}

// The same for a program in place of this one. Returns only if it cannot be started.
template <typename RealCall>
inline auto Replace(RealCall real) {
  Tell<vfs::BeforeExec>();
  Tell<vfs::KeepLocks>(true);
  const auto result = real();
  Tell<vfs::KeepLocks>(false);
  return result;
}

}  // namespace nvcache::preload

#endif  // NVCACHE_LIBC_SHIM_PRELOAD_PROCESS_H_
