// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/through.h"

#include <errno.h>

#include "src/nvlog/group_writer.h"
#include "src/pool/identify.h"
#include "src/sys/check.h"
#include "src/sys/deferral.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/sys/sharing.h"
#include "src/vfs/engine/claim.h"
#include "src/vfs/engine/recent_records.h"
#include "src/vfs/engine/states.h"
#include "src/vfs/engine/through_file.h"

namespace nvcache::vfs {

namespace {

using lease::Coverage;
using lease::FileEntry;
using lease::FileTable;
using nvlog::Lsn;
using nvlog::Outcome;

// For the pending groups of a file to be on the disk, where another process has to see to it.
constexpr uint64_t kSyncPatienceNs = 20ull * 1000 * 1000 * 1000;
// So often it is looked whether that process has died.
constexpr uint64_t kPollsToLook = 50;

// Facts about a file that need no lock.
struct Identity {
  uint64_t device = 0, inode = 0, tag = 0;
};

// The descriptor's file, if it is the kernel's, and its entry; null: it has none. No lock.
FileEntry* EntryOf(int fd, Identity* id) {
  Access access;
  if (!engine.leases.is_open() || access.Enter(fd, Access::kData) != 0 || access.cached()) {
    return nullptr;
  }
  File& file = access.file();
  *id = {file.device, file.inode, TagOf(file)};
  FileEntry* entry = engine.file_table.Find(id->tag);
  if (entry != nullptr && engine.turns.IsNews(file)) engine.turns.Look(file, fd, *entry, 0);
  return entry;
}

// A record that says that the file is settled. File lock; with a pin. False: there is none.
bool LogSettled(int fd, File& file, Lsn bound, uint64_t bypasses) {
  sys::Scratch<pool::FileRecord> scratch;
  for (pool::FileRecord* record = nullptr;; record = scratch.get()) {
    if (record != nullptr && !DescribeThrough(fd, file, record)) return false;
    nvlog::GroupWriter writer(engine.log, file.tag, bypasses);
    const Outcome outcome = writer.BeginMark(nvlog::Kind::kSettled, bound, 0, record);
    if (outcome == Outcome::kUndeclared && record == nullptr) continue;
    if (outcome != Outcome::kDone) return false;
    writer.Draw();
    writer.Commit();
    return true;
  }
}

bool MayBeWrittenUnseen(const Identity& id) {
  return engine.file_table.AnybodyInFlight(id.tag, id.device, id.inode) ||
         engine.leases.IsHandedOn(id.device, id.inode);
}

// The effect of a sync on the file: everything below `bound` is void then. 0: the pool is not
// there.
struct Sync {
  Coverage then;
  Lsn bound;
  bool somebody_passes;
};

Sync BeginSync(const FileEntry& entry, const Identity& id) {
  Sync sync = {};
  const PoolPin pin;
  if (!pin.ok() || !engine.checkpoint.is_open() || !IsOwnTable()) return sync;
  for (;;) {
    sync.then = FileTable::CoverageOf(entry);
    sync.bound = engine.log.Draw();
    const Coverage now = FileTable::CoverageOf(entry);
    if (now.tag == sync.then.tag && now.bypasses == sync.then.bypasses) break;
  }
  if (sync.then.tag != id.tag) sync.bound = 0;
  sync.somebody_passes = MayBeWrittenUnseen(id);
  return sync;
}

// The kernel tells a descriptor once of an error, and then that all is well: the pending bytes may
// be nowhere but in the log, and stay. 0, or -EIO.
long HearOfRefusal(FileEntry& entry, uint64_t tag) {
  const Coverage now = FileTable::CoverageOf(entry);
  if (now.tag != tag || !now.refused) return 0;
  if (!engine.file_table.IsPending(entry)) {
    FileTable::Change(entry, now, {tag, now.bypasses + 1, false, false});
  }
  return -EIO;
}

// A file synced without a name may have lost it in a call that is under way. The file system may
// undo that call, and not have the name either. After this, the call is over, or the file has had
// a name.
void AwaitName(int fd) {
  struct stat st;
  if (sys::IsSharing() || (sys::Fstat(fd, &st) == 0 && st.st_nlink > 0)) return;
  sys::InEngine inside;
  engine.file_table.UnlockNames(engine.file_table.LockNames());
}

// After it. False: its pending groups still are.
bool EndSync(int fd, uint64_t tag, FileEntry& entry, const Sync& sync) {
  const PoolPin pin;
  Access access;
  if (sync.bound == 0 || !pin.ok() || !IsOwnTable()) return false;
  if (access.Enter(fd, Access::kData) != 0 || access.cached() || TagOf(access.file()) != tag) {
    return false;
  }
  NoteBypasses(access.file(), sync.then.bypasses);
  if (!LogSettled(fd, access.file(), sync.bound, sync.then.bypasses)) return false;
  FileTable::Raise(entry.settled, sync.bound);
  engine.checkpoint.NotePending();
  if (!sync.somebody_passes && engine.pool().seats().ThroughFailed() == 0) {
    FileTable::Change(entry, {tag, sync.then.bypasses, false}, {tag, sync.then.bypasses, true});
  }
  return true;
}

// The disk has lost something of the file, and perhaps of others.
void NoteFailure(FileEntry& entry, uint64_t tag, long error) {
  FileTable::Refuse(entry, tag);
  const PoolPin pin;
  if (pin.ok() && engine.checkpoint.is_open()) {
    engine.pool().seats().SetThroughFailed(static_cast<int>(-error));
  }
}

// A child that shares our memory may be killed before it gives the pin back.
bool MoveCheckpoint() {
  if (sys::IsSharing()) return false;
  const PoolPin pin;
  return pin.ok() && engine.checkpoint.Move();
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
bool AwaitCheckpoint(const FileEntry& entry) {
  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
  for (uint64_t polls = 0; engine.file_table.IsPending(entry); ++polls) {
    const bool moved = MoveCheckpoint();
    if (moved && sys::Now(CLOCK_MONOTONIC) - begin < kSyncPatienceNs) continue;
    if (HasFailed() || sys::Now(CLOCK_MONOTONIC) - begin >= kSyncPatienceNs) return false;
    if (polls % kPollsToLook == 0) {
      engine.file_table.WantCheckpointAbove(entry.lsn.load());
      if (engine.checkpoint.LookForOwners()) return true;
    }
    sys::Pause(kPollNs);
  }
  return true;
}

}  // namespace

bool DescribeThrough(int fd, File& file, pool::FileRecord* record) {
  if (CopyRecentRecord(file, record)) return true;
  const uint32_t changes = file.changes.load();
  struct stat st;
  if (sys::Fstat(fd, &st) < 0 || st.st_nlink == 0 || pool::Describe(fd, record) < 0) {
    return false;
  }
  KeepRecentRecord(file, changes, *record);
  return true;
}

void NoteBypasses(File& file, uint64_t bypasses) {
  if (file.bypasses_seen.load() == bypasses) return;
  if (file.bypasses_seen.exchange(bypasses) != bypasses) file.changes.fetch_add(1);
}

// ------------------------------------------------------------------------------ Beginning, ending

void NoteCloseStamp(int fd, const Description& description) {
  const File& file = *description.file.load();
  if (!description.writes() && !file.said_open) return;
  if (!engine.leases.is_open() || !IsKernels(file.state.load())) return;
  FileEntry* entry = engine.file_table.Find(TagOf(file));
  struct stat st;
  if (entry == nullptr) return;
  const uint32_t stamped_at = FileTable::Progress(*entry);
  if (!FileTable::CoverageOf(*entry).known || sys::Fstat(fd, &st) < 0) return;
  FileTable::CarryCloseStamp(*entry, StampOf(st.st_ctim, static_cast<uint64_t>(st.st_size)),
                             stamped_at);
}

void NoteCloseStamp(File& file) {
  struct stat st;
  const bool seen = file.may_hand_over && sys::Fstat(file.backing_fd, &st) == 0;
  file.close_stamp = seen ? StampOf(st.st_ctim, static_cast<uint64_t>(st.st_size)) : 0;
}

bool MatchesCloseStamp(const FileEntry& entry, const struct stat& st) {
  return entry.close_stamp.load() == StampOf(st.st_ctim, static_cast<uint64_t>(st.st_size));
}

// Else the last write is one from before the stamp, and so not later than the last change then.
// With another size the stamp has no such time.
bool HasOtherBytes(const FileEntry& entry, const struct stat& st) {
  const uint64_t size_bits = static_cast<uint64_t>(st.st_size) << 40;
  const uint64_t changed = entry.close_stamp.load() ^ size_bits;
  return changed < TimeOf(st.st_mtim) || changed > (TimeOf(st.st_ctim) | 1);
}

void LookAtOpened(FileEntry& entry, const struct stat& st) {
  engine.turns.LookAtOpened(entry, st);
  FileTable::Forget(entry);
}

bool GetTag(FileEntry& entry, uint64_t tag) {
  if (tag == 0) return false;
  return engine.file_table.SetTag(entry, tag) ||
         (engine.file_table.RemoveTag(entry) && engine.file_table.SetTag(entry, tag));
}

namespace {

// Every byte of the file is on the disk or in a log, its name as well.
bool IsWhole(const File& file) {
  return IsSynced(file) && file.changes.load() == file.changes_synced.load();
}

// Says that the file is handed over. `*then`: its entry's coverage when it had the tag. The entry
// has the record's LSN before the tag: a process that may remove that finds the file pending. 0:
// there is no room for the record, or another file has the entry; then nothing has happened.
Lsn LogHandedOver(File& file, FileEntry& entry, Coverage* then) {
  const uint64_t tag = TagOf(file);
  sys::Scratch<pool::FileRecord> scratch;
  for (pool::FileRecord* record = nullptr;; record = scratch.get()) {
    if (record != nullptr && !Describe(file, record)) return 0;
    nvlog::GroupWriter writer(engine.log, file.tag);
    const Outcome outcome = writer.BeginMark(nvlog::Kind::kHandedOver, 0, 0, record);
    if (outcome == Outcome::kUndeclared && record == nullptr) continue;
    if (outcome != Outcome::kDone) return 0;
    FileTable::Raise(entry.lsn, writer.lsn());
    if (!engine.file_table.SetTag(entry, tag)) return 0;
    *then = FileTable::CoverageOf(entry);
    return writer.Commit();
  }
}

}  // namespace

// Nobody makes a call on it that has not seen the tag, and none that has: so it is looked at last.
void LeaveKnown(const File& file) {
  NVCACHE_CHECK(file.descriptions == nullptr && file.pending.load() == 0);
  const Identity id = {file.device, file.inode, TagOf(file)};
  if (file.close_stamp == 0 || file.forever || file.failing.load() != 0 || !IsWhole(file) ||
      !IsOwnTable() || engine.leases.lost() || engine.pool().seats().ThroughFailed() != 0) {
    return;
  }
  FileEntry& entry = engine.file_table.At(id.tag);
  if (!GetTag(entry, id.tag)) return;
  const Coverage then = FileTable::CoverageOf(entry);
  struct stat st;
  if (then.tag != id.tag || MayBeWrittenUnseen(id) || sys::Fstat(file.backing_fd, &st) < 0 ||
      st.st_nlink == 0 ||
      StampOf(st.st_ctim, static_cast<uint64_t>(st.st_size)) != file.close_stamp) {
    return;
  }
  const uint32_t stamped_at = FileTable::Progress(entry);
  if (FileTable::Change(entry, then, {id.tag, then.bypasses, true})) {
    FileTable::CarryCloseStamp(entry, file.close_stamp, stamped_at);
  }
}

void BeginThrough(File& file, int fd) {
  struct stat st;
  if (sys::Fstat(fd, &st) < 0 || !engine.file_systems.Cacheable(fd, st) ||
      !engine.checkpoint.UseFileSystem(fd, st))
    return;
  const uint64_t tag = TagOf(file);
  if (GetTag(engine.file_table.At(tag), tag)) engine.files.SayOpen(file);
}

bool JoinThrough(int fd) {
  if (!engine.callers.Know()) return false;
  TableLock lock;
  const Description* description = engine.descriptors.Of(fd);
  struct stat st;
  if (!IsDescription(description) || !engine.attachment.Attach()) return false;
  return sys::Fstat(fd, &st) == 0 && engine.checkpoint.UseFileSystem(fd, st);
}

long BypassLogOf(int fd, InFlight* in_flight) {
  if (const long error = TakeOver(fd); error < 0) return error;
  {
    Access access;
    if (access.Enter(fd, Access::kData) == 0 && !access.cached()) in_flight->Begin(access.file());
  }
  return in_flight->Bypass(fd);
}

bool EndThrough(const File& file) {
  const uint64_t tag = TagOf(file);
  if (engine.file_table.Find(tag) == nullptr) return true;
  if (!engine.file_table.Join(engine.pool_id())) return false;
  engine.file_table.RaiseCheckpoint(engine.pool().through_checkpoint());
  FileEntry* entry = engine.file_table.Find(tag);
  return entry == nullptr || engine.file_table.RemoveTag(*entry);
}

// A batch may bring the last of it to the disk at any moment.
bool HandOverFile(File& file) {
  NVCACHE_CHECK(file.lock.IsLockedExclusive());
  const uint64_t tag = TagOf(file);
  const Identity id = {file.device, file.inode, tag};
  FileEntry& entry = engine.file_table.At(tag);
  if (!IsOwnTable() || !engine.file_table.RemoveTag(entry)) return false;
  engine.pool().MarkHandsOver();
  if (file.descriptions != nullptr) engine.files.SayOpen(file);
  Coverage then = {};
  if (!engine.cleaner.HandOver(file, [&] { return LogHandedOver(file, entry, &then); }))
    return false;
  if (then.tag == tag && IsWhole(file) && !MayBeWrittenUnseen(id)) {
    FileTable::Change(entry, {tag, then.bypasses, false}, {tag, then.bypasses, true});
  }
  engine.checkpoint.NotePending();
  return true;
}

// --------------------------------------------------------------------------------------- Settling

long EndPending(const FileEntry& entry) {
  const bool ended = !engine.file_table.IsPending(entry) || AwaitCheckpoint(entry);
  return ended || !HasFailed() ? 0 : -EIO;
}

long SettleThrough(int fd) {
  Identity id;
  FileEntry* entry = EntryOf(fd, &id);
  if (entry == nullptr) return kNotOurs;
  const Sync sync = BeginSync(*entry, id);
  if (const long error = sys::Fsync(fd); error < 0) {
    NoteFailure(*entry, id.tag, error);
    return error;
  }
  if (const long error = HearOfRefusal(*entry, id.tag); error < 0) return error;
  AwaitName(fd);
  if (EndSync(fd, id.tag, *entry, sync) || AwaitCheckpoint(*entry)) return 0;
  const PoolPin pin;
  return pin.ok() ? -EIO : 0;
}

namespace {

// Whether the file is known, and the log can be trusted; kNotOurs: it has no entry.
long IsInLog(int fd) {
  Identity id;
  FileEntry* entry = EntryOf(fd, &id);
  if (entry == nullptr) return kNotOurs;
  engine.files.BeginUse(fd);
  const PoolPin pin;
  const bool trusted = pin.ok() && IsOwnTable() && engine.pool().seats().ThroughFailed() == 0;
  const EntryLock lock(*entry);
  const Coverage now = FileTable::CoverageOf(*entry);
  if (now.tag != id.tag) return kNotOurs;
  return now.known && trusted ? 1 : 0;
}

}  // namespace

long SyncThrough(int fd) {
  const long in_log = IsInLog(fd);
  if (in_log == kNotOurs) return kNotOurs;
  if (in_log != 0 && engine.checkpoint.EndUnloggedNames()) return 0;
  JoinThrough(fd);
  return SettleThrough(fd);
}

bool BytesAreInLog(int fd) { return IsInLog(fd) > 0; }

}  // namespace nvcache::vfs
