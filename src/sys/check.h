// SPDX-License-Identifier: BSD-3-Clause
//
// Invariants are checked in every build. A broken one means that going on could corrupt data:
// the process stops, the log keeps what was acknowledged, recovery applies it.
#ifndef NVCACHE_SYS_CHECK_H_
#define NVCACHE_SYS_CHECK_H_

namespace nvcache::sys {

// "nvcache: <text>\n" on stderr, in one write. Text is cut at 500 bytes.
void Report(const char* text);

// Says which it was: on stderr; in the kernel's log, where that is allowed; and to `keep`, for
// stderr may be a file on a disk that is full. Then SIGKILL.
[[noreturn]] void CheckFailed(const char* expression, const char* file, int line);
using KeepWords = void (*)(const char* text);
void SetKeepWords(KeepWords keep);  // nullptr: nobody

}  // namespace nvcache::sys

#define NVCACHE_CHECK(condition)                     \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? static_cast<void>(0)                        \
       : ::nvcache::sys::CheckFailed(#condition, __FILE_NAME__, __LINE__))

#endif  // NVCACHE_SYS_CHECK_H_
