// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/pool.h"

#include <errno.h>
#include <sys/file.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "src/pmem/persist.h"
#include "src/sys/boot.h"
#include "src/sys/check.h"
#include "src/sys/crc32c.h"
#include "src/sys/credentials.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/lock.h"
#include "src/sys/scratch.h"
#include "src/sys/words.h"

namespace nvcache::pool {

namespace {

using pmem::Step;
using What = sys::Text<200>;

constexpr char kUseAnother[] = "name another file, or remove this one first";
constexpr char kKeepDamaged[] = "keep it if its data matters, and use another pool";
constexpr char kSaveDamaged[] = "keep it; 'nvcache dump --all --export DIR' saves what it holds";

bool Fail(Problem* problem, const char* path, int error, const char* what, const char* advice) {
  constexpr size_t kShown = 200;  // of a long path the end says more
  const size_t length = sys::Length(path);
  problem->error = error;
  problem->text.Clear();
  problem->text.Append("pool ").Append(length > kShown ? "..." : "");
  problem->text.Append(length > kShown ? path + (length - kShown) : path);
  problem->text.Append(" ").Append(what).Append(": ").Append(advice);
  return false;
}

// Of the pool that this process uses.
constinit std::atomic<LastWords*> g_last_words{nullptr};

void KeepWords(const char* text) {
  LastWords* words = g_last_words.load();
  if (words == nullptr) return;
  sys::Text<sizeof(words->text)> line;
  line.Append(text);
  std::memcpy(words->text, line.c_str(), line.size() + 1);
  words->pid = static_cast<uint64_t>(sys::Getpid());
  words->time = sys::Now(CLOCK_REALTIME);
}

uint64_t IdOf(const Superblock& superblock) {
  uint64_t id = 0;
  std::memcpy(&id, superblock.uuid, sizeof(id));
  return id;
}

// Errors of open() that are the same for a pool to be made and one to be used.
bool FailOpen(Problem* problem, const char* path, long result) {
  static constexpr struct {
    int error;
    const char* what;
    const char* advice;
  } kErrors[] = {
      {ENOENT, "does not exist", "make it with `nvcache create`, or set NVCACHE_SIZE"},
      {EEXIST, "exists already", "use it as it is, or remove it first"},
      {EISDIR, "is a directory", "name a file in it"},
      {ENOTDIR, "has a path that leads through a file", "correct the path"},
      {ELOOP, "has a path with too many symbolic links", "correct the path"},
      {ENAMETOOLONG, "has a path that is too long", "use a shorter one"},
      {EACCES, "may not be opened, permission denied", "run as its owner, or name another pool"},
      {EPERM, "may not be opened, permission denied", "run as its owner, or name another pool"},
      {EROFS, "is on a read-only file system", "mount it for writing, or name another pool"},
      {EMFILE, "cannot be opened, too many files are open", "raise the limit (ulimit -n)"},
      {ENFILE, "cannot be opened, too many files are open", "close some of the system's files"},
  };
  const int error = static_cast<int>(-result);
  for (const auto& known : kErrors) {
    if (known.error == error) return Fail(problem, path, error, known.what, known.advice);
  }
  What what;
  what.Append("cannot be opened, error ").AppendNumber(static_cast<uint64_t>(error));
  return Fail(problem, path, error, what.c_str(), "see errno(3), or name another pool");
}

bool FailMap(Problem* problem, const char* path, long result) {
  What what;
  what.Append("cannot be mapped, error ").AppendNumber(static_cast<uint64_t>(-result));
  return Fail(problem, path, static_cast<int>(-result), what.c_str(),
              "use a devdax device, or a file that can be mapped");
}

bool FailNotPersistent(Problem* problem, const char* path) {
  return Fail(problem, path, ENOTSUP, "is not persistent memory, a power failure would lose data",
              "use devdax or a DAX file system, or accept it with --emulate (NVCACHE_EMULATE=1)");
}

uint32_t CheckpointCrc(const CheckpointRecord& record, uint64_t salt) {
  return sys::Crc32c(&record, offsetof(CheckpointRecord, crc), static_cast<uint32_t>(salt));
}

// In the place of a seat: all seats, in their write-through logs.
constexpr uint32_t kThrough = kNoSeat - 1;
static_assert(kMaxSeats < kThrough);

CheckpointRecord* RecordOf(const View& view, uint32_t seat, uint64_t i) {
  if (seat == kThrough) return view.through_checkpoint_record(i);
  return seat == kNoSeat ? view.checkpoint_record(i) : view.seat_checkpoint_record(seat, i);
}

bool IsZero(const CheckpointRecord& record) {
  return record.checkpoint == 0 && record.zero == 0 && record.crc == 0;
}

// Of the pool's records (kNoSeat), a seat's or those of write-through that are whole, the higher
// one, and how many they are.
int LoadCheckpoint(const View& view, uint32_t seat, Lsn* checkpoint) {
  *checkpoint = 0;
  // A pool that is inspected while it is in use changes one record after the other under our eyes.
  int valid = 0;
  for (int attempt = 0; attempt < 3 && valid < 2; ++attempt) {
    valid = 0;
    for (uint64_t i = 0; i < 2; ++i) {
      CheckpointRecord copy = {};
      sys::CopyWords(&copy, RecordOf(view, seat, i), sizeof(copy));
      const bool unused = seat != kNoSeat && IsZero(copy);
      if (!unused &&
          (copy.checkpoint >> kLsnBits != 0 || copy.crc != CheckpointCrc(copy, view.salt()))) {
        continue;
      }
      ++valid;
      *checkpoint = std::max(*checkpoint, copy.checkpoint);
    }
  }
  return valid;
}

void WriteCheckpoint(const View& view, uint32_t seat, uint64_t i, Lsn checkpoint, Step step) {
  CheckpointRecord record = {checkpoint, 0, 0};
  record.crc = CheckpointCrc(record, view.salt());
  CheckpointRecord* place = RecordOf(view, seat, i);
  pmem::StoreBytes(place, &record, sizeof(record));
  pmem::Pwb(place, sizeof(*place), step);
}

bool HasMagic(const Superblock& s) { return std::memcmp(s.magic, kMagic, sizeof(kMagic)) == 0; }
bool HasCrc(const Superblock& s) { return s.crc == sys::Crc32c(&s, offsetof(Superblock, crc)); }
bool IsWhole(const Superblock& s) {
  return HasMagic(s) && s.version == kVersion && s.superblock_size == sizeof(s) && HasCrc(s);
}

// Whether a whole superblock of another version begins there. In all versions the last four bytes
// of its superblock_size are the checksum of those before.
bool IsOfAnotherVersion(const SuperblockBytes& bytes) {
  Superblock s = {};
  std::memcpy(&s, bytes, sizeof(s));
  uint32_t crc = 0;
  if (!HasMagic(s) || s.version == kVersion || s.superblock_size > sizeof(bytes) ||
      s.superblock_size < offsetof(Superblock, pool_size) + sizeof(crc)) {
    return false;
  }
  std::memcpy(&crc, bytes + s.superblock_size - sizeof(crc), sizeof(crc));
  return crc == sys::Crc32c(bytes, s.superblock_size - sizeof(crc));
}

// For use or recovery; else the pool is only looked at.
bool IsUse(Access access) {
  return access == Access::kShared || access == Access::kExclusive || access == Access::kRecovery;
}

// For another process that takes a seat or gives it up.
constexpr uint64_t kGatePatienceNs = 1000 * 1000 * 1000;

// ---------------------------------------------------------------------------------------------
// Creation.

Superblock NewSuperblock(uint64_t size) {
  const Geometry geometry = GeometryOf(size);
  Superblock superblock = {};
  std::memcpy(superblock.magic, kMagic, sizeof(kMagic));
  superblock.version = kVersion;
  superblock.superblock_size = sizeof(Superblock);
  superblock.pool_size = size;
  sys::Getrandom(&superblock.salt, sizeof(superblock.salt));
  superblock.salt |= uint64_t{1} << 63;
  sys::Getrandom(superblock.uuid, sizeof(superblock.uuid));
  superblock.created = sys::Now(CLOCK_REALTIME);
  superblock.segment_size = geometry.segment_size;
  superblock.segment_count = geometry.segment_count;
  superblock.page_size = kPageSize;
  superblock.unit_size = kUnitSize;
  superblock.crc = sys::Crc32c(&superblock, offsetof(Superblock, crc));
  return superblock;
}

// The magic comes last: what has it is whole, or was.
void WriteSuperblock(uint8_t* place, const Superblock& superblock) {
  constexpr size_t kMagicSize = sizeof(superblock.magic);
  pmem::StoreBytes(place + kMagicSize, reinterpret_cast<const uint8_t*>(&superblock) + kMagicSize,
                   sizeof(superblock) - kMagicSize);
  pmem::Pwb(place, sizeof(superblock), Step::kSuperblock);
  pmem::Pfence(Step::kSuperblockFence);
  pmem::StoreBytes(place, superblock.magic, kMagicSize);
  pmem::Pwb(place, kMagicSize, Step::kMagic);
  pmem::Psync(Step::kMagicDurable);
}

// Everything is durable before one of the superblocks is: a crash in between leaves something that
// is no pool. The copy comes first, so that a pool always has it.
void WriteContents(uint8_t* base, uint64_t size, bool zero_first) {
  const Superblock superblock = NewSuperblock(size);
  const View view = {base, &superblock};
  if (zero_first) {
    pmem::Fill(base, 0, kSegmentsOffset);
    pmem::Pwb(base, kSegmentsOffset, Step::kCreateZeros);
  }
  // What the segments' memory holds is no header of this pool: it is zero, or belongs to a pool
  // with another salt.
  WriteCheckpoint(view, kNoSeat, 0, 1, Step::kCreateCheckpoint);
  WriteCheckpoint(view, kNoSeat, 1, 1, Step::kCreateCheckpoint);
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
bool FillPool(int fd, const char* path, uint64_t size, bool emulate, const pmem::Libpmem* libpmem,
              Problem* problem) {
  pmem::Region region;
  if (long error = pmem::Map(fd, libpmem, &region); error < 0) return FailMap(problem, path, error);
  const bool is_device = size == 0;
  if (is_device) size = region.size / kPageSize * kPageSize;
  bool ok = false;
  if (!emulate && region.durability != pmem::Durability::kPower) {
    FailNotPersistent(problem, path);
  } else if (size < kMinPoolSize || size > kMaxPoolSize || size > region.size) {
    Fail(problem, path, EINVAL, "is too small or too large for a pool", "use another device");
  } else if (is_device && HoldsPool(region.base)) {
    Fail(problem, path, EEXIST, "holds a pool already",
         "use it as it is, or overwrite the device's first 16 KiB with zeros");
  } else {
    WriteContents(region.base, size, is_device);
    ok = true;
  }
  pmem::Unmap(region, libpmem);
  return ok;
}

bool FailAllocate(Problem* problem, const char* path, uint64_t size, long result) {
  const int error = static_cast<int>(-result);
  What what;
  what.Append("cannot be made, ");
  switch (error) {
    case ENOSPC:
      what.Append("its file system has no room for ").AppendNumber(size).Append(" bytes");
      return Fail(problem, path, error, what.c_str(), "make room, or choose a smaller size");
    case EDQUOT:
      what.Append("the disk quota has no room for ").AppendNumber(size).Append(" bytes");
      return Fail(problem, path, error, what.c_str(), "make room, or choose a smaller size");
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

// Sets all blocks aside: a store into a mapping has no way to say ENOSPC.
long Allocate(int fd, uint64_t size) {
  // The kernel would not only refuse but kill us with SIGXFSZ.
  if (size > sys::SoftLimit(RLIMIT_FSIZE)) return -EFBIG;
  for (;;) {
    const long result = sys::Fallocate(fd, 0, 0, static_cast<off_t>(size));
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

// Of many processes that find no pool, each would set all blocks of one aside. So they do it one by
// one, and all but the first find it there. Somebody who has the folder locked for long is not
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

bool CreateOnDevice(const char* path, bool emulate, const pmem::Libpmem* libpmem,
                    Problem* problem) {
  const long opened = sys::Openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC);
  if (opened < 0) return FailOpen(problem, path, opened);
  const int fd = static_cast<int>(opened);
  const bool ok = sys::Flock(fd, LOCK_EX | LOCK_NB) == 0
                      ? FillPool(fd, path, 0, emulate, libpmem, problem)
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
NewFile OpenNew(const char* path, const Folder& folder) {
  const long unnamed = sys::Openat(AT_FDCWD, folder.path(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
  if (unnamed != -EOPNOTSUPP && unnamed != -EISDIR && unnamed != -EINVAL) return {unnamed, false};
  return {sys::Openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), true};
}

long Name(int fd, const char* path) {
  sys::Text<32> link;
  link.Append(NVCACHE_DESCRIPTORS "/").AppendNumber(static_cast<uint64_t>(fd));
  return sys::Linkat(AT_FDCWD, link.c_str(), AT_FDCWD, path, AT_SYMLINK_FOLLOW);
}

bool CreateFile(const char* path, uint64_t size, bool emulate, const pmem::Libpmem* libpmem,
                Problem* problem) {
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
  sys::Fchmod(fd, 0600);  // whatever the umask says
  // Whoever opens the name in this moment waits for nothing: it finds a pool in use.
  sys::Flock(fd, LOCK_EX);
  bool ok = false;
  if (long error = Allocate(fd, size); error < 0) {
    FailAllocate(problem, path, size, error);
  } else if (FillPool(fd, path, size, emulate, libpmem, problem)) {
    error = sys::Fsync(fd);
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

bool ReadCheckpoint(const View& view, Lsn* checkpoint, int* records_valid) {
  *records_valid = LoadCheckpoint(view, kNoSeat, checkpoint);
  return *records_valid > 0;
}

bool ReadSeatCheckpoint(const View& view, uint32_t seat, Lsn* checkpoint, int* records_valid) {
  *records_valid = LoadCheckpoint(view, seat, checkpoint);
  return *records_valid > 0;
}

bool ReadThroughCheckpoint(const View& view, Lsn* checkpoint, int* records_valid) {
  *records_valid = LoadCheckpoint(view, kThrough, checkpoint);
  return *records_valid > 0;
}

uint32_t SegmentHeaderCrc(const SegmentHeader& header, uint64_t salt) {
  constexpr size_t kBegin = offsetof(SegmentHeader, generation);
  constexpr size_t kEnd = offsetof(SegmentHeader, crc);
  return sys::Crc32c(reinterpret_cast<const uint8_t*>(&header) + kBegin, kEnd - kBegin,
                     static_cast<uint32_t>(salt));
}

bool CopySegmentHeader(const View& view, const SegmentHeader& place, uint32_t number,
                       SegmentHeader* header) {
  sys::CopyWords(header, &place, sizeof(*header));
  return header->word == SegmentWord(header->generation, view.salt()) &&
         header->crc == SegmentHeaderCrc(*header, view.salt()) && header->number == number &&
         header->generation != 0 && header->generation >> kLsnBits == 0 &&
         header->checkpoint <= header->generation &&
         header->previous_generation < header->generation &&
         header->previous_last < header->generation &&
         header->previous_number < view.segment_count() &&
         header->log < view.seat_count() * kLogsOfSeat &&
         (header->kind == SegmentKind::kLog || header->kind == SegmentKind::kKept ||
          header->kind == SegmentKind::kFrames);
}

bool Pool::Create(const char* path, const CreateOptions& options, const pmem::Libpmem* libpmem,
                  Problem* problem) {
  pmem::Initialize();
  struct stat st = {};
  if (sys::Fstatat(AT_FDCWD, path, &st, 0) == 0 && S_ISCHR(st.st_mode)) {
    return CreateOnDevice(path, options.emulate, libpmem, problem);
  }
  const uint64_t size = options.size / kPageSize * kPageSize;
  if (size < kMinPoolSize || size > kMaxPoolSize) {
    What what;
    what.Append("cannot be made with ").AppendNumber(options.size).Append(" bytes");
    return Fail(problem, path, EINVAL, what.c_str(), "choose a size from 1M to 64T");
  }
  return CreateFile(path, size, options.emulate, libpmem, problem);
}

// ---------------------------------------------------------------------------------------------
// Opening.

bool Pool::Open(const char* path, Access access, bool emulate, const pmem::Libpmem* libpmem,
                Problem* problem) {
  NVCACHE_CHECK(!is_open());
  if (IsUse(access)) {
    pmem::Initialize();
  } else {
    libpmem = nullptr;
  }
  path_ = {};
  path_.Append(path);
  if (OpenFile(access, problem) && MapFile(access, emulate, libpmem, problem) &&
      (access == Access::kSalvage || CheckContents(problem))) {
    if (IsUse(access)) {
      if (alone_) SecureSeen();
      g_last_words.store(view_.last_words());
      sys::SetKeepWords(KeepWords);
    }
    return true;
  }
  Close();
  return false;
}

// The checksum is computed without asking what the processor has (sys/cpu.h): it is 80 bytes.
Pool::Glance Pool::GlanceAt(const char* path, uint64_t* id) {
  *id = 0;
  const long opened = sys::Openat(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (opened < 0) return opened == -ENOENT ? Glance::kMissing : Glance::kLookCloser;
  const auto fd = static_cast<int>(opened);
  Superblock superblock = {};
  StateRecord state = {};
  constexpr long kWhole[] = {sizeof(superblock), sizeof(state)};
  const bool whole = sys::Pread(fd, &superblock, sizeof(superblock), 0) == kWhole[0] &&
                     sys::Pread(fd, &state, sizeof(state), kStateOffset) == kWhole[1];
  sys::Close(fd);
  constexpr size_t kChecked = offsetof(Superblock, crc);
  const bool sound = whole && HasMagic(superblock) && superblock.version == kVersion &&
                     superblock.crc == sys::Crc32cPortable(&superblock, kChecked);
  if (sound) *id = IdOf(superblock);
  return sound && state.state == kStateClean ? Glance::kClean : Glance::kLookCloser;
}

uint64_t Pool::id() const { return IdOf(*view_.superblock); }

bool Pool::OpenFile(Access access, Problem* problem) {
  // O_NONBLOCK: a fifo has no right to keep us waiting.
  const int flags = (IsUse(access) ? O_RDWR : O_RDONLY) | O_NONBLOCK;
  const long opened = sys::Openat(AT_FDCWD, path(), flags | O_CLOEXEC);
  if (opened < 0) return FailOpen(problem, path(), opened);
  fd_ = sys::MoveLow(static_cast<int>(opened), sys::kPoolNumber);
  struct stat st = {};
  if (long error = sys::Fstat(fd_, &st); error < 0) return FailOpen(problem, path(), error);
  device_ = st.st_dev;
  inode_ = st.st_ino;
  owner_ = st.st_uid;
  mode_ = st.st_mode;
  is_device_ = S_ISCHR(st.st_mode);
  if (S_ISDIR(st.st_mode)) return FailOpen(problem, path(), -EISDIR);
  if (!S_ISREG(st.st_mode) && !is_device_) {
    return Fail(problem, path(), EINVAL, "is neither a file nor a devdax device",
                "name one of these");
  }
  if (IsUse(access)) {
    if (!CheckOwner(access, problem)) return false;
    if (!LockForUse(access, problem)) return false;
  }
  // Locks last as long as the open file does: should the program close the descriptor behind our
  // back, this still holds them.
  const long page = sys::Mmap(nullptr, kPageSize, PROT_NONE, MAP_SHARED, fd_, 0);
  if (!sys::IsError(page)) lock_page_ = reinterpret_cast<void*>(page);
  if (is_device_) return true;  // cannot be read but through a mapping
  SuperblockBytes first = {};
  Superblock copy = {};
  sys::Pread(fd_, first, sizeof(first), 0);
  sys::Pread(fd_, &copy, sizeof(copy), kSuperblockCopyOffset);
  ChooseSuperblock(first, copy);
  return CheckSuperblock(static_cast<uint64_t>(st.st_size), problem);
}

bool Pool::LockForUse(Access access, Problem* problem) {
  seats_.Open(nullptr, 0, 0, fd_);
  const bool shared = access == Access::kShared;
  const bool locked = seats_.LockGate(shared ? kGatePatienceNs : 0);
  alone_ = !seats_.AnybodyLives();
  if (!locked) return InUse(problem);
  return alone_ || shared || InUse(problem);
}

// Whoever may write to a pool says what recovery writes, and to which files. An ACL that lets
// others write shows in the mode: there, the group's bits are all that it gives anybody. And a root
// without root's rights does not get a pool that will be recovered with all of them. Of a device
// the owner and the mode are the administrator's affair.
bool Pool::CheckOwner(Access access, Problem* problem) const {
  if (is_device_) return true;
  const auto user = static_cast<uint64_t>(sys::Geteuid());
  if (owner_ != user && !(user == 0 && access == Access::kRecovery)) {
    What what;
    what.Append("belongs to the user with the number ").AppendNumber(owner_);
    return Fail(problem, path(), EPERM, what.c_str(),
                "run as that user, or use a pool of your own");
  }
  if ((mode_ & (S_IWGRP | S_IWOTH)) != 0) {
    return Fail(problem, path(), EPERM, "may be written by other users",
                "if it is what you left, forbid that with chmod 600, else use another pool");
  }
  if (owner_ == 0 && access != Access::kRecovery && !sys::IsWholeRoot()) {
    return Fail(
        problem, path(), EPERM, "is root's, and this process lacks some of root's rights",
        "give it CAP_CHOWN, CAP_DAC_OVERRIDE and CAP_FOWNER, or a user and pool of its own");
  }
  return true;
}

// A whole superblock of another version is one, and what lies where the copy would be is not ours.
void Pool::ChooseSuperblock(const SuperblockBytes& bytes, const Superblock& copy) {
  Superblock first = {};
  std::memcpy(&first, bytes, sizeof(first));
  const bool whole = (HasMagic(first) && HasCrc(first)) || IsOfAnotherVersion(bytes);
  superblock_ = whole || !IsWhole(copy) ? first : copy;
}

bool Pool::MapFile(Access access, bool emulate, const pmem::Libpmem* libpmem, Problem* problem) {
  const long error =
      IsUse(access) ? pmem::Map(fd_, libpmem, &region_) : pmem::MapReadOnly(fd_, &region_);
  if (error < 0) {
    region_ = {};
    return FailMap(problem, path(), error);
  }
  libpmem_ = libpmem;
  if (IsUse(access) && !emulate && region_.durability != pmem::Durability::kPower) {
    return FailNotPersistent(problem, path());
  }
  if (is_device_ && region_.size >= kMinPoolSize) {
    SuperblockBytes first = {};
    std::memcpy(first, region_.base, sizeof(first));
    ChooseSuperblock(first,
                     *reinterpret_cast<const Superblock*>(region_.base + kSuperblockCopyOffset));
  }
  view_ = {region_.base, &superblock_};
  if (!CheckSuperblock(region_.size, problem)) return false;
  seats_.Open(region_.base, view_.seat_count(), view_.segment_count(), fd_);
  return true;
}

// Each field on its own, in the order in which a field can be trusted once those before it are.
bool Pool::CheckSuperblock(uint64_t size, Problem* problem) const {
  const Superblock& s = superblock_;
  What what;
  if (!HasMagic(s)) {
    if (size >= kMinPoolSize) {
      return Fail(problem, path(), EINVAL, "is not a pool", kUseAnother);
    }
    what.Append("has ").AppendNumber(size).Append(" bytes, too few for a pool");
    return Fail(problem, path(), EINVAL, what.c_str(), kUseAnother);
  }
  if (s.version != kVersion) {
    what.Append("has format version ").AppendNumber(s.version).Append(", this is for version ");
    what.AppendNumber(kVersion);
    return Fail(problem, path(), EPROTO, what.c_str(), "use the NVCache that made it");
  }
  if (!IsWhole(s)) {
    return Fail(problem, path(), EBADMSG, "has a damaged superblock, and so is the copy",
                kKeepDamaged);
  }
  if (s.page_size != kPageSize || s.unit_size != kUnitSize) {
    what.Append("has pages of ").AppendNumber(s.page_size).Append(" bytes and units of ");
    what.AppendNumber(s.unit_size).Append(", not 4096 and 64");
    return Fail(problem, path(), EPROTO, what.c_str(), "use the NVCache that made it");
  }
  const bool in_range = s.pool_size >= kMinPoolSize && s.pool_size <= kMaxPoolSize;
  const Geometry geometry = GeometryOf(in_range ? s.pool_size : kMinPoolSize);
  if (!in_range || s.pool_size % kPageSize != 0 || s.segment_size != geometry.segment_size ||
      s.segment_count != geometry.segment_count || s.salt >> 63 != 1) {
    return Fail(problem, path(), EPROTO, "has another geometry than a pool of its size",
                "use the NVCache that made it");
  }
  if (size < s.pool_size) {
    what.Append("is truncated, ").AppendNumber(size).Append(" of ");
    what.AppendNumber(s.pool_size).Append(" bytes are there");
    return Fail(problem, path(), EBADMSG, what.c_str(), kKeepDamaged);
  }
  return true;
}

// A damaged state counts as in use: above the checkpoint, a clean pool holds nothing, and applying
// that is harmless.
bool Pool::CheckContents(Problem* problem) {
  Lsn checkpoint = 0;
  int valid = LoadCheckpoint(view_, kNoSeat, &checkpoint);
  checkpoint_.store(checkpoint);
  for (uint32_t seat = 0; seat < view_.seat_count() && valid > 0; ++seat) {
    valid = LoadCheckpoint(view_, seat, &checkpoint);
  }
  if (valid > 0) valid = LoadCheckpoint(view_, kThrough, &checkpoint);
  if (valid > 0) return true;
  return Fail(problem, path(), EBADMSG, "is damaged, both records of its checkpoint are",
              kSaveDamaged);
}

// A process that is killed leaves stores that it had not written back. We see them and build on
// them; a power failure must not take them away under what we build.
void Pool::SecureSeen() {
  pmem::Pwb(view_.base + kCheckpointOffset, kSharedOffset - kCheckpointOffset, Step::kSeen);
  pmem::Psync(Step::kSeenDurable);
}

// A process that has a seat; or the last that said so, though another one may be recovering what it
// left. 0: not known.
uint32_t Pool::AnyUser() const {
  for (uint32_t i = 0; i < kMaxSeats && !alone_; ++i) {
    Seat seat = {};
    sys::Pread(fd_, &seat, sizeof(seat), kSeatsOffset + i * sizeof(Seat));
    if (seat.state == kSeatTaken && seats_.Lives(i)) return seat.pid;
  }
  StateRecord state = {};
  sys::Pread(fd_, &state, sizeof(state), kStateOffset);
  const bool lives = state.state == kStateInUse && state.owner_pid != 0 &&
                     sys::Call(SYS_kill, state.owner_pid, 0) != -ESRCH;
  return lives ? state.owner_pid : 0;
}

bool Pool::InUse(Problem* problem) const {
  const uint32_t pid = is_device_ ? 0 : AnyUser();
  What what;
  what.Append("is in use by ").Append(pid != 0 ? "process " : "another process");
  if (pid != 0) what.AppendNumber(pid);
  return Fail(problem, path(), EBUSY, what.c_str(), "wait for its end, or use another pool");
}

bool Pool::superblock_damaged() const {
  return std::memcmp(region_.base, &superblock_, sizeof(superblock_)) != 0 ||
         std::memcmp(region_.base + kSuperblockCopyOffset, &superblock_, sizeof(superblock_)) != 0;
}

void Pool::Repair() {
  if (superblock_damaged()) {
    WriteSuperblock(region_.base + kSuperblockCopyOffset, superblock_);
    WriteSuperblock(region_.base, superblock_);
  }
  Lsn checkpoint = 0;
  if (LoadCheckpoint(view_, kNoSeat, &checkpoint) < 2) StoreCheckpoint(checkpoint);
  for (uint32_t seat = 0; seat < view_.seat_count(); ++seat) {
    if (LoadCheckpoint(view_, seat, &checkpoint) == 2) continue;
    StoreSeatCheckpoint(seat, checkpoint, Step::kCheckpoint, Step::kCheckpointDurable);
  }
  if (LoadCheckpoint(view_, kThrough, &checkpoint) < 2) WriteThroughCheckpoint(checkpoint);
}

void Pool::Renumber() {
  fd_ = sys::MoveLow(fd_, sys::kPoolNumber);
  seats_.Open(region_.base, view_.seat_count(), view_.segment_count(), fd_);
}

void Pool::Close() {
  if (view_.base != nullptr && g_last_words.load() == view_.last_words()) {
    g_last_words.store(nullptr);
  }
  if (region_.base != nullptr) pmem::Unmap(region_, libpmem_);
  if (lock_page_ != nullptr) sys::Munmap(lock_page_, kPageSize);
  lock_page_ = nullptr;
  // The program may have closed it, and have the number for a file of its own.
  struct stat st = {};
  if (fd_ >= 0 && sys::Fstat(fd_, &st) == 0 && st.st_ino == inode_ && st.st_dev == device_) {
    sys::Close(fd_);
  }
  region_ = {};
  view_ = {};
  superblock_ = {};
  libpmem_ = nullptr;
  fd_ = -1;
  seat_ = kNoSeat;
  alone_ = false;
}

// ---------------------------------------------------------------------------------------------
// State and checkpoint.

bool Pool::dirty() const { return Peek(view_.state()->state) != kStateClean; }

void Pool::MarkInUse() {
  Repair();
  StateRecord* record = view_.state();
  pmem::Store(record->owner_pid, static_cast<uint32_t>(sys::Getpid()));
  pmem::Store(record->owner_since, sys::Now(CLOCK_REALTIME));
  pmem::Store(record->published, 0u);
  uint8_t boot[sizeof(record->boot)];
  sys::ReadBootId(boot);
  pmem::StoreBytes(record->boot, boot, sizeof(boot));
  pmem::Store(record->state, kStateInUse);
  pmem::Pwb(record, sizeof(*record), Step::kInUse);
  pmem::Psync(Step::kInUseDurable);
  if (seat_ == kNoSeat) TakeFirstSeat();
}

// Another process's mark is seen by all, and may be lost.
void Pool::MarkPublishes() {
  if (publishes_) return;
  StateRecord* record = view_.state();
  pmem::Store(record->published, 1u);
  pmem::Pwb(record, sizeof(*record), Step::kPublishes);
  pmem::Psync(Step::kPublishesDurable);
  publishes_ = true;
}

bool Pool::MayHavePublished() const {
  const StateRecord* record = view_.state();
  // Of a state that was lost, this was lost with it.
  return Peek(record->state) != kStateInUse || Peek(record->published) != 0;
}

void Pool::MarkClean() {
  StateRecord* record = view_.state();
  pmem::Store(record->state, kStateClean);
  pmem::Pwb(record, sizeof(*record), Step::kClean);
  pmem::Psync(Step::kCleanDurable);
}

void Pool::StoreCheckpoint(Lsn checkpoint, Step step, Step durable) {
  NVCACHE_CHECK(checkpoint >= checkpoint_.load() && checkpoint >> kLsnBits == 0);
  for (uint64_t i = 0; i < 2; ++i) {
    WriteCheckpoint(view_, kNoSeat, i, checkpoint, step);
    pmem::Psync(durable);
  }
  checkpoint_.store(checkpoint);
}

void Pool::StoreSeatCheckpoint(uint32_t seat, Lsn checkpoint, Step step, Step durable) {
  NVCACHE_CHECK(seat < view_.seat_count() && checkpoint >> kLsnBits == 0);
  NVCACHE_CHECK(seat != seat_ || checkpoint >= checkpoint_.load());
  for (uint64_t i = 0; i < 2; ++i) {
    WriteCheckpoint(view_, seat, i, checkpoint, step);
    pmem::Psync(durable);
  }
  if (seat == seat_) checkpoint_.store(checkpoint);
}

void Pool::WriteThroughCheckpoint(Lsn checkpoint) {
  for (uint64_t i = 0; i < 2; ++i) {
    WriteCheckpoint(view_, kThrough, i, checkpoint, Step::kCheckpoint);
    pmem::Psync(Step::kCheckpointDurable);
  }
}

void Pool::StoreThroughCheckpoint(Lsn checkpoint, const Seats::LeftSeats& left) {
  NVCACHE_CHECK(checkpoint >= through_checkpoint() && checkpoint <= seats_.next_lsn().load());
  WriteThroughCheckpoint(checkpoint);
  seats_.SetThrough(checkpoint);
  for (uint32_t seat = 0; seat < view_.seat_count(); ++seat) {
    if (!seats_.IsStillLeft(seat, left)) continue;
    StoreSeatCheckpoint(seat, checkpoint, Step::kCheckpoint, Step::kCheckpointDurable);
    seats_.FreeLeft(seat);
  }
}

bool Pool::IsSameBoot() const {
  uint8_t now[sizeof(StateRecord::boot)];
  sys::ReadBootId(now);
  StateRecord state = {};
  sys::CopyWords(&state, view_.state(), sizeof(state));
  const bool known = std::any_of(std::begin(now), std::end(now), [](uint8_t b) { return b != 0; });
  return known && std::memcmp(now, state.boot, sizeof(now)) == 0;
}

// ---------------------------------------------------------------------------------------------
// Seats.

// What of the shared state is left of those who used the pool before means nothing any more.
void Pool::TakeFirstSeat() {
  NVCACHE_CHECK(alone_ && seat_ == kNoSeat);
  Lsn next = checkpoint();
  for (uint32_t seat = 0; seat < view_.seat_count(); ++seat) {
    Lsn own = 0;
    LoadCheckpoint(view_, seat, &own);
    next = std::max(next, own);
  }
  Lsn through = 0;
  LoadCheckpoint(view_, kThrough, &through);
  next = std::max(next, through);
  seats_.Clear(next, std::max(through, checkpoint()));
  NVCACHE_CHECK(TakeSeat());
}

bool Pool::TakeSeat() {
  seat_ = seats_.Take();
  publishes_ = false;
  if (seat_ == kNoSeat) return false;
  Lsn own = 0;
  LoadCheckpoint(view_, seat_, &own);
  checkpoint_.store(std::max(own, checkpoint()));
  return true;
}

bool Pool::Join(Problem* problem) {
  NVCACHE_CHECK(seat_ == kNoSeat);
  // Adopt() may have unlocked it.
  if (!seats_.LockGate(kGatePatienceNs)) return InUse(problem);
  alone_ = !seats_.AnybodyLives();
  if (alone_) {
    if (dirty()) return InUse(problem);
    // The last one that left has moved it since we looked.
    if (!CheckContents(problem)) return false;
    pmem::Fill(view_.statistics(), 0, sizeof(Statistics));
    MarkInUse();
    alone_ = false;
  } else if (seats_.HasUnresolved()) {
    return Fail(problem, path(), EUCLEAN, "holds what a dead process has left and no file takes",
                "run 'nvcache recover' on it");
  } else if (!TakeSeat()) {
    return Fail(problem, path(), EUSERS, "is used by as many processes as it has room for",
                "make a larger pool");
  }
  // A seat that was ever used says so: whoever finds headers lost looks no lower than that.
  Lsn own = 0;
  if (LoadCheckpoint(view_, seat_, &own) == 2 && own == 0) StoreSeatCheckpoint(checkpoint());
  seats_.UnlockGate();
  return true;
}

void Pool::Leave(bool left) {
  NVCACHE_CHECK(seat_ != kNoSeat && !alone_);
  // Without the gate the seat is left to be found, with nothing in it.
  if (!seats_.LockGate(kGatePatienceNs)) return;
  if (!left && !seats_.OthersHaveSeats(seat_)) {
    // Others may have had a higher one.
    StoreCheckpoint(seats_.next_lsn().load());
    MarkClean();
  }
  seats_.Give(seat_, left);
  seat_ = kNoSeat;
  seats_.UnlockGate();
}

uint32_t Pool::Adopt() {
  if (!seats_.LockGate(kGatePatienceNs)) return kNoSeat;
  const uint32_t seat = seats_.Adopt(seat_);
  seats_.UnlockGate();
  return seat;
}

// A write-through log of the seat has a segment.
bool Pool::HasThrough(uint32_t seat) const {
  for (uint32_t number = 0; number < view_.segment_count(); ++number) {
    SegmentHeader header;
    if (seats_.Owns(number, seat) &&
        CopySegmentHeader(view_, *view_.segment(number), number, &header) &&
        IsThroughLog(header.log)) {
      return true;
    }
  }
  return false;
}

void Pool::Settle(uint32_t seat, bool resolved) {
  if (resolved) {
    StoreSeatCheckpoint(seat, seats_.next_lsn().load(), Step::kRecoveredCheckpoint,
                        Step::kRecoveredCheckpointDurable);
  }
  seats_.Settle(seat, resolved, resolved && HasThrough(seat));
}

}  // namespace nvcache::pool
