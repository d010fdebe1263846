// SPDX-License-Identifier: BSD-3-Clause
//
// Calls that are made on another stack than the program's, of which little may be left.
#ifndef NVCACHE_VFS_ENGINE_STACK_H_
#define NVCACHE_VFS_ENGINE_STACK_H_

#include <type_traits>

#include "src/sys/deferral.h"
#include "src/sys/descriptor.h"
#include "src/sys/lock_rank.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine/engine.h"

namespace nvcache::vfs {

template <typename Function>
struct Job {
  Function function;
  std::invoke_result_t<Function> result;

  static void Run(void* pointer) {
    Job& job = *static_cast<Job*>(pointer);
    job.result = job.function();
  }
};

// For work that takes as much of a stack as it likes. Where no thread can be made, the program's
// stack has to bear it.
template <typename Function>
auto OnOwnStack(Function function) {
  Job<Function> job = {function, {}};
  if (void* thread = engine.host->start_thread(job.Run, &job); thread != nullptr) {
    engine.host->join_thread(thread);
  } else {
    const sys::SyncsUnderLocks allowed;
    job.Run(&job);
  }
  return job.result;
}

// For work that opens and closes files that may be the program's: by a thread with a stack and a
// table of descriptors of its own, in which only `kept` and `other` are the engine's
// (sys::LeaveTable). False: there is none, and nothing was done; or what the function says.
template <typename Function>
bool OnOwnTable(int kept, int other, Function function) {
  const auto apart = [=] { return sys::LeaveTable(kept, other) && function(); };
  Job<decltype(apart)> job = {apart, false};
  void* const thread = engine.host->start_thread(job.Run, &job);
  if (thread != nullptr) engine.host->join_thread(thread);
  return job.result;
}

// For work that ends soon, and has enough of a stack in a block of scratch memory. A handler of the
// program's might not.
template <typename Function>
auto OnScratchStack(Function function) {
  Job<Function> job = {function, {}};
  const sys::SignalsBlocked blocked;
  const sys::SyncsUnderLocks allowed;
  sys::RunOnScratch(job.Run, &job);
  return job.result;
}

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_STACK_H_
