// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/descriptions.h"

#include <cstring>

#include "src/sys/kernel.h"
#include "src/sys/lock.h"

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

}  // namespace

bool DescribedLately(const File& file, pool::FileRecord* record) {
  const uint64_t number = file.description.load(std::memory_order_relaxed);
  if (number == 0 || file.name.load() != dramcache::Name::kSettled) return false;
  Slot& slot = slots[number % kSlots];
  if (!slot.lock.TryLock()) return false;
  const bool good = slot.number == number && slot.changes == file.changes.load() &&
                    sys::Now(CLOCK_MONOTONIC) - slot.at <= kLatelyNs;
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

}  // namespace nvcache::vfs
