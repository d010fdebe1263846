// SPDX-License-Identifier: BSD-3-Clause
//
// A child of vfork runs on its parent's memory, as the thread that has called vfork, which sleeps
// until the child has a program of its own or is gone. The parent's other threads go on.
//
// So such a child must not change what its parent goes by, and may be killed at any instruction: it
// takes no lock, for nobody would give it back.
#ifndef NVCACHE_SYS_SHARING_H_
#define NVCACHE_SYS_SHARING_H_

#include <cstdint>

namespace nvcache::sys {

// How many children share the thread's memory, each the child of the one before.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local uint32_t sharing;

// Whether the caller is such a child.
inline bool IsSharing() { return sharing != 0; }

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_SHARING_H_
