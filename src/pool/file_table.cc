// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/file_table.h"

#include <errno.h>
#include <linux/stat.h>

#include <cstring>

#include "src/pmem/persist.h"
#include "src/sys/kernel.h"

namespace nvcache::pool {

namespace {

// struct file_handle of <fcntl.h>, with room.
struct Handle {
  uint32_t bytes;
  int32_t type;
  uint8_t data[kMaxHandle];
};

void DescribeHandle(int fd, FileRecord* record) {
  Handle handle = {};
  handle.bytes = kMaxHandle;
  int mount_id = 0;
  const long error = sys::Call(SYS_name_to_handle_at, fd, sys::Address(""), sys::Address(&handle),
                               sys::Address(&mount_id), AT_EMPTY_PATH);
  record->handle_size = error < 0 ? 0 : handle.bytes;
  record->handle_type = handle.type;
  std::memcpy(record->handle, handle.data, record->handle_size);
}

long DescribePath(int fd, FileRecord* record) {
  sys::Text<32> link;
  link.Append("/proc/self/fd/").AppendNumber(static_cast<uint64_t>(fd));
  const long n = sys::Readlinkat(AT_FDCWD, link.c_str(), record->path, kMaxPath);
  if (n < 0) return n;
  if (static_cast<size_t>(n) >= kMaxPath) return -ENAMETOOLONG;
  record->path[n] = '\0';
  record->path_length = static_cast<uint32_t>(n);
  return 0;
}

}  // namespace

long DescribeFile(int fd, FileRecord* record) {
  struct stat st;
  if (long error = sys::Fstat(fd, &st); error < 0) return error;
  if (st.st_nlink == 0) return -ENOENT;
  struct statx stx;
  if (long error = sys::Call(SYS_statx, fd, sys::Address(""), AT_EMPTY_PATH, STATX_BTIME,
                             sys::Address(&stx));
      error < 0) {
    return error;
  }
  struct statfs fs;
  if (long error = sys::Fstatfs(fd, &fs); error < 0) return error;
  record->device = st.st_dev;
  record->inode = st.st_ino;
  const bool has_birth = (stx.stx_mask & STATX_BTIME) != 0;
  record->birth_seconds = has_birth ? stx.stx_btime.tv_sec : 0;
  record->birth_nanoseconds = has_birth ? stx.stx_btime.tv_nsec : 0;
  record->mode = st.st_mode;
  record->uid = st.st_uid;
  record->gid = st.st_gid;
  static_assert(sizeof(fs.f_fsid) == sizeof(record->file_system));
  std::memcpy(&record->file_system, &fs.f_fsid, sizeof(record->file_system));
  record->zero = 0;
  DescribeHandle(fd, record);
  return DescribePath(fd, record);
}

bool FileTable::Open(const View& view) {
  view_ = view;
  return slots_.Open(view.superblock->file_slots);
}

void FileTable::Close() { slots_.Close(); }

long FileTable::Allocate(int fd, uint32_t* slot, uint32_t* incarnation) {
  FileRecord record;
  if (long error = DescribeFile(fd, &record); error < 0) return error;
  *slot = slots_.Allocate();
  if (*slot == sys::kNone) return -ENFILE;
  FileRecord* stored = view_.file(*slot);
  record.incarnation = stored->incarnation + 1;
  if (record.incarnation == 0) record.incarnation = 1;
  record.crc = FileRecordCrc(record);
  *incarnation = record.incarnation;
  pmem::Copy(stored, &record, offsetof(FileRecord, path) + record.path_length + 1);
  return 0;
}

}  // namespace nvcache::pool
