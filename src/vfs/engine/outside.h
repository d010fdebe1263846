// SPDX-License-Identifier: BSD-3-Clause
//
// Programs without NVCache that write to a file which the log vouches for, with locks (turns.h) or
// without. That is seen afterwards, by the file's time and size, and the user is told.
//
// The cleanup thread looks before each batch whether a cached file is as it was after the batch
// before. Nobody can tell if there was a change of our own in between: then it looks the next time.
// The kernel has what such a program has written, and the log's bytes go over it as ever; but the
// file is given back, and no more is laid over.
#ifndef NVCACHE_VFS_ENGINE_OUTSIDE_H_
#define NVCACHE_VFS_ENGINE_OUTSIDE_H_

#include <sys/stat.h>

#include <cstdint>

#include "src/vfs/engine/file.h"

namespace nvcache::vfs {

// It was seen. The file's syncs are real for as long as this process has it open, in all processes.
// `fd`: a descriptor of it. Any thread, with any lock.
void WrittenOutside(const File& file, int fd);

// For the cleanup thread, before a batch writes the file, and after that. Our own descriptor is
// right.
void LookForOutsiders(File& file);
void NoteWritten(File& file);
// Files of which a batch has found that are the kernel's again. Table lock.
void GiveBackWrittenOutside();

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_OUTSIDE_H_
