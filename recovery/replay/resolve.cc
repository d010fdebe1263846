// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/replay/resolve.h"

#include <errno.h>

#include <cstring>

#include "src/pool/pool.h"
#include "src/sys/kernel.h"

namespace nvcache::recovery {

namespace {

// O_NONBLOCK: what has the file's name now may be a fifo.
constexpr int kFlags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

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

bool IsRecorded(int fd, const pool::FileRecord& record) {
  pool::FileRecord found;  // without its path, which may be another now
  struct stat st = {};
  return pool::Identify(fd, &found) == 0 && S_ISREG(found.mode) &&
         (pool::SameFile(found, record) || pool::IsSuccessor(found, record)) &&
         sys::Fstat(fd, &st) == 0 && st.st_nlink > 0;  // deleted is gone, even if still open
}

// `fd` if it is the file, else an error; `opened` may be one already.
long Checked(long opened, const pool::FileRecord& record) {
  if (opened < 0 || IsRecorded(static_cast<int>(opened), record)) return opened;
  sys::Close(static_cast<int>(opened));
  return -ESTALE;
}

bool IsOnFileSystem(const char* path, uint64_t file_system) {
  struct statfs fs = {};
  return sys::Statfs(path, &fs) == 0 &&
         std::memcmp(&fs.f_fsid, &file_system, sizeof(file_system)) == 0;
}

long OpenByHandle(const pool::FileRecord& record) {
  if (record.handle_size == 0) return -ENOENT;
  sys::FileHandle handle = {record.handle_size, record.handle_type, {}};
  std::memcpy(handle.bytes, record.handle, record.handle_size);
  // Without the privilege there is no use in asking every mounted file system for its identity,
  // and one of them may be a server that does not answer.
  const long probe = sys::OpenByHandleAt(AT_FDCWD, handle, O_PATH | O_CLOEXEC);
  if (probe == -EPERM) return -ENOENT;
  if (probe >= 0) sys::Close(static_cast<int>(probe));

  Mounts mounts;
  if (mounts.error() != 0) return -mounts.error();
  while (mounts.Next()) {
    if (!IsOnFileSystem(mounts.path(), record.file_system)) continue;
    const long mount = sys::Openat(AT_FDCWD, mounts.path(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (mount < 0) {
      if (OutOfDescriptors(mount)) return mount;
      continue;
    }
    const long fd = Checked(sys::OpenByHandleAt(static_cast<int>(mount), handle, kFlags), record);
    sys::Close(static_cast<int>(mount));
    if (fd >= 0 || OutOfDescriptors(fd)) return fd;
  }
  return -ENOENT;
}

}  // namespace

long OpenRecorded(const pool::FileRecord& record) {
  const long by_path = Checked(sys::Openat(AT_FDCWD, record.path, kFlags), record);
  if (by_path >= 0 || OutOfDescriptors(by_path)) return by_path;
  const long by_handle = OpenByHandle(record);
  if (by_handle >= 0 || OutOfDescriptors(by_handle)) return by_handle;
  switch (-by_path) {
    case ELOOP:  // a symbolic link
    case EISDIR:
    case ENXIO:  // a socket
    case ENODEV:
      return -ESTALE;
    case ENOTDIR:
      return -ENOENT;
    default:
      return by_path;
  }
}

}  // namespace nvcache::recovery
