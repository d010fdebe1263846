// SPDX-License-Identifier: BSD-3-Clause
#include "src/lease/shared_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "src/lease/format.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/lock.h"
#include "src/sys/text.h"

namespace nvcache::lease {

namespace {

// Another process has made the file, or taken one of another version away, each time. And who has a
// lock in one of another version may be about to do so: that is waited for in between.
constexpr int kAttempts = 20;
constexpr uint64_t kPauseNs = 500 * 1000;

using Path = sys::Text<256>;

constexpr char kUnopenable[] = "the file of leases cannot be opened";
constexpr char kUnmakeable[] = "the file of leases cannot be made";
constexpr char kNoRoom[] = "there is no room for the file of leases";
constexpr char kForeign[] =
    "somebody else has the name of the file of leases, nvcache-leases- and the user's number: "
    "have it removed";

// What an open has said, in place of `otherwise` where the limit is all there is to say.
const char* Reason(long error, const char* otherwise) {
  const bool many = error == -EMFILE || error == -ENFILE;
  return many ? "too many files are open for the file of leases: raise the limit (ulimit -n)"
              : otherwise;
}

bool IsOwn(const struct stat& st, uid_t user) { return S_ISREG(st.st_mode) && st.st_uid == user; }

// Removes a file of another version, if no process uses it: each that does has a record lock. One
// that waited for the lock meanwhile finds another file under the name, or none.
bool RemoveUnused(int fd, const Path& path) {
  struct flock all = {};
  all.l_type = F_WRLCK;
  if (sys::Fcntl(fd, F_SETLK, sys::Address(&all)) < 0) return false;
  struct stat named, open;
  return sys::Fstatat(AT_FDCWD, path.c_str(), &named, AT_SYMLINK_NOFOLLOW) < 0 ||
         sys::Fstat(fd, &open) < 0 || named.st_ino != open.st_ino || named.st_dev != open.st_dev ||
         sys::Unlinkat(AT_FDCWD, path.c_str(), 0) == 0;
}

enum class Found { kOurs, kNothing, kNotOurs, kInUse };

// What the open file is. Nothing that others can change counts, so all of us see the same.
Found Judge(int fd, const Path& path, uid_t user, struct stat* st, const char** why) {
  uint64_t format = 0;
  *why = kForeign;
  if (sys::Fstat(fd, st) < 0 || !IsOwn(*st, user)) return Found::kNotOurs;
  sys::Pread(fd, &format, sizeof(format), offsetof(Shared, format));
  if (format >> kVersionBits != kFormat >> kVersionBits) return Found::kNotOurs;
  if (format != kFormat) {
    *why = "the file of leases is of another version, and processes use it: end them";
    return RemoveUnused(fd, path) ? Found::kNothing : Found::kInUse;
  }
  *why = "others may open the file of leases";
  const bool is_private = (st->st_mode & 07777 & ~0600u) == 0;
  return is_private && st->st_size >= off_t{kFirstSize} ? Found::kOurs : Found::kNotOurs;
}

// What keeps it from being opened.
const char* WhyUnopenable(const Path& path, uid_t user, long error) {
  struct stat st;
  const bool foreign =
      sys::Fstatat(AT_FDCWD, path.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && !IsOwn(st, user);
  return foreign ? kForeign : Reason(error, kUnopenable);
}

// It may be somebody's pipe: opened so, that neither waits nor has any effect.
Found OpenNamed(const Path& path, uid_t user, int* fd, struct stat* st, const char** why) {
  const long opened =
      sys::Openat(AT_FDCWD, path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (opened == -ENOENT) return Found::kNothing;
  if (opened < 0) *why = WhyUnopenable(path, user, opened);
  if (opened < 0) return Found::kNotOurs;
  const Found found = Judge(static_cast<int>(opened), path, user, st, why);
  if (found != Found::kOurs) sys::Close(static_cast<int>(opened));
  *fd = static_cast<int>(opened);
  return found;
}

// To grow beyond the limit would be a signal. And a umask may have taken the owner's rights.
bool Prepare(int fd) {
  const uint64_t format = kFormat;
  return sys::SoftLimit(RLIMIT_FSIZE) >= kFirstSize && sys::Fchmod(fd, 0600) == 0 &&
         sys::Ftruncate(fd, kFirstSize) == 0 && sys::Fallocate(fd, 0, 0, kPage) == 0 &&
         sys::Pwrite(fd, &format, sizeof(format), offsetof(Shared, format)) == sizeof(format);
}

// kNothing: somebody else was first.
Found Make(const char* folder, const Path& path, int* fd, const char** why) {
  const long made = sys::Openat(AT_FDCWD, folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
  *why = Reason(made, kUnmakeable);
  if (made < 0) return Found::kNotOurs;
  *fd = static_cast<int>(made);
  long error = -ENOSPC;
  *why = kNoRoom;
  if (Prepare(*fd)) {
    error =
        sys::Linkat(AT_FDCWD, sys::LinkTo(made).c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW);
    *why = kUnmakeable;
  }
  if (error == 0) return Found::kOurs;
  sys::Close(*fd);
  return error == -EEXIST ? Found::kNothing : Found::kNotOurs;
}

}  // namespace

int OpenSharedFile(const char* folder, struct stat* st, const char** why) {
  const auto user = static_cast<uid_t>(sys::Geteuid());
  Path path;
  path.Append(folder).Append("/").Append(kFilePrefix).AppendNumber(user);
  int fd = -1;
  for (int i = 0; i < kAttempts; ++i) {
    Found found = OpenNamed(path, user, &fd, st, why);
    if (found == Found::kNothing) {
      found = Make(folder, path, &fd, why);
      if (found == Found::kOurs && sys::Fstat(fd, st) < 0) return -1;
    }
    if (found == Found::kOurs) return fd;
    if (found == Found::kNotOurs) return -1;
    if (found == Found::kInUse) sys::Pause(kPauseNs);
  }
  return -1;
}

}  // namespace nvcache::lease
