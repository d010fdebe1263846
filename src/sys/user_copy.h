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

#include <cstddef>
#include <cstdint>

namespace nvcache::sys {

// Copies between the program's memory and ours; the two do not overlap. Returns how many bytes were
// copied: `n`, or those before the first that cannot be read or written. Never touches a byte of
// the destination beyond them.
size_t CopyUser(void* to, const void* from, size_t n) asm("nvcache_user_copy");

// How many of the `n` bytes can be read now: all, or those before the first page that cannot.
size_t ReadableUser(const void* from, size_t n);

// Where a thread must go on that took SIGSEGV or SIGBUS at the instruction `pc`; 0 if the fault is
// none of ours.
uintptr_t UserFaultLanding(uintptr_t pc);

// Chooses the instructions for this processor; until then, those that each has.
void InitializeUserCopy();

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_USER_COPY_H_
