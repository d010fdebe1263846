// SPDX-License-Identifier: BSD-3-Clause
//
// The few words that the wrappers are written in.
//
// A call is caught under several names: `pwrite`, `pwrite64`, `syscall(SYS_pwrite64)`. What is done
// around the real call is said once, as a template whose last argument makes the real call
// (data.h, open.h, ...); the wrappers say only which real function it is.
#ifndef NVCACHE_LIBC_SHIM_PRELOAD_CALLS_H_
#define NVCACHE_LIBC_SHIM_PRELOAD_CALLS_H_

#include <errno.h>
#include <pthread.h>

#include "libc-shim/glibc/host.h"
#include "libc-shim/preload/real.h"
#include "src/sys/user_copy.h"
#include "src/vfs/vfs.h"

// A wrapper, and another name for a wrapper. The linker exports only what wrapped.def lists.
#define NVCACHE_EXPORT extern "C" __attribute__((visibility("default")))
#ifdef __clang__
#define NVCACHE_EXPORT_ALIAS(name, target) \
  extern "C" __attribute__((visibility("default"), alias(#target))) decltype(::target) name
#else  // wants to hear that the two have the same attributes
#define NVCACHE_EXPORT_ALIAS(name, target)                         \
  extern "C" __attribute__((copy(::target), visibility("default"), \
                            alias(#target))) decltype(::target) name
#endif

namespace nvcache::preload {

// Answers that the engine may give, to POSIX's form. The engine never touches errno itself, so a
// success leaves it alone.
inline long FromAnswer(long answer) {
  if (answer >= 0) return answer;
  errno = static_cast<int>(-answer);
  return -1;
}

// The engine's answer, or the real call where there is none.
template <typename RealCall, typename... Arguments>
inline auto Answer(long answer, RealCall real, Arguments... arguments) {
  using Result = decltype(real(arguments...));
  if (answer == vfs::kNotOurs) return real(arguments...);
  return static_cast<Result>(FromAnswer(answer));
}

// Calls of libpmem while the engine waits for it must not reach the engine a second time
// (libc-shim/glibc/host.h). The data calls need no such care: libpmem's descriptors are never
// tracked, so they are turned away at the first look.

// Offers a call to the engine.
template <auto call, typename... Arguments>
inline long Offer(Arguments... arguments) {
  return InsideLibpmem() ? vfs::kNotOurs : call(arguments...);
}

// Tells the engine what is about to happen, or what has just happened.
template <auto call, typename... Arguments>
inline void Tell(Arguments... arguments) {
  if (!InsideLibpmem()) call(arguments...);
}

// Copies what the program points at. False: it is not there, which the kernel shall say; or nobody
// needs to know.
template <typename Type>
inline bool Fetch(Type* to, const void* from) {
  return vfs::IsActive() && sys::CopyUser(to, from, sizeof(Type)) == sizeof(Type);
}

// A path that stands for the descriptor beside it.
inline bool IsEmpty(const char* path) {
  char first;
  return Fetch(&first, path) && first == '\0';
}

// Make a file pass-through. False, with errno set: the file system refuses the bytes that are still
// pending, so the file stays cached, and the call must fail.

inline bool ToKernel(int fd) {
  return InsideLibpmem() || FromAnswer(vfs::PassThrough(fd, false)) == 0;
}

inline bool ToKernelForGood(int fd) {
  return InsideLibpmem() || FromAnswer(vfs::PassThrough(fd, true)) == 0;
}

inline bool ToKernelByPath(int dirfd, const char* path) {
  return InsideLibpmem() || FromAnswer(vfs::PassThroughPath(dirfd, path)) == 0;
}

// A data call that the engine answers never enters the kernel, and would never notice that its
// thread is cancelled. Asked before the engine is, since afterwards the data has been moved.
inline void CancellationPoint() { pthread_testcancel(); }

// For the calls after which our picture of the process cannot be kept right. Everything goes to
// disk, every file to the kernel, and so does every later call.
inline void TurnOff() { vfs::Retire(); }

}  // namespace nvcache::preload

#endif  // NVCACHE_LIBC_SHIM_PRELOAD_CALLS_H_
