// SPDX-License-Identifier: BSD-3-Clause
//
// How libc lays out a stream, as far as no header says. It has been so since glibc 2.1: programs
// that are older than their libc have it in their copies of stdin.
#ifndef NVCACHE_LIBC_SHIM_PRELOAD_LIBC_STREAM_H_
#define NVCACHE_LIBC_SHIM_PRELOAD_LIBC_STREAM_H_

#include <stdio.h>

namespace nvcache::preload {

// _IO_FILE_plus.
struct LibcStream {
  FILE file;
  const void* table;  // its functions
};
static_assert(sizeof(FILE) == 216);

// Bits of FILE::_flags.
constexpr int kMagic = static_cast<int>(0xfbad0000);
constexpr int kUserBuffer = 1, kUnbuffered = 2, kNoReads = 4, kNoWrites = 8;
constexpr int kPutting = 0x800, kUserLock = 0x8000;

// Bits of FILE::_flags2.
constexpr int kMapped = 1, kNotCancelled = 2, kCloseOnExec = 64;

// A value of FILE::_mode.
constexpr int kOfBytes = -1;

// FILE::_offset, where a stream does not know its place in the file.
constexpr off64_t kUnknownOffset = -1;

// The places in a table of the functions that reach the file, and the number of all its places. The
// first two words are zero.
enum Place { kRead = 14, kWrite = 15, kSeek = 16, kClose = 17, kStat = 18, kPlaces = 21 };

}  // namespace nvcache::preload

#endif  // NVCACHE_LIBC_SHIM_PRELOAD_LIBC_STREAM_H_
