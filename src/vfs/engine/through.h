// SPDX-License-Identifier: BSD-3-Clause
//
// Files that are the kernel's and write-through (docs/write-through.md): hot ones that several
// processes use, and those whose names the log has. Each has an entry among the leases
// (src/lease/file_table.h), where all processes find it. The steps of a call that changes a file of
// the kernel's:
//
//   InFlight          the process says so, before it looks for the tag, until the call is over
//   no tag           the kernel's call, and that is all
//   a tag, known     WriteThrough: the kernel's call, and a record of it, under the entry's lock
//   else             BypassingCall, and the kernel's call
//
//   unknown --- SettleThrough: a sync, a record of it, and nobody passes -------> known
//   known   --- a call past the log, or a lock that was taken away ------------> unknown
//
// While a file is known, its fsync is nothing.
#ifndef NVCACHE_VFS_ENGINE_THROUGH_H_
#define NVCACHE_VFS_ENGINE_THROUGH_H_

#include "src/vfs/engine/access.h"
#include "src/vfs/engine/attempt.h"
#include "src/vfs/engine/in_flight.h"
#include "src/vfs/engine/settle.h"

namespace nvcache::vfs {

// A call that the kernel makes on a file of its own, and that is in no log. Until it is over,
// nobody begins to cache the file, and no process takes it for known.
class BypassingCall {
 public:
  // `in_flight` has begun with the file. Leaves that.
  BypassingCall(int fd, Access& access, const InFlight& in_flight)
      : at_work_(access), error_(in_flight.Bypass(fd)) {}
  BypassingCall(const BypassingCall&) = delete;
  BypassingCall& operator=(const BypassingCall&) = delete;
  // 0; -EIO: the call must fail.
  long error() const { return error_; }

 private:
  const KernelCall at_work_;
  const long error_;
};

// A hot file that the process cannot have for itself: it has an entry from now on, unless another
// file has that. Table lock; the descriptor's file is the kernel's.
void BeginThrough(File& file, int fd);
// Attaches the pool, to use the entry of the descriptor's file. False: it cannot. No lock.
bool JoinThrough(int fd);
// Before something is done to the descriptor's file that is in no log: nothing of it is pending any
// more, and until `in_flight` ends, nobody takes it for known. No lock. 0, or what the disk says to
// that: then it must not be done.
long BypassLogOf(int fd, InFlight* in_flight);
// The file is this process's alone, and about to be cached: it has no entry any more. False:
// something of it is pending. File lock, exclusive.
bool EndThrough(const File& file);

// A cached file of which the kernel has all becomes the kernel's, and write-through, with what it
// has in the log. False: it cannot; nothing has happened. Table lock, and the file's, exclusive.
bool HandOverFile(File& file);

// One attempt at a write, or at the rest of it. The file's lock, shared; `in_flight` has found a
// entry.
Next WriteThrough(Access& access, const WriteCall& call, uint64_t total, const InFlight& in_flight,
                  Attempt* attempt);

// One attempt at ftruncate of a known file, by way of the log; unless it is kDone, nothing has
// happened. The file's lock, shared; `in_flight` has found an entry.
Next TruncateThrough(Access& access, int fd, uint64_t length, const InFlight& in_flight,
                     Attempt* attempt);

// The descriptor is about to be closed: its entry keeps how the file is now. If it is so when it is
// opened again, nobody has changed it meanwhile, as far as its time of change can tell. Table lock.
void NoteCloseStamp(int fd, const Description& description);
bool MatchesCloseStamp(const lease::FileEntry& entry, const struct stat& st);
// It was written since, and has not only got another name or mode.
bool HasOtherBytes(const lease::FileEntry& entry, const struct stat& st);
// It was opened, nobody else of us has it open, and it is not as it was left: nothing of it is
// known. Table lock.
void LookAtOpened(lease::FileEntry& entry, const struct stat& st);
// Notes how a cached file is that nobody here has open now.
void NoteCloseStamp(File& file);
// Such a file, all of which is on the disk: it is known from now on, unless somebody has changed it
// since. Table lock.
void LeaveKnown(const File& file);

// The file with that tag has the entry. False: another one has it.
bool GetTag(lease::FileEntry& entry, uint64_t tag);

// Nothing is pending of the file or folder that has the entry. 0; -EIO: the disk refuses. No lock.
long EndPending(const lease::FileEntry& entry);

// Syncs the descriptor's file, by that descriptor: nothing is pending of it then, and the file is
// known unless somebody is in flight. 0, or what the kernel says; -EIO as well if an earlier sync
// has failed, by whatever process, as long as something is pending, and once more. kNotOurs: it has
// no entry. No lock.
long SettleThrough(int fd);

// fsync of a file with an entry: 0, at once if it is known; or as SettleThrough.
long SyncThrough(int fd);
// The descriptor's file is known: of its bytes nothing need be synced. No lock.
bool BytesAreInLog(int fd);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_THROUGH_H_
