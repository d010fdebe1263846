// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/pool.h"

#include <errno.h>
#include <sys/file.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>

#include "src/pmem/persist.h"
#include "src/pool/carrier.h"
#include "src/sys/boot.h"
#include "src/sys/check.h"
#include "src/sys/crc32c.h"
#include "src/sys/credentials.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/words.h"

namespace nvcache::pool {

namespace {

using pmem::Step;

constexpr char kUseAnother[] = "name another file, or remove this one first";
constexpr char kKeepDamaged[] = "keep it if its data matters, and use another pool";
constexpr char kSaveDamaged[] = "keep it; 'nvcache dump --all --export DIR' saves what it holds";

// The last words in the pool that this process uses.
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

// For use or recovery; else the pool is only looked at.
bool IsUse(Mode mode) {
  return mode == Mode::kShared || mode == Mode::kExclusive || mode == Mode::kRecovery;
}

// The ring of a journal without headers, which lies where a pool has its state. Its first batch may
// have a superblock just where a pool has the copy.
bool IsRing(int fd) {
  char magic[sizeof(journal::kBatchMagic)] = {};
  sys::Pread(fd, magic, sizeof(magic), journal::kRingOffset);
  return std::memcmp(magic, journal::kBatchMagic, sizeof(magic)) == 0;
}

// For another process that takes a seat or gives it up.
constexpr uint64_t kGatePatienceNs = 1000 * 1000 * 1000;

}  // namespace

// ---------------------------------------------------------------------------------------------
// Opening.

bool Pool::Open(const char* path, Mode mode, bool emulate, const pmem::Libpmem* libpmem,
                Problem* problem) {
  NVCACHE_CHECK(!is_open());
  if (IsUse(mode)) {
    pmem::Initialize();
  } else {
    libpmem = nullptr;
  }
  path_ = {};
  path_.Append(path);
  if (OpenFile(mode, problem) && MapFile(mode, emulate, libpmem, problem) &&
      (mode == Mode::kSalvage || CheckContents(problem))) {
    if (IsUse(mode)) {
      if (alone_) SecureSeen();
      g_last_words.store(view_.last_words());
      sys::SetKeepWords(KeepWords);
    }
    return true;
  }
  Close();
  return false;
}

uint64_t Pool::id() const { return IdOf(*view_.superblock); }

bool Pool::OpenFile(Mode mode, Problem* problem) {
  // O_NONBLOCK: a fifo has no right to keep us waiting.
  const int flags = (IsUse(mode) ? O_RDWR : O_RDONLY) | O_NONBLOCK;
  const long opened = sys::Openat(AT_FDCWD, path(), flags | O_CLOEXEC);
  if (opened < 0) return FailOpen(problem, path(), opened);
  fd_ = sys::MoveLow(static_cast<int>(opened), sys::kPoolNumber);
  struct stat st = {};
  if (long error = sys::Fstat(fd_, &st); error < 0) return FailOpen(problem, path(), error);
  device_ = st.st_dev;
  inode_ = st.st_ino;
  owner_ = st.st_uid;
  mode_ = st.st_mode;
  named_device_ = device_;
  named_inode_ = inode_;
  is_device_ = S_ISCHR(st.st_mode);
  has_journal_ = false;
  if (S_ISDIR(st.st_mode)) return FailOpen(problem, path(), -EISDIR);
  if (!S_ISREG(st.st_mode) && !is_device_) {
    return Fail(problem, path(), EINVAL, "is neither a file nor a devdax device",
                "name one of these");
  }
  if (IsUse(mode) && !CheckOwner(mode, problem)) return false;
  if (!is_device_ && Journal::IsOne(fd_)) {
    if (!OpenJournaled(mode, problem)) return false;
  } else if (!is_device_ && IsRing(fd_)) {
    return Fail(problem, path(), EBADMSG, "is a journal whose headers are gone",
                "keep the file, and use another pool");
  }
  if (IsUse(mode) && !LockForUse(mode, problem)) return false;
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
  sys::Fstat(fd_, &st);
  return CheckSuperblock(static_cast<uint64_t>(st.st_size), problem);
}

// Its memory is what is mapped, and what the locks lie on.
bool Pool::OpenJournaled(Mode mode, Problem* problem) {
  long memory;
  if (IsUse(mode)) {
    // It was copied there. A recovery brings what it has to the files.
    if (const char* why = WhyNoLongerOn(fd_); why != nullptr && mode != Mode::kRecovery) {
      return Fail(problem, path(), ENOTSUP, why,
                  "run 'nvcache recover' on it, and use another pool");
    }
    memory = journal_.Open(path(), fd_, problem);
    if (memory < 0) return false;
  } else {
    journal::Header header;
    memory = Journal::OpenMemory(fd_, false, &header);
    if (memory == -ENOENT) {
      return Fail(problem, path(), ENODATA,
                  "has no memory now, and what is pending is in its journal",
                  "run 'nvcache recover' on it, or a program");
    }
    if (memory < 0) return FailOpen(problem, path(), memory);
  }
  sys::Close(fd_);
  fd_ = sys::MoveLow(static_cast<int>(memory), sys::kPoolNumber);
  struct stat mapped = {};
  if (const long error = sys::Fstat(fd_, &mapped); error < 0)
    return FailOpen(problem, path(), error);
  device_ = mapped.st_dev;
  inode_ = mapped.st_ino;
  has_journal_ = true;
  return true;
}

bool Pool::LockForUse(Mode mode, Problem* problem) {
  seats_.Open(nullptr, 0, 0, fd_);
  const bool shared = mode == Mode::kShared;
  const bool locked = seats_.LockGate(shared ? kGatePatienceNs : 0);
  alone_ = !seats_.AnybodyLives();
  if (!locked) return InUse(problem);
  return alone_ || shared || InUse(problem);
}

// A user who may write to a pool decides what recovery writes, and to which files. An ACL that lets
// others write shows in the mode: there, the group's bits are all that it gives anybody. And a root
// without root's rights does not get a pool that will be recovered with all of them. The owner and
// the mode of a device are the administrator's affair.
bool Pool::CheckOwner(Mode mode, Problem* problem) const {
  if (is_device_) return true;
  const auto user = static_cast<uint64_t>(sys::Geteuid());
  if (owner_ != user && !(user == 0 && mode == Mode::kRecovery)) {
    What what;
    what.Append("belongs to the user with the number ").AppendNumber(owner_);
    return Fail(problem, path(), EPERM, what.c_str(),
                "run as that user, or use a pool of your own");
  }
  if ((mode_ & (S_IWGRP | S_IWOTH)) != 0) {
    return Fail(problem, path(), EPERM, "may be written by other users",
                "if it is what you left, forbid that with chmod 600, else use another pool");
  }
  if (owner_ == 0 && mode != Mode::kRecovery && !sys::IsWholeRoot()) {
    return Fail(
        problem, path(), EPERM, "is root's, and this process lacks some of root's rights",
        "give it CAP_CHOWN, CAP_DAC_OVERRIDE and CAP_FOWNER, or a user and pool of its own");
  }
  return true;
}

// A whole superblock of another version is one, and the bytes in the place of its copy are not
// ours.
void Pool::ChooseSuperblock(const SuperblockBytes& bytes, const Superblock& copy) {
  Superblock first = {};
  std::memcpy(&first, bytes, sizeof(first));
  const bool whole = (HasMagic(first) && HasCrc(first)) || IsOfAnotherVersion(bytes);
  superblock_ = whole || !IsWhole(copy) ? first : copy;
}

bool Pool::MapFile(Mode mode, bool emulate, const pmem::Libpmem* libpmem, Problem* problem) {
  const long error =
      IsUse(mode) ? pmem::Map(fd_, libpmem, &region_) : pmem::MapReadOnly(fd_, &region_);
  if (error < 0) {
    region_ = {};
    return FailMap(problem, path(), error);
  }
  libpmem_ = libpmem;
  if (is_device_ && region_.size >= kMinPoolSize) {
    SuperblockBytes first = {};
    std::memcpy(first, region_.base, sizeof(first));
    ChooseSuperblock(first,
                     *reinterpret_cast<const Superblock*>(region_.base + kSuperblockCopyOffset));
  }
  view_ = {region_.base, &superblock_};
  const bool lasts = region_.durability == pmem::Durability::kPower;
  const bool is_pool = CheckSuperblock(region_.size, problem);
  // A mirror does what the memory does not.
  if (IsUse(mode) && !emulate && !lasts && (!is_pool || superblock_.commit == kCommitOwn)) {
    return FailNotPersistent(problem, path());
  }
  if (!is_pool) return false;
  seats_.Open(region_.base, view_.seat_count(), view_.segment_count(), fd_);
  if (journal_.is_open()) {
    journal_.Use(region_.base);
    journal_.BeginMarking();
  }
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
  if (s.commit > kCommitOutput) {
    return Fail(problem, path(), EPROTO, "waits for its mirror in a way that is not known",
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
  int valid = LoadCheckpoint(view_, kOfPool, &checkpoint);
  checkpoint_.store(checkpoint);
  for (uint32_t seat = 0; seat < view_.seat_count() && valid > 0; ++seat) {
    valid = LoadCheckpoint(view_, seat, &checkpoint);
  }
  if (valid > 0) valid = LoadCheckpoint(view_, kOfThrough, &checkpoint);
  if (valid > 0) return true;
  return Fail(problem, path(), EBADMSG, "is damaged, both records of its checkpoint are",
              kSaveDamaged);
}

// A process that is killed leaves stores that it had not written back. We see them and build on
// them; a power failure must not take them away under what we build.
void Pool::SecureSeen() {
  const auto write_back = [this](uint32_t whose) {
    for (uint64_t i = 0; i < 2; ++i) {
      pmem::Pwb(CheckpointRecordOf(view_, whose, i), sizeof(CheckpointRecord), Step::kSeen);
    }
  };
  write_back(kOfPool);
  write_back(kOfThrough);
  for (uint32_t seat = 0; seat < view_.seat_count(); ++seat) {
    Lsn own = 0;
    const bool unused = LoadCheckpoint(view_, seat, &own) == 2 && own == 0;
    if (!unused) write_back(seat);
  }
  pmem::Pwb(view_.state(), sizeof(*view_.state()), Step::kSeen);
  pmem::PsyncOfHeader(Step::kSeenDurable);
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
  if (LoadCheckpoint(view_, kOfPool, &checkpoint) < 2) StoreCheckpoint(checkpoint);
  for (uint32_t seat = 0; seat < view_.seat_count(); ++seat) {
    if (LoadCheckpoint(view_, seat, &checkpoint) < 2) StoreSeatCheckpoint(seat, checkpoint);
  }
  if (LoadCheckpoint(view_, kOfThrough, &checkpoint) < 2) StoreBoth(kOfThrough, checkpoint);
}

void Pool::Renumber() {
  fd_ = sys::MoveLow(fd_, sys::kPoolNumber);
  seats_.Open(region_.base, view_.seat_count(), view_.segment_count(), fd_);
}

void Pool::Close() {
  if (view_.base != nullptr && g_last_words.load() == view_.last_words()) {
    g_last_words.store(nullptr);
  }
  journal_.Close();
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
  pmem::Store(record->handed_over, 0u);
  uint8_t boot[sizeof(record->boot)];
  sys::ReadBootId(boot);
  pmem::StoreBytes(record->boot, boot, sizeof(boot));
  pmem::Store(record->state, kStateInUse);
  pmem::Pwb(record, sizeof(*record), Step::kInUse);
  pmem::PsyncOfHeader(Step::kInUseDurable);
  if (seat_ == kNoSeat) TakeFirstSeat();
}

// Another process's mark is seen by all, and may be lost.
void Pool::MarkHandsOver() {
  if (publishes_) return;
  StateRecord* record = view_.state();
  pmem::Store(record->handed_over, 1u);
  pmem::Pwb(record, sizeof(*record), Step::kHandsOver);
  pmem::Psync(Step::kHandsOverDurable);
  publishes_ = true;
}

bool Pool::MayHaveHandedOver() const {
  const StateRecord* record = view_.state();
  // A state that was lost has taken this with it.
  return Peek(record->state) != kStateInUse || Peek(record->handed_over) != 0;
}

void Pool::MarkClean() {
  StateRecord* record = view_.state();
  pmem::Store(record->state, kStateClean);
  pmem::Pwb(record, sizeof(*record), Step::kClean);
  pmem::Psync(Step::kCleanDurable);
  // The journal does not hear of it any more.
  if (journal_.is_open() && Peek(journal().failed) != 0) journal_.MakeVoid();
}

void Pool::StoreCheckpoint(Lsn checkpoint, Step step, Step durable) {
  NVCACHE_CHECK(checkpoint >= checkpoint_.load() && checkpoint >> kLsnBits == 0);
  StoreBoth(kOfPool, checkpoint, step, durable);
  checkpoint_.store(checkpoint);
}

void Pool::StoreSeatCheckpoint(uint32_t seat, Lsn checkpoint) {
  NVCACHE_CHECK(seat < view_.seat_count() && checkpoint >> kLsnBits == 0);
  NVCACHE_CHECK(seat != seat_ || checkpoint >= checkpoint_.load());
  StoreBoth(seat, checkpoint);
  if (seat == seat_) checkpoint_.store(checkpoint);
}

void Pool::StoreBoth(uint32_t whose, Lsn checkpoint, Step step, Step durable) {
  for (uint64_t i = 0; i < 2; ++i) {
    WriteCheckpoint(view_, whose, i, checkpoint, step);
    pmem::PsyncOfHeader(durable);
  }
}

void Pool::AwaitHeader() const { pmem::AwaitJournal(); }

// Nobody takes a seat that was left, before it is free.
void Pool::StoreThroughCheckpoint(Lsn checkpoint, const Seats::LeftSeats& left) {
  NVCACHE_CHECK(checkpoint >= through_checkpoint() && checkpoint <= seats_.next_lsn().load());
  StoreBoth(kOfThrough, checkpoint);
  for (uint32_t seat = 0; seat < view_.seat_count(); ++seat) {
    if (seats_.IsStillLeft(seat, left)) StoreSeatCheckpoint(seat, checkpoint);
  }
  AwaitHeader();
  seats_.SetThrough(checkpoint);
  for (uint32_t seat = 0; seat < view_.seat_count(); ++seat) {
    if (seats_.IsStillLeft(seat, left)) seats_.FreeLeft(seat);
  }
}

void Pool::BelieveAll() {
  if (has_journal_) std::atomic_ref(journal().cut).store(0);
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

// The shared state that earlier users of the pool have left means nothing any more.
void Pool::TakeFirstSeat() {
  NVCACHE_CHECK(alone_ && seat_ == kNoSeat);
  Lsn next = checkpoint();
  for (uint32_t seat = 0; seat < view_.seat_count(); ++seat) {
    Lsn own = 0;
    LoadCheckpoint(view_, seat, &own);
    next = std::max(next, own);
  }
  Lsn through = 0;
  LoadCheckpoint(view_, kOfThrough, &through);
  next = std::max(next, through);
  seats_.Clear(next, std::max(through, checkpoint()));
  BelieveAll();
  // From here on somebody says which segments are in use.
  if (has_journal_) std::atomic_ref(journal().every_line).store(0);
  NVCACHE_CHECK(TakeSeat());
}

bool Pool::TakeSeat() {
  seat_ = seats_.Take();
  publishes_ = false;
  if (seat_ == kNoSeat) return false;
  Lsn own = 0;
  LoadCheckpoint(view_, seat_, &own);
  checkpoint_.store(std::max(own, checkpoint()));
  pmem::Note(*view_.written_back(seat_), 0);
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
  // A seat that was ever used says so: a reader that finds headers lost looks no lower than that.
  Lsn own = 0;
  if (LoadCheckpoint(view_, seat_, &own) == 2 && own == 0) StoreSeatCheckpoint(checkpoint());
  seats_.UnlockGate();
  return true;
}

void Pool::Leave(bool left) {
  NVCACHE_CHECK(seat_ != kNoSeat && !alone_);
  // Without the gate the seat is left to be found, with nothing in it.
  if (!seats_.LockGate(kGatePatienceNs)) return AwaitHeader();
  if (!left && !seats_.OthersHaveSeats(seat_)) {
    // Others may have had a higher one.
    StoreCheckpoint(seats_.next_lsn().load());
    MarkClean();
  } else if (!left) {
    AwaitHeader();
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
    NVCACHE_CHECK(seat < view_.seat_count() && seat != seat_);
    StoreBoth(seat, seats_.next_lsn().load(), Step::kRecoveredCheckpoint,
              Step::kRecoveredCheckpointDurable);
    AwaitHeader();
  }
  seats_.Settle(seat, resolved, resolved && HasThrough(seat));
}

}  // namespace nvcache::pool
