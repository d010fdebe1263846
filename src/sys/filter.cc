// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/filter.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <atomic>
#include <cstddef>

#include "src/sys/deferral.h"
#include "src/sys/kernel.h"

namespace nvcache::sys {

namespace {

// What attaching a pool, logging, writing back and recovery call, but for what any program on libc
// calls all the time (read, write, mmap, close, futex) and for what there is a way around
// (kAvoidable). tests/tool/filter_test.py compares both with the sources.
constexpr uint16_t kNeeded[] = {SYS_capget,
                                SYS_close_range,
                                SYS_dup3,
                                SYS_fallocate,
                                SYS_fchmod,
                                SYS_fchmodat,
                                SYS_fcntl,
                                SYS_fdatasync,
                                SYS_flock,
                                SYS_fremovexattr,
                                SYS_fstat,
                                SYS_fstatfs,
                                SYS_fsync,
                                SYS_ftruncate,
                                SYS_getdents64,
                                SYS_getegid,
                                SYS_geteuid,
                                SYS_getgroups,
                                SYS_getrandom,
                                SYS_getxattr,
                                SYS_linkat,
                                SYS_lseek,
                                SYS_madvise,
                                SYS_mkdirat,
                                SYS_mprotect,
                                SYS_mremap,
                                SYS_name_to_handle_at,
                                SYS_newfstatat,
                                SYS_openat2,
                                SYS_poll,
                                SYS_pread64,
                                SYS_prlimit64,
                                SYS_pwrite64,
                                SYS_pwritev,
                                SYS_pwritev2,
                                SYS_readlinkat,
                                SYS_readv,
                                SYS_renameat2,
                                SYS_rt_sigprocmask,
                                SYS_rt_tgsigqueueinfo,
                                SYS_select,
                                SYS_setxattr,
                                SYS_statfs,
                                SYS_statx,
                                SYS_symlinkat,
                                SYS_sync_file_range,
                                SYS_syncfs,
                                SYS_truncate,
                                SYS_unlinkat,
                                SYS_unshare,
                                SYS_utimensat,
                                SYS_writev};

// Made only where MayCall() says so (open_by_handle_at, fchownat, quotactl_fd, rt_sigtimedwait,
// sched_yield), or where there is no filter (setfsuid and setfsgid, in credentials.cc).
constexpr uint16_t kAvoidable[] = {SYS_fchownat,        SYS_open_by_handle_at, SYS_quotactl_fd,
                                   SYS_rt_sigtimedwait, SYS_sched_yield,       SYS_setfsgid,
                                   SYS_setfsuid};
constexpr size_t kAvoidables = sizeof(kAvoidable) / sizeof(kAvoidable[0]);

constinit std::atomic<bool> avoided[kAvoidables];
constinit std::atomic<long> needed{-1};  // what ForbiddenCall() says; -1: nobody has asked

// A copy that is ended for it leaves no core. Only where the call is allowed that says so.
void LeaveNoCore() { CallKernel(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0, 0); }

// With arguments that no call takes: a descriptor, an address, a size and flags that there are not.
// None of those above does anything for them.
void CallInVain(long number) { CallKernel(number, -1, -1, -1, -1, -1, -1); }

// A copy of the process calls function(argument). False: it was ended, or there is none.
bool SurvivesInCopy(void (*function)(void*), void* argument) {
  const SignalsBlocked blocked;  // SIGSYS ends it then, and comes to no handler of the program's
  const long copy = CallKernel(SYS_clone, 0, 0, 0, 0, 0, 0);  // nobody is told of its end
  if (copy == 0) {
    function(argument);
    for (;;) CallKernel(SYS_exit_group, 0, 0, 0, 0, 0, 0);
  }
  int status = 1;
  while (copy > 0 && CallKernel(SYS_wait4, copy, Address(&status), __WALL, 0, 0, 0) == -EINTR) {
  }
  return copy > 0 && status == 0;
}

bool Survives(long number) {
  const auto try_it = [](void* at) {
    LeaveNoCore();
    CallInVain(*static_cast<long*>(at));
  };
  return SurvivesInCopy(try_it, &number);
}

}  // namespace

bool IsFiltered() {
#ifdef NVCACHE_RECORD
  return false;
#else
  return CallKernel(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0, 0) > 0;
#endif
}

bool MayCall(long number) {
  if (!IsFiltered()) return true;
  for (size_t i = 0; i < kAvoidables; ++i) {
    if (kAvoidable[i] != number) continue;
    if (avoided[i].load()) return false;
    const bool may = Survives(number);
    if (!may) avoided[i].store(true);
    return may;
  }
  return Survives(number);
}

long ForbiddenCall() {
  if (!IsFiltered()) return 0;
  if (needed.load() >= 0) return needed.load();
  const long page =
      Mmap(nullptr, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (IsError(page)) return 0;
  auto* const at = reinterpret_cast<volatile long*>(page);
  *at = SYS_clone;
  const auto try_all = [](void* shared) {
    *static_cast<volatile long*>(shared) = SYS_prctl;
    LeaveNoCore();
    for (const uint16_t number : kNeeded) {
      *static_cast<volatile long*>(shared) = number;
      CallInVain(number);
    }
  };
  const long deadly = SurvivesInCopy(try_all, reinterpret_cast<void*>(page)) ? 0 : *at;
  Munmap(reinterpret_cast<void*>(page), sizeof(long));
  needed.store(deadly);
  return deadly;
}

long CallIfAllowed(long number, long a, long b, long c, long d, long e) {
  return MayCall(number) ? Call(number, a, b, c, d, e) : -EPERM;
}

}  // namespace nvcache::sys
