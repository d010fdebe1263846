// SPDX-License-Identifier: BSD-3-Clause
#include "src/lease/tag.h"

namespace nvcache::lease {

namespace {

uint64_t Mixed(uint64_t h) {
  h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
  h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
  h ^= h >> 32;
  return h != 0 ? h : 1;
}

}  // namespace

uint64_t NumberTagOf(uint64_t device, uint64_t inode) {
  return Mixed(inode + device * 0x9e3779b97f4a7c15u);
}

uint64_t TagOf(uint64_t device, uint64_t inode, uint64_t birth, uint32_t mode) {
  const uint64_t type = (mode & S_IFMT) ^ S_IFREG;
  return birth == 0 ? 0 : Mixed(NumberTagOf(device, inode) + birth + type * 0xd6e8feb86659fd93u);
}

uint64_t TagOf(const sys::BornStat& st) {
  return TagOf(st.st_dev, st.st_ino, st.birth, st.st_mode);
}

uint64_t TagOf(const struct statx& st) {
  return TagOf(sys::DeviceOf(st), st.stx_ino, sys::BirthOf(st), st.stx_mode);
}

}  // namespace nvcache::lease
