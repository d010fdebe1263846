// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/kernel.h"
#include "src/vfs/access.h"
#include "src/vfs/vfs.h"

namespace nvcache::vfs {

bool Start(const Host& host, char** environment) {
  engine.Start(host, environment);
  return engine.active();
}

void Stop() { engine.Stop(); }

void BeforeFork() {
  if (!engine.active()) return;
  sys::EnterEngine();
  engine.table_lock.Lock();
  engine.ReleaseAll();
}

void AfterFork() {
  if (!engine.active()) return;
  engine.BecomeChild();
  engine.table_lock.Unlock();
  sys::LeaveEngine();
}

void Retire() { engine.Retire(); }

void BeforeExec() {
  if (!engine.active()) return;
  TableLock lock;
  engine.ReleaseAll();
}

namespace {

bool SurvivesExec(const File& file) {
  for (const Description* d = file.descriptions; d != nullptr; d = d->next) {
    for (uint32_t fd = 0; fd < engine.descriptor_end(); ++fd) {
      if (engine.SlotOf(static_cast<int>(fd)) != d) continue;
      if (sys::Fcntl(static_cast<int>(fd), F_GETFD) == 0) return true;
    }
  }
  return false;
}

}  // namespace

// The descriptor stays open in the new program, as one that it has inherited.
void KeepLocks(bool coming) {
  if (!engine.active()) return;
  TableLock lock;
  engine.ForEachFile([&](File& file) {
    if (file.backing_fd < 0 || !file.locked.load() || !SurvivesExec(file)) return;
    sys::Fcntl(file.backing_fd, F_SETFD, coming ? 0 : FD_CLOEXEC);
  });
}

}  // namespace nvcache::vfs
