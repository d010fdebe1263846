// SPDX-License-Identifier: BSD-3-Clause
//
// Memory of the program, which may not be there. The kernel answers a bad pointer with EFAULT; we
// touch the memory ourselves, so the processor raises SIGSEGV (or SIGBUS: a mapped file is shorter
// than its mapping). The only instructions that may do so are the few in user_copy.cc and
// user_stream.cc: a front end whose signal handler asks UserFaultLanding() gets the kernel's answer
// for it. In one that has no such handler, a bad pointer ends the program. Memory that is there
// costs nothing but its copy.
#ifndef NVCACHE_SYS_USER_COPY_H_
#define NVCACHE_SYS_USER_COPY_H_

#include <signal.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>

namespace nvcache::sys {

// Copy between the program's memory and ours; the two do not overlap. Return how many bytes were
// copied: `n`, or those before the first of the program's that cannot be read or written. Never
// touch a byte of the destination beyond them. A fault on our own side (the stack has overflowed)
// is no bad pointer of the program's: the program is told of it as of any other.
size_t CopyFromUser(void* to, const void* user, size_t n) asm("nvcache_copy_from_user");
size_t CopyToUser(void* user, const void* from, size_t n) asm("nvcache_copy_to_user");

// How many of the `n` bytes can be read now: all, or those before the first page that cannot.
size_t ReadableUser(const void* from, size_t n);

// Where a thread must go on that took SIGSEGV or SIGBUS so; 0 if the fault is not one of the
// copies' on the program's side.
uintptr_t UserFaultLanding(const siginfo_t& fault, const ucontext_t& context);

// Chooses the instructions for this processor; until then, those that each has. Any time.
void InitializeUserCopy();

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_USER_COPY_H_
