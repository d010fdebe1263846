// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/kept_folders.h"

#include <errno.h>
#include <fcntl.h>

#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/sharing.h"

namespace nvcache::vfs {

namespace {

uint64_t Mix(const KeptFolders::Key& key) {
  return (key.inode ^ key.device << 40 ^ key.mount << 52 ^ key.birth) * 0x9e3779b97f4a7c15u;
}

// Beside the others of ours. -1: there is no room in the first table; or the program may need it.
int CopyLow(int fd) {
  const long copy = sys::Fcntl(fd, F_DUPFD_CLOEXEC, sys::kFolderNumber);
  if (copy < sys::kFirstTable) return copy < 0 ? -1 : static_cast<int>(copy);
  sys::Close(static_cast<int>(copy));
  return -1;
}

}  // namespace

int KeptFolders::Take(const Key& key) {
  if (key.mount == 0 || sys::IsSharing()) return kNone;
  const int handle = static_cast<int>((Mix(key) >> 32) % kSlots);
  Slot& slot = slots_[handle];
  uint32_t word = slot.word.load();
  do {
    if (word >= kBusy) return kNone;
  } while (!slot.word.compare_exchange_weak(word, word + 1));
  if (slot.key == key) return handle;
  Release(handle);
  return kNone;
}

int KeptFolders::Offer(const Key& key, int fd) {
  if (key.mount == 0 || sys::IsSharing()) return kNone;
  if (met_.exchange(Mix(key)) != Mix(key)) return kNone;
  const int handle = static_cast<int>((Mix(key) >> 32) % kSlots);
  Slot& slot = slots_[handle];
  if (!Seize(slot)) return kNone;
  CloseSeized(slot);
  const int copy = CopyLow(fd);
  slot.fd.store(copy);
  slot.key = key;
  if (copy >= 0) NoteOwn(copy);
  slot.word.store(copy >= 0 ? 1 : kClosed);
  return copy >= 0 ? handle : kNone;
}

void KeptFolders::Forget(int handle) {
  Slot& slot = slots_[handle];
  if (const int fd = slot.fd.exchange(-1); fd >= 0) ForgetOwn(fd);
  slot.word.fetch_or(kRetired);
}

void KeptFolders::Release(int handle) {
  Slot& slot = slots_[handle];
  if (slot.word.fetch_sub(1) != kRetired + 1) return;
  CloseSeized(slot);
  slot.word.store(kClosed);
}

// It is nobody's.
bool KeptFolders::Seize(Slot& slot) {
  uint32_t idle = 0, closed = kClosed;
  return slot.word.compare_exchange_strong(idle, kBusy) ||
         slot.word.compare_exchange_strong(closed, kBusy);
}

void KeptFolders::CloseSeized(Slot& slot) {
  const int fd = slot.fd.exchange(-1);
  if (fd >= 0 && ForgetOwn(fd)) sys::Close(fd);
}

bool KeptFolders::Retire(Slot& slot) {
  if (Seize(slot)) {
    CloseSeized(slot);
    slot.word.store(kClosed);
    return true;
  }
  uint32_t word = slot.word.load();
  while (word > 0 && word < kBusy) {
    if (slot.word.compare_exchange_weak(word, word | kRetired)) return false;
  }
  return word == 0 ? Retire(slot) : word == kClosed;
}

void KeptFolders::Close() {
  for (Slot& slot : slots_) Retire(slot);
}

long KeptFolders::Move(int fd) {
  for (Slot& slot : slots_) {
    if (slot.fd.load() == fd) return Retire(slot) ? 0 : -EBUSY;
  }
  return 1;
}

// It is not ours to close; one who has taken it sees that it is another one.
void KeptFolders::Lost(int fd) {
  for (Slot& slot : slots_) {
    if (slot.fd.load() == fd) Retire(slot);
  }
}

void KeptFolders::LeaveToParent() {
  for (Slot& slot : slots_) {
    CloseSeized(slot);
    slot.word.store(kClosed);
  }
}

}  // namespace nvcache::vfs
