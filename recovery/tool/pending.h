// SPDX-License-Identifier: BSD-3-Clause
//
// What is pending in a pool's log, file by file.
#ifndef NVCACHE_RECOVERY_TOOL_PENDING_H_
#define NVCACHE_RECOVERY_TOOL_PENDING_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "src/nvlog/reader.h"

namespace nvcache::tool {

struct PendingFile {
  uint64_t entries = 0;
  uint64_t bytes = 0;
  std::string path;  // empty: its record is damaged
  uint64_t inode = 0;
  bool is_new = false;  // the file system may still lose it
};

struct Pending {
  uint64_t entries = 0;
  uint64_t bytes = 0;  // payload
  uint64_t units = 0;  // of the log, from the tail to the end of the last write call
  uint64_t damaged_groups = 0;
  uint64_t unfinished_groups = 0;
  uint64_t in_flight = 0;  // entries of write calls that never committed
  std::map<std::pair<uint32_t, uint32_t>, PendingFile> files;  // by slot and incarnation
};

// Walks the log. The pool may be in use meanwhile: what is freed during the walk is left out.
Pending FindPending(const pool::View& view);

// Fills path, inode and is_new of (slot, incarnation), if its record is whole.
void FindInTable(const pool::View& view, uint32_t slot, uint32_t incarnation, PendingFile* file);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_PENDING_H_
