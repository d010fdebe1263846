// SPDX-License-Identifier: BSD-3-Clause
//
// The engine's host in a test's own process. Sanitizers want to know of every thread, and so does
// libc where something of the test runs on it (malloc): then threads are libc's own.
#ifndef NVCACHE_TESTS_UNIT_HOST_H_
#define NVCACHE_TESTS_UNIT_HOST_H_

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "libc-shim/glibc/host.h"
#include "tests/unit/support.h"

namespace nvcache::test {

struct LibcThread {
  pthread_t id;
  void (*entry)(void*);
  void* argument;
};

// None in a child of a process that has had one, if the thread sanitizer is there: it wants none
// after such a fork.
inline void* StartLibcThread(void (*entry)(void*), void* argument) {
  static const pid_t first = getpid();
  if (kThreadSanitizer && getpid() != first) return nullptr;
  auto* thread = new LibcThread{{}, entry, argument};
  const auto run = [](void* self) -> void* {
    static_cast<LibcThread*>(self)->entry(static_cast<LibcThread*>(self)->argument);
    return nullptr;
  };
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&thread->id, nullptr, run, thread);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) return thread;
  delete thread;
  return nullptr;
}

inline void JoinLibcThread(void* handle) {
  auto* thread = static_cast<LibcThread*>(handle);
  pthread_join(thread->id, nullptr);
  delete thread;
}

inline const Host& HostOfLibcThreads() {
  static const Host host = {StartLibcThread, JoinLibcThread, GlibcHost().load_libpmem};
  return host;
}

// The host that is shipped, if that is possible.
inline const Host& UsualHost() {
  return kThreadSanitizer || kAddressSanitizer ? HostOfLibcThreads() : GlibcHost();
}

}  // namespace nvcache::test

#endif  // NVCACHE_TESTS_UNIT_HOST_H_
