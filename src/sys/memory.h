// SPDX-License-Identifier: BSD-3-Clause
//
// Address space of the engine's, most of which is never used, in a program that may lock its
// memory: mlockall() would put memory behind all of it.
//
// No mapping that is made here is locked. The kernel is not told so (a mapping cannot be left out),
// so a front end hands each mlockall() of the program to LockAll(), which locks the program's
// mappings one by one. After MCL_FUTURE, MapUnlocked unlocks a mapping before a thread can touch
// it.
#ifndef NVCACHE_SYS_MEMORY_H_
#define NVCACHE_SYS_MEMORY_H_

#include <cstddef>

namespace nvcache::sys {

// mmap. The address, or a negated errno.
long MapUnlocked(size_t bytes, int protection, int flags, int fd);
// For memory that somebody else has mapped for us.
void KeepUnlocked(void* address, size_t bytes);
// munmap of either, or before the caller's own munmap.
void UnmapUnlocked(void* address, size_t bytes);
void ForgetUnlocked(void* address);

// Memory that is zero, private, and not yet there. nullptr when the address space is refused.
void* Reserve(size_t bytes);
// The same for tables that are used from the front and at random: in large pages where the kernel
// has them to give, since a miss of the TLB costs as much as half a page copy.
void* ReserveLarge(size_t bytes);

// mlockall and munlockall for the program, as if the mappings made here were not there: 0, or the
// kernel's error. One call at a time, and no other thread maps anything here meanwhile.
long LockAll(int flags);
long UnlockAll();

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_MEMORY_H_
