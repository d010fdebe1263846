// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/descriptions.h"

#include <cstring>

#include "src/sys/kernel.h"
#include "src/sys/lock.h"
#include "src/sys/text.h"

namespace nvcache::vfs {

namespace {

// One of several, so that as many files can be written by turns. Nobody waits for its lock: who
// finds it taken, also by a thread that a fork has left behind, asks the kernel.
struct Slot {
  sys::Mutex<sys::Rank::kDescriptions> lock;
  uint64_t number = 0;   // the File has the same
  uint32_t changes = 0;  // of the file, by then
  uint64_t at = 0;       // monotonic ns
  pool::FileRecord record = {};
};
constexpr uint64_t kSlots = 8;
constinit Slot slots[kSlots];
std::atomic<uint64_t> last_number{0};

// The same of folders, which a tag finds.
struct FolderSlot {
  sys::Mutex<sys::Rank::kDescriptions> lock;
  lease::Standing folder = {};
  uint64_t at = 0;
  FolderRecord record = {};
};
constinit FolderSlot folder_slots[kSlots];

bool IsLate(uint64_t at) { return sys::Now(CLOCK_MONOTONIC) - at > kLatelyNs; }

void Copy(FolderRecord* to, const FolderRecord& from) {
  std::memcpy(to, &from, offsetof(FolderRecord, path) + sys::Length(from.path) + 1);
}

}  // namespace

bool DescribedLately(const File& file, pool::FileRecord* record) {
  const uint64_t number = file.description.load(std::memory_order_relaxed);
  if (number == 0 || file.name.load() != dramcache::Name::kSettled) return false;
  Slot& slot = slots[number % kSlots];
  if (!slot.lock.TryLock()) return false;
  const bool good =
      slot.number == number && slot.changes == file.changes.load() && !IsLate(slot.at);
  if (good) std::memcpy(record, &slot.record, pool::FileRecordSize(slot.record.path_length));
  slot.lock.Unlock();
  return good;
}

void NoteDescription(File& file, uint32_t changes, const pool::FileRecord& record) {
  const uint64_t number = last_number.fetch_add(1) + 1;
  Slot& slot = slots[number % kSlots];
  if (!slot.lock.TryLock()) return;
  slot.number = number;
  slot.changes = changes;
  slot.at = sys::Now(CLOCK_MONOTONIC);
  std::memcpy(&slot.record, &record, pool::FileRecordSize(record.path_length));
  slot.record.flags = 0;
  slot.record.predecessor = 0;
  slot.lock.Unlock();
  file.description.store(number, std::memory_order_relaxed);
}

bool DescribedLately(const lease::Standing& folder, FolderRecord* record) {
  FolderSlot& slot = folder_slots[folder.tag % kSlots];
  if (!slot.lock.TryLock()) return false;
  const bool good = folder.known && slot.folder == folder && !IsLate(slot.at);
  if (good) Copy(record, slot.record);
  slot.lock.Unlock();
  return good;
}

void NoteDescription(const lease::Standing& folder, const FolderRecord& record) {
  FolderSlot& slot = folder_slots[folder.tag % kSlots];
  if (!slot.lock.TryLock()) return;
  slot.folder = folder;
  slot.at = sys::Now(CLOCK_MONOTONIC);
  Copy(&slot.record, record);
  slot.lock.Unlock();
}

void ForgetFolders() {
  for (FolderSlot& slot : folder_slots) {
    if (!slot.lock.TryLock()) continue;
    slot.folder = {};
    slot.lock.Unlock();
  }
}

}  // namespace nvcache::vfs
