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

// x86-64 has pages of this size, too: memory that lies in one takes one page fault and one entry of
// the TLB where 4 KiB would take 512. A mapping of it has to begin at a multiple of this.
inline constexpr size_t kHugePage = 2u << 20;

// mmap, in `place` if there is one. The address, or a negated errno: then the place is lost, for
// nobody can say whether the kernel has given it to another thread.
long MapUnlocked(size_t bytes, int protection, int flags, int fd, void* place = nullptr);
// A place for MapUnlocked, at the boundary of a huge page if the address space has one at hand.
// nullptr: it has no room for so many bytes. Not for hugetlbfs, which takes more than it is asked
// for, and would take it from the program.
void* HugePlace(size_t bytes);
// Puts the kHugePage bytes at `address`, a multiple of that and mapped from a file in memory, into
// a huge page, for all who have them mapped at such an address. It takes milliseconds, in which
// whoever uses one of these pages may wait. 0, or a negated errno: EINVAL where the kernel cannot
// (before 6.1, or on a disk); others may be gone the next time. It takes no privileges, and the
// mount's option `huge` may say `never`.
long MakeHuge(void* address);
// For memory that somebody else has mapped for us.
void KeepUnlocked(void* address, size_t bytes);
// munmap of either, or before the caller's own munmap.
void UnmapUnlocked(void* address, size_t bytes);
void ForgetUnlocked(void* address);

// Memory that is zero, private, and not yet there. nullptr when the address space is refused.
void* Reserve(size_t bytes);
// Reserves tables that are used from the front and at random in large pages, where the kernel has
// them to give, since a miss of the TLB costs as much as half a page copy.
void* ReserveLarge(size_t bytes);

// mlockall and munlockall for the program, as if the mappings made here were not there: 0, or the
// kernel's error. One call at a time, and no other thread maps anything here meanwhile.
long LockAll(int flags);
long UnlockAll();

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_MEMORY_H_
