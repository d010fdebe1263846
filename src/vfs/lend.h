// SPDX-License-Identifier: BSD-3-Clause
//
// Use of a file by others where no call of the program's shows it.
#ifndef NVCACHE_VFS_LEND_H_
#define NVCACHE_VFS_LEND_H_

#include <sys/types.h>

#include <cstddef>

namespace nvcache::vfs {

struct File;

// There are four cases, by descriptor; where the
// file system refuses the pending bytes of a cached file, the answer is its negated errno: then the
// file is still cached, and the program's call must fail. -EBADF: the descriptor is internal.
//
//   Publish      they look at its bytes once, before the program's next call is over
//   Lend         they look for as long as they like: it is the kernel's, and not cached any more
//   HandOn       they get the descriptor. If it can write, also: nobody takes the file for known as
//                long as a process has it open that has it open now (docs/write-through.md)
//   PassThrough  they change it, or one that does cannot be seen: it is pass-through
//
// Each until the last close here, or `forever`, if their use outlives that (a mapping).
void Publish(int fd);  // and has the kernel know the offset
long Lend(int fd, bool forever = false);
long HandOn(int fd, bool forever = false);
long PassThrough(int fd, bool forever = false);

// They take a tracked file by its name, following symbolic links, before it is opened where we
// cannot see.
long LendPath(int dirfd, const char* path, bool forever = false);
long PassThroughPath(int dirfd, const char* path);

// PassThrough, for ever, of a file that the kernel is given by its name, to use it by itself
// (swapon): no other process caches it, either.
long GiveAwayPath(int dirfd, const char* path);

// Around a real mmap of a descriptor: lent for ever, or passed through, if it is written by the
// mapping. One that is not may be later: then Protect, Unmap and Remap hear of that.
class MapGuard {
 public:
  MapGuard(int fd, bool shared, int protection);
  MapGuard(const MapGuard&) = delete;
  MapGuard& operator=(const MapGuard&) = delete;
  long error() const { return error_; }
  void Mapped(const void* address, size_t length) const;

 private:
  long error_;
  File* file_ = nullptr;
};
// Before mprotect. 0, or the error with which it must fail.
long Protect(const void* address, size_t length, int protection);
// In place of munmap and mremap.
long Unmap(void* address, size_t length);
long Remap(void* address, size_t length, size_t new_length, int flags, void* new_address);

void PublishPath(int dirfd, const char* path, bool follow);
void PublishAll();  // for calls that look at files whose names we do not learn

// After a real call that may have moved the kernel's offset of `fd` (sendfile): takes it over.
void TakeOffset(int fd);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_LEND_H_
