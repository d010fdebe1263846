// SPDX-License-Identifier: BSD-3-Clause
//
// What `nvcache status` and `nvcache top` say of a pool's journal on a disk (docs/disk.md).
#ifndef NVCACHE_RECOVERY_TOOL_JOURNALING_H_
#define NVCACHE_RECOVERY_TOOL_JOURNALING_H_

#include <optional>
#include <string>

#include "recovery/tool/commands.h"
#include "recovery/tool/open.h"
#include "recovery/tool/text.h"
#include "src/journal/format.h"
#include "src/pool/mirror_words.h"
#include "src/pool/pool.h"

namespace nvcache::tool {

// The file, and what it lies on.
struct JournalFile {
  std::string device;       // as the mount has it; empty: not known
  std::string file_system;  // the same
  uint64_t size = 0;
  // journal::Header::how, what `create` found to be faster. None: it cannot be read.
  std::optional<uint32_t> how;
  uint64_t write_ns = 0;  // what one took then; 0: it is not known
};

JournalFile FindJournalFile(const std::string& path);
// "dsync" or "flush"; empty: it is not known.
const char* HowName(const JournalFile& file);
// "/dev/sda1 (ext4), written with RWF_DSYNC".
std::string DiskText(const JournalFile& file);

struct Journaling {
  bool there = false;       // the pool has a journal
  bool has_memory = false;  // else nobody has used the pool since the machine was started
  JournalFile file = {};
  uint32_t commit = pool::kCommitOwn;
  uint32_t failed = 0;                 // errno
  uint32_t state = pool::kMirrorNone;  // what a sync does
  uint64_t ahead = 0;                  // bytes that the memory has, and the journal has not
  // Since its memory was made.
  uint64_t batches = 0;
  uint64_t rounds = 0;
  uint64_t bytes = 0;
  pool::MirrorWaits waits = {};
  pool::OutputWaits outputs = {};
};

Journaling FindJournaling(const ScopedPool& pool, const std::string& path);
// What has happened since `before`.
Journaling Between(const Journaling& before, const Journaling& now);
std::string JournalText(const Journaling& journaling);
// null if there is none.
Json JournalJson(const Journaling& journaling);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_JOURNALING_H_
