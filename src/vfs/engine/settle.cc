// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/settle.h"

#include <errno.h>

#include "src/pool/identify.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/recent_records.h"

namespace nvcache::vfs {

namespace {

using nvlog::Outcome;

bool TryFile(File& file, pool::FileRecord* record) {
  nvlog::GroupWriter group(engine.log, file.tag);
  if (group.BeginFile(record) != Outcome::kDone) return false;
  file.pending.fetch_add(group.units());
  group.Commit();
  return true;
}

struct Mark {
  nvlog::Kind kind;
  uint64_t offset;
  uint64_t length;
};

// The stack has its group or Describe()'s frames, never both.
[[gnu::noinline]] Outcome TryMark(File& file, const Mark& mark, pool::FileRecord* record,
                                  nvlog::Lsn* lsn) {
  nvlog::GroupWriter group(engine.log, file.tag);
  const Outcome outcome = group.BeginMark(mark.kind, mark.offset, mark.length, record);
  if (outcome != Outcome::kDone) return outcome;
  file.pending.fetch_add(group.units());
  *lsn = group.Commit();
  return outcome;
}

}  // namespace

Next MayLog(const File& file) {
  if (file.removed.load(std::memory_order_relaxed)) return Next::kPassThrough;
  return IsSynced(file) ? Next::kDone : Next::kSync;
}

// A thread that closes or moves our descriptor changes the file's state before, or the number's
// meaning, and has sync_lock then. So if these are found as they were, it is ours, and the
// file's, until sync_lock is let go.
bool SyncBarrier(int fd) {
  Access access;
  if (access.Enter(fd, Access::kData) != 0 || !access.cached()) return true;
  File& file = access.file();
  const Description* description = &access.description();
  if (IsSynced(file)) return true;
  if (engine.own.Check(file) < 0) return false;
  access.Leave();
  sys::Lock lock(file.sync_lock);
  if (engine.descriptors.Of(fd) != description || description->file.load() != &file ||
      file.state.load() != State::kCached || IsSynced(file)) {
    return true;
  }
  const uint32_t barriers = file.barriers.load();
  const uint32_t changes = file.changes.load();
  if (sys::Fsync(file.backing_fd) < 0) {
    file.sync_refused = file.pending.load() > 0;
    return false;
  }
  file.changes_synced.store(changes);
  file.barriers_synced.store(barriers);
  return true;
}

// The first record of a file needs one.
bool Describe(File& file, pool::FileRecord* record) {
  NVCACHE_CHECK(file.barriers_synced.load() != 0);
  if (CopyRecentRecord(file, record)) return true;
  const uint32_t changes = file.changes.load();
  if (engine.own.Check(file) < 0 || pool::Describe(file.backing_fd, record) < 0) return false;
  KeepRecentRecord(file, changes, *record);
  return true;
}

Next AppendMark(File& file, nvlog::Kind kind, uint64_t offset, uint64_t length, nvlog::Lsn* lsn) {
  if (const Next next = MayLog(file); next != Next::kDone) return next;
  const Mark mark = {kind, offset, length};
  Outcome outcome = TryMark(file, mark, nullptr, lsn);
  if (outcome == Outcome::kUndeclared) {
    sys::Scratch<pool::FileRecord> record;
    if (!Describe(file, record.get())) return Next::kPassThrough;
    outcome = TryMark(file, mark, record.get(), lsn);
  }
  return NextOf(outcome);
}

// Describes the file by its record in the log: the kernel knows no path of a file without a name.
bool LogRemoval(File& file) {
  sys::Scratch<pool::FileRecord> record;
  if (!engine.log.CopyFileRecord(file.tag, record.get())) return false;
  record->flags |= pool::kFileRemoved;
  return TryFile(file, record.get());
}

bool LogReturn(File& file) {
  sys::Scratch<pool::FileRecord> record;
  return Describe(file, record.get()) && TryFile(file, record.get());
}

bool IsSynced(const File& file) { return file.barriers_synced.load() == file.barriers.load(); }

void RaiseBarrier(File& file) {
  NVCACHE_CHECK(file.lock.IsLockedExclusive() && file.pending.load() == 0);
  file.tag.Undeclare();
  file.barriers.fetch_add(1);
}

}  // namespace nvcache::vfs
