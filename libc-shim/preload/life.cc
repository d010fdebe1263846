// SPDX-License-Identifier: BSD-3-Clause
//
// The library's beginning and end.
#include <errno.h>
#include <gnu/libc-version.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "libc-shim/calls/signal.h"
#include "libc-shim/glibc/host.h"
#include "libc-shim/preload/real.h"
#include "libc-shim/preload/stdio_slots.h"
#include "src/vfs/vfs.h"

// What libc's headers hide behind pthread_atfork and at_quick_exit. Like libc's version, they are
// not there in another libc, whose dynamic linker shall load the library all the same.
extern "C" {
extern void* __dso_handle __attribute__((visibility("hidden")));
int __register_atfork(void (*before)(), void (*in_parent)(), void (*in_child)(), void* library);
int __cxa_at_quick_exit(void (*function)(void*), void* library);
}
#pragma weak __register_atfork
#pragma weak __cxa_at_quick_exit
#pragma weak gnu_get_libc_version

namespace nvcache::preload {
namespace {

// A program with more rights than its user must not write where the user's environment says.
bool IsPrivileged() { return getauxval(AT_SECURE) != 0; }

__attribute__((constructor)) void Begin() {
  const int saved_errno = errno;  // the program finds zero
  FindAll();
  if (IsPrivileged()) return;
  if (gnu_get_libc_version == nullptr) {
    vfs::Refuse(
        environ,
        "libnvcache.so is for programs of glibc; link this one with nvcache-musl-gcc, or with "
        "glibc");
    errno = saved_errno;
    return;
  }
  if (vfs::Start(GlibcHost(), environ)) {
    calls::ManageSignals();
    if (vfs::WantsStreams()) CatchStreams();
  }
  // Not by a wrapper of fork: this also reaches the forks inside libc (daemon, forkpty), exactly
  // once each, and runs next to the fork, inside of whatever other libraries have registered: their
  // handlers may still use files.
  __register_atfork(vfs::BeforeFork, vfs::AfterFork, vfs::AfterFork, &__dso_handle);
  // Last registered, first called: the program's own handlers would come later. Those registered
  // so early come last.
  __cxa_at_quick_exit([](void*) { vfs::Stop(); }, &__dso_handle);
  errno = saved_errno;
}

__attribute__((destructor)) void End() { vfs::Stop(); }

}  // namespace
}  // namespace nvcache::preload
