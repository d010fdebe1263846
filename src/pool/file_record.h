// SPDX-License-Identifier: BSD-3-Clause
//
// The properties by which a file is known again.
#ifndef NVCACHE_POOL_FILE_RECORD_H_
#define NVCACHE_POOL_FILE_RECORD_H_

#include <cstddef>
#include <cstdint>

namespace nvcache::pool {

inline constexpr size_t kMaxHandle = 128;  // MAX_HANDLE_SZ of <fcntl.h>
inline constexpr size_t kMaxPath = 3888;   // with the final zero

// FileRecord::flags.
// The file has lost its last name, or is about to. Counts in its newest record: then nothing is
// missing where the file is not found, and its groups are void.
inline constexpr uint32_t kFileRemoved = 1;

// The properties by which a file is known again: the payload of a file record (src/nvlog/record.h),
// up to the zero that ends its path.
struct FileRecord {
  uint64_t device;  // st_dev; not stable across boots
  uint64_t inode;
  int64_t birth_seconds;  // statx btime: with the inode it names the file, not its successor
  uint32_t birth_nanoseconds;
  uint32_t mode;  // st_mode
  uint32_t uid;
  uint32_t gid;
  uint64_t file_system;  // statfs f_fsid
  int32_t handle_type;   // name_to_handle_at's
  uint32_t handle_size;  // bytes; 0: the file system has no handles
  uint8_t handle[kMaxHandle];
  uint32_t flags;        // kFileRemoved
  uint32_t path_length;  // bytes, without the final zero
  char path[kMaxPath];   // absolute, when the record was written
};
static_assert(offsetof(FileRecord, device) == 0);
static_assert(offsetof(FileRecord, inode) == 8);
static_assert(offsetof(FileRecord, birth_seconds) == 16);
static_assert(offsetof(FileRecord, birth_nanoseconds) == 24);
static_assert(offsetof(FileRecord, mode) == 28);
static_assert(offsetof(FileRecord, uid) == 32);
static_assert(offsetof(FileRecord, gid) == 36);
static_assert(offsetof(FileRecord, file_system) == 40);
static_assert(offsetof(FileRecord, handle_type) == 48);
static_assert(offsetof(FileRecord, handle_size) == 52);
static_assert(offsetof(FileRecord, handle) == 56);
static_assert(offsetof(FileRecord, flags) == 184);
static_assert(offsetof(FileRecord, path_length) == 188);
static_assert(offsetof(FileRecord, path) == 192);
static_assert(sizeof(FileRecord) == 4080);
// Bytes of the record in a pool, if its path is `path_length` long.
constexpr size_t FileRecordSize(uint32_t path_length) {
  return offsetof(FileRecord, path) + path_length + 1;
}

// `size` bytes are a whole file record, as far as one can see without a checksum.
bool IsFileRecord(const FileRecord& record, size_t size);

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_FILE_RECORD_H_
