// SPDX-License-Identifier: BSD-3-Clause
//
// A page that nobody may read, as a program may name one in a call; and a front end's answer to the
// fault, for as long as there is such a page.
#ifndef NVCACHE_TESTS_UNIT_UNREADABLE_H_
#define NVCACHE_TESTS_UNIT_UNREADABLE_H_

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>

#include "src/sys/user_copy.h"

namespace nvcache::test {

class Unreadable {
 public:
  Unreadable() : page_(mmap(nullptr, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    struct sigaction action = {};
    action.sa_sigaction = EndCopy;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
  }
  ~Unreadable() { munmap(page_, kSize); }
  Unreadable(const Unreadable&) = delete;
  Unreadable& operator=(const Unreadable&) = delete;

  uint8_t* bytes() const { return static_cast<uint8_t*>(page_); }

 private:
  static constexpr size_t kSize = 4096;

  static void EndCopy(int, siginfo_t* fault, void* context) {
    auto& interrupted = *static_cast<ucontext_t*>(context);
    const uintptr_t landing = sys::UserFaultLanding(*fault, interrupted);
    if (landing == 0) _exit(99);
    interrupted.uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(landing);
  }

  void* page_;
};

}  // namespace nvcache::test

#endif  // NVCACHE_TESTS_UNIT_UNREADABLE_H_
