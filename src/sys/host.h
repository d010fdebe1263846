// SPDX-License-Identifier: BSD-3-Clause
//
// The functions that the engine takes from its front end.
#ifndef NVCACHE_SYS_HOST_H_
#define NVCACHE_SYS_HOST_H_

namespace nvcache {

struct Host {
  // As in src/sys/thread.h, where the engine's own are. Tests have others: a sanitizer wants libc
  // to know of every thread.
  void* (*start_thread)(void (*entry)(void*), void* argument);
  void (*join_thread)(void* handle);
};

}  // namespace nvcache

#endif  // NVCACHE_SYS_HOST_H_
