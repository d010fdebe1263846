// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/libpmem.h"

#include <dlfcn.h>

namespace nvcache::tool {

namespace {

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace

const pmem::Libpmem* LoadLibpmem() {
  static pmem::Libpmem functions;
  void* library = dlopen("libpmem.so.1", RTLD_NOW | RTLD_LOCAL);
  const bool found = library != nullptr && Find(library, "pmem_map_file", &functions.map_file) &&
                     Find(library, "pmem_unmap", &functions.unmap) &&
                     Find(library, "pmem_errormsg", &functions.errormsg);
  return found ? &functions : nullptr;
}

}  // namespace nvcache::tool
