// SPDX-License-Identifier: BSD-3-Clause
//
// An open file that is closed with its owner.
#ifndef NVCACHE_MIRROR_CORE_DESCRIPTOR_H_
#define NVCACHE_MIRROR_CORE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace nvcache::mirror {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  bool IsOpen() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_CORE_DESCRIPTOR_H_
