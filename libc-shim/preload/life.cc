// SPDX-License-Identifier: BSD-3-Clause
//
// The library's beginning and end.
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "libc-shim/calls/signal.h"
#include "libc-shim/glibc/host.h"
#include "libc-shim/preload/real.h"
#include "libc-shim/preload/stdio_slots.h"
#include "src/vfs/vfs.h"

namespace nvcache::preload {
namespace {

// A program with more rights than its user must not write where the user's environment says.
bool IsPrivileged() { return getauxval(AT_SECURE) != 0; }

__attribute__((constructor)) void Begin() {
  const int saved_errno = errno;  // the program finds zero
  FindAll();
  if (IsPrivileged()) return;
  if (vfs::Start(GlibcHost(), environ)) {
    calls::ManageSignals();
    if (vfs::WantsStreams()) CatchStreams();
  }
  // Not by a wrapper of fork: this also reaches the forks inside libc (daemon, forkpty), exactly
  // once each, and runs next to the fork, inside of whatever other libraries have registered: their
  // handlers may still use files.
  pthread_atfork(vfs::BeforeFork, vfs::AfterFork, vfs::AfterFork);
  // Last registered, first called: the program's own handlers would come later. Those registered
  // so early come last.
  at_quick_exit(vfs::Stop);
  errno = saved_errno;
}

__attribute__((destructor)) void End() { vfs::Stop(); }

}  // namespace
}  // namespace nvcache::preload
