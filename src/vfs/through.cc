// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/through.h"

#include <errno.h>

#include <algorithm>

#include "src/dramcache/cursor.h"
#include "src/nvlog/through.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/vfs/descriptions.h"

namespace nvcache::vfs {

namespace {

using dramcache::Cursor;
using lease::Tallies;
using lease::Tally;
using nvlog::Lsn;
using nvlog::Outcome;

constexpr uint64_t kPageSize = pool::kPageSize;

uint64_t TagOf(const File& file) { return lease::TagOf(file.device, file.inode); }

// Of the file with this tag, and its lock for as long as it lives.
class LockedTally {
 public:
  LockedTally(Tally& tally, uint64_t tag)
      : tally_(tally), tag_(tag), lock_(engine.tallies.Lock(tally)) {}
  ~LockedTally() {
    if (engine.tallies.Unlock(tally_, lock_)) return;
    // It was taken away, and what this process did then is in no order that the others know.
    const uint64_t again = engine.tallies.Lock(tally_);
    Tallies::Forget(tally_);
    engine.tallies.Unlock(tally_, again);
    engine.tallies.EndPassing(tag_);
  }
  LockedTally(const LockedTally&) = delete;
  LockedTally& operator=(const LockedTally&) = delete;

  // It may have become another file's.
  bool IsFiles() const { return tally_.tag.load() == tag_; }
  bool IsOwn() const { return engine.tallies.IsOwn(tally_, lock_); }
  // With a pin.
  bool IsOfPool() const { return IsFiles() && tally_.pool.load() == engine.pool_id(); }
  bool IsKnown() const { return IsOfPool() && tally_.known.load() != 0; }

 private:
  Tally& tally_;
  const uint64_t tag_;
  const uint64_t lock_;
};

// With a pin.
bool IsPending(const Tally& tally) {
  return Tallies::IsPending(tally, engine.pool().through_checkpoint());
}

// By the program's descriptor. File lock.
long DescribeShared(int fd, File& file, pool::FileRecord* record) {
  if (DescribedLately(file, record)) return 0;
  const uint32_t changes = file.changes.load();
  if (pool::Describe(fd, record) < 0) return kGoesPast;
  NoteDescription(file, changes, *record);
  return 0;
}

// Where a write begins, in the file.
class Position {
 public:
  Position(const WriteCall& call, bool appends, uint64_t done)
      : call_(call), appends_(appends), done_(done) {}

  // Before the call: what is expected. Negated errno.
  long Find() {
    if (appends_) return EndOfFile();
    if (call_.offset != nullptr) return *call_.offset + static_cast<long>(done_);
    return sys::Lseek(call_.fd, 0, SEEK_CUR);
  }
  // After it: it was so, and the call has written there.
  bool Holds(uint64_t at, uint64_t length) const {
    const auto end = static_cast<long>(at + length);
    if (call_.offset == nullptr) return sys::Lseek(call_.fd, 0, SEEK_CUR) == end;
    return !appends_ || EndOfFile() == end;
  }

 private:
  long EndOfFile() const {
    struct stat st;
    const long error = sys::Fstat(call_.fd, &st);
    return error < 0 ? error : st.st_size;
  }

  const WriteCall& call_;
  const bool appends_;
  const uint64_t done_;
};

// The kernel's call, from the log. What it promises of the disk is the log's affair.
long WriteFromLog(const WriteCall& call, const nvlog::ThroughWriter& writer, uint64_t at) {
  iovec pieces[2];
  const int count = writer.Pieces(pieces);
  const int flags = call.flags & ~(RWF_DSYNC | RWF_SYNC);
  const long offset = call.offset != nullptr ? static_cast<long>(at) : -1;
  if (flags == 0 && offset < 0) return sys::Call(SYS_writev, call.fd, sys::Address(pieces), count);
  return sys::Call(SYS_pwritev2, call.fd, sys::Address(pieces), count, offset, 0, flags);
}

bool CopyPages(nvlog::ThroughWriter* writer, uint64_t at, Cursor* cursor) {
  sys::Scratch<uint8_t[kPageSize]> own;
  for (uint64_t done = 0; done < writer->length();) {
    const auto n = static_cast<uint32_t>(
        std::min(kPageSize - (at + done) % kPageSize, writer->length() - done));
    const uint8_t* bytes = cursor->Take(&own, n);
    if (bytes == nullptr || !writer->AddPage(bytes, n)) return false;
    done += n;
  }
  return true;
}

// The write of one group.
struct Part {
  Access& access;
  const WriteCall& call;
  bool appends;
  uint64_t length;  // bytes that are left of the call
  Attempt* attempt;
};

// The file may have another name since, or this process has its lock again after others had: what
// the log was told of it is old.
void NoteNews(File& file, const Tally& tally) {
  const uint32_t exits = tally.exits.load();
  if (file.exits_seen == exits) return;
  file.exits_seen = exits;
  file.changes.fetch_add(1);
  for (Lsn& lsn : file.tag.declared_through) lsn = 0;
}

// With a pin and the tally's lock. The bytes that the kernel took; or as WriteShared. `cursor` moves on.
long WriteLocked(const Part& part, Tally& tally, const LockedTally& locked, Cursor* cursor,
                 pool::FileRecord* record) {
  File& file = part.access.file();
  Position position(part.call, part.appends, part.attempt->done);
  const long at = position.Find();
  if (at < 0) return at;
  nvlog::ThroughWriter writer(engine.through, file.tag);
  const Outcome outcome = writer.BeginData(static_cast<uint64_t>(at), part.length, record);
  if (outcome != Outcome::kDone) return ResultOf(outcome);
  Cursor source = *cursor;
  if (!CopyPages(&writer, static_cast<uint64_t>(at), &source)) return -EFAULT;
  const long n = WriteFromLog(part.call, writer, static_cast<uint64_t>(at));
  if (n <= 0) return n;
  const auto written = static_cast<uint64_t>(n);
  if (written < writer.length() || !position.Holds(static_cast<uint64_t>(at), written)) {
    Tallies::Forget(tally);
    part.attempt->unlogged = true;
    return n;
  }
  *cursor = source;
  const Lsn lsn = engine.log.Draw();
  Tallies::Raise(tally.lsn, lsn);
  if (locked.IsOwn()) {
    writer.Commit(lsn);
  } else {
    part.attempt->unlogged = true;
  }
  return n;
}

long WritePart(const Part& part, Tally& tally, Passing* passing, Cursor* cursor) {
  File& file = part.access.file();
  const uint64_t tag = TagOf(file);
  sys::Scratch<pool::FileRecord> scratch;
  pool::FileRecord* record = nullptr;
  for (;;) {
    const LockedTally locked(tally, tag);
    passing->End();  // the lock says it from here on
    if (!locked.IsKnown()) return kUnknown;
    NoteNews(file, tally);
    if (record != nullptr && DescribeShared(part.call.fd, file, record) < 0) return kGoesPast;
    const long n = WriteLocked(part, tally, locked, cursor, record);
    if (n != kUndescribed) return n;
    NVCACHE_CHECK(record == nullptr);
    record = scratch.get();
  }
}

void Skip(Cursor* cursor, uint64_t n) {
  while (n > 0) {
    const uint64_t part = std::min<uint64_t>(n, cursor->contiguous());
    cursor->Advance(part);
    n -= part;
  }
}

// A record that says that the file is settled. File lock, and the tally's.
long LogSettled(int fd, File& file, Lsn bound) {
  sys::Scratch<pool::FileRecord> scratch;
  for (pool::FileRecord* record = nullptr;; record = scratch.get()) {
    if (record != nullptr && DescribeShared(fd, file, record) < 0) return kGoesPast;
    nvlog::ThroughWriter writer(engine.through, file.tag);
    const Outcome outcome = writer.BeginSettled(bound, record);
    if (outcome == Outcome::kUndeclared && record == nullptr) continue;
    if (outcome != Outcome::kDone) return ResultOf(outcome);
    writer.Commit(engine.log.Draw());
    return 0;
  }
}

}  // namespace

// ---------------------------------------------------------------------------------------- Passing

Tally* Passing::Begin(const File& file) {
  NVCACHE_CHECK(tag_ == 0);
  if (!engine.leases.is_open()) return nullptr;
  tag_ = TagOf(file);
  engine.tallies.BeginPassing(tag_);
  return engine.tallies.Find(tag_);
}

void Passing::End() {
  if (tag_ != 0 && engine.leases.is_open()) engine.tallies.EndPassing(tag_);
  tag_ = 0;
}

Tally* TallyOf(int fd, uint64_t* tag) {
  Access access;
  if (!engine.leases.is_open() || access.Enter(fd, Access::kData) != 0 || access.cached()) {
    return nullptr;
  }
  *tag = TagOf(access.file());
  return engine.tallies.Find(*tag);
}

namespace {

// kUnknown: something is pending.
long BeginPast(uint64_t tag) {
  Tally* tally = engine.tallies.Find(tag);
  if (tally == nullptr) return 0;
  const PoolPin pin;
  const LockedTally locked(*tally, tag);
  if (!locked.IsFiles()) return 0;
  Tallies::Forget(*tally);
  if (!pin.ok()) return kNeedsPool;
  return locked.IsOfPool() && IsPending(*tally) ? kUnknown : 0;
}

void EndPast(uint64_t tag) {
  Tally* tally = engine.tallies.Find(tag);
  if (tally == nullptr) return;
  const LockedTally locked(*tally, tag);
  if (locked.IsFiles()) Tallies::Forget(*tally);
}

}  // namespace

// A process that cannot have the pool is as one without NVCache: what is pending may undo its call
// after a power failure.
PastLog::PastLog(int fd, Access& access, const Passing* passing)
    : at_work_(access), tag_(passing->tag()) {
  constexpr int kAttempts = 4;
  if (tag_ == 0) return;
  for (int i = 0; i < kAttempts; ++i) {
    const long error = BeginPast(tag_);
    if (error == 0 || (error == kNeedsPool && !JoinShared(fd))) return;
    if (error == kUnknown) SettleShared(fd);
  }
}

PastLog::~PastLog() {
  if (tag_ != 0) EndPast(tag_);
}

// ----------------------------------------------------------------------------- Beginning, ending

void BeginShared(File& file, int fd) {
  struct stat st;
  if (sys::Fstat(fd, &st) < 0 || !engine.Cacheable(fd, st) || !engine.OpenThrough(fd, st)) return;
  file.shared.store(engine.tallies.FindOrTake(TagOf(file), engine.pool_id(),
                                              engine.pool().through_checkpoint()) != nullptr);
}

bool JoinShared(int fd) {
  TableLock lock;
  const Description* description = engine.SlotOf(fd);
  struct stat st;
  if (!IsDescription(description) || !engine.Attach() || sys::Fstat(fd, &st) < 0) return false;
  engine.OpenThrough(fd, st);
  description->file.load()->shared.store(true);
  return true;
}

bool EndShared(const File& file) {
  const uint64_t tag = TagOf(file);
  Tally* tally = engine.tallies.Find(tag);
  if (tally == nullptr) return true;
  const LockedTally locked(*tally, tag);
  if (!locked.IsFiles()) return true;
  if (!locked.IsOfPool() || IsPending(*tally)) return false;
  Tallies::Forget(*tally);
  tally->tag.store(0);
  return true;
}

// ---------------------------------------------------------------------------------------- Writing

long WriteShared(Access& access, const WriteCall& call, uint64_t total, Tally& tally,
                 Passing* passing, Attempt* attempt) {
  const PoolPin pin;
  if (!pin.ok() || !access.file().shared.load()) return kNeedsPool;
  const Description& description = access.description();
  const bool appends = access.AppendsTo({call.offset, total, call.flags});
  const bool has_own_offset = call.offset != nullptr || appends || !description.forked.load();
  if ((description.flags.load() & O_DIRECT) != 0 || !has_own_offset ||
      engine.pool().seats().ThroughFailed() != 0) {
    return kGoesPast;
  }
  Cursor cursor(call.iov, call.count);
  Skip(&cursor, attempt->done);
  while (attempt->done < total) {
    const long n = WritePart({access, call, appends, total - attempt->done, attempt}, tally,
                             passing, &cursor);
    if (n == -EFAULT) {
      // Up to where the buffer ends, as the kernel does.
      const uint64_t readable = cursor.Readable(total - attempt->done);
      total = attempt->done + readable;
      if (readable > 0) continue;
    }
    if (n <= 0) return n;
    attempt->done += static_cast<uint64_t>(n);
    if (attempt->unlogged) break;
  }
  engine.ThroughIsPending();
  return 0;
}

// --------------------------------------------------------------------------------------- Settling

long SettleShared(int fd) {
  uint64_t tag = 0;
  Tally* tally = TallyOf(fd, &tag);
  if (tally == nullptr) return kNotOurs;
  Lsn bound = 0;
  uint32_t exits = 0;
  {
    const PoolPin pin;
    const LockedTally locked(*tally, tag);
    if (pin.ok()) bound = engine.log.Draw();
    exits = tally->exits.load();
  }
  const bool passes = engine.tallies.AnybodyPasses(tag, 0);
  if (const long error = sys::Fsync(fd); error < 0) return error;
  Access access;
  if (bound == 0 || access.Enter(fd, Access::kData) != 0 || access.cached() ||
      TagOf(access.file()) != tag) {
    return 0;
  }
  const PoolPin pin;
  const LockedTally locked(*tally, tag);
  if (!pin.ok() || !locked.IsOfPool()) return 0;
  NoteNews(access.file(), *tally);
  if (LogSettled(fd, access.file(), bound) != 0) return 0;
  Tallies::Raise(tally->settled, bound);
  engine.ThroughIsPending();
  if (tally->exits.load() == exits && !passes && locked.IsOwn() &&
      engine.pool().seats().ThroughFailed() == 0) {
    tally->known.store(1);
  }
  return 0;
}

long SyncShared(int fd) {
  uint64_t tag = 0;
  Tally* tally = TallyOf(fd, &tag);
  if (tally == nullptr) return kNotOurs;
  {
    const PoolPin pin;
    const LockedTally locked(*tally, tag);
    if (pin.ok() && locked.IsKnown()) return 0;
  }
  return SettleShared(fd);
}

// ----------------------------------------------------------------------------------- The checkpoint

bool MoveThroughCheckpoint() {
  const pool::Seats& seats = engine.pool().seats();
  if (engine.through_fd() < 0 || seats.ThroughFailed() != 0 || !engine.through_lock.TryLock()) {
    return false;
  }
  bool moved = false;
  if (seats.TryLockThrough()) {
    sys::Scratch<pool::Seats::LeftSeats> left;
    seats.FindLeft(left.get());
    const Lsn next = seats.next_lsn().load();
    const long error = sys::Syncfs(engine.through_fd());
    if (error == 0) {
      engine.pool().StoreThroughCheckpoint(next);
      seats.FreeLeft(*left);
      moved = true;
    } else {
      seats.SetThroughFailed(static_cast<int>(-error));
    }
    seats.UnlockThrough();
  }
  engine.through_lock.Unlock();
  if (moved) {
    engine.through.Free(engine.log.IsShared() || engine.log.Short());
    engine.log.AnnounceRoom();
  }
  return moved;
}

}  // namespace nvcache::vfs
