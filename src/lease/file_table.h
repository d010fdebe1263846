// SPDX-License-Identifier: BSD-3-Clause
//
// Files that several processes write to, by way of the kernel and of a log (docs/write-through.md;
// tests/protocol is the model). Each has an entry in the file of leases, where all processes of the
// user find it, and a lock there that orders their writes. The lock is taken away from a process
// that has died, or that does not move: so a process that has it looks whether it still does before
// a write is committed.
//
// The table is of one pool at a time, that of the LSNs in it.
#ifndef NVCACHE_LEASE_FILE_TABLE_H_
#define NVCACHE_LEASE_FILE_TABLE_H_

#include <atomic>
#include <cstdint>

#include "src/lease/file_entry.h"
#include "src/lease/tag.h"

namespace nvcache::lease {

class Leases;

// How long the owner of an entry's lock may not move, in ns: then it is taken for stopped.
inline constexpr uint64_t kLockPatience = 50 * 1000 * 1000;

// The lock of names has another limit, for it is held over calls that may wait for a journal.
inline constexpr uint64_t kNamesPatience = 1000 * 1000 * 1000;

// A folder with two syncs within so many seconds gets an entry.
inline constexpr uint64_t kWarmSeconds = 10;

// Words that are read, and change, in one step.
struct Coverage {
  uint64_t tag;          // the file: TagOf(); 0: none
  uint64_t bypasses;     // counts calls that may have gone past the log
  bool known;            // every byte of the file is on the disk or in a log
  bool refused = false;  // a sync of the file has failed: nothing of it can be settled
  bool operator==(const Coverage&) const = default;
};

// A process that has a slot has the file_table.
class FileTable {
 public:
  explicit constexpr FileTable(Leases& leases) : leases_(leases) {}

  // ---- The table. One thread at a time.
  // It is of this pool, until the process ends or leaves it. False: it is another's.
  bool Join(uint64_t pool) const;
  void Leave() const;
  // No process that lives has joined it, this one included from now on.
  bool LeaveIfUnused() const;
  bool IsOf(uint64_t pool) const;
  // A process that has looked at the table's pool, and has found nothing there that must be brought
  // to the files before they are used, says so to those that start: `deaths` is what
  // Leases::deaths() was before. `emulated`: the pool needs that setting. A process that replays
  // the logs of the dead, and goes on, says first that nobody has looked; one that does so at its
  // end need not, for logs that it cannot replay stay orphans, and a process that attaches the pool
  // finds them.
  void NoteLook(uint32_t deaths, bool emulated) const;
  void ForgetLook() const;
  // It is this pool, a process that lives has joined the table, and nobody has died since the look
  // that had files for itself.
  bool WasLookedAt(uint64_t pool, bool emulate) const;
  // The checkpoint of write-through, as it was told last: it may be higher.
  uint64_t checkpoint() const;
  void RaiseCheckpoint(uint64_t lsn) const;
  // Asks those who can move it to do so now: the caller has no descriptor of the file system. Not
  // waited for.
  void WantCheckpointAbove(uint64_t lsn) const;
  uint64_t wanted() const;

  // ---- Passing
  // Its count, for EndInFlight(), by which that is done soonest; null: the slot is lost.
  std::atomic<uint16_t>* BeginInFlight(uint64_t tag) const;
  void EndInFlight(uint64_t tag) const;
  void EndInFlight(std::atomic<uint16_t>* count) const;
  // Some process that lives, and uses the file with that number, is; this one counts.
  bool AnybodyInFlight(uint64_t tag, uint64_t device, uint64_t inode) const;

  // ---- Names
  // Before a call that changes names, or may, while its folders are looked up; until it is in
  // flight for each of them, or over.
  void BeginNaming() const;
  void EndNaming() const;
  // Somebody has given a folder an entry. True: each process that lives was in between no more at
  // some time since; or that will not be soon.
  bool AwaitNaming() const;
  // Whether this process, when it passes for the one, is taken to pass for the other.
  bool AreOneClass(uint64_t a, uint64_t b) const;
  // Some process that lives has a call in flight for the folder, or one of its class, beyond `own`
  // calls of this one. More than there are would hide another thread's.
  bool AnybodyChanges(uint64_t tag, uint32_t own) const;
  // Some folder has had an entry. A process that gives it one says so before. All are on one device
  // at a time.
  bool HasFolders() const;
  void NoteFolder(uint64_t device) const;
  // The lock of names. A process that takes it from another one makes every entry unknown before
  // anybody has it: the other one may still make its call.
  uint64_t LockNames() const;
  bool IsOwnNames(uint64_t lock) const;
  void UnlockNames(uint64_t lock) const;
  // The last call that took a file of the logs its last name, and had not to be in the pool's
  // journal before: the LSN of its record. Lock of names.
  void NoteRemoved(uint64_t lsn) const;
  uint64_t removed() const;
  // Every file and folder is unknown from now on: a call goes past the log that may change any of
  // them. What is under way of names is over. True: something of one may be pending.
  bool ForgetAll() const;
  // A folder, or a file in it, is synced. True: it was so before, and not long ago.
  bool WarmUp(uint64_t tag) const;

  // ---- Names that are in no log. No later name is durable before them, and no later fsync has
  // nothing to do: that would be another order than a journal's.
  // A name on that device (0: on some device) was changed by the kernel alone, and nobody has
  // synced it.
  void NoteUnlogged(uint64_t device) const;
  bool HasUnlogged() const { return Unlogged() != UnloggedSynced(); }
  // How many there were so far. They are on the disk, if a sync of the device that begins now
  // succeeds; then RaiseUnloggedSynced() is told this number.
  uint64_t Unlogged() const;
  void RaiseUnloggedSynced(uint64_t unlogged) const;
  // Somebody has to sync the device for them now; had to twice within kWarmSeconds.
  void NoteUnloggedAwaited() const;
  bool WereUnloggedAwaited() const;

  // ---- Which processes have a file open. If one without NVCache writes to a file that nobody has
  // open, the next one to open it takes the file for unknown.
  // This process has the file open, and it was forgotten since nobody had it open, or another one
  // says the same. Until SayClosed() or the process's end. Children of fork do not say it.
  // `sure`: nothing but the leases' file can be at our descriptor's number; else it is looked at.
  void SayOpen(uint64_t tag, bool sure = false) const;
  void SayClosed(uint64_t tag, bool sure = false) const;
  // Looked at with the file open. False also where that cannot be told.
  bool IsOpenElsewhere(uint64_t tag) const;

  // ---- An entry
  FileEntry& At(uint64_t tag) const;
  // Null: the file has none.
  FileEntry* Find(uint64_t tag) const;
  // A group of the file may count in recovery, or come.
  bool IsPending(const FileEntry& entry) const;

  static Coverage CoverageOf(const FileEntry& entry);
  // False, and nothing is done: it is not `from` any more.
  static bool Change(FileEntry& entry, const Coverage& from, const Coverage& to);
  // The file or folder that has the entry is not known any more: something goes past the log.
  static void Forget(FileEntry& entry);
  // A sync of the file has failed, if it has the entry.
  static void Refuse(FileEntry& entry, uint64_t tag);
  static void Raise(std::atomic<uint64_t>& field, uint64_t lsn);
  // A number that changes with every call on the file that a process under NVCache makes.
  static uint32_t Progress(const FileEntry& entry);
  // FileEntry::close_stamp. `stamped_at`: Progress() before the file was looked at.
  static void CarryCloseStamp(FileEntry& entry, uint64_t close_stamp, uint32_t stamped_at);
  // The entry is the file's. False: it is another's.
  bool SetTag(FileEntry& entry, uint64_t tag) const;
  // Nobody's, unless something of its file is pending.
  bool RemoveTag(FileEntry& entry) const;

  // ---- Its lock
  // Returns the lock's word, for Unlock() and IsOwn(). A former owner has let go, or has lost it.
  uint64_t Lock(FileEntry& entry) const;
  static bool IsOwn(const FileEntry& entry, uint64_t lock) { return entry.lock.load() == lock; }
  // Does nothing if the lock was taken away meanwhile.
  void Unlock(FileEntry& entry, uint64_t lock) const;

 private:
  uint64_t UnloggedSynced() const;
  uint64_t Own(uint64_t seen) const;
  bool IsStale(uint64_t lock) const;
  bool TryLock(FileEntry& entry, uint64_t* lock) const;
  bool TakeAway(FileEntry& entry, uint64_t seen, uint64_t* lock) const;
  uint64_t Lock(FileEntry& entry, uint64_t patience) const;
  std::atomic<uint16_t>& Count(uint32_t slot, uint64_t tag) const;

  Leases& leases_;
};

}  // namespace nvcache::lease

#endif  // NVCACHE_LEASE_FILE_TABLE_H_
