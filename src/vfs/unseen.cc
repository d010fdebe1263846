// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/unseen.h"

#include <atomic>

#include "src/vfs/engine/access.h"
#include "src/vfs/engine/states.h"
#include "src/vfs/folder.h"

namespace nvcache::vfs {

namespace {

// Something may be pending that is older than an unseen call, and no sync has come since.
std::atomic<bool> unsettled{false};

void ForgetAll() {
  if (engine.leases.is_open() && engine.file_table.ForgetAll()) unsettled.store(true);
}

void ReleaseAll() {
  const TableLock lock;
  engine.callers.BeginUnseen();
  if (engine.files.AnyInCaches()) engine.attachment.ReleaseAll();
  DescribeAnew();
}

}  // namespace

bool SeesPaths() { return engine.callers.see_paths(); }

bool UnseenCall::Begin() {
  if (SeesPaths()) return false;
  if (begun_ || (!engine.active() && !sys::IsSharing())) return true;
  begun_ = true;
  const sys::InEngine inside;
  if (!sys::IsSharing()) ReleaseAll();
  ForgetAll();
  if (!sys::IsSharing()) engine.checkpoint.EndOwnPending();
  return true;
}

// Somebody may have logged something of the file in between, by its old name.
void UnseenCall::End() {
  if (!begun_) return;
  begun_ = false;
  const sys::InEngine inside;
  ForgetAll();
  if (!sys::IsSharing()) engine.callers.EndUnseen();
}

// The process need not have had the pool so far.
void SettleUnseen(int fd) {
  if (!unsettled.load(std::memory_order_relaxed) || !engine.active()) return;
  JoinDevice(fd);
  unsettled.store(false);
  engine.checkpoint.EndPending();
}

}  // namespace nvcache::vfs
