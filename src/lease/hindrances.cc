// SPDX-License-Identifier: BSD-3-Clause
#include "src/lease/hindrances.h"

#include <fcntl.h>

#include <algorithm>

#include "src/lease/format.h"
#include "src/lease/slots.h"
#include "src/sys/kernel.h"
#include "src/sys/sharing.h"

namespace nvcache::lease {

namespace {

struct Words {
  const char* name;
  const char* meaning;
};
constexpr Words kWords[] = {
    {"chroot",
     "its root is not the machine's, so names are not in the log: mount the root on itself, or "
     "start it outside"},
    {"raw calls",
     "it can make system calls past libc, so its files stay the kernel's: NVCACHE_RAW"},
    {"streams", "this libc's streams are not caught, so files of fopen stay the kernel's"},
    {"io_uring", "it has made a ring, so its files stay the kernel's from then on"},
    {"seccomp", "it confines itself, so it goes on as a program without NVCache"},
    {"descriptor tables",
     "a thread has descriptors of its own, or a child has this process's: its files stay the "
     "kernel's"},
    {"fanotify", "it answers for others' opens, so its files stay the kernel's"},
    {"rights", "it has changed its user, group or capabilities: it caches no further file"},
    {"descriptors", "its limit of open files is too low for our own: raise it (ulimit -n)"},
    {"threads", "it got no memory or no thread for the cache: look at its limits"},
    {"outside writer", "a program without NVCache has written to a file of it: see limits.md"},
    {"memory", "a control group has little memory left, so it has fewer page frames"},
    {"interposer",
     "a library behind ours handles paths, so names are left to the file system: limits.md"},
};
static_assert(sizeof(kWords) / sizeof(kWords[0]) == kHindrances);

// Every file has kFirstSize bytes. Those in which nobody has said anything are a hole.
bool ReadAt(int fd, void* out, size_t bytes, size_t offset) {
  return sys::Pread(fd, out, bytes, offset) == static_cast<long>(bytes);
}

}  // namespace

const char* NameOf(Hindrance hindrance) { return kWords[static_cast<uint32_t>(hindrance)].name; }

const char* MeaningOf(Hindrance hindrance) {
  return kWords[static_cast<uint32_t>(hindrance)].meaning;
}

// A child that shares our memory has no slot. The life comes last: a reader that finds it finds all
// of the rest, but for what is said just then.
bool Slots::Say(Hindrance hindrance, uint64_t pool, const char* detail) {
  const uint32_t bit = 1u << static_cast<uint32_t>(hindrance);
  if (!is_open() || slot_ == kMaxProcesses || sys::IsSharing() || HasSaid(hindrance)) return false;
  const sys::Lock lock(saying_);
  if ((said_.fetch_or(bit) & bit) != 0) return false;
  Hindrances& own = shared_->hindrances[slot_];
  const size_t offset = offsetof(Shared, hindrances) + slot_ * sizeof(Hindrances);
  if (lost() || !Back(offset / kPage * kPage, kPage)) return true;
  if (own.life.load() != life_) {
    own.life.store(0);
    own.said.store(0);
    own.detail[0] = '\0';
    own.pid = static_cast<uint32_t>(sys::Getpid());
    own.pool = pool;
  }
  if (own.detail[0] == '\0') {
    size_t n = 0;
    for (; detail[n] != '\0' && n + 1 < sizeof(own.detail); ++n) own.detail[n] = detail[n];
    own.detail[n] = '\0';
  }
  own.said.fetch_or(bit);
  own.life.store(life_);
  return true;
}

uint32_t CountSlots(int fd) {
  uint64_t header[2] = {};
  static_assert(offsetof(Shared, format) == 0 && offsetof(Shared, mark) == 8);
  if (!ReadAt(fd, header, sizeof(header), 0) || header[0] != kFormat) return 0;
  return std::min(static_cast<uint32_t>(header[1] % (1u << kMarkBits)), kMaxProcesses);
}

bool ReadHindrances(int fd, uint32_t slot, Hindrances* found) {
  uint32_t life = 0;
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_start = static_cast<off_t>(slot);
  lock.l_len = 1;
  const size_t at = offsetof(Shared, slots) + slot * sizeof(Slot) + offsetof(Slot, life);
  return ReadAt(fd, &life, sizeof(life), at) && IsInUse(life) &&
         ReadAt(fd, found, sizeof(*found), offsetof(Shared, hindrances) + slot * sizeof(*found)) &&
         found->life.load() == life && found->said.load() != 0 &&
         sys::Fcntl(fd, F_OFD_GETLK, sys::Address(&lock)) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace nvcache::lease
