// SPDX-License-Identifier: BSD-3-Clause
#include <sys/resource.h>

#include "src/sys/kernel.h"
#include "src/vfs/access.h"
#include "src/vfs/space.h"
#include "src/vfs/vfs.h"

namespace nvcache::vfs {

bool Start(const Host& host, char** environment) {
  engine.Start(host, environment);
  return engine.active();
}

bool IsActive() { return engine.active(); }

void Stop() { engine.Stop(); }

void BeforeFork() {
  if (!engine.active()) return;
  sys::EnterEngine();
  engine.table_lock.Lock();
  engine.ReleaseAll();
}

void AfterFork() {
  if (!engine.active()) return;
  engine.ResetLocksInChild();
  engine.table_lock.Unlock();
  sys::LeaveEngine();
}

void BeforeSizeLimit(uint64_t soft) {
  if (!engine.active()) return;
  sys::EnterEngine();
  engine.table_lock.Lock();
  if (soft < sys::SoftLimit(RLIMIT_FSIZE)) engine.ReleaseAll();
}

void AfterSizeLimit() {
  if (!engine.active()) return;
  ForgetSizeLimit();
  engine.table_lock.Unlock();
  sys::LeaveEngine();
}

void Retire() { engine.Retire(); }

void BeforeExec() {
  if (!engine.active()) return;
  TableLock lock;
  engine.ReleaseAll();
}

}  // namespace nvcache::vfs
