// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/summary.h"

#include <fmt/format.h>

#include "recovery/tool/text.h"

namespace nvcache::tool {

std::string Applied(const replay::Summary& summary) {
  std::string text = fmt::format("{} ({}) of {}", Many(summary.records, "record", "records"),
                                 Size(summary.bytes), Many(summary.files, "file", "files"));
  if (summary.names != 0) text += fmt::format(", and {}", Many(summary.names, "name", "names"));
  return text;
}

std::string LeftOut(const replay::Summary& summary) {
  return fmt::format("{} damaged and left out",
                     Many(summary.damaged_groups, "write call is", "write calls are"));
}

std::string Kept(const replay::Summary& summary) {
  std::string text;
  if (summary.unresolved_files != 0) {
    text = fmt::format("{} of {} that cannot be found",
                       Many(summary.unresolved_records, "record", "records"),
                       Many(summary.unresolved_files, "file", "files"));
  }
  if (summary.unresolved_names != 0) {
    if (!text.empty()) text += ", and ";
    text += fmt::format("the names, of which {} cannot be made right", summary.unresolved_names);
  }
  if (summary.failed_files != 0) {
    if (!text.empty()) text += ", and ";
    text += fmt::format("{} of {} that could not be written ({})",
                        Many(summary.failed_records, "record", "records"),
                        Many(summary.failed_files, "file", "files"), ErrorName(summary.error));
  }
  if (text.empty()) text = fmt::format("everything, for want of {}", ErrorName(summary.error));
  return text;
}

}  // namespace nvcache::tool
