// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/access.h"
#include "src/vfs/vfs.h"

namespace nvcache::vfs {

bool Start(const Host& host, char** environment) {
  engine.Start(host, environment);
  return engine.active();
}

bool WantsStreams() { return engine.settings.stdio; }

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

void Retire() { engine.Retire(); }

void BeforeExec() {
  if (!engine.active()) return;
  TableLock lock;
  engine.ReleaseAll();
}

}  // namespace nvcache::vfs
