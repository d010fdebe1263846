// SPDX-License-Identifier: BSD-3-Clause
#include "libc-shim/preload/real.h"

#include <dlfcn.h>

namespace nvcache::preload {

RealTable g_real;

// Where glibc has several versions of a name, this finds the default one: the one that a program
// built today is bound to.
void* FindNext(const char* name) { return dlsym(RTLD_NEXT, name); }

void FindAll() {
#define NVCACHE_WRAP(name) NVCACHE_REAL(name);
#define NVCACHE_OPTIONAL(name)  // a failing dlsym would leave its message for the program's dlerror
#define NVCACHE_ALIAS(name, target)
#include "libc-shim/preload/wrapped.def"
#undef NVCACHE_WRAP
#undef NVCACHE_OPTIONAL
#undef NVCACHE_ALIAS
}

}  // namespace nvcache::preload
