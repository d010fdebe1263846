// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/root.h"

#include <atomic>

#include "src/sys/early.h"
#include "src/sys/kernel.h"

#ifndef STATX_ATTR_MOUNT_ROOT
#define STATX_ATTR_MOUNT_ROOT 0x2000
#endif

namespace nvcache::sys {

namespace {

// Written before the program has a second thread.
struct Root {
  dev_t device;
  ino_t inode;
  bool known;
};
NVCACHE_EARLY constinit Root root = {};
// Before the first file is cached, and never again.
bool examined = false;
std::atomic<bool> is_machines{true};

bool IsMountPoint(const char* path) {
  struct statx st = {};
  if (Statx(AT_FDCWD, path, 0, STATX_INO, &st) < 0) return true;
  constexpr uint64_t kBit = STATX_ATTR_MOUNT_ROOT;
  return (st.stx_attributes_mask & kBit) == 0 || (st.stx_attributes & kBit) != 0;
}

bool IsRemembered(const struct stat& st) {
  return st.st_dev == root.device && st.st_ino == root.inode;
}

bool IsMachines() {
  struct stat st;
  if (Fstatat(AT_FDCWD, "/", &st, 0) < 0 || !IsRemembered(st) || !IsMountPoint("/")) return false;
  return Fstatat(AT_FDCWD, "/proc/1/root", &st, 0) < 0 || IsRemembered(st);
}

}  // namespace

void RememberRoot() {
  struct stat st;
  root.known = Fstatat(AT_FDCWD, "/", &st, 0) == 0;
  if (!root.known) return;
  root.device = st.st_dev;
  root.inode = st.st_ino;
}

void ExamineRoot() {
  if (examined || !root.known) return;
  examined = true;
  is_machines.store(IsMachines());
}

bool AtMachineRoot() {
  if (!root.known) return true;
  struct stat st;
  return is_machines.load() && Fstatat(AT_FDCWD, "/", &st, 0) == 0 && IsRemembered(st);
}

}  // namespace nvcache::sys
