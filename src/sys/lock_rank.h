// SPDX-License-Identifier: BSD-3-Clause
//
// The order of all locks of the engine, and the waits that each allows. A build with
// NVCACHE_CHECK_LOCKS holds every thread to it; in any other a rank costs nothing.
#ifndef NVCACHE_SYS_LOCK_RANK_H_
#define NVCACHE_SYS_LOCK_RANK_H_

#include <cstdint>

namespace nvcache::sys {

// Outermost first: a thread that waits for a lock holds none of its rank, and none of a later one.
// TryLock waits for nobody, so it comes in any order. A thread may hold several locks of two ranks:
// kFile under the table lock, and kPage, in ascending order of pages (which is not checked).
//
// kSync alone may be held while the disk syncs, and by the cleanup thread kBatch: a lock that an
// open, a write or a read can need is not. For the cleanup thread (for room in the log, or
// until something is on disk) a thread waits with ranks up to kSpace; those from kBatch on the
// cleanup thread takes itself, or asks for with TryLock and goes no further without.
enum class Rank : uint8_t {
  kTable,   // Engine: descriptors, descriptions, files, attaching; for no read and no write
  kOffset,  // Description: reads and writes with the shared offset
  kGrow,    // File: appends, and writes past the end
  kFile,    // CachedFile: shared for data; exclusive for a change of size or state
  kSpace,   // a device's room: bytes to be written without asking the file system
  kBatch,   // Cleaner: from reading a batch until the checkpoint is above it; a file is handed over
  kWriteBack,  // Cleaner: one thread at a time brings records to the kernel
  kErase,      // CachedFile: from the record of an erasure until the kernel has erased
  kSync,       // CachedFile: a sync by our own descriptor, which nobody closes or moves meanwhile
  kBacking,    // Engine: such a descriptor is opened anew
  kPage,       // PageDescriptor
  kLane,       // Log: one of its lanes
  kSegments,   // Segments: the free ones
  kRecentRecords,  // the records of files that the log got lately
  kErasures,       // Erasures: those of a file
  kFrames,         // Frames: the free ones
  kArena,          // Arena: the free objects
  kReaping,        // Leases: one of our threads at a time looks whether a process has died
  kSaying,         // Leases: what hinders this process
  kCount
};

#ifdef NVCACHE_CHECK_LOCKS
void CheckOrder(Rank wanted);  // before a thread waits for a lock
void NoteLocked(Rank rank);
void NoteUnlocked(Rank rank);
void CheckSync();       // before a thread waits for the disk
void CheckWait();       // before it waits for the cleanup thread
void AllowSyncs(bool);  // see SyncsUnderLocks
#else
inline void CheckOrder(Rank) {}
inline void NoteLocked(Rank) {}
inline void NoteUnlocked(Rank) {}
inline void CheckSync() {}
inline void CheckWait() {}
inline void AllowSyncs(bool) {}
#endif

// The one exception, for a thread that creates or recovers a pool under the table lock: before that
// is done no file can be cached. A thread of its own does so, where one can be made.
class SyncsUnderLocks {
 public:
  SyncsUnderLocks() { AllowSyncs(true); }
  ~SyncsUnderLocks() { AllowSyncs(false); }
  SyncsUnderLocks(const SyncsUnderLocks&) = delete;
  SyncsUnderLocks& operator=(const SyncsUnderLocks&) = delete;
};

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_LOCK_RANK_H_
