// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/left_names.h"

#include "src/vfs/folder.h"

namespace nvcache::vfs {

// FNV-1a of the name, begun with the folder; never 0.
uint64_t LeftNames::KeyOf(int dirfd, const char* path) {
  constexpr uint64_t kBegin = 0xcbf29ce484222325, kPrime = 0x100000001b3;
  Folder folder;
  if (!folder.Find(dirfd, path, false)) return 1;
  uint64_t key = (kBegin ^ folder.tag()) * kPrime;
  for (const char* c = folder.name(); *c != '\0'; ++c) {
    key = (key ^ static_cast<uint8_t>(*c)) * kPrime;
  }
  return key != 0 ? key : 1;
}

}  // namespace nvcache::vfs
