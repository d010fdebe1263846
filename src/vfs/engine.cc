// SPDX-License-Identifier: BSD-3-Clause
//
// Start, attach, detach, stop.
#include "src/vfs/engine.h"

#include <dirent.h>
#include <errno.h>

#include <new>

#include "src/pmem/persist.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/user_copy.h"
#include "src/vfs/access.h"

namespace nvcache::vfs {

constinit Engine engine;

namespace {

constexpr int kExitRequired = 125;  // as env(1) and `nvcache run`: the program did not run

// Descriptors of pages beyond those with a frame, per page of log: the log holds more entries than
// pages when they are small. Who needs more waits for the cleanup thread, as with a full log.
constexpr uint64_t kDescriptorsPerLogPage = 4;
constexpr uint64_t kSpareDescriptors = 1u << 16;

}  // namespace

// One line, once; then the program runs without the cache, or not at all.
void Engine::Refuse(const char* text) {
  if (!said_) sys::Report(text);
  said_ = true;
  if (settings.required) sys::ExitGroup(kExitRequired);
}

void Engine::Start(const Host& host, char** environment) {
  host_ = &host;
  pid_ = sys::Getpid();
  sys::InitializeUserCopy();
  sys::Text<480> wrong;
  if (!settings::FromEnvironment(&settings, environment, &wrong)) {
    Refuse(wrong.c_str());
    return;
  }
  if (settings.pool.size() == 0) return;
  if (!OpenTables()) {
    Refuse("no address space for the tables; the program runs without the cache");
    return;
  }
  TableLock lock;
  if (!RecoverIfDirty()) return;
  AdoptInherited();
  active_.store(true, std::memory_order_release);
  if (settings.required) Attach();
}

// The pool can be looked at without being taken: a mistake in the settings shows at once, and a
// pool that a dead process left is recovered before the first file call.
bool Engine::RecoverIfDirty() {
  pool::Problem problem;
  if (!pool_.Open(settings.pool.c_str(), pool::Access::kInspect, settings.emulate, nullptr,
                  &problem)) {
    if (problem.error == ENOENT && settings.size > 0) return true;
    Refuse(problem.text.c_str());
    return false;
  }
  const bool dirty = pool_.dirty();
  pool_.Close();
  if (!dirty) return true;
  if (!pool_.Open(settings.pool.c_str(), pool::Access::kExclusive, settings.emulate,
                  host_->load_libpmem(), &problem)) {
    if (problem.error == EBUSY) return true;  // not dead: at work
    Refuse(problem.text.c_str());
    return false;
  }
  pmem::Initialize(host_->load_libpmem());
  const bool clean = recovery::Replay(pool_, {}, {}, &recovered_);
  pool_.Close();
  if (clean && recovered_.damaged_groups == 0) return true;
  sys::Text<512> text;
  text.Append(settings.pool.c_str()).Append(clean ? ": damaged" : ": unresolved");
  text.Append(" entries were found; run 'nvcache recover' on it. Running without the cache");
  Refuse(text.c_str());
  return false;
}

// Descriptors from before us are shared with whoever gave them to us: never cached.
void Engine::AdoptInherited() {
  const long directory = sys::Openat(AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  alignas(8) char buffer[4096];
  for (;;) {
    const long n = sys::Call(SYS_getdents64, directory, sys::Address(buffer), sizeof(buffer));
    if (n <= 0) break;
    for (long at = 0; at < n;) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
      at += entry->d_reclen;
      int fd = 0;
      for (const char* p = entry->d_name; *p != '\0'; ++p) {
        fd = *p >= '0' && *p <= '9' ? fd * 10 + (*p - '0') : INT32_MIN;
        if (fd < 0) break;
      }
      struct stat st;
      if (fd < 0 || fd == directory || sys::Fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) continue;
      File* file = FindFile(st.st_dev, st.st_ino);
      if (file == nullptr) file = NewFile(st);
      if (file == nullptr) break;
      PassThrough(*file);
      if (Description* d = NewDescription(*file, O_RDWR); d != nullptr) SetSlot(fd, d);
    }
  }
  sys::Close(static_cast<int>(directory));
}

bool Engine::Attach() {
  NVCACHE_CHECK(table_lock.IsLocked());
  if (attached_ || hopeless_) return attached_;
  attached_ = AttachPool();
  return attached_;
}

bool Engine::AttachPool() {
  const pmem::Libpmem* libpmem = host_->load_libpmem();
  pmem::Initialize(libpmem);
  pool::Problem problem;
  bool open = pool_.Open(settings.pool.c_str(), pool::Access::kExclusive, settings.emulate, libpmem,
                         &problem);
  if (!open && problem.error == ENOENT && settings.size > 0) {
    const pool::CreateOptions options = {settings.size, settings.emulate};
    // Somebody else may just have made it.
    open = (pool::Pool::Create(settings.pool.c_str(), options, libpmem, &problem) ||
            problem.error == EEXIST) &&
           pool_.Open(settings.pool.c_str(), pool::Access::kExclusive, settings.emulate, libpmem,
                      &problem);
  }
  if (open && pool_.dirty() && !recovery::Replay(pool_, {}, {}, &recovered_)) {
    pool_.Close();
    open = false;
    problem.error = EUCLEAN;
    problem.text.Append(settings.pool.c_str());
    problem.text.Append(": unresolved entries were found; run 'nvcache recover' on it");
  }
  if (!open) {
    hopeless_ = problem.error != EBUSY;
    Refuse(problem.text.c_str());
    return false;
  }
  pool_.MarkInUse();
  const uint64_t log_pages = pool_.view().log_units() * pool::kUnitSize / pool::kPageSize;
  const uint64_t frame_count = settings.dram / pool::kPageSize;
  const uint64_t pages = frame_count + log_pages * kDescriptorsPerLogPage + kSpareDescriptors;
  const cleanup::Limits limits = {settings.batch_min, settings.batch_max,
                                  settings.batch_delay_ms * 1000000};
  const auto check = [](dramcache::CachedFile& file) {
    return engine.CheckBacking(static_cast<File&>(file));
  };
  *statistics() = {};
  log.Open(&pool_);
  if (pages >= sys::kNone || !supply.Open(static_cast<uint32_t>(pages)) ||
      !frames.Open(static_cast<uint32_t>(frame_count), &supply.pages, statistics()) ||
      !file_table.Open(pool_.view()) || !cleaner.Start(*host_, limits, check)) {
    pool_.MarkClean();
    CloseParts();
    hopeless_ = true;
    Refuse("not enough memory or threads for the cache; the program runs without it");
    return false;
  }
  SetSlot(pool_.fd(), Internal());
  if (pool_.durability() == pmem::Durability::kProcess && !said_) {
    sys::Text<512> text;
    text.Append(pool_.path());
    text.Append(" is emulated: writes survive the death of the process, not a power failure");
    sys::Report(text.c_str());
    said_ = true;
  }
  return true;
}

void Engine::CloseParts() {
  cleaner.Stop();
  file_table.Close();
  frames.Close();
  supply.Close();
  pool_.Close();
}

void Engine::Detach() {
  if (!attached_) return;
  cleaner.DrainAll();  // abandoned groups are no file's
  NVCACHE_CHECK(log.head() == log.tail());
  cleaner.Stop();
  pool_.MarkClean();
  if (SlotOf(pool_.fd()) == Internal()) SetSlot(pool_.fd(), kUntracked);
  CloseParts();
  attached_ = false;
}

void Engine::ReleaseAll() {
  NVCACHE_CHECK(table_lock.IsLocked());
  long error = 0;
  ForEachFile([&](File& file) {
    if (long e = PassThrough(file); e < 0) error = e;
  });
  Reap();
  if (error == 0) Detach();
}

void Engine::Stop() {
  if (!active()) return;
  TableLock lock;
  hopeless_ = true;  // nothing attaches again
  if (settings.drain_at_exit) ReleaseAll();
  if (attached_ && settings.drain_at_exit) {
    sys::Text<512> text;
    text.Append(pool_.path());
    text.Append(
        ": the file system refuses some bytes; they stay in the pool for 'nvcache recover'");
    sys::Report(text.c_str());
  }
  // What is left (a setting asked for it, or the disk refuses) stays in the log, and stays cached:
  // the next user of the pool recovers it.
}

void Engine::Retire() {
  if (!active()) return;
  TableLock lock;
  hopeless_ = true;
  ReleaseAll();
}

void Engine::ResetLocksInChild() {
  if (sys::Getpid() == pid_) return;
  pid_ = sys::Getpid();
  // Other threads of the parent may have looked at a file at the moment of the fork. They are not
  // here, and every file is pass-through.
  ForEachFile([](File& file) {
    new (&file.lock) sys::RwLock;
    new (&file.grow_lock) sys::Mutex;
    for (Description* d = file.descriptions; d != nullptr; d = d->next) {
      new (&d->offset_lock) sys::Mutex;
    }
  });
}

}  // namespace nvcache::vfs
