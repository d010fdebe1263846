// SPDX-License-Identifier: BSD-3-Clause
//
// Files (one per inode) and open file descriptions, as the program has them.
#ifndef NVCACHE_VFS_ENGINE_FILE_H_
#define NVCACHE_VFS_ENGINE_FILE_H_

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdint>

#include "src/dramcache/cached_file.h"
#include "src/sys/born_stat.h"
#include "src/sys/lock.h"

namespace nvcache::vfs {

// states.h says what they mean, and which follows which.
enum class State : uint32_t { kKernel, kLent, kCached, kPassThrough, kForeign, kLost };

// The kernel has every byte, and each call may be in the log of write-through.
constexpr bool IsKernels(State state) { return state == State::kKernel || state == State::kLent; }
// The program's calls on it may still matter to us.
constexpr bool IsFollowed(State state) {
  return state != State::kPassThrough && state != State::kLost;
}

// File::locks
inline constexpr uint32_t kLockAsked = 1;
inline constexpr uint32_t kLockExclusive = 2;

struct Description;

// Its memory is a File's for ever (sys::Arena), so a thread that comes too late finds a lock, not
// somebody else's data, and looks again. Unless another lock is named: the table lock.
struct File : dramcache::CachedFile {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t birth = 0;                        // sys::BornStat
  std::atomic<uint64_t> entry_tag{0};        // of these three, as lease::FileEntry has it
  std::atomic<State> state{State::kKernel};  // changes under `lock` exclusive, by SetState alone
  Description* descriptions = nullptr;       // the open ones; changes under `lock` exclusive, too
  bool forever = false;                      // is kept after the last close: mapped
  bool handed_on = false;                    // Leases::RemembersHandOn, at the last fork

  // The program has asked for an fcntl lock: one may be held.
  std::atomic<bool> locked{false};
  // The steps of a lock, of whatever kind, that it has asked for: kLock...
  std::atomic<uint32_t> locks{0};

  // Turns. The latest in which it was written or synced, 0: none since it was opened; by which
  // descriptor; its mtime and size at the end of that; and the list of the files of this turn,
  // whose members stay there when the memory is another file's.
  std::atomic<uint64_t> turn{0};
  std::atomic<int> turn_fd{-1};
  uint64_t bytes_stamp = 0;
  std::atomic<bool> in_turn{false};
  File* turn_next = nullptr;

  // Held by a thread that lets the file grow, and by every append: the end of the file is where it
  // was when the place in the log was taken (I3).
  sys::Mutex<sys::Rank::kGrow> grow_lock;

  bool said_open = false;  // FileTable::SayOpen; not by a child of fork, which may find it true

  // There may be holes below its size, which take room on the disk when they are written.
  std::atomic<bool> sparse{false};

  // Calls that the kernel is at work on, for as long as it has the file: KernelCall. Never reset,
  // for one may outlive the file's last descriptor.
  std::atomic<uint32_t> in_kernel{0};
  // Coverage::bypasses when the log of write-through was told of it.
  std::atomic<uint64_t> bypasses_seen{0};

  // ---- While it is cached; else as here, and so is `removed`.

  // Our syncs of its file system cover all that was written to it.
  bool may_hand_over = false;
  // Its mtime and size in the kernel after the last batch; how many changes of ours there had been
  // then. 0: not known. For the cleanup thread alone.
  uint64_t written_stamp = 0;
  uint32_t written_changes = 0, written_kernel_changes = 0;
  // A program without NVCache was seen to have written to it: it is to be given back.
  std::atomic<bool> written_outside{false};
  // The stamp of its last close (StampOf); 0: not known.
  uint64_t close_stamp = 0;

  // ----

  // Syncs that the program has asked for while the kernel had the file (heat.cc).
  std::atomic<uint32_t> syncs{0};
  std::atomic<uint64_t> synced_at{0};  // the last one, monotonic ns; 0: none

  // Changes that no log has, of its name, size or attributes (I9), and how many of these a sync has
  // covered. While they differ, an fsync must reach the device.
  std::atomic<uint32_t> changes{0};
  std::atomic<uint32_t> changes_synced{0};

  // The log's latest word on it (recent_records.h); 0: none.
  std::atomic<uint64_t> recent_record{0};

  File* hash_next = nullptr;    // files of one bucket
  File* closed_next = nullptr;  // closed by the program, records still pending
  bool closed = false;

  // For another inode, as `number` of the log's files: everything but its mutexes, `in_kernel`,
  // `handed_over` and the list of a turn. Nothing is open or pending.
  void Begin(const sys::BornStat& st, uint32_t number);
  // Notes how it is when it begins to be cached (outside.h). `lock` exclusive.
  void BeginToWatch(const struct stat& st);
  // It is cached no more. `lock` exclusive.
  void EndCaching();
  // Pages and log are somebody else's from now on.
  void ForgetCache();
  // In a child of fork: threads of the parent may have had them.
  void ResetLocks();
};

uint64_t TimeOf(const struct timespec& time);  // ns
// The stamp of a file that an entry keeps; never 0.
uint64_t StampOf(const struct timespec& changed, uint64_t size);
// One of its bytes: its mtime and size. Never 0.
uint64_t BytesStamp(const struct stat& st);

// An open file description, which dup() shares. Memory as with File.
struct Description {
  std::atomic<File*> file{nullptr};
  // Access mode and O_APPEND, as open() and F_SETFL gave them. O_CLOEXEC: none of its descriptors
  // stays open over exec, for sure.
  std::atomic<int> flags{0};
  bool writes() const { return (flags.load() & O_ACCMODE) != O_RDONLY; }
  sys::Mutex<sys::Rank::kOffset> offset_lock;  // read and write with the shared offset
  // The write-back errors that fsync has reported here.
  std::atomic<uint32_t> errors_heard{0};
  // Descriptors that it has lost, ever. A thread that lets go of the file's lock, and comes back,
  // sees by it whether the number meant this description all the time.
  std::atomic<uint32_t> drops{0};
  // Standing::forks() when it was opened; kShared: other processes had it before.
  std::atomic<uint32_t> forks{0};
  // A program that was started may have it, or a process it was sent to.
  std::atomic<bool> given{false};
  uint64_t offset = 0;          // bytes; counts while the file is kCached. Changes under
                                // offset_lock and `lock` shared, or `lock` exclusive
  uint32_t references = 0;      // descriptors; table lock
  Description* next = nullptr;  // of the file's descriptions
};

inline constexpr uint32_t kShared = ~uint32_t{0};  // Description::forks

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_FILE_H_
