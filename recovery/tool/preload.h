// SPDX-License-Identifier: BSD-3-Clause
//
// libnvcache.so: where it lies, and how it gets into a program.
#ifndef NVCACHE_RECOVERY_TOOL_PRELOAD_H_
#define NVCACHE_RECOVERY_TOOL_PRELOAD_H_

#include <string>

namespace nvcache::tool {

// When this very process runs under libnvcache.so (exported LD_PRELOAD), starts it again without:
// the library would take, and recover, the pool that the command is asked about.
void LeaveLibrary(char** argv);

// The library to preload: `wanted` if given, else the one that came with this binary. An absolute
// path; a Failure that says where it was looked for.
std::string FindLibrary(const std::string& wanted);

// A value for LD_PRELOAD: `library` first, then what is there already.
std::string WithLibrary(const std::string& library, const char* preload);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_PRELOAD_H_
