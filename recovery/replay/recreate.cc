// SPDX-License-Identifier: BSD-3-Clause
//
// The order on the medium (I6):
//
//   an unnamed file, of which nobody knows
//   what the program had removed from its name, removed
//   its fingerprint in the file record's header, durable
//   its name
//
// Killed before the name is there, the unnamed file is gone, and the next run makes another one. So
// a file that has the name is never one that recovery made and does not know again.
#include "recovery/replay/recreate.h"

#include <errno.h>

#include <cstring>

#include "src/pmem/persist.h"
#include "src/pool/pool.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/sys/text.h"

namespace nvcache::recovery {

namespace {

// The file's name without its folder.
const char* NameOf(const pool::FileRecord& record) {
  size_t at = record.path_length;
  while (record.path[at - 1] != '/') --at;
  return record.path + at;
}

// The recorded path has no symbolic link in it, because the kernel said it. One that is there now
// may have been planted. Nor is what lies below a mount point that nothing is mounted on the
// folder.
long OpenFolder(const pool::FileRecord& record) {
  sys::Scratch<char[pool::kMaxPath]> scratch;
  char* path = scratch.get();
  const auto length = static_cast<size_t>(NameOf(record) - record.path);
  std::memcpy(path, record.path, length);
  path[length] = '\0';
  open_how how = {};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_NO_SYMLINKS;
  const long fd = sys::Openat2(AT_FDCWD, path, how);
  if (fd < 0) return fd == -ENOENT ? -ENOTDIR : fd;
  struct statfs fs = {};
  long error = sys::Fstatfs(static_cast<int>(fd), &fs);
  if (error == 0 && std::memcmp(&fs.f_fsid, &record.file_system, sizeof(fs.f_fsid)) != 0) {
    error = -EXDEV;
  }
  if (error == 0) return fd;
  sys::Close(static_cast<int>(fd));
  return error;
}

// Only permission bits: a write takes set-user-ID away.
long SetOwnerAndMode(int fd, const pool::FileRecord& record) {
  struct stat st = {};
  if (long error = sys::Fstat(fd, &st); error < 0) return error;
  if (st.st_uid != record.uid || st.st_gid != record.gid) {
    if (long error = sys::Fchown(fd, record.uid, record.gid); error < 0) return error;
  }
  return sys::Fchmod(fd, record.mode & 0777);
}

long StoreSuccessor(int fd, nvlog::RecordHeader* header) {
  sys::Scratch<pool::FileRecord> created;
  if (long error = pool::Identify(fd, created.get()); error < 0) return error;
  pmem::Store(header->link, pool::Fingerprint(*created));
  pmem::Pwb(header, sizeof(*header), pmem::Step::kSuccessor);
  pmem::Psync(pmem::Step::kSuccessorDurable);
  return 0;
}

long GiveName(int fd, int folder, const char* name) {
  sys::Text<32> link;
  link.Append(NVCACHE_DESCRIPTORS "/").AppendNumber(static_cast<uint64_t>(fd));
  const long error = sys::Linkat(AT_FDCWD, link.c_str(), folder, name, AT_SYMLINK_FOLLOW);
  return error == -EEXIST ? -ESTALE : error;
}

// Nothing has the name, or what the program had removed before, when it had no other name: the file
// system has undone that. Should it have brought back other names as well, it keeps its bytes.
long ClearName(int folder, const char* name, const pool::FileRecord& record, bool dry_run) {
  const long opened = sys::Openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (opened < 0) return opened == -ENOENT ? 0 : opened;
  sys::Scratch<pool::FileRecord> found;
  long error = pool::Identify(static_cast<int>(opened), found.get());
  sys::Close(static_cast<int>(opened));
  if (error < 0) return error;
  if (record.predecessor != pool::Fingerprint(*found)) return -ESTALE;
  return dry_run ? 0 : sys::Unlinkat(folder, name, 0);
}

}  // namespace

long Recreate(const pool::FileRecord& record, nvlog::RecordHeader* header, bool dry_run) {
  const long opened = OpenFolder(record);
  if (opened < 0) return opened;
  const auto folder = static_cast<int>(opened);
  long result = sys::Openat(folder, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
  if (result >= 0) {
    const auto fd = static_cast<int>(result);
    long error = SetOwnerAndMode(fd, record);
    if (error == 0) error = ClearName(folder, NameOf(record), record, dry_run);
    if (error == 0 && !dry_run) error = StoreSuccessor(fd, header);
    if (error == 0 && !dry_run) error = GiveName(fd, folder, NameOf(record));
    if (error < 0) {
      sys::Close(fd);
      result = error;
    }
  }
  sys::Close(folder);
  return result;
}

long RemovePredecessor(const pool::FileRecord& record, bool dry_run) {
  const long folder = OpenFolder(record);
  if (folder == -ENOTDIR || folder == -ELOOP || folder == -EXDEV) return 0;  // not where it was
  if (folder < 0) return folder;
  long error = ClearName(static_cast<int>(folder), NameOf(record), record, dry_run);
  if (error == 0 && !dry_run) error = sys::Fsync(static_cast<int>(folder));
  sys::Close(static_cast<int>(folder));
  return error == -ESTALE ? 0 : error;
}

long SyncFolder(const pool::FileRecord& record) {
  const long folder = OpenFolder(record);
  if (folder == -EMFILE || folder == -ENFILE) return folder;
  if (folder < 0) return 0;
  const long result = sys::Fsync(static_cast<int>(folder));
  sys::Close(static_cast<int>(folder));
  return result;
}

}  // namespace nvcache::recovery
