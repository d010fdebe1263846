// SPDX-License-Identifier: BSD-3-Clause
#include "src/replay/resolve.h"

#include <errno.h>

#include <cstring>

#include "src/pool/identify.h"
#include "src/pool/pool.h"
#include "src/replay/found_names.h"
#include "src/replay/rights.h"
#include "src/sys/descriptor.h"
#include "src/sys/filter.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"

namespace nvcache::replay {

namespace {

// Its file system has no blocks: /proc, /sys and their like, where no file is ever cached, and a
// write does something else than store.
bool StoresNothing(int fd) {
  struct statfs fs = {};
  return sys::Fstatfs(fd, &fs) < 0 || fs.f_blocks == 0;
}

bool OutOfDescriptors(long result) { return result == -EMFILE || result == -ENFILE; }

// The mount points of this process, one by one.
class Mounts {
 public:
  Mounts()
      : fd_(static_cast<int>(sys::Openat(AT_FDCWD, "/proc/self/mountinfo", O_RDONLY | O_CLOEXEC))) {
  }
  ~Mounts() {
    if (fd_ >= 0) sys::Close(fd_);
  }
  Mounts(const Mounts&) = delete;
  Mounts& operator=(const Mounts&) = delete;

  int error() const { return fd_ < 0 ? -fd_ : 0; }

  // The fifth field of the next line; proc(5).
  bool Next() {
    size_t length = 0;
    int field = 1;
    int c;
    while ((c = Get()) >= 0 && c != '\n') {
      if (c == ' ') {
        ++field;
      } else if (field == 5 && length + 1 < sizeof(path_)) {
        path_[length++] = static_cast<char>(c == '\\' ? GetOctal() : c);
      }
    }
    path_[length] = '\0';
    return c >= 0;
  }
  const char* path() const { return path_; }

 private:
  int Get() {
    if (at_ == filled_) {
      const long n = fd_ < 0 ? 0 : sys::Read(fd_, buffer_, sizeof(buffer_));
      if (n <= 0) return -1;
      at_ = 0;
      filled_ = static_cast<size_t>(n);
    }
    return static_cast<unsigned char>(buffer_[at_++]);
  }
  int GetOctal() {  // blanks and the like are \040
    int value = 0;
    for (int i = 0; i < 3; ++i) value = value * 8 + (Get() - '0');
    return value;
  }

  int fd_;
  char path_[4096];
  char buffer_[4096];
  size_t at_ = 0;
  size_t filled_ = 0;
};

// A file by its record, and by the fingerprint of the one that recovery created in its place.
struct Wanted {
  const pool::FileRecord& record;
  uint64_t successor;  // 0: none
};

bool IsWanted(int found, const struct stat& st, const Wanted& wanted) {
  sys::Scratch<pool::FileRecord> now;               // without its path, which may be another
  return S_ISREG(st.st_mode) && st.st_nlink > 0 &&  // deleted is gone, even if still open
         pool::Identify(found, now.get()) == 0 &&
         (pool::SameFile(*now, wanted.record) || pool::Fingerprint(*now) == wanted.successor);
}

// Opens what was found for reading and writing, with the rights that count now. Its owner may
// always write to it: that the mode says otherwise may be the program's own wish (git's objects).
long OpenFound(int found, const struct stat& st) {
  constexpr int kFlags = O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  constexpr mode_t kOwner = S_IRUSR | S_IWUSR;
  const sys::FdLink link = sys::LinkTo(found);
  long fd = sys::Openat(AT_FDCWD, link.c_str(), kFlags);
  if (fd != -EACCES || (st.st_mode & kOwner) == kOwner || st.st_uid != ActingUser()) return fd;
  const mode_t mode = st.st_mode & 01777;  // a write takes set-user-ID away
  if (sys::Fchmodat(AT_FDCWD, link.c_str(), mode | kOwner) < 0) return fd;
  fd = sys::Openat(AT_FDCWD, link.c_str(), kFlags);
  sys::Fchmodat(AT_FDCWD, link.c_str(), mode);
  return fd;
}

// Opens `found`, or an error, if it is the file. Closes it.
long OpenChecked(long found, const Wanted& wanted, bool by_handle) {
  if (found < 0) return found;
  const auto look = static_cast<int>(found);
  struct stat st = {};
  long result = sys::Fstat(look, &st);
  if (result == 0 && (StoresNothing(look) || !IsWanted(look, st, wanted))) result = -ESTALE;
  // A handle leads past the folders that keep others away. A file of one's own is one's own
  // wherever it is; of another's, a folder may be all that protects it.
  if (result == 0 && by_handle && ActsForAnother() && st.st_uid != ActingUser()) result = -EACCES;
  if (result == 0) result = OpenFound(look, st);
  sys::Close(look);
  return result;
}

// On the file system that has this mount point.
long LookByHandle(const char* mount_point, const sys::FileHandle& handle) {
  const OwnRights rights;
  const long mount = sys::Openat(AT_FDCWD, mount_point, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (mount < 0) return mount;
  const long found = sys::OpenByHandleAt(static_cast<int>(mount), handle, kToLook);
  sys::Close(static_cast<int>(mount));
  return found;
}

// Without the privilege there is no use in asking every mounted file system for its identity, and
// one of them may be a server that does not answer. A filter may end the process for the question.
bool MayLookByHandle(const sys::FileHandle& handle) {
  if (!sys::MayCall(SYS_open_by_handle_at)) return false;
  const OwnRights rights;
  const long probe = sys::OpenByHandleAt(AT_FDCWD, handle, kToLook);
  if (probe >= 0) sys::Close(static_cast<int>(probe));
  return probe != -EPERM;
}

// Calls use(descriptor) with what the handle leads to on each mount of the file system, until it
// takes it: its result. -ENOENT: none does, or may be asked; or what the last one has said.
template <typename Use>
long FindByHandle(const sys::FileHandle& handle, uint64_t file_system, Use use) {
  if (handle.size == 0 || !MayLookByHandle(handle)) return -ENOENT;
  sys::Scratch<Mounts> mounts;
  if (mounts->error() != 0) return -mounts->error();
  long result = -ENOENT;
  while (mounts->Next()) {
    if (!IsOnFileSystem(mounts->path(), file_system)) continue;
    const long found = LookByHandle(mounts->path(), handle);
    if (OutOfDescriptors(found)) return found;
    if (found < 0) continue;
    const long used = use(found);
    if (used >= 0 || OutOfDescriptors(used)) return used;
    if (used != -ESTALE) result = used;
  }
  return result;
}

sys::FileHandle HandleOf(const pool::FileRecord& record) {
  sys::FileHandle handle = {record.handle_size, record.handle_type, {}};
  std::memcpy(handle.bytes, record.handle, record.handle_size);
  return handle;
}

// ENOENT if it is nowhere; the error it was refused with, if it is somewhere.
long OpenByHandle(const Wanted& wanted) {
  const pool::FileRecord& record = wanted.record;
  return FindByHandle(HandleOf(record), record.file_system,
                      [&](long found) { return OpenChecked(found, wanted, true); });
}

// Keeps it open, or closes it and says why not.
long CheckIdentity(long found, const pool::Identity& identity) {
  const auto fd = static_cast<int>(found);
  pool::Identity now;
  struct statx st;
  long error = pool::IdentifyAt(fd, "", &now, &st);
  if (error == 0 && (st.stx_nlink == 0 || !pool::SameIdentity(now, identity))) error = -ESTALE;
  if (error == 0 && ActsForAnother() && st.stx_uid != ActingUser()) error = -EACCES;
  if (error == 0) return found;
  sys::Close(fd);
  return error;
}

}  // namespace

// It follows no magic link (/proc/self/cwd, /proc/self/fd/3): these lead to what this process has,
// past the folders that keep the pool's owner away.
long LookByPath(const char* path) {
  open_how how = {};
  how.flags = kToLook;
  how.resolve = RESOLVE_NO_MAGICLINKS;
  return sys::Openat2(AT_FDCWD, path, how);
}

bool MayLookByHandle(const pool::FileRecord& record) {
  return record.handle_size != 0 && MayLookByHandle(HandleOf(record));
}

bool IsOnFileSystem(const char* path, uint64_t file_system) {
  struct statfs fs = {};
  return sys::Statfs(path, &fs) == 0 &&
         std::memcmp(&fs.f_fsid, &file_system, sizeof(file_system)) == 0;
}

bool IsMountedAt(const char* path, uint64_t file_system) {
  sys::Scratch<char[pool::kMaxPath]> scratch;
  char* folder = scratch.get();
  size_t length = sys::Length(path);
  if (length == 0 || length >= pool::kMaxPath) return true;
  std::memcpy(folder, path, length + 1);
  struct statfs fs = {};
  long error = sys::Statfs(folder, &fs);
  while ((error == -ENOENT || error == -ENOTDIR) && length > 1) {
    while (length > 1 && folder[length - 1] != '/') --length;
    if (length > 1) --length;  // but "/" has it still
    folder[length] = '\0';
    error = sys::Statfs(folder, &fs);
  }
  return error < 0 || std::memcmp(&fs.f_fsid, &file_system, sizeof(file_system)) == 0;
}

// A file that is near is found on the same mount, where it can be linked to.
long LookByIdentity(const pool::Identity& identity, uint64_t file_system, int near) {
  sys::FileHandle handle = {identity.handle_size, identity.handle_type, {}};
  std::memcpy(handle.bytes, identity.handle, identity.handle_size);
  const auto use = [&](long found) { return CheckIdentity(found, identity); };
  if (near < 0) return FindByHandle(handle, file_system, use);
  if (handle.size == 0 || !sys::MayCall(SYS_open_by_handle_at)) return -ENOENT;
  const long found = LookByHandle(sys::LinkTo(near).c_str(), handle);
  const long used = found >= 0 ? use(found) : found;
  return used >= 0 || used == -EACCES || OutOfDescriptors(used) ? used : -ENOENT;
}

long OpenLookedAt(long look, const pool::FileRecord& record, uint64_t successor) {
  return OpenChecked(look, {record, successor}, false);
}

long OpenRecorded(const pool::FileRecord& record) {
  const Wanted wanted = {record, 0};
  const long by_path = OpenChecked(LookByPath(record.path), wanted, false);
  if (by_path >= 0 || OutOfDescriptors(by_path)) return by_path;
  const long by_handle = OpenByHandle(wanted);
  if (by_handle != -ENOENT) return by_handle;
  switch (-by_path) {
    case ELOOP:  // a symbolic link that leads to itself, or a magic one
      return -ESTALE;
    case ENOTDIR:
      return -ENOENT;
    default:
      return by_path;
  }
}

}  // namespace nvcache::replay
