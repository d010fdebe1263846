// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/memory.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdint>

#include "src/sys/early.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"

#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif
#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif

namespace nvcache::sys {

namespace {

// The mappings made here. A place is taken by its `bytes`, and counts once it has a beginning. When
// all are taken, the rest is locked as the program's own.
struct Range {
  std::atomic<size_t> bytes;
  std::atomic<uintptr_t> begin;
};
constexpr size_t kMaxRanges = 64;
NVCACHE_EARLY constinit Range ranges[kMaxRanges] = {};

// The program has asked for MCL_FUTURE.
NVCACHE_EARLY constinit std::atomic<bool> locks_future{false};

void Unlock(uintptr_t begin, size_t bytes) {
  Call(SYS_munlock, static_cast<long>(begin), static_cast<long>(bytes));
}

void Remember(uintptr_t begin, size_t bytes) {
  for (Range& range : ranges) {
    size_t none = 0;
    if (!range.bytes.compare_exchange_strong(none, bytes)) continue;
    range.begin.store(begin);
    return;
  }
}

// The lines of /proc/self/maps.
class Maps {
 public:
  Maps() : fd_(static_cast<int>(Openat(AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC))) {}
  ~Maps() {
    if (fd_ >= 0) Close(fd_);
  }
  Maps(const Maps&) = delete;
  Maps& operator=(const Maps&) = delete;

  bool is_open() const { return fd_ >= 0; }
  bool Next(uintptr_t* begin, uintptr_t* end) {
    *begin = Hexadecimal();
    *end = Hexadecimal();
    for (int c = last_; c >= 0 && c != '\n';) c = Get();
    return *end > *begin;
  }

 private:
  int Get() {
    if (at_ == filled_) {
      const long n = Read(fd_, buffer_.get(), buffer_.size());
      if (n <= 0) return -1;
      at_ = 0;
      filled_ = static_cast<size_t>(n);
    }
    return buffer_.get()[at_++];
  }
  // Up to the next other character.
  uintptr_t Hexadecimal() {
    uintptr_t value = 0;
    for (;;) {
      last_ = Get();
      if (last_ >= '0' && last_ <= '9') {
        value = value * 16 + static_cast<uintptr_t>(last_ - '0');
      } else if (last_ >= 'a' && last_ <= 'f') {
        value = value * 16 + static_cast<uintptr_t>(last_ - 'a' + 10);
      } else {
        return value;
      }
    }
  }

  const int fd_;
  int last_ = -1;
  size_t at_ = 0;
  size_t filled_ = 0;
  Scratch<char[kScratchSize]> buffer_;
};

// The first of ours that ends behind `at`. False: there is none.
bool FindBehind(uintptr_t at, uintptr_t* begin, uintptr_t* end) {
  *begin = UINTPTR_MAX;
  for (const Range& range : ranges) {
    const uintptr_t first = range.begin.load();
    const uintptr_t last = first + range.bytes.load();
    if (first == 0 || last <= at || first >= *begin) continue;
    *begin = first;
    *end = last;
  }
  return *begin != UINTPTR_MAX;
}

// Calls function(begin, end) for each mapping that is not ours. The kernel makes one mapping of
// neighbours. False: that cannot be found out.
template <typename Function>
bool ForEachOfProgram(Function function) {
  Maps maps;
  if (!maps.is_open()) return false;
  for (uintptr_t at, end; maps.Next(&at, &end);) {
    while (at < end) {
      uintptr_t ours, behind_ours;
      if (!FindBehind(at, &ours, &behind_ours) || ours >= end) ours = behind_ours = end;
      if (ours > at) function(at, ours);
      at = behind_ours;
    }
  }
  return true;
}

bool MayLockAnything() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (Call(SYS_capget, Address(&header), Address(data)) < 0) return false;
  return (data[0].effective & (1u << CAP_IPC_LOCK)) != 0;
}

// The kernel's error, were there only the program's mappings; or 0.
long Objection(uint64_t bytes) {
  if (MayLockAnything()) return 0;
  const uint64_t limit = SoftLimit(RLIMIT_MEMLOCK);
  if (limit == 0) return -EPERM;
  return bytes > limit ? -ENOMEM : 0;
}

// The kernel locks all, and we take ours out again.
long LockAndUnlock(int flags) {
  const long result = Call(SYS_mlockall, flags);
  for (const Range& range : ranges) {
    if (range.begin.load() != 0) Unlock(range.begin.load(), range.bytes.load());
  }
  return result;
}

}  // namespace

// Linux has such a place from 6.7 on. It looks for one from the top down: so what an older one has
// given, and is free again, has room below.
void* HugePlace(size_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  long place = Mmap(nullptr, bytes, PROT_NONE, kFlags, -1, 0);
  const long beyond = place % static_cast<long>(kHugePage);
  if (!IsError(place) && beyond != 0) {
    Munmap(reinterpret_cast<void*>(place), bytes);
    place = Mmap(reinterpret_cast<void*>(place - beyond), bytes, PROT_NONE, kFlags, -1, 0);
  }
  if (IsError(place)) return nullptr;
  // Else what is mapped there counts twice.
  if (locks_future.load(std::memory_order_relaxed)) Unlock(static_cast<uintptr_t>(place), bytes);
  return reinterpret_cast<void*>(place);
}

long MakeHuge(void* address) {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE
  return Madvise(address, kHugePage, kCollapse);
}

long MapUnlocked(size_t bytes, int protection, int flags, int fd, void* place) {
  const bool locked = locks_future.load(std::memory_order_relaxed);
  if (place != nullptr) flags |= MAP_FIXED;
  // Without access nothing is put behind it.
  const long address = Mmap(place, bytes, locked ? PROT_NONE : protection, flags, fd, 0);
  if (IsError(address)) return address;
  const auto begin = static_cast<uintptr_t>(address);
  if (locked) {
    Unlock(begin, bytes);
    const long error = Call(SYS_mprotect, address, static_cast<long>(bytes), protection);
    if (error < 0) {
      Munmap(reinterpret_cast<void*>(address), bytes);
      return error;
    }
  }
  Remember(begin, bytes);
  return address;
}

void KeepUnlocked(void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  if (locks_future.load(std::memory_order_relaxed)) Unlock(begin, bytes);
  Remember(begin, bytes);
}

void UnmapUnlocked(void* address, size_t bytes) {
  ForgetUnlocked(address);
  Munmap(address, bytes);
}

void ForgetUnlocked(void* address) {
  for (Range& range : ranges) {
    if (range.begin.load() != reinterpret_cast<uintptr_t>(address)) continue;
    range.begin.store(0);
    range.bytes.store(0);
    return;
  }
}

void* Reserve(size_t bytes) {
  const long address =
      MapUnlocked(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  return IsError(address) ? nullptr : reinterpret_cast<void*>(address);
}

void* ReserveLarge(size_t bytes) {
  void* memory = Reserve(bytes);
  if (memory != nullptr) Madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

// Errors of one mapping (nobody may access it, its file has no more bytes) are none of mlockall's.
long LockAll(int flags) {
  const bool current = (flags & MCL_CURRENT) != 0;
  const bool future = (flags & MCL_FUTURE) != 0;
  if (!current || (flags & ~(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)) != 0) {
    const long result = Call(SYS_mlockall, flags);
    if (result == 0) locks_future.store(future);
    return result;
  }
  uint64_t bytes = 0;
  const bool known =
      ForEachOfProgram([&](uintptr_t begin, uintptr_t end) { bytes += end - begin; });
  if (!known) {
    const long result = LockAndUnlock(flags);
    if (result == 0) locks_future.store(future);
    return result;
  }
  if (const long error = Objection(bytes); error < 0) return error;
  if (future) {
    if (const long error = Call(SYS_mlockall, flags & ~MCL_CURRENT); error < 0) return error;
  } else if (locks_future.load()) {
    Call(SYS_munlockall);  // else it would last
  }
  locks_future.store(future);
  const long how = (flags & MCL_ONFAULT) != 0 ? MLOCK_ONFAULT : 0;
  ForEachOfProgram([&](uintptr_t begin, uintptr_t end) {
    Call(SYS_mlock2, static_cast<long>(begin), static_cast<long>(end - begin), how);
  });
  return 0;
}

long UnlockAll() {
  const long result = Call(SYS_munlockall);
  if (result == 0) locks_future.store(false);
  return result;
}

}  // namespace nvcache::sys
