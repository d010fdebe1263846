// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_VFS_CURSOR_H_
#define NVCACHE_VFS_CURSOR_H_

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "src/sys/check.h"

namespace nvcache::vfs {

// The program's buffers, as one stream of bytes.
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
  void CopyOut(uint8_t* to, size_t n) {
    while (n > 0) {
      NVCACHE_CHECK(iov_ != end_);
      const size_t part = std::min(n, contiguous());
      std::memcpy(to, here(), part);
      Advance(part);
      to += part;
      n -= part;
    }
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

// Bytes in all, at most what one call may move (MAX_RW_COUNT of the kernel); or -1 if a length is
// beyond what a result can say.
inline int64_t TotalLength(const iovec* iov, int count) {
  constexpr uint64_t kMost = 0x7ffff000;
  uint64_t total = 0;
  for (int i = 0; i < count; ++i) {
    if (iov[i].iov_len > INT64_MAX || total + iov[i].iov_len > INT64_MAX) return -1;
    total += iov[i].iov_len;
  }
  return static_cast<int64_t>(std::min(total, kMost));
}

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_CURSOR_H_
