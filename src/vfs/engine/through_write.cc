// SPDX-License-Identifier: BSD-3-Clause
//
// Writes and cuts of known files: the kernel's call, and its record.
#include <algorithm>

#include "src/dramcache/cursor.h"
#include "src/nvlog/through.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/engine/through_file.h"

namespace nvcache::vfs {

namespace {

using dramcache::Cursor;
using lease::Standing;
using lease::Tallies;
using lease::Tally;
using nvlog::Lsn;
using nvlog::Outcome;

constexpr uint64_t kPageSize = pool::kPageSize;

// Where a write begins, in the file.
class Position {
 public:
  Position(const WriteCall& call, bool appends, uint64_t done)
      : call_(call), appends_(appends), done_(done) {}

  // Before the call: the expected place. Negated errno.
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

// The log keeps the call's promises about the disk. A descriptor with O_DSYNC makes them, so
// another one, of ours, takes its place: unless another thread might move the description's offset
// meanwhile by which the write finds its place.
int DescriptorFor(const Access& access, const WriteCall& call, bool appends) {
  const bool promises = (access.description().flags.load() & O_DSYNC) != 0;
  const bool has_place = call.offset != nullptr || appends;
  if (!promises || !has_place || engine.own.Check(access.file()) < 0) return call.fd;
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
  sys::Pwrite(shared.fd, engine.attachment.unreadable(), std::min(length, kUnreadable),
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

// True: a record of the call would need something that cannot be had.
bool GoesPast(const Access& access, const WriteCall& call, bool appends) {
  const Description& description = access.description();
  const bool has_own_offset =
      call.offset != nullptr || appends || !engine.process.IsForked(description);
  return (description.flags.load() & O_DIRECT) != 0 || !has_own_offset ||
         engine.pool().seats().ThroughFailed() != 0;
}

// With the tally's lock. 0, kLogFull; kGoesPast: recovery would not find the file, or somebody has
// taken the lock away.
long LogTruncate(int fd, File& file, uint64_t length, Tally& tally, const TallyLock& lock,
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
    engine.checkpoint.NotePending();
    return 0;
  }
}

}  // namespace

long WriteShared(Access& access, const WriteCall& call, uint64_t total, const Passing& passing,
                 Attempt* attempt) {
  const PoolPin pin;
  if (!pin.ok() || !engine.checkpoint.Covers(access.file().device) ||
      engine.attachment.IsToBeBusy()) {
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
  engine.checkpoint.NotePending();
  return WriteGroups({access, call, appends, fd, attempt, tally, lock, now.exits}, total);
}

// Once before the call: the log must not bring back a part of the bytes that the kernel cuts off.
// Once after it, for the checkpoint may have passed the first by then, and not the call.
long TruncateShared(Access& access, int fd, uint64_t length, const Passing& passing,
                    bool* unlogged) {
  const PoolPin pin;
  File& file = access.file();
  if (!pin.ok() || !engine.checkpoint.Covers(file.device)) return kNeedsPool;
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

}  // namespace nvcache::vfs
