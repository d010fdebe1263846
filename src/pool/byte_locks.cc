// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/byte_locks.h"

#include <fcntl.h>

#include "src/sys/kernel.h"

namespace nvcache::pool {

namespace {

struct flock LockOf(uint32_t first, uint32_t count, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(kLifeOffset + first);
  lock.l_len = count;
  return lock;
}

}  // namespace

bool HoldByte(int fd, uint32_t byte, bool shared) {
  struct flock lock = LockOf(byte, 1, shared ? F_RDLCK : F_WRLCK);
  return sys::Fcntl(fd, F_OFD_SETLK, sys::Address(&lock)) == 0;
}

void ReleaseByte(int fd, uint32_t byte) {
  struct flock lock = LockOf(byte, 1, F_UNLCK);
  sys::Fcntl(fd, F_OFD_SETLK, sys::Address(&lock));
}

bool AreBytesHeld(int fd, uint32_t first, uint32_t count) {
  struct flock lock = LockOf(first, count, F_WRLCK);
  return sys::Fcntl(fd, F_OFD_GETLK, sys::Address(&lock)) < 0 || lock.l_type != F_UNLCK;
}

}  // namespace nvcache::pool
