// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/through.h"

#include <errno.h>

#include <algorithm>

#include "src/dramcache/cursor.h"
#include "src/nvlog/through.h"
#include "src/sys/check.h"
#include "src/sys/deferral.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/sys/sharing.h"
#include "src/vfs/descriptions.h"
#include "src/vfs/names_lock.h"

namespace nvcache::vfs {

namespace {

using dramcache::Cursor;
using lease::Standing;
using lease::Tallies;
using lease::Tally;
using nvlog::Lsn;
using nvlog::Outcome;

constexpr uint64_t kPageSize = pool::kPageSize;

// For what is pending of a file to be on the disk, where another process has to see to it.
constexpr uint64_t kPatienceNs = 20ull * 1000 * 1000 * 1000;
constexpr uint64_t kPollNs = 1000 * 1000;
// So often it is looked whether that process has died.
constexpr uint64_t kPollsToLook = 50;

// What is known of a file without any lock.
struct Identity {
  uint64_t device = 0, inode = 0, tag = 0;
};

uint64_t TagOf(const File& file) { return lease::TagOf(file.device, file.inode); }

void Pause(uint64_t ns) {
  sys::Word word{0};
  sys::FutexWait(&word, 0, ns);
}

// With a pin.
bool IsOwnTable() { return engine.tallies.IsOf(engine.pool_id()); }

class TallyLock {
 public:
  explicit TallyLock(Tally& tally) : tally_(tally), lock_(engine.tallies.Lock(tally)) {}
  ~TallyLock() { engine.tallies.Unlock(tally_, lock_); }
  TallyLock(const TallyLock&) = delete;
  TallyLock& operator=(const TallyLock&) = delete;
  bool IsOwn() const { return Tallies::IsOwn(tally_, lock_); }

 private:
  Tally& tally_;
  const uint64_t lock_;
};

// The descriptor's file, if it is the kernel's, and its tally; null: it has none. No lock.
Tally* TallyOf(int fd, Identity* id) {
  Access access;
  if (!engine.leases.is_open() || access.Enter(fd, Access::kData) != 0 || access.cached()) {
    return nullptr;
  }
  const File& file = access.file();
  *id = {file.device, file.inode, TagOf(file)};
  return engine.tallies.Find(id->tag);
}

// By the program's descriptor. File lock. 0; kGoesPast: recovery would not find the file.
long DescribeShared(int fd, File& file, pool::FileRecord* record) {
  if (DescribedLately(file, record)) return 0;
  const uint32_t changes = file.changes.load();
  struct stat st;
  if (sys::Fstat(fd, &st) < 0 || st.st_nlink == 0 || pool::Describe(fd, record) < 0) {
    return kGoesPast;
  }
  NoteDescription(file, changes, *record);
  return 0;
}

// The file may have another name since the log was told of it last.
void NoteExits(File& file, uint64_t exits) {
  if (file.exits_seen.exchange(exits) != exits) file.changes.fetch_add(1);
}

// ---------------------------------------------------------------------------------------------
// Writing.

// Where a write begins, in the file.
class Position {
 public:
  Position(const WriteCall& call, bool appends, uint64_t done)
      : call_(call), appends_(appends), done_(done) {}

  // Before the call: what is expected. Negated errno.
  long Find() const {
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

// A write to a known file, with a pin and the tally's lock: from its first group to its last, so
// that the calls of other processes come before it or after it.
struct Shared {
  Access& access;
  const WriteCall& call;
  bool appends;
  int fd;  // for the kernel's call
  Attempt* attempt;
  Tally& tally;
  const TallyLock& lock;
  uint64_t exits;
};

// What the call promises of the disk is the log's affair. A descriptor with O_DSYNC promises it, so
// another one, of ours, takes its place: unless another thread might move the description's offset
// meanwhile by which the write finds its place.
int DescriptorFor(const Access& access, const WriteCall& call, bool appends) {
  const bool promises = (access.description().flags.load() & O_DSYNC) != 0;
  const bool has_place = call.offset != nullptr || appends;
  if (!promises || !has_place || engine.CheckBacking(access.file()) < 0) return call.fd;
  return access.file().backing_fd;
}

// The kernel's call, from the log.
long WriteFromLog(const Shared& shared, const nvlog::ThroughWriter& writer, uint64_t at) {
  const WriteCall& call = shared.call;
  iovec pieces[2];
  const int count = writer.Pieces(pieces);
  const bool ours = shared.fd != call.fd;
  const int flags =
      (call.flags & ~(RWF_DSYNC | RWF_SYNC)) | (ours && shared.appends ? RWF_APPEND : 0);
  const bool moves = call.offset == nullptr;
  if (flags == 0 && moves) return sys::Call(SYS_writev, call.fd, sys::Address(pieces), count);
  const long offset = moves && !ours ? -1 : static_cast<long>(at);
  const long n = sys::Call(SYS_pwritev2, shared.fd, sys::Address(pieces), count, offset, 0, flags);
  if (n > 0 && moves && ours) sys::Lseek(call.fd, static_cast<off_t>(at) + n, SEEK_SET);
  return n;
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

// One group, from `at` on, of at most `length` bytes. Those that the kernel took; or as
// WriteShared. `cursor` moves on.
long WriteGroup(const Shared& shared, const Position& position, long at, uint64_t length,
                pool::FileRecord* record, Cursor* cursor) {
  File& file = shared.access.file();
  // An append is one call of the kernel's, even if another process takes the lock away.
  const bool whole = shared.appends;
  if (whole && !engine.through.HoldsWhole(static_cast<uint64_t>(at), length)) return kGoesPast;
  nvlog::ThroughWriter writer(engine.through, file.tag, shared.exits);
  const Outcome outcome = writer.BeginData(static_cast<uint64_t>(at), length, record, whole);
  if (outcome != Outcome::kDone) return ResultOf(outcome);
  Cursor source = *cursor;
  if (!CopyPages(&writer, static_cast<uint64_t>(at), &source)) return -EFAULT;
  const long n = WriteFromLog(shared, writer, static_cast<uint64_t>(at));
  if (n <= 0) {
    shared.attempt->by_kernel = true;
    return n;
  }
  const auto written = static_cast<uint64_t>(n);
  if (written < writer.length() || !position.Holds(static_cast<uint64_t>(at), written)) {
    Tallies::Forget(shared.tally);
    shared.attempt->unlogged = true;
    shared.attempt->ends = written < writer.length();
    return n;
  }
  *cursor = source;
  const Lsn lsn = engine.log.Draw();
  Tallies::Raise(shared.tally.lsn, lsn);
  if (shared.lock.IsOwn()) {
    writer.Commit(lsn);
  } else {
    shared.attempt->unlogged = true;
  }
  return n;
}

// The same, and describes the file where that is missing.
long WriteDescribed(const Shared& shared, uint64_t length, Cursor* cursor) {
  const Position position(shared.call, shared.appends, shared.attempt->done);
  const long at = position.Find();
  if (at < 0) return at;
  const long n = WriteGroup(shared, position, at, length, nullptr, cursor);
  if (n != kUndescribed) return n;
  sys::Scratch<pool::FileRecord> record;
  if (DescribeShared(shared.call.fd, shared.access.file(), record.get()) < 0) return kGoesPast;
  return WriteGroup(shared, position, at, length, record.get(), cursor);
}

void Skip(Cursor* cursor, uint64_t n) {
  while (n > 0) {
    const uint64_t part = std::min<uint64_t>(n, cursor->contiguous());
    cursor->Advance(part);
    n -= part;
  }
}

// As for a cached file (data.cc): the kernel changes more than the log.
void TouchAsForBadBuffer(const Shared& shared, uint64_t length) {
  const Position position(shared.call, shared.appends, 0);
  const long at = position.Find();
  if (at < 0) return;
  sys::Pwrite(shared.fd, engine.unreadable(), std::min(length, kUnreadable),
              static_cast<uint64_t>(at));
}

long WriteGroups(const Shared& shared, uint64_t total) {
  Attempt& attempt = *shared.attempt;
  Cursor cursor(shared.call.iov, shared.call.count);
  Skip(&cursor, attempt.done);
  while (attempt.done < total && !attempt.unlogged) {
    const long n = WriteDescribed(shared, total - attempt.done, &cursor);
    if (n == -EFAULT) {
      // Up to where the buffer ends, as the kernel does.
      const uint64_t readable = cursor.Readable(total - attempt.done);
      if (readable == 0 && attempt.done == 0) TouchAsForBadBuffer(shared, total);
      total = attempt.done + readable;
      if (readable > 0) continue;
    }
    if (n <= 0) return n;
    attempt.done += static_cast<uint64_t>(n);
  }
  attempt.left = attempt.done < total && !attempt.ends;
  return 0;
}

// What a record of the call would need that cannot be had.
bool GoesPast(const Access& access, const WriteCall& call, bool appends) {
  const Description& description = access.description();
  const bool has_own_offset = call.offset != nullptr || appends || !engine.IsForked(description);
  return (description.flags.load() & O_DIRECT) != 0 || !has_own_offset ||
         engine.pool().seats().ThroughFailed() != 0;
}

// ---------------------------------------------------------------------------------------------
// Settling.

// A record that says that the file is settled. File lock; with a pin.
long LogSettled(int fd, File& file, Lsn bound, uint64_t exits) {
  sys::Scratch<pool::FileRecord> scratch;
  for (pool::FileRecord* record = nullptr;; record = scratch.get()) {
    if (record != nullptr && DescribeShared(fd, file, record) < 0) return kGoesPast;
    nvlog::ThroughWriter writer(engine.through, file.tag, exits);
    const Outcome outcome = writer.BeginSettled(bound, record);
    if (outcome == Outcome::kUndeclared && record == nullptr) continue;
    if (outcome != Outcome::kDone) return ResultOf(outcome);
    writer.Commit(engine.log.Draw());
    return 0;
  }
}

bool MayBeWrittenUnseen(const Identity& id) {
  return engine.tallies.AnybodyPasses(id.tag) || engine.leases.IsHandedOn(id.device, id.inode);
}

// What a sync makes of the file: everything below `bound` is void then. 0: the pool is not there.
struct Sync {
  Standing then;
  Lsn bound;
  bool somebody_passes;
};

Sync BeginSync(const Tally& tally, const Identity& id) {
  Sync sync = {};
  const PoolPin pin;
  if (!pin.ok() || !engine.SharesDevices() || !IsOwnTable()) return sync;
  for (;;) {
    sync.then = Tallies::StandingOf(tally);
    sync.bound = engine.log.Draw();
    const Standing now = Tallies::StandingOf(tally);
    if (now.tag == sync.then.tag && now.exits == sync.then.exits) break;
  }
  if (sync.then.tag != id.tag) sync.bound = 0;
  sync.somebody_passes = MayBeWrittenUnseen(id);
  return sync;
}

// The kernel tells a descriptor once of an error, and then that all is well: what is pending may be
// nowhere but in the log, and stays. 0, or -EIO.
long HearOfRefusal(Tally& tally, uint64_t tag) {
  const Standing now = Tallies::StandingOf(tally);
  if (now.tag != tag || !now.refused) return 0;
  if (!engine.tallies.IsPending(tally)) {
    Tallies::Change(tally, now, {tag, now.exits + 1, false, false});
  }
  return -EIO;
}

// What was synced without a name may have lost it in a call that is under way, which the file
// system may undo, and not have the name either. After this, the call is over, or the file has had
// a name.
void AwaitName(int fd) {
  struct stat st;
  if (sys::IsSharing() || (sys::Fstat(fd, &st) == 0 && st.st_nlink > 0)) return;
  sys::InEngine inside;
  const NamesLock lock;
}

// After it. False: what was pending still is.
bool EndSync(int fd, uint64_t tag, Tally& tally, const Sync& sync) {
  const PoolPin pin;
  Access access;
  if (sync.bound == 0 || !pin.ok() || !IsOwnTable()) return false;
  if (access.Enter(fd, Access::kData) != 0 || access.cached() || TagOf(access.file()) != tag) {
    return false;
  }
  NoteExits(access.file(), sync.then.exits);
  if (LogSettled(fd, access.file(), sync.bound, sync.then.exits) != 0) return false;
  Tallies::Raise(tally.settled, sync.bound);
  engine.ThroughIsPending();
  if (!sync.somebody_passes && engine.pool().seats().ThroughFailed() == 0) {
    Tallies::Change(tally, {tag, sync.then.exits, false}, {tag, sync.then.exits, true});
  }
  return true;
}

// The disk has lost something of the file, and perhaps of others.
void NoteFailure(Tally& tally, uint64_t tag, long error) {
  Tallies::Refuse(tally, tag);
  const PoolPin pin;
  if (pin.ok() && engine.SharesDevices()) {
    engine.pool().seats().SetThroughFailed(static_cast<int>(-error));
  }
}

// A child that shares our memory may be killed before it gives the pin back.
bool MoveCheckpoint() {
  if (sys::IsSharing()) return false;
  const PoolPin pin;
  return pin.ok() && engine.MoveThroughCheckpoint();
}

// A sync has failed: the checkpoint stays.
bool HasFailed() {
  if (sys::IsSharing()) return false;
  const PoolPin pin;
  return pin.ok() && engine.pool().seats().ThroughFailed() != 0;
}

// Nothing of the file is pending any more: the checkpoint has passed it. Another process may have
// to move that. False: not in this time, or never. (Of a pool that nobody uses, nobody can: it may
// be gone, and the file another one with the same number.)
bool AwaitCheckpoint(const Tally& tally) {
  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
  for (uint64_t polls = 0; engine.tallies.IsPending(tally); ++polls) {
    const bool moved = MoveCheckpoint();
    if (moved && sys::Now(CLOCK_MONOTONIC) - begin < kPatienceNs) continue;
    if (HasFailed() || sys::Now(CLOCK_MONOTONIC) - begin >= kPatienceNs) return false;
    if (polls % kPollsToLook == 0) {
      engine.tallies.WantCheckpointAbove(tally.lsn.load());
      if (engine.LookForOwners()) return true;
    }
    Pause(kPollNs);
  }
  return true;
}

}  // namespace

// ---------------------------------------------------------------------------------------- Passing

Tally* Passing::Begin(uint64_t tag) {
  NVCACHE_CHECK(tag_ == 0);
  if (!engine.leases.is_open()) return nullptr;
  tag_ = tag;
  engine.tallies.BeginPassing(tag_);
  tally_ = engine.tallies.Find(tag_);
  return tally_;
}

Tally* Passing::Begin(const File& file) { return Begin(TagOf(file)); }

void Passing::End() {
  if (tag_ != 0 && engine.leases.is_open()) engine.tallies.EndPassing(tag_);
  tag_ = 0;
  tally_ = nullptr;
}

// A process that cannot have the pool is as one without NVCache, where others do not see to it in
// time: what is pending may undo its call after a power failure.
long Passing::GoPast(int fd) const {
  if (tally_ == nullptr) return 0;
  {
    const TallyLock lock(*tally_);
    if (Tallies::StandingOf(*tally_).tag != tag_) return 0;
    Tallies::Forget(*tally_);
  }
  const bool ended =
      !engine.tallies.IsPending(*tally_) || EndPending(fd) || AwaitCheckpoint(*tally_);
  return ended || !HasFailed() ? 0 : -EIO;
}

bool Passing::EndPending(int fd) const {
  if (fd < 0) return false;
  JoinShared(fd);
  SettleShared(fd);
  return !engine.tallies.IsPending(*tally_);
}

// ------------------------------------------------------------------------------ Beginning, ending

uint64_t MarkOf(const timespec& changed, uint64_t size) {
  constexpr uint64_t kSecond = 1000 * 1000 * 1000;
  const auto time =
      static_cast<uint64_t>(changed.tv_sec) * kSecond + static_cast<uint64_t>(changed.tv_nsec);
  return (time ^ size << 40) | 1;
}

void NoteLeft(int fd, const Description& description) {
  const File& file = *description.file.load();
  if (!description.writes() && !file.said_open) return;
  if (!engine.leases.is_open() || file.state.load() != State::kKernel) return;
  Tally* tally = engine.tallies.Find(TagOf(file));
  struct stat st;
  if (tally == nullptr || !Tallies::StandingOf(*tally).known || sys::Fstat(fd, &st) < 0) return;
  tally->left.store(MarkOf(st.st_ctim, static_cast<uint64_t>(st.st_size)));
}

void NoteLeft(File& file) {
  struct stat st;
  const bool seen = file.publishes && sys::Fstat(file.backing_fd, &st) == 0;
  file.left = seen ? MarkOf(st.st_ctim, static_cast<uint64_t>(st.st_size)) : 0;
}

bool IsAsItWasLeft(const Tally& tally, const struct stat& st) {
  return tally.left.load() == MarkOf(st.st_ctim, static_cast<uint64_t>(st.st_size));
}

bool GetTag(Tally& tally, uint64_t tag) {
  return engine.tallies.SetTag(tally, tag) ||
         (engine.tallies.RemoveTag(tally) && engine.tallies.SetTag(tally, tag));
}

namespace {

// Every byte of the file is on the disk or in a log, its name as well.
bool IsWhole(const File& file) {
  return IsSynced(file) && file.changes.load() == file.changes_synced.load();
}

// Says that the file is published. `*then`: what its tally was when it had the tag. The tally has
// the record's LSN before the tag: whoever may remove that finds the file pending. 0: there is no
// room for the record, or another file has the tally; then nothing has happened.
Lsn LogPublished(File& file, Tally& tally, Standing* then) {
  const uint64_t tag = TagOf(file);
  sys::Scratch<pool::FileRecord> scratch;
  for (pool::FileRecord* record = nullptr;; record = scratch.get()) {
    if (record != nullptr && Describe(file, record) < 0) return 0;
    nvlog::GroupWriter writer(engine.log, file.tag);
    const Outcome outcome = writer.BeginMark(nvlog::Kind::kPublished, 0, 0, record);
    if (outcome == Outcome::kUndeclared && record == nullptr) continue;
    if (outcome != Outcome::kDone) return 0;
    Tallies::Raise(tally.lsn, writer.lsn());
    if (!engine.tallies.SetTag(tally, tag)) return 0;
    *then = Tallies::StandingOf(tally);
    return writer.Commit();
  }
}

}  // namespace

// Nobody makes a call on it that has not seen the tag, and none that has: so it is looked at last.
void LeaveKnown(const File& file) {
  NVCACHE_CHECK(file.descriptions == nullptr && file.pending.load() == 0);
  const Identity id = {file.device, file.inode, TagOf(file)};
  if (file.left == 0 || file.lent || file.forever || file.failing.load() != 0 || !IsWhole(file) ||
      !IsOwnTable() || engine.leases.lost() || engine.pool().seats().ThroughFailed() != 0) {
    return;
  }
  Tally& tally = engine.tallies.At(id.tag);
  if (!GetTag(tally, id.tag)) return;
  const Standing then = Tallies::StandingOf(tally);
  struct stat st;
  if (then.tag != id.tag || MayBeWrittenUnseen(id) || sys::Fstat(file.backing_fd, &st) < 0 ||
      st.st_nlink == 0 || MarkOf(st.st_ctim, static_cast<uint64_t>(st.st_size)) != file.left) {
    return;
  }
  if (Tallies::Change(tally, then, {id.tag, then.exits, true})) tally.left.store(file.left);
}

void BeginShared(File& file, int fd) {
  struct stat st;
  if (sys::Fstat(fd, &st) < 0 || !engine.Cacheable(fd, st) || !engine.OpenThrough(fd, st)) return;
  const uint64_t tag = TagOf(file);
  if (GetTag(engine.tallies.At(tag), tag)) engine.SayOpen(file);
}

bool JoinShared(int fd) {
  TableLock lock;
  const Description* description = engine.SlotOf(fd);
  struct stat st;
  if (!IsDescription(description) || engine.replacing() || !engine.Attach()) return false;
  return sys::Fstat(fd, &st) == 0 && engine.OpenThrough(fd, st);
}

long LeaveLog(int fd, Passing* passing) {
  if (const long error = engine.TakeOver(fd); error < 0) return error;
  {
    Access access;
    if (access.Enter(fd, Access::kData) == 0 && !access.cached()) passing->Begin(access.file());
  }
  return passing->GoPast(fd);
}

bool EndShared(const File& file) {
  const uint64_t tag = TagOf(file);
  if (engine.tallies.Find(tag) == nullptr) return true;
  if (!engine.tallies.Join(engine.pool_id())) return false;
  engine.tallies.RaiseCheckpoint(engine.pool().through_checkpoint());
  Tally* tally = engine.tallies.Find(tag);
  return tally == nullptr || engine.tallies.RemoveTag(*tally);
}

bool PublishShared(File& file) {
  NVCACHE_CHECK(file.lock.IsLockedExclusive() && file.pending.load() > 0);
  const uint64_t tag = TagOf(file);
  const Identity id = {file.device, file.inode, tag};
  Tally& tally = engine.tallies.At(tag);
  if (!IsOwnTable() || !engine.tallies.RemoveTag(tally)) return false;
  engine.pool().MarkPublishes();
  if (file.descriptions != nullptr) engine.SayOpen(file);
  Standing then = {};
  if (!engine.cleaner.Publish(file, [&] { return LogPublished(file, tally, &then); })) return false;
  if (then.tag == tag && IsWhole(file) && !MayBeWrittenUnseen(id)) {
    Tallies::Change(tally, {tag, then.exits, false}, {tag, then.exits, true});
  }
  engine.ThroughIsPending();
  return true;
}

// ---------------------------------------------------------------------------------------- Writing

long WriteShared(Access& access, const WriteCall& call, uint64_t total, const Passing& passing,
                 Attempt* attempt) {
  const PoolPin pin;
  if (!pin.ok() || !engine.SharesDevice(access.file().device) || engine.IsToBeBusy()) {
    return kNeedsPool;
  }
  const bool appends = access.AppendsTo({call.offset, total, call.flags});
  if (GoesPast(access, call, appends)) return kGoesPast;
  const int fd = DescriptorFor(access, call, appends);
  Tally& tally = *passing.tally();
  const TallyLock lock(tally);
  const Standing now = Tallies::StandingOf(tally);
  if (now.tag != passing.tag() || !now.known || !IsOwnTable()) return kUnknown;
  NoteExits(access.file(), now.exits);
  engine.ThroughIsPending();
  return WriteGroups({access, call, appends, fd, attempt, tally, lock, now.exits}, total);
}

// With the tally's lock. 0, kLogFull; kGoesPast: recovery would not find the file, or somebody has
// taken the lock away.
static long LogTruncate(int fd, File& file, uint64_t length, Tally& tally, const TallyLock& lock,
                        uint64_t exits) {
  sys::Scratch<pool::FileRecord> scratch;
  for (pool::FileRecord* record = nullptr;; record = scratch.get()) {
    if (record != nullptr && DescribeShared(fd, file, record) < 0) return kGoesPast;
    nvlog::ThroughWriter writer(engine.through, file.tag, exits);
    const Outcome outcome = writer.BeginTruncate(length, record);
    if (outcome == Outcome::kUndeclared && record == nullptr) continue;
    if (outcome != Outcome::kDone) return ResultOf(outcome);
    const Lsn lsn = engine.log.Draw();
    Tallies::Raise(tally.lsn, lsn);
    if (!lock.IsOwn()) return kGoesPast;
    writer.Commit(lsn);
    engine.ThroughIsPending();
    return 0;
  }
}

// Once before the call: what the kernel cuts off, the log must not bring back in part. Once after
// it, for the checkpoint may have passed the first by then, and not the call.
long TruncateShared(Access& access, int fd, uint64_t length, const Passing& passing,
                    bool* unlogged) {
  const PoolPin pin;
  File& file = access.file();
  if (!pin.ok() || !engine.SharesDevice(file.device)) return kNeedsPool;
  if (engine.pool().seats().ThroughFailed() != 0) return kGoesPast;
  Tally& tally = *passing.tally();
  const TallyLock lock(tally);
  const Standing now = Tallies::StandingOf(tally);
  if (now.tag != passing.tag() || !now.known || !IsOwnTable()) return kGoesPast;
  NoteExits(file, now.exits);
  const auto log = [&] { return LogTruncate(fd, file, length, tally, lock, now.exits); };
  if (const long error = log(); error < 0) return error;
  const long result = sys::Ftruncate(fd, static_cast<off_t>(length));
  *unlogged = result < 0 || log() < 0;
  if (*unlogged) Tallies::Forget(tally);
  return result;
}

// --------------------------------------------------------------------------------------- Settling

long EndPending(const Tally& tally) {
  const bool ended = !engine.tallies.IsPending(tally) || AwaitCheckpoint(tally);
  return ended || !HasFailed() ? 0 : -EIO;
}

long SettleShared(int fd) {
  Identity id;
  Tally* tally = TallyOf(fd, &id);
  if (tally == nullptr) return kNotOurs;
  const Sync sync = BeginSync(*tally, id);
  if (const long error = sys::Fsync(fd); error < 0) {
    NoteFailure(*tally, id.tag, error);
    return error;
  }
  if (const long error = HearOfRefusal(*tally, id.tag); error < 0) return error;
  AwaitName(fd);
  if (EndSync(fd, id.tag, *tally, sync) || AwaitCheckpoint(*tally)) return 0;
  const PoolPin pin;
  return pin.ok() ? -EIO : 0;
}

namespace {

// Whether the file is known, and the log can be trusted; kNotOurs: it has no tally.
long IsInLog(int fd) {
  Identity id;
  Tally* tally = TallyOf(fd, &id);
  if (tally == nullptr) return kNotOurs;
  engine.BeginUse(fd);
  const PoolPin pin;
  const bool trusted = pin.ok() && IsOwnTable() && engine.pool().seats().ThroughFailed() == 0;
  const TallyLock lock(*tally);
  const Standing now = Tallies::StandingOf(*tally);
  if (now.tag != id.tag) return kNotOurs;
  return now.known && trusted ? 1 : 0;
}

}  // namespace

long SyncShared(int fd) {
  const long in_log = IsInLog(fd);
  if (in_log == kNotOurs) return kNotOurs;
  if (in_log != 0 && engine.EndUnloggedNames()) return 0;
  JoinShared(fd);
  return SettleShared(fd);
}

bool BytesAreInLog(int fd) { return IsInLog(fd) > 0; }

}  // namespace nvcache::vfs
