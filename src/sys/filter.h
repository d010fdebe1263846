// SPDX-License-Identifier: BSD-3-Clause
//
// A filter of system calls (seccomp) that the process has had from its start on: a service has the
// one of its unit, a container the one of its runtime. Nobody tells what it forbids, and it may end
// the process for a call. So a call that sensible filters forbid is made in a copy of the process
// first, where dying is nothing.
#ifndef NVCACHE_SYS_FILTER_H_
#define NVCACHE_SYS_FILTER_H_

#include <cstdint>

namespace nvcache::sys {

// Whether the calling thread has one. Never in tests of crash states, whose kernel is not one.
bool IsFiltered();

// Whether this call ends nobody. Always, where there is no filter; else a copy of the process makes
// it, with arguments that the kernel refuses. What is forbidden stays so, and is asked once.
bool MayCall(long number);

// 0; or the first of the calls that the cache cannot do without which would end the process, or
// clone, where the filter refuses it as well. Asked once, of one copy: some hundred microseconds.
long ForbiddenCall();

// The call, or -EPERM where it would end the process.
long CallIfAllowed(long number, long a, long b, long c, long d = 0, long e = 0);

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_FILTER_H_
