// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/capture.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "src/pool/format.h"
#include "src/pool/identify.h"
#include "src/pool/pool.h"
#include "src/sys/kernel.h"
#include "tests/crash/machine.h"
#include "tests/crash/medium.h"
#include "tests/kit/files.h"

namespace nvcache::crash {

namespace {

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "crash: the recording failed: %s\n", what);
  std::_Exit(3);
}

uint16_t ThisThread() {
  static std::atomic<uint16_t> count{0};
  thread_local const uint16_t number = count++;
  return number;
}

constexpr uint16_t kNoThread = 0xffff;
constexpr uint64_t kStatisticsEnd = pool::kStatisticsOffset + sizeof(pool::Statistics);

bool IsVolatile(uint64_t at) { return at >= pool::kSharedOffset && at < pool::kSegmentsOffset; }

}  // namespace

Capture::Capture(const std::string& scenario, uint64_t seed, const std::string& pool) {
  trace_.scenario = scenario;
  trace_.seed = seed;
  trace_.pool = shadow_ = kit::Slurp(pool);
  struct stat st = {};
  if (::stat(pool.c_str(), &st) != 0) Die("there is no pool");
  pool_inode_ = st.st_ino;
  Listen(this);
}

Capture::~Capture() { Listen(nullptr); }

uint16_t Capture::Who() const {
  return static_cast<uint16_t>(process_ * kThreadsOfProcess + ThisThread());
}

bool Capture::InPool(const uint8_t* address, uint64_t* at) const {
  for (const uint8_t* base : bases_) {
    *at = static_cast<uint64_t>(address - base);
    if (address >= base && address < base + shadow_.size()) return true;
  }
  return false;
}

Trace Capture::Finish() {
  Listen(nullptr);
  std::lock_guard lock(lock_);  // somebody may still be on the way
  finished_ = true;
  return trace_;
}

Identity Capture::IdentityOf(int fd, const std::string& path) {
  pool::FileRecord record = {};
  if (pool::Identify(fd, &record) < 0) Die("a file cannot be identified");
  Identity id;
  id.device = record.device, id.inode = record.inode;
  id.birth_seconds = record.birth_seconds, id.birth_nanoseconds = record.birth_nanoseconds;
  id.mode = record.mode, id.uid = record.uid, id.gid = record.gid;
  id.file_system = record.file_system, id.handle_type = record.handle_type;
  id.handle.assign(reinterpret_cast<const char*>(record.handle), record.handle_size);
  id.path = path;
  return id;
}

uint32_t Capture::Watch(int fd, const std::string& path, bool exists) {
  const Identity id = IdentityOf(fd, path);
  std::lock_guard lock(lock_);
  const auto number = static_cast<uint32_t>(trace_.files.size());
  trace_.files.push_back({id, exists, exists ? kit::Slurp(path) : "", false});
  by_inode_[id.inode] = number;
  if (!exists) Note(Event::kNamed, number);
  return number;
}

void Capture::Cut(uint32_t file) {
  std::lock_guard lock(lock_);
  Note(Event::kTruncate, file);
}

void Capture::RefuseWrites(uint32_t file, int error) {
  std::lock_guard lock(lock_);
  write_errors_[static_cast<int>(file)] = error;
}

void Capture::RefuseSyncs(uint32_t file, int error) {
  std::lock_guard lock(lock_);
  sync_errors_[static_cast<int>(file)] = error;
}

uint32_t Capture::Begin(Operation operation, const std::string& bytes) {
  std::lock_guard lock(lock_);
  if (operation.kind != Operation::kErase) operation.length = static_cast<uint32_t>(bytes.size());
  operation.data = trace_.Keep(bytes.data(), bytes.size());
  trace_.operations.push_back(operation);
  const auto number = static_cast<uint32_t>(trace_.operations.size() - 1);
  Note(Event::kBegin, number);
  return number;
}

void Capture::End(uint32_t number) {
  std::lock_guard lock(lock_);
  Note(Event::kEnd, number);
}

// What the processes share is stored past us. Whoever is killed at this event has stored it before.
void Capture::Add(const Event& event) {
  if (finished_) return;
  NoteVolatile();
  trace_.events.push_back(event);
}

void Capture::Store(uint8_t* to, const uint8_t* from, size_t n) {
  std::lock_guard lock(lock_);
  if (n == 8 && reinterpret_cast<uintptr_t>(to) % 8 == 0) {
    uint64_t word;
    std::memcpy(&word, from, sizeof(word));
    std::atomic_ref(*reinterpret_cast<uint64_t*>(to)).store(word);
  } else {
    std::memcpy(to, from, n);
  }
  uint64_t begin = 0;
  if (!InPool(to, &begin) || IsVolatile(begin)) return;
  std::memcpy(shadow_.data() + begin, from, n);
  if (begin >= pool::kStatisticsOffset && begin < kStatisticsEnd) {
    return;  // they are never written back; each image has other ones
  }
  NoteStore(begin, from, n);
}

void Capture::Pwb(const uint8_t* address, size_t n, Step step) {
  std::lock_guard lock(lock_);
  uint64_t begin = 0;
  if (InPool(address, &begin)) NotePwb(begin, n, step);
}

void Capture::Fence(Step step) {
  if (step == awaited_) {
    if (const auto first = std::exchange(before_, {})) first();
  }
  std::lock_guard lock(lock_);
  if (bases_.empty()) return;
  CompareShadow();
  Note(Event::kFence, 0, 0, 0, 0, step);
}

// Counters, and what the processes share, are stored as they like.
void Capture::CompareShadow() {
  NoteVolatile();
  const auto same = [this](uint64_t from, uint64_t to) {
    return std::memcmp(&shadow_[from], bases_.front() + from, to - from) == 0;
  };
  if (same(0, pool::kStatisticsOffset) && same(kStatisticsEnd, pool::kSharedOffset) &&
      same(pool::kSegmentsOffset, shadow_.size())) {
    return;
  }
  Die("something was stored in the pool that did not go through src/pmem/persist.h");
}

void Capture::NoteVolatile() {
  if (bases_.empty()) return;
  for (uint64_t at = pool::kSharedOffset; at < kVolatileEnd; at += kLine) {
    const uint8_t* line = bases_.front() + at;
    if (std::memcmp(shadow_.data() + at, line, kLine) == 0) continue;
    std::memcpy(shadow_.data() + at, line, kLine);
    trace_.events.push_back(
        {Event::kVolatile, {}, kNoThread, 0, at, kLine, trace_.Keep(&shadow_[at], kLine)});
  }
}

int Capture::FileOf(long fd) const {
  struct stat st = {};
  if (sys::CallKernel(SYS_fstat, fd, sys::Address(&st), 0, 0, 0, 0) != 0) return -1;
  const auto found = by_inode_.find(st.st_ino);
  const bool known =
      found != by_inode_.end() && trace_.files[found->second].identity.device == st.st_dev;
  return known ? static_cast<int>(found->second) : -1;
}

long Capture::Sync(long number, long fd, int file) {
  const auto f = static_cast<uint32_t>(file);
  if (awaited_ == Step::kCount) {
    if (const auto first = std::exchange(before_, {})) first();
  }
  {
    std::lock_guard lock(lock_);
    Note(Event::kSyncBegin, f);
    if (const int error = sync_errors_[file]; error != 0) {
      Note(Event::kSyncFailed, f);
      return -error;
    }
  }
  const long result = sys::CallKernel(number, fd, 0, 0, 0, 0, 0);
  std::lock_guard lock(lock_);
  if (result == 0) Note(Event::kSyncEnd, f);
  return result;
}

// Whatever the files were opened by. The disk of the recording need not be synced for that: the
// medium is what it was told.
long Capture::SyncAll() {
  std::lock_guard lock(lock_);
  return NoteSyncAll();
}

// All recordings are of one run of the kernel, and recoveries after a power failure of others.
long Capture::OpenBoot() {
  const std::string text = BootText(0);
  const int fd = ::memfd_create("boot", MFD_CLOEXEC);
  if (::pwrite(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    Die("there is no boot id");
  }
  return fd;
}

// Only what changes bytes is noted.
long Capture::Fallocate(long fd, long mode, long offset, long length) {
  std::lock_guard lock(lock_);
  const int file = FileOf(fd);
  struct stat st = {};
  sys::CallKernel(SYS_fstat, fd, sys::Address(&st), 0, 0, 0, 0);
  const long before = st.st_size;
  const long result = sys::CallKernel(SYS_fallocate, fd, mode, offset, length, 0, 0);
  if (file < 0 || result < 0) return result;
  sys::CallKernel(SYS_fstat, fd, sys::Address(&st), 0, 0, 0, 0);
  const auto which = static_cast<uint32_t>(file);
  const long end = std::min(offset + length, before);
  if ((mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0 && end > offset) {
    Note(Event::kErase, which, static_cast<uint64_t>(offset), static_cast<uint32_t>(end - offset));
  }
  if (st.st_size != before) {
    Note(Event::kTruncate, which, static_cast<uint64_t>(st.st_size));
  }
  return result;
}

long Capture::Call(long number, long a, long b, long c, long d, long e, long f) {
  if (ChangesNames(number, c)) return ChangeNames(number, a, b, c, d, e);
  switch (number) {
    case SYS_openat:
      if (std::strcmp(reinterpret_cast<const char*>(b), kBootPath) == 0) return OpenBoot();
      break;
    case SYS_fsync:
    case SYS_fdatasync: {
      std::unique_lock lock(lock_);
      const int file = FileOf(a);
      lock.unlock();
      if (file >= 0) return Sync(number, a, file);
      break;
    }
    case SYS_pwrite64:
    case SYS_ftruncate: {
      std::lock_guard lock(lock_);
      const int file = FileOf(a);
      if (number == SYS_pwrite64 && file >= 0 && write_errors_[file] != 0) {
        return -write_errors_[file];
      }
      const long result = sys::CallKernel(number, a, b, c, d, e, f);
      if (file < 0 || result < 0) return result;
      const auto which = static_cast<uint32_t>(file);
      if (number == SYS_ftruncate) {
        Note(Event::kTruncate, which, static_cast<uint64_t>(b));
      } else if (result > 0) {
        NoteWrite(which, static_cast<uint64_t>(d), reinterpret_cast<const void*>(b),
                  static_cast<size_t>(result));
      }
      return result;
    }
    case SYS_syncfs:
      return SyncAll();
    case SYS_pwritev2:
    case SYS_pwritev: {  // each piece on its own: the disk may have any of them
      std::lock_guard lock(lock_);
      const int file = FileOf(a);
      if (file >= 0 && write_errors_[file] != 0) return -write_errors_[file];
      const long result = sys::CallKernel(number, a, b, c, d, e, f);
      if (file < 0) return result;
      const auto* piece = reinterpret_cast<const iovec*>(b);
      for (long done = 0; done < result; done += static_cast<long>(piece++->iov_len)) {
        NoteWrite(static_cast<uint32_t>(file), static_cast<uint64_t>(d + done), piece->iov_base,
                  std::min(piece->iov_len, static_cast<size_t>(result - done)));
      }
      return result;
    }
    case SYS_fallocate:
      return Fallocate(a, b, c, d);
    case SYS_mmap: {
      const long result = sys::CallKernel(number, a, b, c, d, e, f);
      struct stat st = {};
      std::lock_guard lock(lock_);
      if (!sys::IsError(result) && e >= 0 && (c & PROT_WRITE) != 0 &&
          sys::CallKernel(SYS_fstat, e, sys::Address(&st), 0, 0, 0, 0) == 0 &&
          st.st_ino == pool_inode_ && static_cast<size_t>(b) == shadow_.size()) {
        bases_.push_back(reinterpret_cast<uint8_t*>(result));
        CompareShadow();
      }
      return result;
    }
    case SYS_munmap: {
      std::lock_guard lock(lock_);
      const auto mapped = std::find(bases_.begin(), bases_.end(), reinterpret_cast<uint8_t*>(a));
      if (mapped != bases_.end()) {
        CompareShadow();
        bases_.erase(mapped);
      }
      return sys::CallKernel(number, a, b, c, d, e, f);
    }
    default:
      break;
  }
  return sys::CallKernel(number, a, b, c, d, e, f);
}

}  // namespace nvcache::crash
