// SPDX-License-Identifier: BSD-3-Clause
//
// The library's beginning and end.
#include <errno.h>
#include <gnu/libc-version.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <atomic>

#include "libc-shim/calls/output.h"
#include "libc-shim/calls/signal.h"
#include "libc-shim/preload/cpu.h"
#include "libc-shim/preload/last_stream.h"
#include "libc-shim/preload/objects.h"
#include "libc-shim/preload/real.h"
#include "libc-shim/preload/stdio_slots.h"
#include "libc-shim/preload/wrapper.h"
#include "src/sys/cpu.h"
#include "src/sys/thread.h"
#include "src/vfs/vfs.h"

// libc's headers hide these behind pthread_atfork and at_quick_exit. Like libc's version, they are
// not there in another libc, whose dynamic linker shall load the library all the same.
extern "C" {
extern void* __dso_handle __attribute__((visibility("hidden")));
int __register_atfork(void (*before)(), void (*in_parent)(), void (*in_child)(), void* library);
// The lock of libc's list of streams, which knows its owner.
void _IO_list_lock();
void _IO_list_unlock();
void _IO_list_resetlock();
extern char __libc_single_threaded;
}
#pragma weak __register_atfork
#pragma weak gnu_get_libc_version
#pragma weak _IO_list_lock
#pragma weak _IO_list_unlock
#pragma weak _IO_list_resetlock
#pragma weak __libc_single_threaded  // since 2.32

namespace nvcache::preload {
namespace {

// A program with more rights than its user must not write where the user's environment says.
bool IsPrivileged() { return getauxval(AT_SECURE) != 0; }

// A fork of libc's takes the lock of the list of streams, which a flush of all streams holds while
// it waits for one of them; and the thread that has that one may be about to ask for a lock of the
// engine's. So the list comes first, whose lock libc then takes once more. A program of one thread
// has nobody to wait for, and its child's locks are not reset.
thread_local bool t_streams_locked = false;

bool HasThreads() { return &__libc_single_threaded == nullptr || __libc_single_threaded == 0; }
bool IsSingle() { return !HasThreads(); }

void BeforeFork() {
  FindForChildren();
  if (vfs::IsActive() && HasThreads()) {
    _IO_list_lock();
    t_streams_locked = true;
  }
  vfs::BeforeFork();
}

void AfterForkInParent() {
  vfs::AfterForkInParent();
  if (!t_streams_locked) return;
  t_streams_locked = false;
  _IO_list_unlock();
}

[[gnu::hot]] void AfterForkInChild() {
  vfs::AfterForkInChild();
  if (!t_streams_locked) return;
  t_streams_locked = false;
  _IO_list_resetlock();
  LoseLock();
}

void BeginStreams() {
  if (vfs::WantsStreams() && CatchStreams()) {
    AddLastStream();
  } else {
    vfs::LeaveUnseen();  // what libc writes for its streams is not seen
    vfs::SayStreamsPass();
  }
}

// quick_exit calls its handlers from the last that was registered to the first, and leaves the
// streams alone. So ours is there before any other, also one of a library that comes before us.
void StopLastAtQuickExit() {
  static std::atomic<bool> registered{false};
  if (registered.exchange(true)) return;
  const auto stop = [](void*) {
    if (const int status = calls::ExitStatus(0); status != 0) NVCACHE_REAL(_exit)(status);
  };
  NVCACHE_REAL(__cxa_at_quick_exit)(stop, &__dso_handle);
}
constexpr Host kHost = {sys::StartThread, sys::JoinThread, ForEachObject,
                        CountLoads,       FindInterposer,  IsSingle};

__attribute__((constructor)) void Begin() {
  const int saved_errno = errno;  // the program finds zero
  if (IsPrivileged()) return;
  if (gnu_get_libc_version == nullptr) {
    vfs::Refuse(
        environ,
        "libnvcache.so is for programs of glibc; link this one with nvcache-musl-gcc, or with "
        "glibc");
    errno = saved_errno;
    return;
  }
  if (uint32_t features; CpuOfLibc(&features)) sys::KnowCpu(features);
  FindLoadCount();
  FindBehind();
  if (vfs::Start(kHost, environ)) {
    calls::ManageSignals(false);
    BeginStreams();
  }
  // Not by a wrapper of fork: this also reaches the forks inside libc (daemon, forkpty), exactly
  // once each, and runs next to the fork, inside of whatever other libraries have registered: their
  // handlers may still use files.
  __register_atfork(BeforeFork, AfterForkInParent, AfterForkInChild, &__dso_handle);
  StopLastAtQuickExit();
  errno = saved_errno;
}

__attribute__((destructor)) void End() {
  if (!AwaitLastStream()) vfs::Stop();
}

}  // namespace
}  // namespace nvcache::preload

// at_quick_exit, which is in each object.
NVCACHE_EXPORT int __cxa_at_quick_exit(void (*function)(void*), void* library) {
  nvcache::preload::StopLastAtQuickExit();
  return NVCACHE_REAL(__cxa_at_quick_exit)(function, library);
}
