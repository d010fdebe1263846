// SPDX-License-Identifier: BSD-3-Clause
//
// The functions behind ours: for each wrapped name, what the dynamic linker finds after us. Each is
// looked for when it is called first, for a program calls few of them. That takes no lock (it may
// be in a signal handler), and not the dynamic linker, which takes three times as long.
//
// A child of fork would look in vain for its parent: each for itself, in pages of libc that it has
// to map first. So the parent does, for those that children call.
#ifndef NVCACHE_LIBC_SHIM_PRELOAD_REAL_H_
#define NVCACHE_LIBC_SHIM_PRELOAD_REAL_H_

#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <grp.h>
#include <linux/aio_abi.h>
#include <mqueue.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/quota.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <syslog.h>
#include <unistd.h>
#include <utime.h>
#include <utmp.h>
#include <utmpx.h>
#include <wordexp.h>

#include "libc-shim/preload/undeclared.h"

extern "C" {
#include <sys/pidfd.h>  // glibc 2.36 forgot to say that it is C
}

namespace nvcache::preload {

struct RealTable {
#define NVCACHE_WRAP(name) decltype(&::name) name;
#define NVCACHE_OPTIONAL(name) decltype(&::name) name;
#define NVCACHE_ALIAS(name, target)
#include "libc-shim/preload/wrapped.def"
#undef NVCACHE_WRAP
#undef NVCACHE_OPTIONAL
#undef NVCACHE_ALIAS
};

extern RealTable g_real;

void FindForChildren();

// At the start, when all that stands between us and libc is loaded: finds what has a function of
// its own for one of our names. Afterwards libc alone is looked into: the others' files may be
// written over, and then not even what says which names they have can be read.
void FindBehind();

// The first of these that has one of those by which programs open files and change names: an
// interposer. Its file's name; nullptr: none.
const char* FindInterposer();

// libc's own function of that name, whatever stands before it. FindBehind() was before.
void* FindInLibc(const char* name);
bool IsInLibc(const void* function);

// The next definition of `name` after ours, or nullptr.
void* FindNext(const char* name);

// Out of line, so that a call that has been made before saves no registers for it.
template <typename Function>
[[gnu::noinline, gnu::cold]] Function* Find(Function** slot, const char* name) {
  auto* function = reinterpret_cast<Function*>(FindNext(name));
  __atomic_store_n(slot, function, __ATOMIC_RELAXED);
  return function;
}

template <typename Function>
inline Function* Real(Function** slot, const char* name) {
  Function* function = __atomic_load_n(slot, __ATOMIC_RELAXED);
  if (function == nullptr) [[unlikely]]
    return Find(slot, name);
  return function;
}

// The real function `name`. Never nullptr for a function of libc.
#define NVCACHE_REAL(name) ::nvcache::preload::Real(&::nvcache::preload::g_real.name, #name)

// The program's call of `name` would reach libc, past any interposer.
#define NVCACHE_IS_LIBCS(name) \
  ::nvcache::preload::IsInLibc(reinterpret_cast<const void*>(NVCACHE_REAL(name)))

// What libc's own function of that name does, for a call that libc makes inside itself.
#define NVCACHE_LIBCS(name) \
  (NVCACHE_IS_LIBCS(name)   \
       ? NVCACHE_REAL(name) \
       : reinterpret_cast<decltype(&::name)>(::nvcache::preload::FindInLibc(#name)))

}  // namespace nvcache::preload

#endif  // NVCACHE_LIBC_SHIM_PRELOAD_REAL_H_
