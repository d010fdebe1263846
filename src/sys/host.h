// SPDX-License-Identifier: BSD-3-Clause
//
// What the engine asks of the front end that carries it, or of a test. The engine itself needs no
// library: dlopen is not the same in glibc, in musl, and in a static program.
#ifndef NVCACHE_SYS_HOST_H_
#define NVCACHE_SYS_HOST_H_

namespace nvcache {

namespace pmem {
struct Libpmem;  // src/pmem/libpmem.h
}

struct Host {
  // As in src/sys/thread.h. Tests have others: a sanitizer wants libc to know of every thread.
  void* (*start_thread)(void (*entry)(void*), void* argument);
  void (*join_thread)(void* handle);
  // The functions of libpmem, loaded now and privately; nullptr where there is none. Takes locks of
  // libc and its memory, so the engine never calls it: the command does, before it opens a pool.
  const pmem::Libpmem* (*load_libpmem)();
};

}  // namespace nvcache

#endif  // NVCACHE_SYS_HOST_H_
