// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/root.h"

#include "src/sys/kernel.h"

#ifndef STATX_ATTR_MOUNT_ROOT
#define STATX_ATTR_MOUNT_ROOT 0x2000
#endif

namespace nvcache::sys {

namespace {

// Written before the program has a second thread.
struct {
  dev_t device = 0;
  ino_t inode = 0;
  bool known = false;
  bool is_machines = true;
} root;

bool IsMountPoint(const char* path) {
  struct statx st = {};
  if (Statx(AT_FDCWD, path, 0, STATX_INO, &st) < 0) return true;
  constexpr uint64_t kBit = STATX_ATTR_MOUNT_ROOT;
  return (st.stx_attributes_mask & kBit) == 0 || (st.stx_attributes & kBit) != 0;
}

}  // namespace

void RememberRoot() {
  struct stat own, first;
  root.known = Fstatat(AT_FDCWD, "/", &own, 0) == 0;
  if (!root.known) return;
  root.device = own.st_dev;
  root.inode = own.st_ino;
  root.is_machines = IsMountPoint("/");
  if (Fstatat(AT_FDCWD, "/proc/1/root", &first, 0) < 0) return;
  root.is_machines &= first.st_dev == own.st_dev && first.st_ino == own.st_ino;
}

bool AtMachineRoot() {
  if (!root.known) return true;
  struct stat st;
  return root.is_machines && Fstatat(AT_FDCWD, "/", &st, 0) == 0 && st.st_dev == root.device &&
         st.st_ino == root.inode;
}

}  // namespace nvcache::sys
