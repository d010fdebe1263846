// SPDX-License-Identifier: BSD-3-Clause
#include "src/replay/attributes.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "src/sys/descriptor.h"
#include "src/sys/filter.h"
#include "src/sys/kernel.h"

namespace nvcache::replay {

using pool::NameRecord;

namespace {

long SetOwner(int look, uint32_t uid, uint32_t gid) {
  struct stat st;
  const long error = sys::Fstat(look, &st);
  if (error < 0 || (st.st_uid == uid && st.st_gid == gid)) return error;
  return sys::CallIfAllowed(SYS_fchownat, look, sys::Address(""), uid, gid, AT_EMPTY_PATH);
}

// The mode of a record, for a file that the file system may have with a later owner, whom no record
// names: that owner must not get the bits that the kernel took from it then (chown(2)).
mode_t ModeFor(const struct stat& st, const NameRecord& record) {
  mode_t mode = record.mode & 07777;
  const bool is_same = st.st_uid == record.uid && st.st_gid == record.gid;
  if (is_same || S_ISDIR(st.st_mode)) return mode;
  mode &= ~mode_t{S_ISUID};
  return (mode & S_IXGRP) != 0 ? mode & ~mode_t{S_ISGID} : mode;
}

// After the owner.
long SetMode(int look, const NameRecord& record) {
  struct stat st;
  if (S_ISLNK(record.mode)) return 0;
  if (const long error = sys::Fstat(look, &st); error < 0) return error;
  const mode_t mode = ModeFor(st, record);
  if ((st.st_mode & 07777) == mode) return 0;
  return sys::Fchmodat(AT_FDCWD, sys::LinkTo(look).c_str(), mode);
}

long SetTimes(int look, const NameRecord& record, bool is_changed) {
  const timespec access = {record.access_seconds, static_cast<long>(record.access_nanoseconds)};
  const timespec change = {record.change_seconds, static_cast<long>(record.change_nanoseconds)};
  const timespec times[2] = {access, is_changed ? timespec{0, UTIME_OMIT} : change};
  if (S_ISLNK(record.mode)) {
    return sys::Call(SYS_utimensat, look, sys::Address(""), sys::Address(times), AT_EMPTY_PATH);
  }
  return sys::Call(SYS_utimensat, AT_FDCWD, sys::Address(sys::LinkTo(look).c_str()),
                   sys::Address(times), 0);
}

}  // namespace

long SetAttribute(uint32_t which, const NameRecord& record, bool is_changed, int look) {
  switch (which) {
    case pool::kSetOwner:
      return SetOwner(look, record.uid, record.gid);
    case pool::kSetMode:
      return SetMode(look, record);
    default:
      return SetTimes(look, record, is_changed);
  }
}

long SetAsBorn(int look, const NameRecord& record) {
  const long error = SetOwner(look, record.uid, record.gid);
  return error < 0 ? error : SetMode(look, record);
}

}  // namespace nvcache::replay
