// SPDX-License-Identifier: BSD-3-Clause
//
// The one engine of a process, and its parts. Each part says in its header what it is for; they
// find each other here. The order of locks is in src/sys/lock_rank.h.
#ifndef NVCACHE_VFS_ENGINE_ENGINE_H_
#define NVCACHE_VFS_ENGINE_ENGINE_H_

#include <atomic>
#include <cstdint>

#include "src/cleanup/cleaner.h"
#include "src/dramcache/page_cache.h"
#include "src/lease/file_table.h"
#include "src/lease/leases.h"
#include "src/settings/settings.h"
#include "src/sys/deferral.h"
#include "src/sys/host.h"
#include "src/vfs/engine/attachment.h"
#include "src/vfs/engine/callers.h"
#include "src/vfs/engine/checkpoint.h"
#include "src/vfs/engine/descriptors.h"
#include "src/vfs/engine/file_systems.h"
#include "src/vfs/engine/files.h"
#include "src/vfs/engine/kept_folders.h"
#include "src/vfs/engine/mappings.h"
#include "src/vfs/engine/mirror.h"
#include "src/vfs/engine/notice.h"
#include "src/vfs/engine/own_descriptors.h"
#include "src/vfs/engine/process.h"
#include "src/vfs/engine/recovery.h"
#include "src/vfs/engine/responder.h"
#include "src/vfs/engine/stage.h"
#include "src/vfs/engine/standing.h"
#include "src/vfs/engine/turns.h"

namespace nvcache::vfs {

class Engine {
 public:
  constexpr Engine() = default;

  // Reads the settings, and recovers a dirty pool. Once, before any other thread exists; then the
  // pool is attached if it is required (RequirePool). False: there is no engine.
  bool Start(const Host& host, char** environment);
  void RequirePool();
  // In place of both: a line, if a pool is named.
  void RefuseStart(char** environment, const char* text);
  // vfs.h says what these do.
  void Stop();
  void Retire(lease::Hindrance why);
  void Leave();

  // Not for a child that shares our memory.
  bool active() const {
    return stage_.load(std::memory_order_acquire) != Stage::kOff && !sys::IsSharing();
  }
  // Nothing is cached while it is not. Table lock, to rely on it.
  bool attached() const { return IsAttached(stage()) && !standing.asleep(); }
  // It has frames and threads. Any thread.
  bool busy() const { return IsBusy(stage()); }
  // Settings::caches(), for those who ask in each call.
  bool caches_files() const { return caches_files_; }
  Stage stage() const { return stage_.load(std::memory_order_relaxed); }
  // Table lock; of kOff, none.
  void SetStage(Stage stage);
  // Nothing attaches any more.
  void BecomeFinal();
  pool::Pool& pool() { return attachment.pool(); }
  uint64_t pool_id() const { return attachment.pool_id(); }
  pool::Statistics* statistics() const { return attachment.pool().view().statistics(); }
  // Finds, or leaves, a child of fork awake.
  void LockTable() {
    table_lock.Lock();
    if (standing.asleep()) [[unlikely]]
      process.Wake();
  }

  // The members that a child of fork writes to lie in one page, for each page has to be copied for
  // it: first those that every call reads, then those that change more often.
 private:
  static constexpr size_t kLine = 64, kOnePage = 512;
  alignas(kOnePage) std::atomic<Stage> stage_{Stage::kOff};
  bool caches_files_ = false;

 public:
  Descriptors descriptors;
  Standing standing;
  Process process;
  Mirror mirror{OwnDescriptors::Track, Attachment::WakeThread};
  alignas(kLine) sys::Mutex<sys::Rank::kTable> table_lock;
  alignas(kLine) lease::Leases leases;
  lease::FileTable file_table{leases};
  Files files;

  // Only processes that use the same one are seen. Tests have their own, before Start: that others'
  // files happen to share a cell with theirs would make them pass-through.
  const char* lease_folder = lease::kFolder;
  const Host* host = nullptr;

  radix::Supply supply;
  dramcache::Frames frames;
  // The dynamic linker stores their pointers: each page with one is copied at the program's start.
  nvlog::Kept kept{log};
  dramcache::PageCache cache{log, kept, supply, frames};

  settings::Settings settings;
  Callers callers;
  Recovery recovery;
  Checkpoint checkpoint;
  Responder responder;
  OwnDescriptors own;
  Notice notice;
  // The start of a program writes to the members above; and the linker to the first words of this.
  cleanup::Cleaner cleaner{log, cache};
  Attachment attachment;
  FileSystems file_systems;
  nvlog::Log log;
  KeptFolders kept_folders;
  Mappings mappings;
  Turns turns;

 private:
  bool OpenLeases();
  void StopOwn();
};

extern Engine engine;

// The pool stays attached for as long as it lives, if it is: for a few microseconds, and at most
// one call of the kernel's.
class PoolPin {
 public:
  PoolPin() : ok_(engine.attachment.Pin()) {}
  ~PoolPin() {
    if (ok_) engine.attachment.Unpin();
  }
  PoolPin(const PoolPin&) = delete;
  PoolPin& operator=(const PoolPin&) = delete;
  bool ok() const { return ok_; }

 private:
  sys::InEngine inside_;  // no handler of the program's may leave by a jump
  const bool ok_;
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_ENGINE_H_
