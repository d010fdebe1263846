// SPDX-License-Identifier: BSD-3-Clause
#include "libc-shim/preload/last_stream.h"

#include "libc-shim/preload/libc_stream.h"
#include "libc-shim/preload/real.h"
#include "libc-shim/preload/stdio_slots.h"
#include "src/sys/early.h"

namespace nvcache::preload {

namespace {

NVCACHE_EARLY constinit LibcStream g_last = {};
bool g_awaited = false;

// Gives the stream the fields of a reader that is at its file's place. libc makes them anew when it
// takes the buffer away.
void BeIdle() {
  static char nothing[1];
  FILE& file = g_last.file;
  file._flags = kMagic | kUserBuffer | kUserLock | kNoWrites;
  file._IO_buf_base = file._IO_read_base = file._IO_read_ptr = file._IO_read_end = nothing;
  file._IO_buf_end = nothing + sizeof(nothing);
  file._IO_write_base = file._IO_write_ptr = file._IO_write_end = nothing;
  file._mode = kOfBytes;
  file._offset = kUnknownOffset;
}

void BeAhead() {
  BeIdle();
  g_last.file._IO_read_end = g_last.file._IO_buf_end;
}

}  // namespace

void AddLastStream() {
  auto** link = static_cast<FILE**>(FindNext("_IO_list_all"));
  if (link == nullptr) return;
  BeIdle();
  g_last.file._fileno = -1;
  g_last.table = FileTable();
  while (*link != nullptr) link = &(*link)->_chain;
  *link = &g_last.file;
}

bool AwaitLastStream() {
  if (g_last.table == nullptr) return false;
  BeAhead();
  g_awaited = true;
  return true;
}

NotTheEnd::NotTheEnd() {
  if (g_awaited) BeIdle();
}

NotTheEnd::~NotTheEnd() {
  if (g_awaited) BeAhead();
}

bool IsLastStream(const FILE* stream) { return stream == &g_last.file; }

}  // namespace nvcache::preload
