// SPDX-License-Identifier: BSD-3-Clause
//
// The one engine of a process: its tables, and the pool while it is attached.
//
// The pool is attached when something is to be logged, and detached when no file is cached and the
// process may become another program (exec) or end. In between the process is
//
//   idle   it has a seat and a log: enough for write-through, as long as a checkpointer moves the
//          checkpoint. Most processes end like that
//   busy   it has frames and the two threads as well (Employ): from its first cached file on, or
//          when it has been attached for kBusyAfterNs and logs something still
//
// The order of locks is in src/sys/lock_rank.h.
#ifndef NVCACHE_VFS_ENGINE_H_
#define NVCACHE_VFS_ENGINE_H_

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "src/cleanup/cleaner.h"
#include "src/dramcache/page_cache.h"
#include "src/lease/leases.h"
#include "src/lease/tally.h"
#include "src/nvlog/through.h"
#include "src/pool/pool.h"
#include "src/replay/replay.h"
#include "src/settings/settings.h"
#include "src/sys/arena.h"
#include "src/sys/credentials.h"
#include "src/sys/deferral.h"
#include "src/sys/host.h"
#include "src/sys/lock_rank.h"
#include "src/sys/scratch.h"
#include "src/sys/sharing.h"
#include "src/vfs/file.h"
#include "src/vfs/mappings.h"

namespace nvcache::vfs {

inline constexpr uint32_t kMaxDescriptors = 1u << 20;  // the kernel's own limit (fs.nr_open)
inline constexpr uint32_t kMaxFiles = 1u << 16;        // tracked; the rest pass through
inline constexpr uint32_t kMaxDescriptions = 1u << 18;
inline constexpr uint32_t kFewBuckets = 1u << 7;  // of few files
inline constexpr uint32_t kFileBuckets = 1u << 12;
inline constexpr uint32_t kFewDescriptors = 512;   // those of the engine's own are among them
inline constexpr uint64_t kUnreadable = 2u << 20;  // as much as the kernel takes in at a time
inline constexpr uint32_t kMaxFileSystems = 64;    // devices whose kind is remembered
// Before attaching is tried again that has waited for somebody in vain, or has been undone.
inline constexpr uint64_t kAttachAgainNs = 1000 * 1000 * 1000;
// A process that is attached for so long, and goes on logging, is not one that ends at once.
inline constexpr uint64_t kBusyAfterNs = 50 * 1000 * 1000;

// What a descriptor number stands for, besides a Description.
Description* const kUntracked = nullptr;
inline Description* Closing() { return reinterpret_cast<Description*>(1); }   // close() is at work
inline Description* Internal() { return reinterpret_cast<Description*>(2); }  // opened by us
inline constexpr uint32_t kShared = ~uint32_t{0};                             // Description::forks
inline bool IsDescription(const Description* d) { return reinterpret_cast<uintptr_t>(d) > 2; }

// Whether anybody holds an fcntl lock on the descriptor's file: perhaps this process.
bool IsLocked(int fd);

// What a file system keeps its files on, as far as caching goes: never, always, or when asked to.
enum class Storage : uint8_t { kNone, kDisk, kOther };

class Engine {
 public:
  constexpr Engine() = default;

  // ---- Life (engine.cc)
  void Start(const Host& host, char** environment);
  void RefuseStart(char** environment, const char* text);
  void Stop();
  void Retire();
  void Leave();
  // Nor is it for a child that shares our memory.
  bool active() const { return active_.load(std::memory_order_acquire) && !sys::IsSharing(); }
  // Nothing is cached while it is not. Table lock, to rely on it.
  bool attached() const { return attached_.load(std::memory_order_relaxed) && !asleep(); }
  // Attaches the pool, unless it is. False: the program runs without the cache.
  bool Attach();
  // Makes an attached process busy, unless it is. False: it has no memory or threads for that, and
  // caches nothing. Table lock held.
  bool Employ();
  bool busy() const { return busy_.load(std::memory_order_relaxed); }
  // It has been idle for long enough, and is about to log something.
  bool IsToBeBusy() const;
  // Every file that is cached pass-through, and the pool given back; `for_good`: the others as
  // well, for what the program does with them is not seen any more. Table lock held. 0, or the
  // error of a file that stays cached, and the pool with it.
  long ReleaseAll(bool for_good = false);
  // The same, and no file becomes cached before as many freezes have ended. Table lock held.
  long BeginFreeze();
  void EndFreeze() {
    if (freezes_ > 0) --freezes_;
  }
  // Around a call that may take rights from the process; table lock held in the first. In between
  // no pool is mapped, whatever the disk says, and none is attached; afterwards only by a thread
  // with the rights that the process began with.
  void PrepareRights();
  void RightsChanged() { rights_changing_.fetch_sub(1); }
  // The rest of the program's life, too.
  void StayWithoutPool() { hopeless_ = true; }
  // Around fork, the second in the child alone. Table lock held.
  void PrepareFork();
  void BecomeChild();
  void LeaveInChild();
  // A child of fork sleeps until it uses a file: most never do. Whoever takes the table lock by
  // LockTable() finds it awake, and so does Access.
  bool asleep() const { return asleep_.load(std::memory_order_relaxed); }
  void LockTable() {
    table_lock.Lock();
    if (asleep()) [[unlikely]]
      Wake();
  }
  // A description that was there at a fork is the child's as well. Forks are counted, so that
  // nothing is done for each description.
  uint32_t forks() const { return forks_.load(std::memory_order_relaxed); }
  bool IsForked(const Description& description) const {
    return description.forks.load(std::memory_order_relaxed) != forks();
  }
  void NoteFork() { forks_.fetch_add(1); }
  // A program that is started gets a descriptor of the file that can write (Leases::HandOn). True:
  // the file has a tally, of which something may be pending. Table lock held.
  bool HandOn(const File& file);
  // Around the life of a child of vfork: no file becomes cached. Table lock held in the first,
  // which says no if one is.
  bool BeginSharing();
  void EndSharing() { children_.fetch_sub(1); }
  // Around exec, which ends what other threads of ours have begun: nothing becomes cached between.
  // Table lock held.
  void BeginReplacing();
  void EndReplacing();
  // No file may become cached just now.
  bool replacing() const { return replacing_ > 0 || children_.load() > 0; }

  // ---- Other processes (claim.cc); without locks
  // When a process has died: the pool may have what the files lack.
  void NoticeDeaths();
  bool LookAfterDeathsInCopy();
  // Somebody has died that had files in its cache, and the pool was not looked at since.
  bool KnowsOfDeaths() const { return leases.deaths() != deaths_seen_.load(); }
  bool IsForeign(int fd) const;
  // If the descriptor's file is foreign: has the parent let go of it. 0, or as Claim::Take.
  long TakeOver(int fd);
  // The kernel gets what another process has of the file in its cache. True: it may have got some.
  bool AwaitPublication(uint64_t device, uint64_t inode);

  // ---- Tables (tables.cc); table lock held, but for SlotOf
  Description* SlotOf(int fd) const { return sys::IsSharing() ? kUntracked : SlotOfParent(fd); }
  // For a child that shares our memory, and may have put something else there.
  Description* SlotOfParent(int fd) const {
    if (static_cast<uint32_t>(fd) >= slot_count_.load(std::memory_order_acquire)) return kUntracked;
    return slots_.load(std::memory_order_relaxed)[fd].load(std::memory_order_acquire);
  }
  void SetSlot(int fd, Description* description);
  // Whether there is room for that descriptor, and all below.
  bool MakeSlot(uint32_t number);
  File* FindFile(uint64_t device, uint64_t inode) const;
  File* FindByPath(int dirfd, const char* path, bool follow) const;
  File* NewFile(const struct stat& st);
  // Of any file: those that are cached, here or in the process that has forked us, are counted.
  void SetState(File& file, State state);
  bool HasFilesInCaches() const { return in_caches_.load() > 0; }
  // `st`: as the file is now.
  Description* NewDescription(File& file, int flags, const struct stat& st);
  // Others hear that this process has the file open, until its last description goes.
  void SayOpen(File& file);
  // The file is open here, and whether its tally can be believed counts: for a write, or for an
  // fsync. A descriptor that only reads needs no answer before.
  void BeginUse(File& file, const struct stat& st);
  void BeginUse(int fd);
  // One descriptor less; the last takes the description with it, the last description the file.
  // The kernel's descriptor is still open. Returns 0 or what close() has to report.
  long DropReference(Description& description);
  int DescriptorOf(const Description& description) const;
  uint32_t descriptor_end() const { return descriptor_end_.load(std::memory_order_relaxed); }
  // A descriptor of `file` (null: of a file that found no room, either) cannot be tracked.
  void TableFull(File* file);
  // It happened; from now on no file becomes cached that is not yet.
  bool full() const { return full_; }
  template <typename Function>
  void ForEachFile(Function function) {
    if (files_.empty()) return;
    for (uint32_t i = 0; i < bucket_count_; ++i) {
      for (File *file = buckets_[i], *next; file != nullptr; file = next) {
        next = file->hash_next;
        function(*file);
      }
    }
  }
  // What the log was told of the paths of files that are the kernel's is old. Table lock held.
  void DescribeAnew();
  // File::forever. Table lock held.
  void MakeLasting(File& file) { file.forever = any_lasting_ = true; }
  // Descriptors of our own. The table lock need not be held.
  uint32_t CountInternal() const;
  // Gives them up until there are fewer than `before`. False: those that are left are needed. Table
  // lock held.
  bool MakeRoom(uint32_t before);
  // Lets go of closed files of which nothing is pending any more.
  void Reap();
  // The same of this one, which is about to be opened: others may have changed it since.
  void ForgetClosed(const struct stat& st);

  // ---- States (states.cc); table lock held
  // Whether the file is worth to be known: it has bytes on some device.
  bool Trackable(int fd, const struct stat& st);
  // Whether policy lets it be cached: kind of file system, settings.
  bool Cacheable(int fd, const struct stat& st);
  // kKernel -> kCached. False: another process uses it, say, and nothing has changed.
  bool BeginCaching(File& file, int fd);
  // Opens the descriptor that the file will have if it becomes cached. The program has no fcntl
  // lock on the file yet.
  void PrepareBacking(File& file, int fd);
  // -> kPassThrough. 0, or the write-back error that keeps the file cached. A foreign file is
  // claimed by the caller.
  long PassThrough(File& file);
  // kCached or kForeign -> kKernel: another process has claimed it, say, or the process ends. What
  // the log has of it need not be on the disk if it may, and can, be published. With the rule
  // `always`, as PassThrough.
  long GiveBack(File& file, bool may_publish = true);
  // The same, for as long as the file is open, or `forever`: File::lent.
  long Lend(File& file, bool forever);
  // Looks whether the file's descriptor is still its own, and opens it anew if not. 0, or -EBADF:
  // then nothing can be read or written. Any thread; no page locks.
  long CheckBacking(File& file);
  // The kernel has given the number of one of our descriptors to the program.
  void LostInternal(int fd);
  // Takes one of ours elsewhere: the program wants the number. 0, or a negated errno.
  long MoveInternal(int fd);
  // Until nothing of the file is pending. File lock, exclusive. 0, or the write-back error.
  long DrainExclusively(File& file);
  // Size, and whether there are holes, from the kernel. File lock, exclusive, or nobody else yet.
  static void TakeSize(File& file, const struct stat& st);
  // The file's kernel size, after a call that may have changed it; frames are dropped. File lock,
  // exclusive, nothing pending.
  void Resync(File& file);
  // Writes back what the kernel does not have. File lock, shared or exclusive. The error; or the
  // pages looked at, 0: there was nothing.
  long Publish(File& file);
  // Hands the kernel the offsets of the file's descriptions. File lock, exclusive. `news`: of those
  // that no child has; else the kernel's moves with ours already.
  void PublishOffsets(File& file, bool news = false);
  bool IsPool(const struct stat& st) const {
    return pool_.is_open() && st.st_dev == pool_.device() && st.st_ino == pool_.inode();
  }
  void Destroy(File& file);

  // kUnreadable bytes that nobody can read.
  const void* unreadable() const { return unreadable_; }

  // What a child of fork writes to lies in one page, for each has to be copied for it: first what
  // is read by every call, then what changes more often.
 private:
  static constexpr size_t kLine = 64, kOnePage = 512;
  alignas(kOnePage) std::atomic<bool> active_{false};
  std::atomic<bool> attached_{false};
  std::atomic<bool> asleep_{false};
  std::atomic<uint32_t> slot_count_{0};
  std::atomic<std::atomic<Description*>*> slots_{nullptr};
  std::atomic<uint32_t> descriptor_end_{0};  // no slot at or above was ever set
  std::atomic<uint32_t> in_caches_{0};
  std::atomic<uint32_t> forks_{0};
  long pid_ = 0;  // of the process whose engine it is

 public:
  alignas(kLine) sys::Mutex<sys::Rank::kTable> table_lock;

 private:
  uint32_t replacing_ = 0;                    // threads in exec
  std::atomic<uint32_t> children_{0};         // that share our memory
  std::atomic<uint32_t> rights_changing_{0};  // calls that may take some are under way

 public:
  alignas(kLine) lease::Leases leases;
  lease::Tallies tallies{leases};

  // Only who uses the same one is seen. Tests have their own, before Start: that others' files
  // happen to share a cell with theirs would make them pass-through.
  const char* lease_folder = lease::kFolder;
  pool::Statistics* statistics() const { return pool_.view().statistics(); }

  radix::Supply supply;
  dramcache::Frames frames;
  // The dynamic linker stores their pointers: each page with one is copied at the program's start.
  nvlog::Kept kept{log};
  dramcache::PageCache cache{log, kept, supply, frames};
  cleanup::Cleaner cleaner{log, cache};

  settings::Settings settings;

  // ---- Write-through (checkpoint.cc)
  // With a pin (PoolPin), or the table lock while attached.
  pool::Pool& pool() { return pool_; }
  uint64_t pool_id() const { return pool_id_; }
  // Files of this device may be write-through here; of some device.
  bool SharesDevice(uint64_t device) const { return through_device_.load() == device; }
  bool SharesDevices() const { return through_device_.load() != 0; }
  // Has the descriptor's file be one of these, and the tallies be the pool's. Table lock, attached.
  bool OpenThrough(int fd, const struct stat& st);
  // A group was appended: its checkpoint moves, sooner or later.
  void ThroughIsPending() {
    if (through_since_.load(std::memory_order_relaxed) == 0) AwaitThrough();
  }
  // Syncs the file system of all write-through files, and moves their checkpoint. False: it could
  // not, or another one is at it. With a pin, or where the pool stays attached; else no lock.
  // `late`: whoever should have moved it has not, for long.
  bool MoveThroughCheckpoint(bool late = false);
  // Syncs that file system, for what this process has published. 0, or a negated errno: from then
  // on. The cleanup thread, or where it has ended.
  long SyncThrough();
  // Whatever changes of names were made so far, by any process of the pool, are in the log or on
  // the disk. False: the disk refuses. No lock.
  bool EndUnloggedNames();
  // Moves it beyond all that is there by now, by whom ever. No lock.
  void EndPendingThrough();
  // If those who could move it have died: their pool is recovered, or their seats are adopted.
  // True: nobody can move it, for nobody uses the pool. No lock.
  bool LookForOwners();
  bool Pin();
  void Unpin() { pins_.fetch_sub(1); }

 private:
  friend class Checkpointer;

  void Refuse(const char* text);
  void RefusePool(const pool::Problem& problem);
  void RefuseCache(const char* text);  // and says what becomes of the program
  void OpenTables();
  bool OpenRest();
  bool OpenLeases();
  void AdoptInherited();
  void ListInherited();
  bool RecoverIfDirty();
  bool RecoverOnOwnStack();
  enum class Recovery { kDone, kFailed, kByAnother, kLater };
  Recovery TryRecovery();
  enum class Found { kNothing, kToRecover, kRecovering, kDying, kNoPool };
  Found Inspect();
  Recovery Recover();
  bool ReplayOrphans();
  bool SomebodyDies(const pool::Seats& seats) const;
  void LookForOrphans();
  void RefuseUnresolved(bool clean);
  bool AttachPool();
  bool OpenPool(pool::Problem* problem);
  bool CreatePool(pool::Problem* problem);
  bool MustRecover() const;
  bool RecoverAttached(pool::Problem* problem);
  bool TakeSeat(pool::Problem* problem);
  bool RefuseAttach(const pool::Problem& problem);
  void SayEmulated();
  bool OpenLog();
  bool OpenFrames();
  void AwaitThrough();
  void BeginThrough(int fd, uint64_t device);
  bool MayMoveThrough() const;
  nvlog::Lsn NextBetweenNames() const;
  bool StoreThrough();
  void HurryThrough();
  void AskForThrough();
  uint64_t CareForThrough(bool hurried);
  void AwaitPins();
  bool HasPendingThrough();
  nvlog::Lsn published() const { return busy() ? cleaner.published() : 0; }
  bool EndThrough();
  bool MoveThroughToEnd(bool late);
  void CloseThrough();
  template <typename Function>
  auto OnOwnStack(Function function);
  template <typename Function>
  auto OnScratchStack(Function function);
  bool LeavesToOthers() const;
  void Detach();
  bool MayAttach();
  void Abandon();
  void LeaveToParent();
  void ShareAgain();
  void ShareInherited(File& file);
  void NoteHandOns();
  void Wake();
  void StopOwn();
  void LookAfterDeaths();
  bool StartKeeper();
  void StopKeeper();
  void Keep();
  void LookForRoom();
  void Serve(const lease::Request& request);
  bool LockTableAsKeeper();
  void Dismiss();
  void CloseParts();
  struct FileSystem {
    uint64_t device;
    Storage storage;
    bool syncs_whole;  // CachedFile::sync_device
    bool known;
  };
  FileSystem FileSystemOf(int fd, uint64_t device);
  void SayClosed(File& file);
  void RemoveFromBucket(File& file);
  static bool Lingers(const File& file);
  void Store(int fd, Description* description);
  long LeaveToKernel(File& file, State state, bool may_publish);
  bool PublishForGood(File& file);
  void LeaveLog(const File& file);
  bool MayBeShared(uint64_t device) const;
  void DisownBacking(File& file);
  bool MoveLeases();
  long BackingToBegin(const File& file, int fd);
  void CloseBacking(File& file);
  long Reopen(File& file);
  File*& BucketOf(uint64_t device, uint64_t inode) const;
  void SpreadBuckets();
  void AddToBucket(File& file);

  void* unreadable_ = nullptr;
  sys::GrowingArena<File> files_;
  sys::GrowingArena<Description> descriptions_;
  sys::Mutex<sys::Rank::kBacking> backing_lock_;  // CheckBacking
  File* closed_ = nullptr;
  bool reap_due_ = false;               // one of these does not linger
  std::atomic<bool> lingering_{false};  // one of these may, until the cleanup thread has got on
  nvlog::Lsn reaped_to_ = 0;            // Cleaner::cleaned() when they were looked at last

  sys::Mutex<sys::Rank::kSync> through_lock_;  // a thread moves its checkpoint
  int through_fd_ = -1;                        // of the file system of all such files
  std::atomic<uint64_t> through_device_{0};    // st_dev; 0: through_fd_ is not open
  nvlog::Lsn trusted_from_ = 0;                // a sync by it covers groups from there on
  std::atomic<uint64_t> through_since_{0};     // monotonic ns; 0: nothing is pending
  long through_error_ = 0;                     // that through_fd_ was told of, under through_lock_
  nvlog::Lsn through_seen_ = 0;                // the checkpoint; the cleanup thread's
  std::atomic<bool> through_wanted_{false};    // by another process, now
  uint64_t pool_id_ = 0;
  // Calls that use the pool without the table lock and without a cached file's.
  std::atomic<uint32_t> pins_{0};
  std::atomic<bool> pinnable_{false};

  const Host* host_ = nullptr;
  pool::Pool pool_;
  recovery::Summary recovered_ = {};
  bool full_ = false;
  bool any_lasting_ = false;     // File::forever is set, or was, of some file
  bool hopeless_ = false;        // attaching failed for good
  uint64_t attach_after_ = 0;    // monotonic ns: it has failed for now; table lock
  uint64_t attached_at_ = 0;     // monotonic ns
  uint32_t frame_segments_ = 0;  // of the pool; 0: frames lie in DRAM
  std::atomic<bool> busy_{false};
  std::atomic<bool> cannot_be_busy_{false};  // it has tried
  bool any_foreign_ = false;                 // a file is kForeign, or was
  uint32_t hand_ons_ = 0;    // Leases::hand_ons() at the fork that made it so, or the last one
  uint32_t freezes_ = 0;     // of file systems, by this program, that have not ended; table lock
  bool said_ = false;        // the one line on stderr is out
  sys::Credentials rights_;  // at the start
  std::atomic<uint32_t> deaths_seen_{0};  // of other processes; the pool was looked at since
  std::atomic<bool> starving_{false};     // dead ones may have the room that writers wait for
  bool relock_due_ = false;               // the program has closed a descriptor of the leases' file
  void* keeper_ = nullptr;
  sys::Word keeper_stops_{0};

  // What is above, the start of a program writes to, and of this the beginning.
  std::atomic<Description*> few_slots_[kFewDescriptors] = {};
  FileSystem file_systems_[kMaxFileSystems] = {};

 public:
  nvlog::ThroughLog through;
  nvlog::Log log;
  Mappings mappings;

 private:
  // Zeros, which the library's file does not have.
  static File* buckets_[kFileBuckets];
  uint32_t bucket_count_ = kFewBuckets;  // of them; a file is in that which its hash names
};

extern Engine engine;

// A call that is made on another stack.
template <typename Function>
struct Job {
  Function function;
  std::invoke_result_t<Function> result;

  static void Run(void* pointer) {
    Job& job = *static_cast<Job*>(pointer);
    job.result = job.function();
  }
};

// What takes as much of a stack as it likes: recovery. Where no thread can be made, the program's
// stack has to bear it.
template <typename Function>
auto Engine::OnOwnStack(Function function) {
  Job<Function> job = {function, {}};
  if (void* thread = host_->start_thread(job.Run, &job); thread != nullptr) {
    host_->join_thread(thread);
  } else {
    const sys::SyncsUnderLocks allowed;
    job.Run(&job);
  }
  return job.result;
}

// What ends soon, and has enough of a stack in a block of scratch memory. A handler of the
// program's might not.
template <typename Function>
auto Engine::OnScratchStack(Function function) {
  Job<Function> job = {function, {}};
  const sys::SignalsBlocked blocked;
  const sys::SyncsUnderLocks allowed;
  sys::RunOnScratch(job.Run, &job);
  return job.result;
}

// The pool stays attached for as long as it lives, if it is: for a few microseconds, and at most
// one call of the kernel's.
class PoolPin {
 public:
  PoolPin() : ok_(engine.Pin()) {}
  ~PoolPin() {
    if (ok_) engine.Unpin();
  }
  PoolPin(const PoolPin&) = delete;
  PoolPin& operator=(const PoolPin&) = delete;
  bool ok() const { return ok_; }

 private:
  sys::InEngine inside_;  // no handler of the program's may leave by a jump
  const bool ok_;
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_H_
