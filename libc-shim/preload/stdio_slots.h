// SPDX-License-Identifier: BSD-3-Clause
//
// The file calls of standard I/O. libc makes them inside itself, but through tables of functions:
// in these our functions take the place of libc's.
#ifndef NVCACHE_LIBC_SHIM_PRELOAD_STDIO_SLOTS_H_
#define NVCACHE_LIBC_SHIM_PRELOAD_STDIO_SLOTS_H_

namespace nvcache::preload {

// From then on every read, write, seek, fstat and close of a stream comes to the engine. To be
// called once, from the constructor. False: libc has what we do not know, and nothing happened.
bool CatchStreams();

// Whether it was done.
bool StreamsCaught();

// The table of a stream of bytes, where streams are caught.
const void* FileTable();

}  // namespace nvcache::preload

#endif  // NVCACHE_LIBC_SHIM_PRELOAD_STDIO_SLOTS_H_
