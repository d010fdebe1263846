// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>

#include "src/pmem/persist.h"
#include "src/pool/pool.h"
#include "src/sys/check.h"
#include "src/sys/crc32c.h"
#include "src/sys/kernel.h"
#include "src/sys/words.h"

namespace nvcache::pool {

namespace {

// What the kernel says of the file, one thing after the other: none of it stays on the stack.

[[gnu::noinline]] long FillAttributes(int fd, FileRecord* record) {
  struct statx st = {};
  const long error = sys::Statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &st);
  if (error < 0) return error;
  record->inode = st.stx_ino;
  record->mode = st.stx_mode;
  record->uid = st.stx_uid;
  record->gid = st.stx_gid;
  const bool born = (st.stx_mask & STATX_BTIME) != 0;
  record->birth_seconds = born ? st.stx_btime.tv_sec : 0;
  record->birth_nanoseconds = born ? st.stx_btime.tv_nsec : 0;
  return 0;
}

// st_dev as programs see it.
[[gnu::noinline]] long FillDevice(int fd, FileRecord* record) {
  struct stat st = {};
  const long error = sys::Fstat(fd, &st);
  record->device = st.st_dev;
  return error;
}

[[gnu::noinline]] long FillFileSystem(int fd, FileRecord* record) {
  struct statfs fs = {};
  const long error = sys::Fstatfs(fd, &fs);
  static_assert(sizeof(fs.f_fsid) == sizeof(record->file_system));
  std::memcpy(&record->file_system, &fs.f_fsid, sizeof(record->file_system));
  return error;
}

// Not every file system has handles; one without is known by inode and birth time.
[[gnu::noinline]] void FillHandle(int fd, FileRecord* record) {
  sys::FileHandle handle = {};
  static_assert(sizeof(handle.bytes) == kMaxHandle);
  handle.size = kMaxHandle;
  int mount_id = 0;
  if (sys::NameToHandleAt(fd, "", &handle, &mount_id, AT_EMPTY_PATH) < 0) return;
  record->handle_type = handle.type;
  record->handle_size = handle.size;
  std::memcpy(record->handle, handle.bytes, handle.size);
}

// FNV-1a.
uint64_t Hash(uint64_t hash, const void* bytes, size_t n) {
  const auto* p = static_cast<const uint8_t*>(bytes);
  for (size_t i = 0; i < n; ++i) hash = (hash ^ p[i]) * 0x100000001b3;
  return hash;
}

}  // namespace

uint32_t FileRecordCrc(const FileRecord& record) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&record);
  constexpr size_t kBegin = offsetof(FileRecord, device);
  uint32_t crc = sys::Crc32c(&record.incarnation, sizeof(record.incarnation));
  crc = sys::Crc32c(bytes + kBegin, offsetof(FileRecord, name) - kBegin, crc);
  crc = sys::Crc32c(&record.path_length, sizeof(record.path_length), crc);
  crc = sys::Crc32c(&record.predecessor, sizeof(record.predecessor), crc);
  return sys::Crc32c(record.path, std::min<size_t>(record.path_length, kMaxPath), crc);
}

bool FileRecordValid(const FileRecord& record, uint32_t incarnation) {
  const uint32_t length = Peek(record.path_length);
  const uint32_t name = Peek(record.name);
  const uint64_t cut = Peek(record.cut);
  return incarnation != 0 && record.incarnation == incarnation &&
         record.handle_size <= kMaxHandle && length > 0 && length < kMaxPath &&
         (name == kNameSettled || name == kNameNew) &&
         cut == CutWord(CutPosition(cut), incarnation) && record.path[0] == '/' &&
         record.path[length] == '\0' && record.crc == FileRecordCrc(record);
}

bool CopyFileRecord(const FileRecord& record, FileRecord* copy) {
  sys::CopyWords(copy, &record, sizeof(*copy));
  return FileRecordValid(*copy, copy->incarnation);
}

long Identify(int fd, FileRecord* record) {
  if (long error = FillAttributes(fd, record); error < 0) return error;
  if (long error = FillDevice(fd, record); error < 0) return error;
  if (long error = FillFileSystem(fd, record); error < 0) return error;
  record->handle_type = 0;
  record->handle_size = 0;
  std::memset(record->handle, 0, sizeof(record->handle));
  FillHandle(fd, record);
  return 0;
}

// The device is left out: its number may be another after a reboot.
bool SameFile(const FileRecord& a, const FileRecord& b) {
  return a.inode == b.inode && a.birth_seconds == b.birth_seconds &&
         a.birth_nanoseconds == b.birth_nanoseconds && a.handle_type == b.handle_type &&
         a.handle_size == b.handle_size && a.handle_size <= kMaxHandle &&
         std::memcmp(a.handle, b.handle, a.handle_size) == 0;
}

uint64_t Fingerprint(const FileRecord& record) {
  uint64_t hash = 0xcbf29ce484222325;
  hash = Hash(hash, &record.inode, sizeof(record.inode));
  hash = Hash(hash, &record.birth_seconds, sizeof(record.birth_seconds));
  hash = Hash(hash, &record.birth_nanoseconds, sizeof(record.birth_nanoseconds));
  hash = Hash(hash, &record.handle_type, sizeof(record.handle_type));
  hash = Hash(hash, &record.handle_size, sizeof(record.handle_size));
  hash = Hash(hash, record.handle, std::min<size_t>(record.handle_size, kMaxHandle));
  return hash | 1;
}

bool IsSuccessor(const FileRecord& found, const FileRecord& record) {
  return record.successor == Fingerprint(found);
}

void SettleName(FileRecord* record) {
  pmem::Store(record->name, kNameSettled);
  pmem::Pwb(&record->name, sizeof(record->name), pmem::Step::kSettle);
  pmem::Psync(pmem::Step::kSettled);
}

uint64_t CutWord(uint64_t position, uint32_t incarnation) {
  NVCACHE_CHECK(position == CutPosition(position));
  if (position == 0) return 0;
  const uint64_t checked[] = {position, incarnation};
  return position | uint64_t{sys::Crc32c(checked, sizeof(checked))} << kCutBits;
}

void StoreCut(FileRecord* record, uint64_t position) {
  pmem::Store(record->cut, CutWord(position, record->incarnation));
  pmem::Pwb(&record->cut, sizeof(record->cut), pmem::Step::kCut);
  pmem::Psync(pmem::Step::kCutDurable);
}

void StoreSuccessor(FileRecord* record, const FileRecord& created) {
  pmem::Store(record->successor, Fingerprint(created));
  pmem::Pwb(&record->successor, sizeof(record->successor), pmem::Step::kSuccessor);
  pmem::Psync(pmem::Step::kSuccessorDurable);
}

}  // namespace nvcache::pool
