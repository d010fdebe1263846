// SPDX-License-Identifier: BSD-3-Clause
//
// Descriptors that the engine and the tools open for themselves. A program expects the lowest free
// numbers for its own (I12), so the engine's go where it rarely comes.
#ifndef NVCACHE_SYS_DESCRIPTOR_H_
#define NVCACHE_SYS_DESCRIPTOR_H_

#include <linux/close_range.h>
#include <linux/sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "src/sys/kernel.h"
#include "src/sys/text.h"

namespace nvcache::sys {

// Is closed with its owner; or says why it could not be opened.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(long fd) : fd_(fd) {}  // or a negated errno
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    const Descriptor closed(std::exchange(fd_, other.Release()));
    return *this;
  }
  ~Descriptor() {
    if (IsOpen()) Close(get());
  }

  bool IsOpen() const { return fd_ >= 0; }
  int get() const { return static_cast<int>(fd_); }
  long error() const { return fd_; }
  long Release() { return std::exchange(fd_, -1); }

 private:
  long fd_ = -1;
};

// The name of what a descriptor is open to. A negative one names nothing.
using FdLink = Text<32>;
inline FdLink LinkTo(long fd) {
  FdLink link;
  link.Append(NVCACHE_DESCRIPTORS "/");
  if (fd >= 0) link.AppendNumber(static_cast<uint64_t>(fd));
  return link;
}
// Reads the path of what the descriptor is open to: at most `n` bytes, without a zero behind them.
// Its length, or a negated errno.
inline long ReadLinkTo(int fd, char* path, size_t n) {
  return Readlinkat(AT_FDCWD, LinkTo(fd).c_str(), path, n);
}

// Moves `fd` to the lowest free number from `from` on, close-on-exec, and returns it. Locks by
// flock go along. Where there is no room, `fd` stays what it is.
inline int MoveTo(int fd, long from) {
  const long moved = Fcntl(fd, F_DUPFD_CLOEXEC, from);
  if (moved < 0) return fd;
  Close(fd);
  return static_cast<int>(moved);
}

// The kernel's table of descriptors is as long as the highest number, and each child gets a copy of
// it, one of vfork as well: with 4,096 numbers, that takes a third as long as the vfork itself. It
// begins with 64.
inline constexpr int kFirstTable = 64;
inline constexpr uint64_t kHighest = 512;

// To three quarters of the limit, but not higher than kHighest.
inline uint64_t HighFrom(uint64_t limit) { return std::min(limit, kHighest) * 3 / 4; }
inline int MoveHigh(int fd) {
  return MoveTo(fd, static_cast<long>(HighFrom(SoftLimit(RLIMIT_NOFILE))));
}

// A descriptor that all processes have, or many, lies in the first table, if there is room: a
// process with threads, ours included, waits 10 ms and more for the kernel (synchronize_rcu) when
// its table grows. The pool lies below the leases' file: when a process dies, the kernel closes
// them in the order of their numbers. (bash takes those from 63 downwards.)
// Where the limit is lower, they are the last ones below it, in the same order.
inline constexpr int kPoolNumber = 48, kThroughNumber = 52, kLeasesNumber = 56;
// Folders that are kept open, where these are free.
inline constexpr int kFolderNumber = 53;
inline int MoveLow(int fd, int from) {
  int low = MoveTo(fd, from);
  if (low == fd) {
    const auto limit = static_cast<long>(std::min(SoftLimit(RLIMIT_NOFILE), kHighest));
    low = MoveTo(fd, limit - 1 - (kLeasesNumber - from) / 4);
  }
  return low != fd && low < kFirstTable ? low : MoveHigh(low);
}

// POSIX locks are those of a table of descriptors: whoever closes a file in it drops them all. So
// what opens and closes the program's files does so in another table: that of a thread that calls
// this, with the process's descriptors 0 to 2 (someone may have words to say), `kept` and `other`
// in it, unless that is -1, and no others. False: the thread may have none.
inline bool LeaveTable(int kept, int other) {
  constexpr long kFirst = 3, kLast = ~0u;
  const auto [low, high] = std::minmax(kept, other < 0 ? kept : other);
  // The kernel copies nothing above; where that is refused, all.
  if (Call(SYS_close_range, high + 1, kLast, CLOSE_RANGE_UNSHARE) < 0 &&
      Call(SYS_unshare, CLONE_FILES) < 0) {
    return false;
  }
  if (high > low + 1) Call(SYS_close_range, low + 1, high - 1, 0);
  if (low > kFirst) Call(SYS_close_range, kFirst, low - 1, 0);
  return true;
}

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_DESCRIPTOR_H_
