// SPDX-License-Identifier: BSD-3-Clause
//
// What the engine asks of the front end that carries it. The engine itself needs no library:
// neither threads nor dlopen are the same in glibc, in musl, and in a static program.
#ifndef NVCACHE_SYS_HOST_H_
#define NVCACHE_SYS_HOST_H_

namespace nvcache {

namespace pmem {
struct Libpmem;  // src/pmem/libpmem.h
}

struct Host {
  // Runs entry(argument) in a new thread with every signal blocked. Returns a handle, or nullptr.
  void* (*start_thread)(void (*entry)(void*), void* argument);
  // Waits for the thread's end and forgets it.
  void (*join_thread)(void* handle);
  // The functions of libpmem, loaded now and privately; nullptr where there is none.
  const pmem::Libpmem* (*load_libpmem)();
};

}  // namespace nvcache

#endif  // NVCACHE_SYS_HOST_H_
