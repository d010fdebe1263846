// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/identify.h"

#include <errno.h>

#include <algorithm>
#include <cstring>

#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"

namespace nvcache::pool {

namespace {

// The kernel's answers about the file, one after the other: none of them stays on the stack.

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
  sys::Scratch<sys::FileHandle> handle;
  static_assert(sizeof(handle->bytes) == kMaxHandle);
  handle->size = kMaxHandle;
  int mount_id = 0;
  if (sys::NameToHandleAt(fd, "", handle.get(), &mount_id, AT_EMPTY_PATH) < 0) return;
  record->handle_type = handle->type;
  record->handle_size = handle->size;
  std::memcpy(record->handle, handle->bytes, handle->size);
}

// FNV-1a.
uint64_t Hash(uint64_t hash, const void* bytes, size_t n) {
  const auto* p = static_cast<const uint8_t*>(bytes);
  for (size_t i = 0; i < n; ++i) hash = (hash ^ p[i]) * 0x100000001b3;
  return hash;
}

// FileRecord, or Identity.
template <typename Record>
uint64_t HashOf(const Record& record) {
  uint64_t hash = 0xcbf29ce484222325;
  hash = Hash(hash, &record.inode, sizeof(record.inode));
  hash = Hash(hash, &record.birth_seconds, sizeof(record.birth_seconds));
  hash = Hash(hash, &record.birth_nanoseconds, sizeof(record.birth_nanoseconds));
  hash = Hash(hash, &record.handle_type, sizeof(record.handle_type));
  hash = Hash(hash, &record.handle_size, sizeof(record.handle_size));
  hash = Hash(hash, record.handle, std::min<size_t>(record.handle_size, sizeof(record.handle)));
  return hash | 1;
}

// The path by which the kernel knows the open file, if it leads there: not that of a link that was
// removed while another one stays, nor one of another root.
[[gnu::noinline]] long FillPath(int fd, FileRecord* record) {
  const long n = sys::ReadLinkTo(fd, record->path, kMaxPath);
  if (n < 0) return n;
  if (static_cast<size_t>(n) >= kMaxPath) return -ENAMETOOLONG;
  record->path[n] = '\0';
  record->path_length = static_cast<uint32_t>(n);
  struct stat st;
  const bool leads_there = sys::Fstatat(AT_FDCWD, record->path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                           st.st_ino == record->inode && st.st_dev == record->device;
  return leads_there ? 0 : -ENOENT;
}

}  // namespace

long Describe(int fd, FileRecord* record) {
  record->flags = 0;
  if (long error = Identify(fd, record); error < 0) return error;
  return FillPath(fd, record);
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

uint64_t Fingerprint(const FileRecord& record) { return HashOf(record); }
uint64_t Fingerprint(const Identity& identity) { return HashOf(identity); }

long IdentifyAt(int dirfd, const char* path, Identity* identity, struct statx* st) {
  const long error = BeginIdentity(dirfd, path, identity, st);
  return error < 0 ? error : AddHandle(dirfd, path, identity);
}

long BeginIdentity(int dirfd, const char* path, Identity* identity, struct statx* st) {
  *identity = {};
  constexpr int kFlags = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW;
  const long error = sys::Statx(dirfd, path, kFlags, STATX_BASIC_STATS | STATX_BTIME, st);
  if (error < 0) return error;
  identity->inode = st->stx_ino;
  if ((st->stx_mask & STATX_BTIME) != 0) {
    identity->birth_seconds = st->stx_btime.tv_sec;
    identity->birth_nanoseconds = st->stx_btime.tv_nsec;
  }
  return 0;
}

long AddHandle(int dirfd, const char* path, Identity* identity) {
  sys::FileHandle handle = {};
  handle.size = sizeof(handle.bytes);
  int mount_id = 0;
  if (sys::NameToHandleAt(dirfd, path, &handle, &mount_id, AT_EMPTY_PATH) < 0) return 0;
  if (handle.size > kMaxNameHandle) return -ENAMETOOLONG;
  identity->handle_type = handle.type;
  identity->handle_size = handle.size;
  std::memcpy(identity->handle, handle.bytes, handle.size);
  return 0;
}

long Identify(int fd, Identity* identity) {
  struct statx st;
  return IdentifyAt(fd, "", identity, &st);
}

}  // namespace nvcache::pool
