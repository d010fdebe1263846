// SPDX-License-Identifier: BSD-3-Clause
//
// The brackets around calls that make, replace or end a process.
#ifndef NVCACHE_LIBC_SHIM_CALLS_PROCESS_H_
#define NVCACHE_LIBC_SHIM_CALLS_PROCESS_H_

#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <initializer_list>

#include "libc-shim/calls/calls.h"
#include "libc-shim/calls/names.h"
#include "libc-shim/calls/signal.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"

namespace nvcache::calls {

// Whether `id` stands for this process: 0, or one of its threads.
inline bool IsThread(long id) {
  return id == 0 || sys::Call(SYS_tgkill, sys::Getpid(), id, 0) == 0;
}

// A fork that runs no handlers of pthread_atfork, or whose handlers are none of ours.
template <typename RealCall>
inline auto Fork(RealCall real) {
  vfs::BeforeFork();
  const auto child = real();
  child == 0 ? vfs::AfterForkInChild() : vfs::AfterForkInParent();
  return child;
}

// A clone() makes one of these, by its flags.
enum class CloneKind {
  kThread,      // shares memory and descriptors: our tables are its tables
  kProcess,     // shares neither: a fork
  kMemory,      // shares memory alone: our tables cannot be right for both
  kDescriptors  // shares descriptors alone: the same, and it has a copy of our tables
};

inline CloneKind KindOfClone(unsigned long flags) {
  const bool memory = (flags & CLONE_VM) != 0;
  const bool descriptors = (flags & CLONE_FILES) != 0;
  if (memory) return descriptors ? CloneKind::kThread : CloneKind::kMemory;
  return descriptors ? CloneKind::kDescriptors : CloneKind::kProcess;
}

// The parent of a copy does not wait: the child may need it to let go of a file.
inline unsigned long WithoutWaiting(unsigned long flags) {
  return flags & ~static_cast<unsigned long>(CLONE_VFORK);
}

// The parent goes on without the cache, and the child without the engine.
template <typename RealCall>
inline auto CloneSharingDescriptors(RealCall real) {
  TurnOff(vfs::Hindrance::kTables);
  const auto child = real();
  if (child == 0) vfs::LeaveInChild();
  return child;
}

// Around setrlimit and prlimit. `limit` is the program's struct rlimit, which is the kernel's.
template <typename RealCall>
inline auto SetLimit(long process, int resource, const void* limit, RealCall real) {
  rlim_t soft;  // its first member
  const bool ours = resource == RLIMIT_FSIZE && Fetch(&soft, limit) && IsThread(process);
  if (!ours) return real();
  vfs::BeforeSizeLimit(soft);
  const auto result = real();
  vfs::AfterSizeLimit();
  return result;
}

// Around a call that may take rights from the process.
template <typename RealCall>
inline auto ChangeRights(RealCall real, bool for_good = false) {
  vfs::BeforeRights(for_good);
  const auto result = real();
  vfs::AfterRights();
  return result;
}

// Whether all that the thread is, real, effective, saved and for files, is each of `wanted`, where
// ~0 stands for one that stays. `get` and `get_for_files`: numbers of the calls.
inline bool IsAll(long get, long get_for_files, std::initializer_list<uint32_t> wanted) {
  constexpr uint32_t kStays = ~uint32_t{0};
  uint32_t real = 0, effective = 0, saved = 0;
  sys::Call(get, sys::Address(&real), sys::Address(&effective), sys::Address(&saved));
  const auto for_files = static_cast<uint32_t>(sys::Call(get_for_files, long{kStays}));
  for (const uint32_t id : wanted) {
    const bool same = id == real && id == effective && id == saved && id == for_files;
    if (id != kStays && !same) return false;
  }
  return true;
}

// setuid and setgid, under all their names. A program that becomes what it is loses nothing.
template <typename RealCall>
inline auto SetUsers(std::initializer_list<uint32_t> wanted, RealCall real) {
  const bool same = IsAll(SYS_getresuid, SYS_setfsuid, wanted);
  return same ? real() : ChangeRights(real);
}
template <typename RealCall>
inline auto SetGroups(std::initializer_list<uint32_t> wanted, RealCall real) {
  const bool same = IsAll(SYS_getresgid, SYS_setfsgid, wanted);
  return same ? real() : ChangeRights(real);
}

// Before a program is started in a new process. `failed()`: the result where that must not be.
template <typename RealCall, typename Failure>
inline auto Spawn(RealCall real, Failure failed) {
  if (!MayLeave(vfs::Output::kExit)) return static_cast<decltype(real())>(failed());
  vfs::BeforeSpawn();
  return real();
}

// Somebody has the program open for writing. If it is one of us, for the bytes that are pending, it
// lets go when asked; and a child of fork that has just begun closes what it has of its parent's.
// `free` asks, so often at most: others may go on writing it.
inline constexpr int kExecAttempts = 50;
inline constexpr uint64_t kExecPauseNs = 1000 * 1000;

template <typename Free, typename RealCall>
inline auto UntilNotBusy(int busy, Free free, RealCall real) {
  auto result = real();
  for (int i = 0; i < kExecAttempts && result == busy && (busy > 0 || errno == ETXTBSY); ++i) {
    if (!free()) break;
    const timespec pause = {0, kExecPauseNs};
    sys::Call(SYS_nanosleep, sys::Address(&pause), 0);
    result = real();
  }
  return result;
}

// For execveat, and so for all of them.
inline bool FreeProgram(int dirfd, const char* path, int flags) {
  if ((flags & AT_EMPTY_PATH) != 0 && IsEmpty(path)) {
    return vfs::FreeForExec(AT_FDCWD, sys::LinkTo(dirfd).c_str());
  }
  return vfs::FreeForExec(dirfd, path);
}

// A program in place of this one. Returns only if it cannot be started. `free` as above.
template <typename Free, typename RealCall>
inline auto Replace(Free free, RealCall real) {
  if (!MayLeave(vfs::Output::kExit)) return decltype(real()){-1};
  vfs::BeforeExec();
  const auto result = UntilNotBusy(-1, free, real);
  vfs::AfterExec();
  return result;
}

// A program that confines itself has the kernel refuse calls, or kill it for them, and none of ours
// may be among these: it goes on as one without NVCache.
inline void Confine() {
  if (vfs::IsSharing())
    return;  // nothing is ours in such a child, and the handlers are its parent's
  vfs::Leave();
  if (!vfs::IsActive()) ReleaseSignals();
}

// A filter that is not there is how programs ask what the kernel knows.
template <typename RealCall>
inline auto Prctl(int option, long mode, const void* filter, RealCall real) {
  const bool confines =
      mode == SECCOMP_MODE_STRICT || (mode == SECCOMP_MODE_FILTER && filter != nullptr);
  if (option == PR_SET_SECCOMP && confines) Confine();
  return real();
}

template <typename RealCall>
inline auto Seccomp(unsigned operation, const void* filter, RealCall real) {
  const bool confines = operation == SECCOMP_SET_MODE_STRICT ||
                        (operation == SECCOMP_SET_MODE_FILTER && filter != nullptr);
  if (confines) Confine();
  return real();
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_PROCESS_H_
