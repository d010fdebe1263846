// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/recent_records.h"

#include <algorithm>
#include <cstring>

#include "src/sys/lock.h"
#include "src/sys/text.h"

namespace nvcache::vfs {

namespace {

// Longer paths are not kept: a memo with room for them would be on pages of its own, and each costs
// a program that writes one file a fault.
constexpr size_t kLongestKept = 256;

// One of several, so that as many files can be written by turns. Nobody waits for its lock: a
// thread that finds it taken, also by a thread that a fork has left behind, asks the kernel.
struct Memo {
  sys::Mutex<sys::Rank::kRecentRecords> lock;
  uint64_t number = 0;   // the File has the same
  uint32_t changes = 0;  // the file's, by then
  uint64_t at = 0;       // ticks
  alignas(pool::FileRecord) uint8_t record[pool::FileRecordSize(kLongestKept)] = {};
};
constexpr uint64_t kMemos = 8;
constinit Memo memos[kMemos];
std::atomic<uint64_t> last_number{0};

// The memo of a file or folder, which a tag finds. A removal, or another name, changes its
// bypasses.
struct NamedMemo {
  sys::Mutex<sys::Rank::kRecentRecords> lock;
  lease::Coverage coverage = {};
  uint64_t at = 0;
  alignas(NamedRecord) uint8_t record[offsetof(NamedRecord, path) + kLongestKept + 1] = {};
};
constinit NamedMemo folder_memos[kMemos];
constinit NamedMemo file_memos[kMemos];

struct Birth {
  uint64_t tag;
  pool::Lsn lsn;
};
constexpr uint64_t kBirths = 1024;
constinit sys::Mutex<sys::Rank::kRecentRecords> births_lock;
constinit Birth births[kBirths] = {};
constinit uint64_t next_birth = 0;

uint64_t Ticks() { return __builtin_ia32_rdtsc(); }
bool IsLate(uint64_t at) { return Ticks() - at > kLatelyTicks; }

size_t SizeOf(const NamedRecord& record) {
  return offsetof(NamedRecord, path) + sys::Length(record.path) + 1;
}

bool Get(NamedMemo* memos_of, const lease::Coverage& now, NamedRecord* record) {
  NamedMemo& memo = memos_of[now.tag % kMemos];
  if (!memo.lock.TryLock()) return false;
  const bool good = now.known && memo.coverage == now && !IsLate(memo.at);
  if (good) std::memcpy(record, memo.record, sizeof(memo.record));
  memo.lock.Unlock();
  return good;
}

void Put(NamedMemo* memos_of, const lease::Coverage& now, const NamedRecord& record) {
  NamedMemo& memo = memos_of[now.tag % kMemos];
  if (SizeOf(record) > sizeof(memo.record) || !memo.lock.TryLock()) return;
  memo.coverage = now;
  memo.at = Ticks();
  std::memcpy(memo.record, &record, SizeOf(record));
  memo.lock.Unlock();
}

}  // namespace

bool CopyRecentRecord(const File& file, pool::FileRecord* record) {
  const uint64_t number = file.recent_record.load(std::memory_order_relaxed);
  if (number == 0) return false;
  Memo& memo = memos[number % kMemos];
  if (!memo.lock.TryLock()) return false;
  const bool good =
      memo.number == number && memo.changes == file.changes.load() && !IsLate(memo.at);
  if (good) std::memcpy(record, memo.record, sizeof(memo.record));
  memo.lock.Unlock();
  return good;
}

void KeepRecentRecord(File& file, uint32_t changes, const pool::FileRecord& record) {
  if (record.path_length > kLongestKept) return;
  const uint64_t number = last_number.fetch_add(1) + 1;
  Memo& memo = memos[number % kMemos];
  if (!memo.lock.TryLock()) return;
  memo.number = number;
  memo.changes = changes;
  memo.at = Ticks();
  auto* kept = reinterpret_cast<pool::FileRecord*>(memo.record);
  std::memcpy(memo.record, &record, pool::FileRecordSize(record.path_length));
  kept->flags = 0;
  memo.lock.Unlock();
  file.recent_record.store(number, std::memory_order_relaxed);
}

bool CopyRecentFolder(const lease::Coverage& folder, NamedRecord* record) {
  return Get(folder_memos, folder, record);
}

void KeepRecentFolder(const lease::Coverage& folder, const NamedRecord& record) {
  Put(folder_memos, folder, record);
}

bool CopyRecentFile(const lease::Coverage& file, NamedRecord* record) {
  return Get(file_memos, file, record);
}

void KeepRecentFile(const lease::Coverage& file, const NamedRecord& record) {
  Put(file_memos, file, record);
}

bool CopyHandle(const lease::Coverage& file, pool::Identity* identity) {
  NamedMemo& memo = file_memos[file.tag % kMemos];
  if (!memo.lock.TryLock()) return false;
  pool::Identity kept;
  std::memcpy(&kept, memo.record, sizeof(kept));
  const bool good = file.known && memo.coverage == file && kept.inode == identity->inode &&
                    kept.birth_seconds == identity->birth_seconds &&
                    kept.birth_nanoseconds == identity->birth_nanoseconds;
  if (good) *identity = kept;
  memo.lock.Unlock();
  return good;
}

pool::Lsn BirthOf(uint64_t tag) {
  pool::Lsn born = 0;
  if (!births_lock.TryLock()) return 0;
  const uint64_t n = std::min(next_birth, kBirths);
  for (uint64_t i = 0; i < n; ++i) {
    if (births[i].tag == tag) born = births[i].lsn;
  }
  births_lock.Unlock();
  return born;
}

void KeepBirth(uint64_t tag, pool::Lsn born) {
  if (!births_lock.TryLock()) return;
  births[next_birth++ % kBirths] = {tag, born};
  births_lock.Unlock();
}

void ForgetFolders() {
  for (auto* memos_of : {folder_memos, file_memos}) {
    for (uint64_t i = 0; i < kMemos; ++i) {
      if (!memos_of[i].lock.TryLock()) continue;
      memos_of[i].coverage = {};
      memos_of[i].lock.Unlock();
    }
  }
}

}  // namespace nvcache::vfs
