// SPDX-License-Identifier: BSD-3-Clause
//
// libnvcache.so: where it lies, and how it gets into a program.
#ifndef NVCACHE_RECOVERY_TOOL_PRELOAD_H_
#define NVCACHE_RECOVERY_TOOL_PRELOAD_H_

#include <string>

#include "recovery/tool/program.h"

namespace nvcache::tool {

// When this very process runs under libnvcache.so (exported LD_PRELOAD), starts it again without:
// the library would take, and recover, the pool that the command is asked about.
void LeaveLibrary(char** argv);

// Sets LD_PRELOAD for this program, and what it starts: the library first, then what is there
// already. A library that wants to be the first comes before it, if the program needs one or it is
// there. Ours is `wanted` if given, else the one that came with this binary. A program that does
// not need it runs without; one that cannot bear it never gets it. A Failure when there is none, or
// another file in its place.
void SetPreload(const Program& program, const std::string& wanted);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_PRELOAD_H_
