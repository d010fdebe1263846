// SPDX-License-Identifier: BSD-3-Clause
//
// Writes and cuts of known files: the kernel's call, and its record.
#include <algorithm>

#include "src/dramcache/cursor.h"
#include "src/nvlog/group_writer.h"
#include "src/sys/born_stat.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/engine/through_file.h"

namespace nvcache::vfs {

namespace {

using dramcache::Cursor;
using lease::Coverage;
using lease::FileEntry;
using lease::FileTable;
using nvlog::Outcome;

constexpr uint64_t kPageSize = pool::kPageSize;

// The program has no thread beside this one.
bool IsSingle() {
  return engine.host->is_single != nullptr && !engine.standing.has_clones() &&
         engine.host->is_single();
}

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
  // After it: it was so, and the call has written there. Nobody but another thread could have moved
  // the offset: no other process has the description.
  bool Holds(uint64_t at, uint64_t length) const {
    const auto end = static_cast<long>(at + length);
    if (call_.offset == nullptr && !appends_ && IsSingle()) return true;
    if (call_.offset == nullptr) return sys::Lseek(call_.fd, 0, SEEK_CUR) == end;
    return !appends_ || EndOfFile() == end;
  }

 private:
  long EndOfFile() const {
    struct stat st;
    const long error = sys::LookUntimed(call_.fd, &st);
    return error < 0 ? error : st.st_size;
  }

  const WriteCall& call_;
  const bool appends_;
  const uint64_t done_;
};

// A write to a known file, with a pin and the entry's lock: from its first group to its last, so
// that the calls of other processes come before it or after it.
struct ThroughWrite {
  Access& access;
  const WriteCall& call;
  bool appends;
  int fd;  // for the kernel's call
  Attempt* attempt;
  FileEntry& entry;
  const EntryLock& lock;
  uint64_t bypasses;
};

// What F_SETFL may change, another process that has the description may have changed. The log has
// no call of it.
constexpr int kChangeable = O_APPEND | O_DIRECT;

void FollowFlags(Description& description, int fd) {
  if (!engine.standing.IsForked(description)) return;
  const long now = sys::Fcntl(fd, F_GETFL);
  if (now < 0) return;
  int known = description.flags.load();
  while (!description.flags.compare_exchange_weak(
      known, (known & ~kChangeable) | (static_cast<int>(now) & kChangeable))) {
  }
}

// It was changed between that and the call, which has written at the file's end instead of its
// place.
bool AppendedUnseen(const ThroughWrite& write) {
  const WriteCall& call = write.call;
  const bool may_append = call.offset != nullptr && !write.appends && write.fd == call.fd &&
                          (call.flags & RWF_NOAPPEND) == 0;
  return may_append && engine.standing.IsForked(write.access.description()) &&
         (sys::Fcntl(call.fd, F_GETFL) & O_APPEND) != 0;
}

// The log keeps the call's promises about the disk. A descriptor with O_DSYNC makes them, so
// another one, of ours, takes its place: unless another thread might move the description's offset
// meanwhile by which the write finds its place; or there is none yet, and it could not be moved out
// of the program's way, for its first number could not be closed without a lock of the program's.
int DescriptorFor(const Access& access, const WriteCall& call, bool appends) {
  const bool promises = (access.description().flags.load() & O_DSYNC) != 0;
  const bool has_place = call.offset != nullptr || appends;
  File& file = access.file();
  const bool may_open = file.backing_fd >= 0 || !file.locked.load();
  if (!promises || !has_place || !may_open || engine.own.Check(file) < 0) return call.fd;
  return file.backing_fd;
}

// The kernel's call, with the bytes that the log has.
long WriteLogged(const ThroughWrite& write, const nvlog::GroupWriter& writer, uint64_t at) {
  const WriteCall& call = write.call;
  engine.mirror.AwaitTold();
  iovec pieces[2];
  const int count = writer.Pieces(pieces);
  const bool ours = write.fd != call.fd;
  const int flags =
      (call.flags & ~(RWF_DSYNC | RWF_SYNC)) | (ours && write.appends ? RWF_APPEND : 0);
  const bool moves = call.offset == nullptr;
  const bool is_plain = flags == 0 && count == 1;
  if (is_plain && moves) return sys::Write(call.fd, pieces[0].iov_base, pieces[0].iov_len);
  if (is_plain) return sys::Pwrite(write.fd, pieces[0].iov_base, pieces[0].iov_len, at);
  const long offset = moves && !ours ? -1 : static_cast<long>(at);
  const long n = sys::Call(SYS_pwritev2, write.fd, sys::Address(pieces), count, offset, 0, flags);
  if (n > 0 && moves && ours) sys::Lseek(call.fd, static_cast<off_t>(at) + n, SEEK_SET);
  return n;
}

bool CopyPages(nvlog::GroupWriter* writer, uint64_t at, Cursor* cursor) {
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

// A group that has begun at `at`. The cursor moves on. kDone, and no more bytes are done: the call
// ends with this.
Next WriteBegun(const ThroughWrite& write, const Position& position, uint64_t at,
                nvlog::GroupWriter* writer, Cursor* cursor) {
  Attempt& attempt = *write.attempt;
  Cursor source = *cursor;
  if (!CopyPages(writer, at, &source)) return attempt.End(-EFAULT);
  const long n = WriteLogged(write, *writer, at);
  if (n <= 0) return attempt.End(n);
  const auto written = static_cast<uint64_t>(n);
  const bool is_short = written < writer->length();
  if (is_short || !position.Holds(at, written) || AppendedUnseen(write)) {
    FileTable::Forget(write.entry);
    attempt.unlogged = true;
    if (is_short) return attempt.End(n);
    attempt.done += written;
    return Next::kBypass;
  }
  *cursor = source;
  attempt.done += written;
  FileTable::Raise(write.entry.lsn, writer->Draw());
  if (!write.lock.IsOwn()) {
    attempt.unlogged = true;
    return Next::kBypass;
  }
  writer->Commit();
  return Next::kDone;
}

// One group, of at most `length` bytes. Describes the file where that is missing.
Next WriteGroup(const ThroughWrite& write, uint64_t length, Cursor* cursor) {
  File& file = write.access.file();
  const Position position(write.call, write.appends, write.attempt->done);
  const long found = position.Find();
  if (found < 0) return write.attempt->End(found);
  const auto at = static_cast<uint64_t>(found);
  // An append is one call of the kernel's, even if another process takes the lock away.
  const bool whole = write.appends;
  if (whole && !engine.log.HoldsWhole(at, length)) return Next::kBypass;
  sys::Scratch<pool::FileRecord> scratch;
  for (pool::FileRecord* record = nullptr;; record = scratch.get()) {
    if (record != nullptr && !DescribeThrough(write.call.fd, file, record)) return Next::kBypass;
    nvlog::GroupWriter writer(engine.log, file.tag, write.bypasses);
    const Outcome outcome = writer.BeginData(at, length, record, whole);
    if (outcome == Outcome::kUndeclared && record == nullptr) continue;
    if (outcome != Outcome::kDone) return NextOf(outcome);
    return WriteBegun(write, position, at, &writer, cursor);
  }
}

void Skip(Cursor* cursor, uint64_t n) {
  while (n > 0) {
    const uint64_t part = std::min<uint64_t>(n, cursor->contiguous());
    cursor->Advance(part);
    n -= part;
  }
}

Next WriteGroups(const ThroughWrite& write, uint64_t total) {
  Attempt& attempt = *write.attempt;
  Cursor cursor(write.call.iov, write.call.count);
  Skip(&cursor, attempt.done);
  while (attempt.done < total) {
    const uint64_t done = attempt.done;
    const Next next = WriteGroup(write, total - done, &cursor);
    if (attempt.result == -EFAULT) {
      // Up to where the buffer ends, as the kernel does.
      const uint64_t readable = cursor.Readable(total - done);
      if (readable > 0) attempt.result = 0;
      if (readable == 0 && done == 0) {
        const long at = Position(write.call, write.appends, 0).Find();
        if (at >= 0) engine.attachment.WriteUnreadable(write.fd, static_cast<uint64_t>(at), total);
      }
      total = done + readable;
    } else if (attempt.done == total) {
      break;
    } else if (next != Next::kDone || attempt.done == done) {
      return next;
    }
  }
  return Next::kDone;
}

// The kernel refuses such a call, also where an append would not write there.
bool EndsBeyondEveryOffset(const WriteCall& call, uint64_t total) {
  return call.offset != nullptr && total > static_cast<uint64_t>(INT64_MAX - *call.offset);
}

// True: a record of the call would need something that cannot be had.
bool MustBypass(const Access& access, const WriteCall& call, uint64_t total, bool appends) {
  if (EndsBeyondEveryOffset(call, total)) return true;
  const Description& description = access.description();
  const bool has_own_offset =
      call.offset != nullptr || appends || !engine.standing.IsForked(description);
  return (description.flags.load() & O_DIRECT) != 0 || !has_own_offset ||
         engine.pool().seats().ThroughFailed() != 0;
}

// With the entry's lock. kDone, kAwaitRoom; kBypass: recovery would not find the file, or somebody
// has taken the lock away.
Next LogTruncate(int fd, File& file, uint64_t length, FileEntry& entry, const EntryLock& lock,
                 uint64_t bypasses) {
  sys::Scratch<pool::FileRecord> scratch;
  for (pool::FileRecord* record = nullptr;; record = scratch.get()) {
    if (record != nullptr && !DescribeThrough(fd, file, record)) return Next::kBypass;
    nvlog::GroupWriter writer(engine.log, file.tag, bypasses);
    const Outcome outcome = writer.BeginMark(nvlog::Kind::kTruncate, length, 0, record);
    if (outcome == Outcome::kUndeclared && record == nullptr) continue;
    if (outcome != Outcome::kDone) return NextOf(outcome);
    FileTable::Raise(entry.lsn, writer.Draw());
    if (!lock.IsOwn()) return Next::kBypass;
    writer.Commit();
    engine.checkpoint.NotePending();
    return Next::kDone;
  }
}

}  // namespace

Next WriteThrough(Access& access, const WriteCall& call, uint64_t total, const InFlight& in_flight,
                  Attempt* attempt) {
  const PoolPin pin;
  if (!pin.ok() || !engine.checkpoint.IsOfFileSystem(access.file().device) ||
      engine.attachment.NeedsThreads()) {
    return Next::kJoin;
  }
  FollowFlags(access.description(), call.fd);
  const bool appends = access.AppendsTo({call.offset, total, call.flags});
  if (MustBypass(access, call, total, appends)) return Next::kBypass;
  const int fd = DescriptorFor(access, call, appends);
  FileEntry& entry = *in_flight.entry();
  const EntryLock lock(entry);
  const Coverage now = FileTable::CoverageOf(entry);
  if (now.tag != in_flight.tag() || !now.known || !IsOwnTable()) {
    // Its next fsync settles the file; but one that is written without has to be settled here.
    const bool settles = attempt->promises_sync && !attempt->Took(Next::kSettle);
    return settles ? Next::kSettle : Next::kBypass;
  }
  NoteBypasses(access.file(), now.bypasses);
  engine.checkpoint.NotePending();
  return WriteGroups({access, call, appends, fd, attempt, entry, lock, now.bypasses}, total);
}

// Once before the call: the log must not bring back a part of the bytes that the kernel cuts off.
// Once after it, for the checkpoint may have passed the first by then, and not the call.
Next TruncateThrough(Access& access, int fd, uint64_t length, const InFlight& in_flight,
                     Attempt* attempt) {
  const PoolPin pin;
  File& file = access.file();
  if (!pin.ok() || !engine.checkpoint.IsOfFileSystem(file.device)) return Next::kJoin;
  if (engine.pool().seats().ThroughFailed() != 0) return Next::kBypass;
  FileEntry& entry = *in_flight.entry();
  const EntryLock lock(entry);
  const Coverage now = FileTable::CoverageOf(entry);
  if (now.tag != in_flight.tag() || !now.known || !IsOwnTable()) return Next::kBypass;
  NoteBypasses(file, now.bypasses);
  const auto log = [&] { return LogTruncate(fd, file, length, entry, lock, now.bypasses); };
  if (const Next next = log(); next != Next::kDone) return next;
  const long result = sys::Ftruncate(fd, static_cast<off_t>(length));
  attempt->unlogged = result < 0 || log() != Next::kDone;
  if (attempt->unlogged) FileTable::Forget(entry);
  return attempt->End(result);
}

}  // namespace nvcache::vfs
