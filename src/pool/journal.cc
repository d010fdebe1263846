// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/journal.h"

#include <errno.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/pmem/persist.h"
#include "src/pool/byte_locks.h"
#include "src/pool/superblock.h"
#include "src/sys/boot.h"
#include "src/sys/check.h"
#include "src/sys/descriptor.h"
#include "src/sys/filter.h"
#include "src/sys/kernel.h"
#include "src/sys/lock.h"
#include "src/sys/memory.h"
#include "src/sys/memory_group.h"
#include "src/sys/size_limit.h"

namespace nvcache::pool {

namespace {

using sys::Descriptor;

constexpr char kFolder[] = "/dev/shm/";
constexpr char kSaveJournal[] = "keep the file, and use another pool";

// For another process that looks for the memory, or makes it.
constexpr uint64_t kPatienceNs = 1000 * 1000 * 1000, kPauseNs = 1000 * 1000;

void AppendHex(Journal::MemoryPath* text, uint64_t value, unsigned digits) {
  for (unsigned shift = digits * 4; shift > 0; shift -= 4) {
    const char digit[2] = {"0123456789abcdef"[value >> (shift - 4) & 15], '\0'};
    text->Append(digit);
  }
}

// Whether the memory behind `fd` is the journal's. A file of that name that somebody else may have
// made is ESTALE, and one of an earlier life ENOENT.
long Examine(int fd, const journal::Header& header, uint32_t owner) {
  struct stat st = {};
  if (const long error = sys::Fstat(fd, &st); error < 0) return error;
  constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
  if (!S_ISREG(st.st_mode) || st.st_uid != owner || (st.st_mode & kOthers) != 0) return -ESTALE;
  const auto size = static_cast<uint64_t>(st.st_size);
  if (size < JournalMemory::Bytes(header.pool_size)) return -ENOENT;
  JournalControl control;
  constexpr size_t kIdentity = offsetof(JournalControl, positions);
  uint8_t boot[sizeof(control.boot)];
  sys::ReadBootId(boot);
  const bool ours =
      sys::Pread(fd, &control, kIdentity, header.pool_size) == static_cast<long>(kIdentity) &&
      std::memcmp(control.magic, kMemoryMagic, sizeof(kMemoryMagic)) == 0 &&
      std::memcmp(control.uuid, header.uuid, sizeof(header.uuid)) == 0 &&
      std::memcmp(control.run, header.run, sizeof(header.run)) == 0 &&
      std::memcmp(control.boot, boot, sizeof(boot)) == 0;
  return ours ? 0 : -ENOENT;
}

bool FailJournal(const char* path, long error, Problem* problem) {
  switch (error) {
    case -EINVAL:
      return Fail(problem, path, EINVAL, "is no journal any more", "name another pool");
    case -EPROTO:
      return Fail(problem, path, EPROTO, "is a journal of another version",
                  "use the NVCache that made it");
    case -EBADMSG:
      return Fail(problem, path, EBADMSG, "has damaged headers, or is truncated", kSaveJournal);
    default:
      return FailOpen(problem, path, error);
  }
}

bool FailMemory(const char* path, long error, Problem* problem) {
  const int number = static_cast<int>(-error);
  switch (error) {
    case -ESTALE:
      return Fail(problem, path, number, "has memory in /dev/shm that somebody else has made",
                  "remove the file whose name begins with nvcache- and the pool's uuid");
    case -ENOSPC:
      return Fail(problem, path, number, "needs memory of its size, and /dev/shm has no room",
                  "make /dev/shm larger, or use a smaller pool");
    case -ENOMEM:
      return Fail(problem, path, number, "needs memory of its size, and a control group has less",
                  "raise its limit, or use a smaller pool");
    default:
      break;
  }
  What what;
  what.Append("needs memory in /dev/shm, which cannot be had, error ");
  what.AppendNumber(static_cast<uint64_t>(number));
  return Fail(problem, path, number, what.c_str(), "see errno(3)");
}

}  // namespace

// The first header may have been cut off while it was written, or never written.
bool Journal::IsOne(int fd) {
  for (uint64_t i = 0; i < journal::kHeaders; ++i) {
    char magic[sizeof(kMagic)] = {};
    const long n = sys::Pread(fd, magic, sizeof(magic), i * journal::kBlock);
    if (n != static_cast<long>(sizeof(magic)) || std::memcmp(magic, kMagic, sizeof(magic)) == 0) {
      return false;
    }
    if (std::memcmp(magic, journal::kHeaderMagic, sizeof(magic)) == 0) return true;
  }
  return false;
}

// ---------------------------------------------------------------------------------------------
// A new one.

long Journal::Create(int fd, const uint8_t* image, uint64_t bytes) {
  Superblock superblock;
  std::memcpy(&superblock, image, sizeof(superblock));
  const journal::Buffer buffer(journal::kMaxBatch + kPageSize);
  if (buffer.get() == nullptr) return -ENOMEM;
  journal::BatchMaker batch(buffer.get(),
                            reinterpret_cast<journal::Piece*>(buffer.get() + journal::kMaxBatch));
  batch.Begin();
  constexpr uint8_t kZeros[journal::kLine] = {};
  for (uint64_t at = 0; at < bytes; at += journal::kLine) {
    if (std::memcmp(image + at, kZeros, sizeof(kZeros)) == 0) continue;
    batch.Add(image, at / journal::kLine, 1);
  }
  journal::Header header = {};
  std::memcpy(header.uuid, superblock.uuid, sizeof(header.uuid));
  sys::Getrandom(header.run, sizeof(header.run));
  header.pool_size = superblock.pool_size;
  header.half_size = journal::HalfBytes(superblock.pool_size);
  header.first = 1;
  header.life = 1;
  const journal::Speed speed = journal::Measure(fd);
  header.how = speed.how;
  header.write_ns = static_cast<uint32_t>(std::min<uint64_t>(speed.ns, ~uint32_t{0}));
  journal::BatchHeader first = {};
  first.sequence = 1;
  first.bound = 1;
  first.flags = journal::kEndsRound | journal::kIsWhole;  // the other half has nothing
  first.life = 1;
  const uint64_t size = batch.size();
  batch.End(journal::SeedOf(header.uuid), &first);
  const long error = journal::Write(fd, buffer.get(), size, journal::kRingOffset);
  return error < 0 ? error : journal::WriteHeader(fd, header);
}

// In the block of the header before: this one stays until that is whole.
long Journal::MakeVoid() const {
  journal::Header header;
  if (const long error = journal::ReadHeaderAgain(fd_, &header); error < 0) return error;
  if (header.is_void != 0) return 0;
  header.is_void = 1;
  ++header.life;
  return journal::WriteHeader(fd_, header);
}

// ---------------------------------------------------------------------------------------------
// The memory.

Journal::MemoryPath Journal::PathOf(const journal::Header& header, const struct stat& st) {
  MemoryPath path;
  path.Append(kFolder).Append("nvcache-");
  for (const uint8_t byte : header.uuid) AppendHex(&path, byte, 2);
  path.Append("-");
  AppendHex(&path, st.st_dev, 8);
  path.Append("-");
  AppendHex(&path, st.st_ino, 16);
  return path;
}

long Journal::OpenMemory(int fd, bool for_writing, journal::Header* header) {
  struct stat st = {};
  if (const long error = sys::Fstat(fd, &st); error < 0) return error;
  if (const long error = journal::ReadHeader(fd, header); error < 0) return error;
  const int flags = (for_writing ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  Descriptor memory(sys::Openat(AT_FDCWD, PathOf(*header, st).c_str(), flags));
  if (!memory.IsOpen()) return memory.error() == -ELOOP ? -ESTALE : memory.error();
  const long error = Examine(memory.get(), *header, st.st_uid);
  return error < 0 ? error : memory.Release();
}

// ---------------------------------------------------------------------------------------------
// Use.

int Journal::Open(const char* path, int named, Problem* problem) {
  NVCACHE_CHECK(!is_open());
  struct stat st = {};
  if (const long error = sys::Fstat(named, &st); error < 0) {
    FailOpen(problem, path, error);
    return -1;
  }
  if (sys::FileSizeLimit() < static_cast<uint64_t>(st.st_size)) {
    Fail(problem, path, EFBIG, "is larger than the files that this process may write",
         "raise the limit (ulimit -f)");
    return -1;
  }
  const long opened = journal::Open(path, true);
  if (opened < 0) {
    FailOpen(problem, path, opened);
    return -1;
  }
  fd_ = sys::MoveLow(static_cast<int>(opened), sys::kPoolNumber);
  device_ = st.st_dev;
  inode_ = st.st_ino;
  long memory = -1;
  if (Take(path, named, &memory, problem)) return static_cast<int>(memory);
  CloseDescriptor();
  return -1;
}

// One process at a time. Whoever uses a memory holds its lock, shared, so that nobody makes another
// one while it is there for somebody: not even if its file was removed.
bool Journal::Take(const char* path, int named, long* memory, Problem* problem) {
  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
  while (!HoldByte(fd_, kMakerByte, false)) {
    if (sys::Now(CLOCK_MONOTONIC) - begin >= kPatienceNs) {
      return Fail(problem, path, EBUSY, "is being read by another process",
                  "wait for its end, or use another pool");
    }
    sys::Pause(kPauseNs);
  }
  *memory = OpenMemory(named, true, &header_);
  if (*memory == -ENOENT && header_.is_void != 0) {
    ReleaseByte(fd_, kMakerByte);
    return Fail(problem, path, ENODATA,
                "has failed as a journal, and the files have all it promised",
                "remove it, and make the pool anew");
  }
  if (*memory == -ENOENT && Make(path, named, problem)) {
    *memory = OpenMemory(named, true, &header_);
  } else if (*memory == -ENOENT) {
    ReleaseByte(fd_, kMakerByte);
    return false;
  }
  const bool held = *memory >= 0 && HoldByte(fd_, kUsersByte, true);
  ReleaseByte(fd_, kMakerByte);
  if (held) return true;
  const bool of_file = *memory == -EINVAL || *memory == -EPROTO || *memory == -EBADMSG;
  return of_file ? FailJournal(path, *memory, problem) : FailMemory(path, *memory, problem);
}

// Under another name until it is whole. The header comes last: a memory is believed only if it is
// that of the header.
bool Journal::Make(const char* path, int named, Problem* problem) {
  struct stat st = {};
  if (const long error = sys::Fstat(named, &st); error < 0) return FailOpen(problem, path, error);
  if (!HoldByte(fd_, kUsersByte, false)) {
    return Fail(problem, path, EBUSY, "is in use by processes whose memory in /dev/shm was removed",
                "end them first");
  }
  const MemoryPath name = PathOf(header_, st);
  MemoryPath made = name;
  made.Append(".new");
  sys::Unlinkat(AT_FDCWD, made.c_str(), 0);
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const Descriptor memory(sys::Openat(AT_FDCWD, made.c_str(), kFlags, 0600));
  if (!memory.IsOpen()) return FailMemory(path, memory.error(), problem);
  bool whole = Fill(path, memory.get(), problem);
  if (whole && sys::Geteuid() == 0 && st.st_uid != 0) {
    sys::CallIfAllowed(SYS_fchownat, memory.get(), sys::Address(""), st.st_uid, st.st_gid,
                       AT_EMPTY_PATH);
  }
  if (whole) {
    long error = sys::Call(SYS_renameat2, AT_FDCWD, sys::Address(made.c_str()), AT_FDCWD,
                           sys::Address(name.c_str()), 0);
    if (error == 0) error = journal::WriteHeader(fd_, header_);
    whole = error == 0 || FailMemory(path, error, problem);
  }
  if (!whole) sys::Unlinkat(AT_FDCWD, made.c_str(), 0);
  return whole;
}

bool Journal::Fill(const char* path, int memory, Problem* problem) {
  const uint64_t bytes = JournalMemory::Bytes(header_.pool_size);
  sys::Fchmod(memory, 0600);
  if (bytes > sys::FreeInGroups()) return FailMemory(path, -ENOMEM, problem);
  long error;
  do {
    error = sys::Fallocate(memory, 0, 0, static_cast<off_t>(bytes));
  } while (error == -EINTR);
  if (error < 0) return FailMemory(path, error, problem);
  const long mapped = sys::MapUnlocked(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory);
  if (sys::IsError(mapped)) return FailMemory(path, mapped, problem);
  auto* base = reinterpret_cast<uint8_t*>(mapped);
  const bool read = ReadRing(path, JournalMemory(base, header_.pool_size), problem);
  if (read) {
    // The header to come.
    const JournalControl& control = JournalMemory(base, header_.pool_size).control();
    header_.life = control.life;
    header_.first = control.positions[0].sequence;
    std::memcpy(header_.run, control.run, sizeof(header_.run));
  }
  sys::UnmapUnlocked(base, bytes);
  return read;
}

// The kernel that the pool was used with is not known: recovery applies all that it finds.
bool Journal::ReadRing(const char* path, const JournalMemory& memory, Problem* problem) const {
  journal::Ring ring(fd_, header_, memory.buffer());
  JournalControl& control = memory.control();
  Lsn bound = 0;
  switch (ring.Read(memory.base(), &control.positions[0], &bound)) {
    case journal::Ring::Result::kRead:
      break;
    case journal::Ring::Result::kNothing:
      return Fail(problem, path, EBADMSG, "holds nothing", kSaveJournal);
    case journal::Ring::Result::kFailed:
      return FailOpen(problem, path, ring.error());
    case journal::Ring::Result::kDamaged:
      What what;
      what.Append("is damaged at byte ").AppendNumber(ring.damaged_at());
      what.Append(", before what was written later");
      return Fail(problem, path, EBADMSG, what.c_str(), kSaveJournal);
  }
  auto& state = *reinterpret_cast<StateRecord*>(memory.base() + kStateOffset);
  std::memset(state.boot, 0, sizeof(state.boot));
  state.handed_over = 1;
  auto& shared = *reinterpret_cast<SharedState*>(memory.base() + kSharedOffset);
  shared.next = bound;
  shared.mirror_state = kMirrorMirrored;
  std::memcpy(control.magic, kMemoryMagic, sizeof(kMemoryMagic));
  std::memcpy(control.uuid, header_.uuid, sizeof(control.uuid));
  sys::Getrandom(control.run, sizeof(control.run));
  sys::ReadBootId(control.boot);
  control.life = header_.life + 1;
  control.cut = bound;
  control.every_line = 1;
  control.round = control.positions[0].place;
  std::memset(memory.buffer(), 0, journal::kMaxBatch);
  return true;
}

void Journal::Use(uint8_t* base) {
  memory_ = JournalMemory(base, header_.pool_size);
  leader_.emplace(memory_, fd_, header_);
}

bool Journal::Map(int memory) {
  const uint64_t bytes = JournalMemory::Bytes(header_.pool_size);
  const long mapped = sys::MapUnlocked(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory);
  if (sys::IsError(mapped)) return false;
  mapped_ = bytes;
  Use(reinterpret_cast<uint8_t*>(mapped));
  return true;
}

bool Journal::Reopen(const char* path, Problem* problem) {
  const Descriptor file(sys::Openat(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat st = {};
  const bool same = file.IsOpen() && sys::Fstat(file.get(), &st) == 0 && st.st_ino == inode_ &&
                    st.st_dev == device_;
  if (!same) return false;
  const int old = std::exchange(fd_, -1);
  const Descriptor memory(Open(path, file.get(), problem));
  const int opened = std::exchange(fd_, old);
  if (!memory.IsOpen()) return false;
  CloseDescriptor();
  fd_ = opened;
  leader_.emplace(memory_, fd_, header_);
  return true;
}

void Journal::Abandon() {
  ReleaseByte(fd_, kLeaderByte);
  leader_.emplace(memory_, fd_, header_);
}

void Journal::BeginMarking() {
  pmem::BeginMarking({memory_.base(), memory_.pool_size(), memory_.marks(),
                      [](void* self) { static_cast<Journal*>(self)->Await(); }, this});
  marks_ = true;
}

void Journal::Renumber() {
  const long moved = sys::Fcntl(fd_, F_DUPFD_CLOEXEC, fd_ + 1);
  if (moved < 0) return;
  if (leader_) leader_->SetDescriptor(static_cast<int>(moved));
  sys::Close(fd_);
  fd_ = static_cast<int>(moved);
}

void Journal::Close() {
  if (marks_) pmem::EndMarking(this);
  marks_ = false;
  leader_.reset();
  if (mapped_ != 0) sys::UnmapUnlocked(memory_.base(), mapped_);
  mapped_ = 0;
  memory_ = {};
  CloseDescriptor();
}

void Journal::CloseDescriptor() {
  // The program may have closed it, and have the number for a file of its own.
  struct stat st = {};
  const bool ours =
      fd_ >= 0 && sys::Fstat(fd_, &st) == 0 && st.st_ino == inode_ && st.st_dev == device_;
  // Nobody can open it any more, and no other file has its number yet.
  if (ours && st.st_nlink == 0) sys::Unlinkat(AT_FDCWD, PathOf(header_, st).c_str(), 0);
  if (ours) sys::Close(fd_);
  fd_ = -1;
}

}  // namespace nvcache::pool
