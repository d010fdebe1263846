// SPDX-License-Identifier: BSD-3-Clause
//
// A journal's file: its headers, and whether a file system can carry one.
#ifndef NVCACHE_JOURNAL_FILE_H_
#define NVCACHE_JOURNAL_FILE_H_

#include <cstddef>
#include <cstdint>

#include "src/journal/format.h"

namespace nvcache::journal {

// Memory for reads and writes past the page cache: whole pages, unmapped at the end.
class Buffer {
 public:
  explicit Buffer(size_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  // nullptr: there is no memory.
  uint8_t* get() const { return bytes_; }

 private:
  uint8_t* bytes_ = nullptr;
  size_t size_;
};

// Opens it, past the page cache. Or a negated errno.
long Open(const char* path, bool for_writing);
// The newest whole header of the file behind `fd`, by the page cache. 0; -EINVAL: it is no journal;
// -EPROTO: one of another version; -EBADMSG: neither header is whole, or the file is
// shorter than it says; or the kernel's error.
long ReadHeader(int fd, Header* header);
// The same, and `fd` is from Open().
long ReadHeaderAgain(int fd, Header* header);
// Stores it, durably, beside the one before. `fd` is from Open().
long WriteHeader(int fd, Header header);
// Writes all of a batch, or a header, once, durably. `how`: Header::how. 0, or a negated errno.
long Write(int fd, const uint8_t* bytes, uint64_t n, uint64_t place, uint32_t how = kWriteThrough);
// Tries both ways with zeros, in a file full of zeros. The faster one, and how long it took.
struct Speed {
  uint32_t how;
  uint64_t ns;  // the median
};
Speed Measure(int fd);

// nullptr, or why no journal can lie on the file system of `fd`.
const char* WhyNot(int fd);
// Fills the file with zeros, past the page cache, and syncs it. Blocks that were never written
// would cost a change of the file system's own with each write. `fd` is of any kind.
long FillWithZeros(int fd, uint64_t bytes);

}  // namespace nvcache::journal

#endif  // NVCACHE_JOURNAL_FILE_H_
