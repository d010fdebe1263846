// SPDX-License-Identifier: BSD-3-Clause
//
// The functions that the engine takes from its front end.
#ifndef NVCACHE_SYS_HOST_H_
#define NVCACHE_SYS_HOST_H_

#include <elf.h>

#include <cstddef>
#include <cstdint>

namespace nvcache {

// An object of the process's: a program or a library, as the dynamic linker has mapped it.
struct LoadedObject {
  const char* path;  // empty: the program itself
  uintptr_t base;    // is added to the addresses of the headers
  const Elf64_Phdr* headers;
  size_t header_count;
  bool is_caught;  // libc, the dynamic linker, or the front end itself: its calls are known
};

struct Host {
  // The engine's own are in src/sys/thread.h. Tests have others: a sanitizer wants libc to know of
  // every thread.
  void* (*start_thread)(void (*entry)(void*), void* argument);
  void (*join_thread)(void* handle);
  // Calls look(context, object) for each object, until it says no; no lock of the engine's is held.
  // False: they cannot be looked at. And a number that changes when there are others. nullptr: the
  // program's calls all come to the front end (an API), or nobody can tell.
  bool (*for_each_object)(bool (*look)(void* context, const LoadedObject& object),
                          void* context) = nullptr;
  uint64_t (*count_loads)() = nullptr;
  // The name of a library that stands behind the front end, and may give a path another meaning
  // than the kernel does. nullptr, also in its place: there is none.
  const char* (*find_interposer)() = nullptr;
  // libc has made no thread beside the one that asks. nullptr: it may have.
  bool (*is_single)() = nullptr;
};

}  // namespace nvcache

#endif  // NVCACHE_SYS_HOST_H_
