// SPDX-License-Identifier: BSD-3-Clause
//
// The one engine of a process: its tables, and the pool while it is attached.
//
// The pool is attached when the first file is opened for writing, and detached when no file is
// cached and somebody else may want it (fork, exec, exit).
//
// Order of locks, outermost first:
//
//   table_lock
//   Description::offset_lock
//   File::grow_lock
//   File::lock            (with table_lock: exclusive; without: shared)
//   page locks            (ascending)
//   locks of the cleanup thread, the arenas, the frames, the file table of the pool
//
// A thread may sleep for room in the log while it holds anything but page locks; the cleanup thread
// needs none of the others.
#ifndef NVCACHE_VFS_ENGINE_H_
#define NVCACHE_VFS_ENGINE_H_

#include <sys/stat.h>

#include <atomic>
#include <cstdint>

#include "recovery/replay/replay.h"
#include "src/cleanup/cleaner.h"
#include "src/dramcache/page_cache.h"
#include "src/pool/pool.h"
#include "src/settings/settings.h"
#include "src/sys/arena.h"
#include "src/sys/host.h"
#include "src/vfs/file.h"

namespace nvcache::vfs {

inline constexpr uint32_t kMaxDescriptors = 1u << 20;  // the kernel's own limit (fs.nr_open)
inline constexpr uint32_t kMaxFiles = 1u << 16;        // tracked; the rest pass through
inline constexpr uint32_t kMaxDescriptions = 1u << 18;
inline constexpr uint32_t kFileBuckets = 1u << 12;
inline constexpr uint32_t kMaxFileSystems = 64;  // devices whose kind is remembered

// What a descriptor number stands for, besides a Description.
Description* const kUntracked = nullptr;
inline Description* Closing() { return reinterpret_cast<Description*>(1); }   // close() is at work
inline Description* Internal() { return reinterpret_cast<Description*>(2); }  // opened by us
inline bool IsDescription(const Description* d) { return reinterpret_cast<uintptr_t>(d) > 2; }

// What a file system keeps its files on, as far as caching goes: never, always, or when asked to.
enum class Storage : uint8_t { kNone, kDisk, kOther };

class Engine {
 public:
  constexpr Engine() = default;

  // ---- Life (engine.cc)
  void Start(const Host& host, char** environment);
  void Stop();
  void Retire();
  bool active() const { return active_.load(std::memory_order_acquire); }
  bool attached() const { return attached_; }  // table lock held
  // Attaches the pool, unless it is. False: the program runs without the cache.
  bool Attach();
  // Every file pass-through, and the pool given back. Table lock held.
  void ReleaseAll();
  void ResetLocksInChild();

  // ---- Tables (tables.cc); table lock held, but for SlotOf
  Description* SlotOf(int fd) const {
    const auto* slots = slots_.load(std::memory_order_acquire);
    if (slots == nullptr || static_cast<uint32_t>(fd) >= kMaxDescriptors) return kUntracked;
    return slots[fd].load(std::memory_order_acquire);
  }
  void SetSlot(int fd, Description* description);
  File* FindFile(uint64_t device, uint64_t inode) const;
  File* FindByPath(int dirfd, const char* path, bool follow) const;
  File* NewFile(const struct stat& st);
  Description* NewDescription(File& file, int flags);
  // One descriptor less; the last takes the description with it, the last description the file.
  // The kernel's descriptor is still open. Returns 0 or what close() has to report.
  long DropReference(Description& description);
  int DescriptorOf(const Description& description) const;
  uint32_t descriptor_end() const { return descriptor_end_; }
  // A descriptor of `file` (null: of a file that found no room, either) cannot be tracked.
  void TableFull(File* file);
  // It happened; from now on no file becomes cached that is not yet.
  bool full() const { return full_; }
  template <typename Function>
  void ForEachFile(Function function) {
    for (File* first : buckets_) {
      for (File *file = first, *next; file != nullptr; file = next) {
        next = file->hash_next;
        function(*file);
      }
    }
  }
  // Lets go of closed files of which nothing is pending any more.
  void Reap();

  // ---- States (states.cc); table lock held
  // Whether the file, by this name or another, may ever be cached: kind of file, of file system.
  bool Trackable(int fd, const struct stat& st);
  // Whether policy lets a trackable file be cached: settings, and that it has a name.
  bool Cacheable(int fd, const struct stat& st);
  // kKernel -> kCached. False: it became pass-through instead.
  bool BeginCaching(File& file, int fd, const struct stat& st);
  // -> kPassThrough. 0, or the write-back error that keeps the file cached.
  long PassThrough(File& file);
  // Until nothing of the file is pending. File lock, exclusive. 0, or the write-back error.
  long DrainExclusively(File& file);
  // The file's kernel size, after a call that may have changed it; frames are dropped. File lock,
  // exclusive, nothing pending.
  void Resync(File& file);
  // Writes back what the kernel does not have. File lock, shared or exclusive.
  long Publish(File& file);
  // Hands the kernel the offsets of the file's descriptions. File lock, exclusive.
  void PublishOffsets(File& file);
  bool IsPool(const struct stat& st) const {
    return pool_.is_open() && st.st_dev == pool_.device() && st.st_ino == pool_.inode();
  }
  void Destroy(File& file);

  sys::Mutex table_lock;
  settings::Settings settings;
  pool::Statistics* statistics() const { return pool_.view().statistics(); }

  nvlog::Log log;
  radix::Supply supply;
  dramcache::Frames frames;
  dramcache::PageCache cache{log, supply, frames};
  pool::FileTable file_table;
  cleanup::Cleaner cleaner{log, cache, file_table};

 private:
  void Refuse(const char* text);
  bool OpenTables();
  void AdoptInherited();
  bool RecoverIfDirty();
  bool AttachPool();
  void Detach();
  void CloseParts();
  Storage StorageOf(int fd, uint64_t device);
  void RemoveFromBucket(File& file);
  static uint32_t BucketOf(uint64_t device, uint64_t inode);

  std::atomic<bool> active_{false};
  std::atomic<std::atomic<Description*>*> slots_{nullptr};
  uint32_t descriptor_end_ = 0;  // no slot at or above was ever set
  sys::Arena<File> files_;
  sys::Arena<Description> descriptions_;
  File* buckets_[kFileBuckets] = {};
  File* closed_ = nullptr;

  const Host* host_ = nullptr;
  pool::Pool pool_;
  recovery::Summary recovered_ = {};
  bool attached_ = false;
  bool full_ = false;
  bool hopeless_ = false;  // attaching failed for good
  bool said_ = false;      // the one line on stderr is out
  long pid_ = 0;

  struct FileSystem {
    uint64_t device;
    Storage storage;
    bool known;
  };
  FileSystem file_systems_[kMaxFileSystems] = {};
};

extern Engine engine;

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_H_
