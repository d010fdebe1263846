// SPDX-License-Identifier: BSD-3-Clause
#include "libc-shim/preload/real.h"

#include <dlfcn.h>

#include <cstring>

#include "src/sys/text.h"

namespace nvcache::preload {

RealTable g_real;

// Where glibc has several versions of a name, this finds the default one: the one that a program
// built today is bound to.
//
// Another libc has one name where glibc has two.
void* FindNext(const char* name) {
  void* const function = dlsym(RTLD_NEXT, name);
  const char* const number = std::strstr(name, "64");
  if (function != nullptr || number == nullptr) return function;
  sys::Text<64> plain;
  plain.Append(name, static_cast<size_t>(number - name)).Append(number + 2);
  return dlsym(RTLD_NEXT, plain.c_str());
}

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
