// SPDX-License-Identifier: BSD-3-Clause
//
// Collects what a replay tells, and prints it.
#ifndef NVCACHE_RECOVERY_TOOL_FINDINGS_H_
#define NVCACHE_RECOVERY_TOOL_FINDINGS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "recovery/tool/export.h"
#include "recovery/tool/progress.h"
#include "recovery/tool/text.h"
#include "src/replay/replay.h"

namespace nvcache::tool {

// A file whose records could not be applied. Files have the numbers of the replay's walk.
struct Unresolved {
  uint32_t file;     // kNoFile: all those that nobody can name
  std::string path;  // empty: the record that names it is damaged
  uint64_t inode;
  int error;
  uint64_t records = 0;  // none: it was found, but the file system refused
  uint64_t bytes = 0;
};

// A name that the file system had not as the logs say.
struct NameFound {
  replay::NameAct act;
  std::string path;
};

// One that could not be given, or taken away.
struct NameUnresolved {
  std::string path;
  int error;
};

struct Findings {
  bool dry_run = false;
  Exporter* exporter = nullptr;
  std::optional<Progress> progress;

  replay::Summary summary;
  bool clean = false;
  uint64_t discarded = 0;                     // records
  std::map<uint32_t, Unresolved> unresolved;  // by file
  std::vector<NameFound> names;
  std::vector<NameUnresolved> unresolved_names;
  uint64_t segment_units = 1;
  std::vector<nvlog::Group> damaged;
  std::vector<nvlog::Group> unfinished;
};

replay::Observer ObserverOf(Findings* findings);

void PrintText(const Findings& findings);
Json ToJson(const Findings& findings);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_FINDINGS_H_
