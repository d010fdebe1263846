// SPDX-License-Identifier: BSD-3-Clause
//
// The brackets in this folder call these functions of the front end that they are linked into. Each
// front end (libc-shim/preload, libc-shim/musl) defines them once.
#ifndef NVCACHE_LIBC_SHIM_CALLS_FRONT_END_H_
#define NVCACHE_LIBC_SHIM_CALLS_FRONT_END_H_

#include <signal.h>

namespace nvcache {

namespace calls {

struct Call;

// Makes a call that has come by its number (by_number.h): the result, or -1 and errno.
long MakeCall(const Call& call);

// Whether libc reads and writes this descriptor inside itself, where we cannot see. A file that
// gets such a number is the kernel's: by dup2, as a shell does with standard output, or by open
// after close.
bool HasStream(int fd);

// libc's own sigaction, past ours.
int RealSigaction(int signal, const struct sigaction* action, struct sigaction* old);

// Signals that libc keeps for itself: their actions are none of our business.
bool IsSignalOfLibc(long signal);

}  // namespace calls
}  // namespace nvcache

#endif  // NVCACHE_LIBC_SHIM_CALLS_FRONT_END_H_
