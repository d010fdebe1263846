// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/output.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "src/sys/born_stat.h"
#include "src/sys/kernel.h"

namespace nvcache::vfs {

namespace {

// Writes to it go to the log.
bool IsInCacheHere(int fd) {
  const Description* description = engine.descriptors.Of(fd);
  const File* file = IsDescription(description) ? description->file.load() : nullptr;
  return file != nullptr && file->state.load() == State::kCached;
}

// For people.
Output KindOf(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFSOCK:
      return Output::kSocket;
    case S_IFIFO:
      return Output::kPipe;
    case S_IFREG:
      return Output::kFile;
    default:
      return Output::kOther;
  }
}

Output KindOf(int fd) {
  struct stat st = {};
  return sys::LookUntimed(fd, &st) == 0 ? KindOf(st.st_mode) : Output::kOther;
}

// What lies there is gone when the machine is.
bool IsInMemory(int fd) {
  struct statfs fs = {};
  if (sys::Call(SYS_fstatfs, fd, sys::Address(&fs)) < 0) return false;
  return fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC;
}

}  // namespace

long HoldOutput(Output output) { return HoldsOutputs() ? engine.mirror.AwaitOutput(output) : 0; }

long HoldOutputOf(int fd) {
  if (!HoldsOutputs() || IsInCacheHere(fd)) return 0;
  return engine.mirror.AwaitOutput(KindOf(fd));
}

long HoldClose(int fd) {
  struct stat st = {};
  if (!HoldsOutputs() || engine.descriptors.Of(fd) != kUntracked) return 0;
  if (sys::LookUntimed(fd, &st) < 0 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) return 0;
  return engine.mirror.AwaitOutput(KindOf(st.st_mode));
}

long HoldOpen(int dirfd, const char* path, int flags) {
  if (!HoldsOutputs()) return 0;
  constexpr int kTemporary = O_TMPFILE & ~O_DIRECTORY;
  if ((flags & (O_CREAT | O_TRUNC | kTemporary)) != 0) {
    return engine.mirror.AwaitOutput(Output::kName);
  }
  struct stat st = {};
  const bool found = sys::Fstatat(dirfd, path, &st, 0) == 0;
  if (!found || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) return 0;
  return engine.mirror.AwaitOutput(KindOf(st.st_mode));
}

// The pool may be one of another commit as yet.
long HoldMapping(int fd) {
  struct stat st = {};
  if (!engine.active() && !sys::IsSharing()) return 0;
  const bool is_file = sys::LookUntimed(fd, &st) == 0 && S_ISREG(st.st_mode);
  const bool counts = is_file && !IsInMemory(fd) && !engine.file_systems.IsRebuilt(fd);
  return counts ? LeaveUnseen() : 0;
}

long LeaveUnseen() {
  engine.mirror.StopTelling();
  return HoldOutput(Output::kOther);
}

}  // namespace nvcache::vfs
