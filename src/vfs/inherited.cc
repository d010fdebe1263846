// SPDX-License-Identifier: BSD-3-Clause
#include <dirent.h>
#include <poll.h>

#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/vfs/descriptors.h"
#include "src/vfs/engine/engine.h"

namespace nvcache::vfs {

namespace {

constexpr int kAsked = 256;  // descriptors that are asked for by their numbers

// Whether the kernel's table may have this number, which is not open. select() leaves out those
// that lie beyond the table, and says of any other that it is not open.
bool TableHas(int number) {
  constexpr int kBits = 64;
  uint64_t wanted[kAsked / kBits + 1] = {};
  wanted[number / kBits] = uint64_t{1} << number % kBits;
  timeval at_once = {};
  return sys::Call(SYS_select, number + 1, sys::Address(wanted), 0, 0, sys::Address(&at_once)) != 0;
}

// The open ones of so many numbers from `first` on, a bit each; all, where the kernel does not say.
// `*next`: the one behind them is open.
constexpr int kAtOnce = sys::kFirstTable;
uint64_t OpenFrom(int first, bool* next) {
  static_assert(kAtOnce == 64 && kAsked % kAtOnce == 0);
  pollfd asked[kAtOnce + 1] = {};
  for (int i = 0; i <= kAtOnce; ++i) asked[i].fd = first + i;
  if (sys::Call(SYS_poll, sys::Address(asked), kAtOnce + 1, 0) < 0) {
    *next = sys::Fcntl(first + kAtOnce, F_GETFD) >= 0;
    return ~uint64_t{0};
  }
  uint64_t open = 0;
  for (int i = 0; i < kAtOnce; ++i) {
    if ((asked[i].revents & POLLNVAL) == 0) open |= uint64_t{1} << i;
  }
  *next = (asked[kAtOnce].revents & POLLNVAL) == 0;
  return open;
}

void ListInherited() {
  const long directory =
      sys::Openat(AT_FDCWD, NVCACHE_DESCRIPTORS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  sys::Scratch<char[sys::kScratchSize]> scratch;
  const char* buffer = scratch.get();
  for (;;) {
    const long n =
        sys::Call(SYS_getdents64, directory, sys::Address(buffer), long{sys::kScratchSize});
    if (n <= 0) break;
    for (long at = 0; at < n;) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
      at += entry->d_reclen;
      int fd = 0;
      for (const char* p = entry->d_name; *p != '\0'; ++p) {
        fd = *p >= '0' && *p <= '9' ? fd * 10 + (*p - '0') : INT32_MIN;
        if (fd < 0) break;
      }
      if (fd >= 0 && fd != directory && engine.descriptors.Of(fd) == kUntracked) Adopt(fd);
    }
  }
  sys::Close(static_cast<int>(directory));
}

}  // namespace

// Descriptors from before us are shared with the process that gave them to us: never cached. Most
// programs have three, and the kernel a table of 64 for them. To list them, by /proc, takes as long
// as four hundred calls.
void AdoptInherited() {
  int end = kAtOnce;
  for (int first = 0; first < end; first += kAtOnce) {
    bool next = false;
    const uint64_t found = OpenFrom(first, &next);
    if (first + kAtOnce == end && (next || TableHas(end))) {
      if (end == kAsked) return ListInherited();
      end *= 2;
    }
    for (uint64_t open = found; open != 0; open &= open - 1) {
      const int fd = first + __builtin_ctzll(open);
      struct stat st;
      if (engine.descriptors.Of(fd) == Internal()) continue;
      if (sys::Fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) Adopt(fd);
    }
  }
}

}  // namespace nvcache::vfs
