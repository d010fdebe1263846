// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_DRAMCACHE_CURSOR_H_
#define NVCACHE_DRAMCACHE_CURSOR_H_

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/pool/format.h"
#include "src/sys/check.h"
#include "src/sys/scratch.h"
#include "src/sys/user_copy.h"

namespace nvcache::dramcache {

// The program's buffers, as one stream of bytes. They may not be there; the array that names them
// is a copy of ours.
class Cursor {
 public:
  Cursor(const iovec* iov, int count) : iov_(iov), end_(iov + count) { SkipEmpty(); }

  // Bytes that lie in one piece from here.
  size_t contiguous() const { return iov_->iov_len - at_; }
  uint8_t* here() const { return static_cast<uint8_t*>(iov_->iov_base) + at_; }

  void Advance(size_t n) {
    at_ += n;
    SkipEmpty();
  }
  // Where the next `n` bytes of a page are, if they lie in one piece; else a copy of them in `own`.
  // nullptr: a byte cannot be read.
  const uint8_t* Take(sys::Scratch<uint8_t[pool::kPageSize]>* own, size_t n) {
    if (contiguous() < n) return CopyOut(own->get(), n) ? own->get() : nullptr;
    const uint8_t* bytes = here();
    Advance(n);
    return bytes;
  }
  // False: a byte cannot be read. Those before it are in `to`.
  bool CopyOut(uint8_t* to, size_t n) {
    while (n > 0) {
      NVCACHE_CHECK(iov_ != end_);
      const size_t part = std::min(n, contiguous());
      if (sys::CopyFromUser(to, here(), part) != part) return false;
      Advance(part);
      to += part;
      n -= part;
    }
    return true;
  }
  // How many of the next `n` bytes can be read now.
  size_t Readable(size_t n) const {
    Cursor ahead = *this;
    size_t done = 0;
    while (done < n) {
      const size_t part = std::min(n - done, ahead.contiguous());
      const size_t readable = sys::ReadableUser(ahead.here(), part);
      done += readable;
      if (readable < part) break;
      ahead.Advance(part);
    }
    return done;
  }

 private:
  void SkipEmpty() {
    while (iov_ != end_ && at_ == iov_->iov_len) {
      ++iov_;
      at_ = 0;
    }
  }

  const iovec* iov_;
  const iovec* end_;
  size_t at_ = 0;
};

// Bytes in all, at most what one call may move (MAX_RW_COUNT of the kernel); or -1 if a buffer
// reaches into the kernel's half of the addresses, which the kernel refuses before it moves any.
inline int64_t TotalLength(const iovec* iov, int count) {
  constexpr uint64_t kMost = 0x7ffff000;
  uint64_t total = 0;
  for (int i = 0; i < count; ++i) {
    const auto begin = reinterpret_cast<uint64_t>(iov[i].iov_base);
    if (begin > INT64_MAX || iov[i].iov_len > INT64_MAX - begin) return -1;
    total = std::min(total + iov[i].iov_len, kMost);
  }
  return static_cast<int64_t>(total);
}

}  // namespace nvcache::dramcache

#endif  // NVCACHE_DRAMCACHE_CURSOR_H_
