// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>

#include "src/journal/file.h"
#include "src/pmem/persist.h"
#include "src/pool/carrier.h"
#include "src/pool/pool.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/lock.h"
#include "src/sys/memory_group.h"
#include "src/sys/scratch.h"
#include "src/sys/text.h"

namespace nvcache::pool {

namespace {

using pmem::Step;

// Everything is durable before one of the superblocks is: a crash in between leaves something that
// is no pool. The copy comes first, so that a pool always has it.
void WriteContents(uint8_t* base, uint64_t size, uint32_t commit, bool zero_first) {
  const Superblock superblock = NewSuperblock(size, commit);
  const View view = {base, &superblock};
  if (zero_first) {
    pmem::Fill(base, 0, kSegmentsOffset);
    pmem::Pwb(base, kSegmentsOffset, Step::kCreateZeros);
  }
  // The segments' memory holds no header of this pool: it is zero, or belongs to a pool with
  // another salt.
  WriteCheckpoint(view, kOfPool, 0, 1, Step::kCreateCheckpoint);
  WriteCheckpoint(view, kOfPool, 1, 1, Step::kCreateCheckpoint);
  pmem::Store(view.state()->state, kStateClean);
  pmem::Pwb(view.state(), sizeof(StateRecord), Step::kCreateState);
  WriteSuperblock(base + kSuperblockCopyOffset, superblock);
  WriteSuperblock(base, superblock);
}

// A pool, damaged or not.
bool HoldsPool(const uint8_t* base) {
  return std::memcmp(base, kMagic, sizeof(kMagic)) == 0 ||
         std::memcmp(base + kSuperblockCopyOffset, kMagic, sizeof(kMagic)) == 0;
}

// Maps the new pool and fills it. `size` 0: as large as the device.
bool FillPool(int fd, const char* path, uint64_t size, const CreateOptions& options,
              const pmem::Libpmem* libpmem, Problem* problem) {
  pmem::Region region;
  if (long error = pmem::Map(fd, libpmem, &region); error < 0) return FailMap(problem, path, error);
  const bool is_device = size == 0;
  if (is_device) size = region.size / kPageSize * kPageSize;
  bool ok = false;
  if (!options.emulate && options.commit == kCommitOwn &&
      region.durability != pmem::Durability::kPower) {
    FailNotPersistent(problem, path);
  } else if (size < kMinPoolSize || size > kMaxPoolSize || size > region.size) {
    Fail(problem, path, EINVAL, "is too small or too large for a pool", "use another device");
  } else if (is_device && HoldsPool(region.base)) {
    Fail(problem, path, EEXIST, "holds a pool already",
         "use it as it is, or overwrite the device's first 16 KiB with zeros");
  } else {
    WriteContents(region.base, size, options.commit, is_device);
    ok = true;
  }
  pmem::Unmap(region, libpmem);
  return ok;
}

// Allocate()'s, in place of ENOSPC: hugetlbfs has what the system has set aside.
constexpr int kNoHugePages = ENOBUFS;

bool FailAllocate(Problem* problem, const char* path, uint64_t size, long result) {
  const int error = static_cast<int>(-result);
  What what;
  what.Append("cannot be made, ");
  switch (error) {
    case ENOSPC:
      what.Append("its file system has no room for ").AppendNumber(size).Append(" bytes");
      return Fail(problem, path, error, what.c_str(), "make room, or choose a smaller size");
    case kNoHugePages:
      what.Append("there are no huge pages for ").AppendNumber(size).Append(" bytes");
      return Fail(problem, path, ENOSPC, what.c_str(),
                  "set more aside (sysctl vm.nr_hugepages), or choose a smaller size");
    case EDQUOT:
      what.Append("the disk quota has no room for ").AppendNumber(size).Append(" bytes");
      return Fail(problem, path, error, what.c_str(), "make room, or choose a smaller size");
    case ENOMEM:
      what.Append("a control group has less memory left than ").AppendNumber(size).Append(" bytes");
      return Fail(problem, path, error, what.c_str(), "raise its limit, or choose a smaller size");
    case EFBIG:
      what.Append("files of ").AppendNumber(size).Append(" bytes are not allowed");
      return Fail(problem, path, error, what.c_str(),
                  "raise the limit (ulimit -f), or choose a smaller size");
    case EOPNOTSUPP:
      return Fail(problem, path, error, "cannot be made, its file system cannot set room aside",
                  "use another file system");
    default:
      what.Append("error ").AppendNumber(static_cast<uint64_t>(error));
      return Fail(problem, path, error, what.c_str(), "see errno(3), or name another pool");
  }
}

// A file there is memory of the control group in which it is written first, and cannot be dropped.
bool IsInMemory(const struct statfs& fs) {
  return fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC;
}

// Sets all blocks aside: a store into a mapping has no way to say ENOSPC.
long Allocate(int fd, uint64_t size) {
  struct statfs fs = {};
  // The kernel would not refuse, but kill.
  const bool known = sys::Fstatfs(fd, &fs) == 0;
  if (known && IsInMemory(fs) && size > sys::FreeInGroups()) return -ENOMEM;
  // The kernel would not only refuse but kill us with SIGXFSZ.
  if (size > sys::SoftLimit(RLIMIT_FSIZE)) return -EFBIG;
  for (;;) {
    const long result = sys::Fallocate(fd, 0, 0, static_cast<off_t>(size));
    if (result == -ENOSPC && known && fs.f_type == HUGETLBFS_MAGIC) return -kNoHugePages;
    if (result != -EINTR) return result;
  }
}

class Folder {
 public:
  explicit Folder(const char* path) {
    size_t length = sys::Length(path);
    while (length > 0 && path[length - 1] != '/') --length;
    path_ = text_->Append(length > 0 ? path : ".", length > 0 ? length : 1).c_str();
  }
  const char* path() const { return path_; }

  // A name in it is on disk, too.
  long Sync() const {
    const long fd = sys::Openat(AT_FDCWD, path(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fd;
    const long result = sys::Fsync(static_cast<int>(fd));
    sys::Close(static_cast<int>(fd));
    return result;
  }

 private:
  sys::Scratch<sys::Text<4096>> text_;
  const char* path_;
};

// Each of many processes that find no pool would set all blocks of one aside. So they do it one by
// one, and all but the first find it there. A process that has the folder locked for long is not
// waited for.
class FolderLock {
 public:
  explicit FolderLock(const Folder& folder) {
    const long fd = sys::Openat(AT_FDCWD, folder.path(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fd_ = static_cast<int>(fd);
    const uint64_t end = sys::Now(CLOCK_MONOTONIC) + kPatienceNs;
    while (sys::Flock(fd_, LOCK_EX | LOCK_NB) < 0 && sys::Now(CLOCK_MONOTONIC) < end) {
      sys::Word word{0};
      sys::FutexWait(&word, 0, kPauseNs);
    }
  }
  ~FolderLock() {
    if (fd_ >= 0) sys::Close(fd_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  static constexpr uint64_t kPatienceNs = 5ull * 1000 * 1000 * 1000;
  static constexpr uint64_t kPauseNs = 1000 * 1000;
  int fd_ = -1;
};

bool CreateOnDevice(const char* path, const CreateOptions& options, const pmem::Libpmem* libpmem,
                    Problem* problem) {
  const long opened = sys::Openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC);
  if (opened < 0) return FailOpen(problem, path, opened);
  const int fd = static_cast<int>(opened);
  const bool ok = sys::Flock(fd, LOCK_EX | LOCK_NB) == 0
                      ? FillPool(fd, path, 0, options, libpmem, problem)
                      : Fail(problem, path, EBUSY, "is in use", "stop its user, or use another");
  sys::Close(fd);
  return ok;
}

// The pool gets its name when it is whole: a crash before leaves nothing, not a file that is no
// pool and in the way of one. Where the file system cannot do that, it has its name from the start.
struct NewFile {
  long fd;
  bool named;
};
long OpenUnnamed(const Folder& folder) {
  return sys::Openat(AT_FDCWD, folder.path(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
}

NewFile OpenNew(const char* path, const Folder& folder) {
  const long unnamed = OpenUnnamed(folder);
  if (unnamed != -EOPNOTSUPP && unnamed != -EISDIR && unnamed != -EINVAL) return {unnamed, false};
  return {sys::Openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), true};
}

long Name(int fd, const char* path) {
  return sys::Linkat(AT_FDCWD, sys::LinkTo(fd).c_str(), AT_FDCWD, path, AT_SYMLINK_FOLLOW);
}

// A page of the file can be mapped so that stores to it last: it is persistent memory.
bool IsPersistent(int fd) {
  if (sys::Ftruncate(fd, kPageSize) < 0) return false;
  const long page =
      sys::Mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
  if (sys::IsError(page)) return false;
  sys::Munmap(reinterpret_cast<void*>(page), kPageSize);
  return true;
}

// On an ordinary disk a pool is a journal (docs/disk.md), unless it shall be emulated.
bool IsForJournal(int fd, const CreateOptions& options) {
  struct statfs fs = {};
  return !options.emulate && sys::Fstatfs(fd, &fs) == 0 && !IsInMemory(fs) && !IsPersistent(fd);
}

// What is free where the memory of a pool with a journal will be. All, if that cannot be told.
uint64_t RoomForMemory() {
  struct statfs fs = {};
  if (sys::Statfs("/dev/shm", &fs) < 0 || !IsInMemory(fs)) return ~uint64_t{0};
  // tmpfs without a limit has no blocks.
  return fs.f_blocks == 0 ? ~uint64_t{0} : fs.f_bavail * static_cast<uint64_t>(fs.f_bsize);
}

bool FailJournal(Problem* problem, const char* path, const char* why) {
  return Fail(problem, path, ENOTSUP, why,
              "use ext4 or XFS, persistent memory, or accept its loss with --emulate "
              "(NVCACHE_EMULATE=1)");
}

// Its first blocks are tried before all the others are written.
bool TryBlocks(int fd, const char* path, Problem* problem) {
  constexpr uint64_t kTried = journal::kRingOffset + journal::kBlock;
  long error = Allocate(fd, kTried);
  if (error == 0) error = journal::FillWithZeros(fd, kTried);
  if (error < 0) return FailAllocate(problem, path, kTried, error);
  const sys::Descriptor direct(journal::Open(sys::LinkTo(fd).c_str(), true));
  if (!direct.IsOpen()) return FailOpen(problem, path, direct.error());
  const char* const why = WhyNoJournalIn(direct.get());
  return why == nullptr || FailJournal(problem, path, why);
}

bool FillJournal(int fd, const char* path, uint64_t size, uint32_t commit, Problem* problem) {
  if (const char* why = WhyNoJournalOn(fd); why != nullptr) return FailJournal(problem, path, why);
  if (size > journal::kMaxPoolSize) {
    return Fail(problem, path, EINVAL, "is too large for one with a journal",
                "choose a size of 256G at most");
  }
  if (!TryBlocks(fd, path, problem)) return false;
  const uint64_t bytes = journal::FileBytes(size);
  long error = Allocate(fd, bytes);
  if (error == 0) error = journal::FillWithZeros(fd, bytes);
  if (error < 0) return FailAllocate(problem, path, bytes, error);
  const journal::Buffer image(kSeatCheckpointsOffset);
  if (image.get() == nullptr) return FailAllocate(problem, path, bytes, -ENOMEM);
  WriteContents(image.get(), size, commit == kCommitOwn ? kCommitFsync : commit, false);
  const sys::Descriptor direct(journal::Open(sys::LinkTo(fd).c_str(), true));
  if (!direct.IsOpen()) return FailOpen(problem, path, direct.error());
  error = Journal::Create(direct.get(), image.get(), kSeatCheckpointsOffset);
  return error == 0 || FailAllocate(problem, path, bytes, error);
}

bool FillFile(int fd, const char* path, uint64_t size, const CreateOptions& options,
              const pmem::Libpmem* libpmem, Problem* problem) {
  if (IsForJournal(fd, options)) return FillJournal(fd, path, size, options.commit, problem);
  const long error = Allocate(fd, size);
  if (error < 0) return FailAllocate(problem, path, size, error);
  return FillPool(fd, path, size, options, libpmem, problem);
}

bool CreateFile(const char* path, uint64_t size, const CreateOptions& options,
                const pmem::Libpmem* libpmem, Problem* problem) {
  const Folder folder(path);
  const FolderLock one_at_a_time(folder);
  struct stat st;
  const long found = sys::Fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW);
  if (found != -ENOENT) return FailOpen(problem, path, found == 0 ? -EEXIST : found);
  const NewFile opened = OpenNew(path, folder);
  if (opened.fd == -ENOENT) {
    return Fail(problem, path, ENOENT, "cannot be made, its folder does not exist",
                "make the folder first");
  }
  if (opened.fd < 0) return FailOpen(problem, path, opened.fd);
  const int fd = static_cast<int>(opened.fd);
  bool named = opened.named;
  sys::Fchmod(fd, 0600);  // for any umask
  // A process that opens the name in this moment does not wait: it finds a pool in use.
  sys::Flock(fd, LOCK_EX);
  bool ok = false;
  if (FillFile(fd, path, size, options, libpmem, problem)) {
    long error = sys::Fsync(fd);
    if (error == 0 && !named) {
      error = Name(fd, path);
      named = error == 0;
    }
    if (error == 0) error = folder.Sync();
    ok = error == 0 || (error == -EEXIST ? FailOpen(problem, path, error)
                                         : FailAllocate(problem, path, size, error));
  }
  if (!ok && named) sys::Unlinkat(AT_FDCWD, path, 0);
  sys::Close(fd);
  return ok;
}

}  // namespace

uint64_t Pool::SizeWithin(const char* path, uint64_t size, bool emulate) {
  constexpr uint64_t kShare = 2;
  const Folder folder(path);
  struct statfs fs = {};
  if (sys::Statfs(folder.path(), &fs) < 0) return size;
  if (IsInMemory(fs)) return std::min(size, sys::FreeInGroups() / kShare);
  const sys::Descriptor file(OpenUnnamed(folder));
  if (!file.IsOpen() || !IsForJournal(file.get(), {.emulate = emulate})) return size;
  return std::min(size, std::min(sys::FreeInGroups(), RoomForMemory()) / kShare);
}

bool Pool::Create(const char* path, const CreateOptions& options, const pmem::Libpmem* libpmem,
                  Problem* problem) {
  pmem::Initialize();
  struct stat st = {};
  if (sys::Fstatat(AT_FDCWD, path, &st, 0) == 0 && S_ISCHR(st.st_mode)) {
    return CreateOnDevice(path, options, libpmem, problem);
  }
  const uint64_t size = options.size / kPageSize * kPageSize;
  if (size < kMinPoolSize || size > kMaxPoolSize) {
    What what;
    what.Append("cannot be made with ").AppendNumber(options.size).Append(" bytes");
    return Fail(problem, path, EINVAL, what.c_str(), "choose a size from 1M to 64T");
  }
  return CreateFile(path, size, options, libpmem, problem);
}

}  // namespace nvcache::pool
