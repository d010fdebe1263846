// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_REPLAY_DESCRIPTOR_H_
#define NVCACHE_REPLAY_DESCRIPTOR_H_

#include <cstdint>

#include "src/sys/kernel.h"
#include "src/sys/text.h"

namespace nvcache::replay {

// The name of what it is open to.
using FdLink = sys::Text<32>;
inline FdLink LinkTo(long fd) {
  FdLink link;
  link.Append(NVCACHE_DESCRIPTORS "/").AppendNumber(static_cast<uint64_t>(fd));
  return link;
}

// Is closed at the end; or says why it could not be opened.
class Descriptor {
 public:
  explicit Descriptor(long fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) sys::Close(static_cast<int>(fd_));
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  bool ok() const { return fd_ >= 0; }
  long error() const { return fd_; }
  int get() const { return static_cast<int>(fd_); }
  long Release() {
    const long fd = fd_;
    fd_ = -1;
    return fd;
  }
  void Take(Descriptor& other) { Reset(other.Release()); }
  void Reset(long fd) {
    if (fd_ >= 0) sys::Close(static_cast<int>(fd_));
    fd_ = fd;
  }

 private:
  long fd_;
};

}  // namespace nvcache::replay

#endif  // NVCACHE_REPLAY_DESCRIPTOR_H_
