// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/settle.h"

#include <errno.h>

#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/descriptions.h"

namespace nvcache::vfs {

namespace {

using nvlog::Outcome;

long TryMark(File& file, nvlog::Kind kind, uint64_t offset, uint64_t length,
             pool::FileRecord* record, nvlog::Lsn* lsn) {
  nvlog::GroupWriter group(engine.log, file.tag);
  const Outcome outcome = group.BeginMark(kind, offset, length, record);
  if (outcome != Outcome::kDone) return ResultOf(outcome);
  file.pending.fetch_add(group.units());
  *lsn = group.Commit();
  return 0;
}

long TryFile(File& file, pool::FileRecord* record) {
  nvlog::GroupWriter group(engine.log, file.tag);
  const Outcome outcome = group.BeginFile(record);
  if (outcome != Outcome::kDone) return ResultOf(outcome);
  file.pending.fetch_add(group.units());
  group.Commit();
  return 0;
}

// As AppendMark, of a file that is settled.
long Mark(File& file, nvlog::Kind kind, uint64_t offset, uint64_t length, nvlog::Lsn* lsn) {
  long result = TryMark(file, kind, offset, length, nullptr, lsn);
  if (result != kUndescribed) return result;
  sys::Scratch<pool::FileRecord> record;
  if (long error = Describe(file, record.get()); error < 0) return error;
  return TryMark(file, kind, offset, length, record.get(), lsn);
}

}  // namespace

long ResultOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kDone:
      return 0;
    case Outcome::kLogFull:
      return kLogFull;
    case Outcome::kUndeclared:
      return kUndescribed;
    case Outcome::kNoDescriptors:
      return kNoDescriptors;
    case Outcome::kBadBuffer:
      return -EFAULT;
  }
  NVCACHE_CHECK(false);
}

long Settle(const File& file) {
  if (file.removed.load(std::memory_order_relaxed)) return kUnsettled;
  return IsSynced(file) ? 0 : kAwaitsSync;
}

// A thread that closes or moves our descriptor changes the file's state before, or the number's
// meaning, and has sync_lock then. So if these are found as they were, it is ours, and the
// file's, until sync_lock is let go.
long SyncAwaited(int fd) {
  Access access;
  if (access.Enter(fd, Access::kData) != 0 || !access.cached()) return 0;
  File& file = access.file();
  const Description* description = &access.description();
  if (IsSynced(file)) return 0;
  if (engine.own.Check(file) < 0) return kUnsettled;
  access.Leave();
  sys::Lock lock(file.sync_lock);
  if (engine.descriptors.Of(fd) != description || description->file.load() != &file ||
      file.state.load() != State::kCached || IsSynced(file)) {
    return 0;
  }
  const uint32_t awaited = file.awaited.load();
  const uint32_t changes = file.changes.load();
  if (sys::Fsync(file.backing_fd) < 0) {
    file.sync_refused = file.pending.load() > 0;
    return kUnsettled;
  }
  file.changes_synced.store(changes);
  file.awaited_synced.store(awaited);
  return 0;
}

// The first record of a file needs one.
long Describe(File& file, pool::FileRecord* record) {
  NVCACHE_CHECK(file.awaited_synced.load() != 0);
  if (DescribedLately(file, record)) return 0;
  const uint32_t changes = file.changes.load();
  if (engine.own.Check(file) < 0 || pool::Describe(file.backing_fd, record) < 0) {
    return kUnsettled;
  }
  NoteDescription(file, changes, *record);
  return 0;
}

long AppendMark(File& file, nvlog::Kind kind, uint64_t offset, uint64_t length, nvlog::Lsn* lsn) {
  const long error = Settle(file);
  return error < 0 ? error : Mark(file, kind, offset, length, lsn);
}

// By its record in the log: the kernel knows no path of a file that has no name.
bool LogRemoval(File& file) {
  sys::Scratch<pool::FileRecord> record;
  if (!engine.log.CopyFileRecord(file.tag, record.get())) return false;
  record->flags |= pool::kFileRemoved;
  return TryFile(file, record.get()) == 0;
}

bool LogReturn(File& file) {
  sys::Scratch<pool::FileRecord> record;
  return Describe(file, record.get()) == 0 && TryFile(file, record.get()) == 0;
}

bool IsSynced(const File& file) { return file.awaited_synced.load() == file.awaited.load(); }

void AwaitSync(File& file) {
  NVCACHE_CHECK(file.lock.IsLockedExclusive() && file.pending.load() == 0);
  file.tag.Undeclare();
  file.awaited.fetch_add(1);
}

}  // namespace nvcache::vfs
