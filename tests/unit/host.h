// SPDX-License-Identifier: BSD-3-Clause
//
// The engine's host in a test's own process. Sanitizers want to know of every thread, and so does
// libc where something of the test runs on it (malloc): then threads are libc's own.
#ifndef NVCACHE_TESTS_UNIT_HOST_H_
#define NVCACHE_TESTS_UNIT_HOST_H_

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "src/sys/thread.h"
#include "tests/unit/support.h"

namespace nvcache::test {

struct LibcThread {
  pthread_t id;
  void (*entry)(void*);
  void* argument;
};

// Those that run, and whose they are.
inline std::atomic<int> g_libc_threads{0};
inline std::atomic<pid_t> g_libc_threads_of{0};

// None in a child of a process that had some when it forked, if the thread sanitizer is there: it
// wants none after such a fork.
inline void* StartLibcThread(void (*entry)(void*), void* argument) {
  if (g_libc_threads.load() == 0) g_libc_threads_of.store(getpid());
  if (kThreadSanitizer && g_libc_threads_of.load() != getpid()) return nullptr;
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
  if (error == 0) ++g_libc_threads;
  if (error == 0) return thread;
  delete thread;
  return nullptr;
}

inline void JoinLibcThread(void* handle) {
  auto* thread = static_cast<LibcThread*>(handle);
  pthread_join(thread->id, nullptr);
  --g_libc_threads;
  delete thread;
}

inline const Host& HostOfLibcThreads() {
  static const Host host = {StartLibcThread, JoinLibcThread};
  return host;
}

// The host that is shipped, if that is possible.
inline const Host& UsualHost() {
  return kThreadSanitizer || kAddressSanitizer ? HostOfLibcThreads() : sys::kOwnThreads;
}

}  // namespace nvcache::test

#endif  // NVCACHE_TESTS_UNIT_HOST_H_
