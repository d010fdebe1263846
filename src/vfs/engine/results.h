// SPDX-License-Identifier: BSD-3-Clause
//
// The outcomes of a call on a file, beside a result and a negated errno.
#ifndef NVCACHE_VFS_ENGINE_RESULTS_H_
#define NVCACHE_VFS_ENGINE_RESULTS_H_

#include <climits>

namespace nvcache::vfs {

// The call is not for us: make the real one.
inline constexpr long kNotOurs = LONG_MIN;

// Values private to the engine, and no errno: the kernel's own must not be taken for them. Beside
// kNotOurs, and as far from the errors.
inline constexpr long kLogFull = LONG_MIN + 1;
inline constexpr long kNoDescriptors = LONG_MIN + 2;
// As kLogFull, and full of what a disk refuses.
inline constexpr long kNoHope = LONG_MIN + 3;
// A signal waits, and the log is full: its handler runs, and then the call begins anew.
inline constexpr long kSignal = LONG_MIN + 4;
// The file grows: enter again with its grow lock.
inline constexpr long kGrows = LONG_MIN + 5;
// Recovery could not find the file, or the file system has refused a sync: the log must not take
// what is written now.
inline constexpr long kUnsettled = LONG_MIN + 6;
// The file has to be described first.
inline constexpr long kUndescribed = LONG_MIN + 7;
// The file has to be synced first (SyncAwaited), which no thread does that holds a lock.
inline constexpr long kAwaitsSync = LONG_MIN + 8;
// The file is the kernel's and hot (heat.h).
inline constexpr long kIsHot = LONG_MIN + 9;

// Something may have gone past the log: so does the call, or the file is settled first.
inline constexpr long kUnknown = LONG_MIN + 10;
// The pool has to be attached first (JoinShared), which takes the table lock.
inline constexpr long kNeedsPool = LONG_MIN + 11;
// The log cannot have the call: it goes past it.
inline constexpr long kGoesPast = LONG_MIN + 12;

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_RESULTS_H_
