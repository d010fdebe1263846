// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/settle.h"

#include <errno.h>

#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/root.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine.h"

namespace nvcache::vfs {

namespace {

using dramcache::Name;
using nvlog::Outcome;

// Several threads may do so at once: each has what it needs when its own sync is over.
long SyncFirst(File& file) {
  if (engine.CheckBacking(file) < 0) return kUnsettled;
  const uint32_t awaited = file.awaited.load();
  {
    sys::Lock lock(file.sync_lock);
    if (sys::Fsync(file.backing_fd) < 0) {
      file.sync_refused = file.pending.load() > 0;
      return kUnsettled;
    }
    file.opened_empty.store(false);
  }
  SettleName(file);
  file.awaited_synced.store(awaited);
  return 0;
}

// A path that leads elsewhere when recovery follows it is no path to create a file by.
bool IsOutOfReach(const File& file) {
  return file.name.load() == Name::kNew && !sys::AtMachineRoot();
}

// As Describe, for who may hold the file's sync_lock: a new file that is out of reach is not
// synced.
long DescribeNow(File& file, pool::FileRecord* record) {
  if (IsOutOfReach(file)) return kUnsettled;
  if (engine.CheckBacking(file) < 0 || pool::Describe(file.backing_fd, record) < 0) {
    return kUnsettled;
  }
  if (file.name.load() == Name::kNew) {
    record->flags = pool::kFileNew;
    record->predecessor = file.predecessor;
  }
  return 0;
}

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

// 0, kLogFull or kUnsettled.
long MarkOnce(File& file, nvlog::Kind kind, uint64_t offset, uint64_t length, nvlog::Lsn* lsn) {
  long result = TryMark(file, kind, offset, length, nullptr, lsn);
  if (result != kUndescribed) return result;
  sys::Scratch<pool::FileRecord> record;
  if (long error = DescribeNow(file, record.get()); error < 0) return error;
  return TryMark(file, kind, offset, length, record.get(), lsn);
}

// Nobody's record of the file comes before: whoever finds the flag set comes here.
long MarkEmpty(File& file) {
  sys::Lock lock(file.sync_lock);
  if (!file.opened_empty.load()) return 0;
  nvlog::Lsn lsn;
  if (long error = MarkOnce(file, nvlog::Kind::kTruncate, 0, 0, &lsn); error < 0) return error;
  file.opened_empty.store(false);
  return 0;
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

long Settle(File& file) {
  if (file.awaited_synced.load() != file.awaited.load()) {
    if (long error = SyncFirst(file); error < 0) return error;
  }
  if (!file.opened_empty.load()) return 0;
  return IsOutOfReach(file) ? SyncFirst(file) : MarkEmpty(file);
}

long Describe(File& file, pool::FileRecord* record) {
  if (IsOutOfReach(file) && SyncFirst(file) < 0) return kUnsettled;
  return DescribeNow(file, record);
}

long AppendMark(File& file, nvlog::Kind kind, uint64_t offset, uint64_t length, nvlog::Lsn* lsn) {
  for (;;) {
    const uint32_t room = engine.log.RoomSeen();
    long error = Settle(file);
    if (error == 0) error = MarkOnce(file, kind, offset, length, lsn);
    if (error != kLogFull) return error;
    if (engine.cleaner.overloaded()) return kUnsettled;
    engine.log.WaitForRoom(room);
  }
}

// If the log has no room for it, nothing is lost: a file that is missing is made again.
void SettleName(File& file) {
  if (file.name.exchange(Name::kSettled) == Name::kSettled || file.pending.load() == 0) return;
  sys::Scratch<pool::FileRecord> record;
  if (Describe(file, record.get()) == 0) TryFile(file, record.get());
}

void AwaitSync(File& file) {
  NVCACHE_CHECK(file.lock.IsLockedExclusive() && file.pending.load() == 0);
  file.opened_empty.store(false);
  file.tag.Undeclare();
  file.name.store(Name::kSettled);
  file.awaited.fetch_add(1);
}

}  // namespace nvcache::vfs
