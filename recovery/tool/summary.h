// SPDX-License-Identifier: BSD-3-Clause
//
// A replay's result in words.
#ifndef NVCACHE_RECOVERY_TOOL_SUMMARY_H_
#define NVCACHE_RECOVERY_TOOL_SUMMARY_H_

#include <string>

#include "src/replay/replay.h"

namespace nvcache::tool {

// "7 records (12 KiB) of 2 files, and 1 name".
std::string Applied(const replay::Summary& summary);
// "2 write calls are damaged and left out".
std::string LeftOut(const replay::Summary& summary);
// Says what is still in the pool, and why: "3 records of 1 file that cannot be found".
std::string Kept(const replay::Summary& summary);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_SUMMARY_H_
