// SPDX-License-Identifier: BSD-3-Clause
//
// The table of the files and open file descriptions that the process has. A file is in it from its
// first open to the last close, or until nothing of it is pending (Reap). Table lock in everything,
// where nothing else is said.
#ifndef NVCACHE_VFS_ENGINE_FILES_H_
#define NVCACHE_VFS_ENGINE_FILES_H_

#include <sys/stat.h>

#include <atomic>
#include <cstdint>

#include "src/nvlog/record.h"
#include "src/sys/arena.h"
#include "src/sys/check.h"
#include "src/vfs/engine/file.h"

namespace nvcache::vfs {

inline constexpr uint32_t kMaxFiles = 1u << 16;  // tracked; the rest pass through
inline constexpr uint32_t kMaxDescriptions = 1u << 18;
inline constexpr uint32_t kFewBuckets = 1u << 7;  // for few files
inline constexpr uint32_t kFileBuckets = 1u << 12;
static_assert(kFewBuckets <= kFileBuckets);

class Files {
 public:
  constexpr Files() = default;

  // Once, before any other.
  void Open();
  File* Find(uint64_t device, uint64_t inode) const;
  File* FindByPath(int dirfd, const char* path, bool follow) const;
  // Some file has had that number. Any thread that knows of it.
  File& At(uint32_t number) {
    NVCACHE_CHECK(number < kMaxFiles);
    return files_[number];
  }
  // Null: there is no room.
  File* New(const sys::BornStat& st);
  // `st`: as the file is now. Null: there is no room.
  Description* NewDescription(File& file, int flags, const struct stat& st);
  // One descriptor less; the last takes the description with it, the last description the file.
  // The kernel's descriptor is still open. Returns 0 or what close() has to report.
  long DropReference(Description& description);
  // Forgets what a number stood for before the kernel gave it to somebody new.
  void Vacate(int fd);
  // A descriptor of `file` (null: of a file that found no room, either) cannot be tracked: nobody
  // may cache the file, or believe that a log has all of it, as long as the process lives. Before
  // the program has the descriptor, Claim::ToChange() ends what the logs have.
  void TableFull(File* file, const sys::BornStat& st);
  // It happened; from now on no file becomes cached that is not yet.
  bool full() const { return full_; }
  void BecomeFull() { full_ = true; }
  template <typename Function>
  void ForEach(Function function) {
    if (files_.empty()) return;
    for (uint32_t i = 0; i < bucket_count_; ++i) {
      for (File *file = buckets_[i], *next; file != nullptr; file = next) {
        next = file->hash_next;
        function(*file);
      }
    }
  }

  // Others hear that this process has the file open, until its last description goes.
  void SayOpen(File& file);
  // The file is open here, and whether its entry can be believed counts: for a write, or for an
  // fsync. A descriptor that only reads needs no answer before.
  void BeginUse(File& file, const struct stat& st);
  void BeginUse(int fd);  // no lock

  // The file is kept after its last close (File::forever).
  void MakeLasting(File& file) { file.forever = any_lasting_ = true; }
  bool AnyLasting() const { return any_lasting_; }
  // Lets go of closed files of which nothing is pending any more.
  void Reap();
  // There are such.
  void ReapSoon() { reap_due_ = true; }
  // The cleanup thread has got on: there may be. Any thread.
  bool HasLingering() const { return lingering_.load(); }
  // The program has closed a descriptor of the leases' file, which ends our locks.
  void RelockSoon() { relock_due_ = true; }
  // This file, if it is closed, is about to be opened: others may have changed it since.
  void ForgetClosed(const struct stat& st);

  // Files that are cached, here or in the process that has forked us, are counted. Any thread.
  bool AnyInCaches() const { return in_caches_.load() > 0; }
  void CountInCaches(bool before, bool after) {
    if (!before && after) in_caches_.fetch_add(1);
    if (before && !after) in_caches_.fetch_sub(1);
  }

 private:
  void Destroy(File& file);
  void SayClosed(File& file);
  static bool Lingers(const File& file);
  File*& BucketOf(uint64_t device, uint64_t inode) const;
  void SpreadBuckets();
  void AddToBucket(File& file);
  void RemoveFromBucket(File& file);

  std::atomic<uint32_t> in_caches_{0};
  sys::GrowingArena<File> files_;
  sys::GrowingArena<Description> descriptions_;
  File* closed_ = nullptr;
  bool reap_due_ = false;               // one of these does not linger
  std::atomic<bool> lingering_{false};  // one of these may, until the cleanup thread has got on
  nvlog::Lsn reaped_to_ = 0;            // Cleaner::cleaned() when they were looked at last
  bool relock_due_ = false;
  bool full_ = false;
  bool any_lasting_ = false;             // File::forever is set, or was, of some file
  uint32_t bucket_count_ = kFewBuckets;  // a file is in that which its hash names
  // Zeros, which the library's file does not have.
  static File* buckets_[kFileBuckets];
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_FILES_H_
