// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/unseen.h"

#include <atomic>

#include "src/vfs/engine/access.h"
#include "src/vfs/engine/states.h"
#include "src/vfs/folder.h"

namespace nvcache::vfs {

namespace {

// Unseen calls that may be newer than something pending; and of so many, nothing older is any more.
std::atomic<uint32_t> unseen{0}, settled{0};

void ForgetAll() {
  if (engine.leases.is_open() && engine.file_table.ForgetAll()) unseen.fetch_add(1);
}

// The process need not have had the pool so far. A sync that comes while another one waits here
// waits as well. It is rare, and not inlined: each sync would save registers for it.
[[gnu::noinline]] void EndOlderThanUnseen(int fd) {
  if (!engine.active()) return;
  const uint32_t calls = unseen.load();
  uint32_t before = settled.load();
  JoinDevice(fd);
  engine.checkpoint.EndPending();
  while (static_cast<int32_t>(calls - before) > 0 &&
         !settled.compare_exchange_weak(before, calls)) {
  }
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

void SettleUnseen(int fd) {
  if (settled.load(std::memory_order_relaxed) != unseen.load(std::memory_order_relaxed))
    EndOlderThanUnseen(fd);
}

}  // namespace nvcache::vfs
