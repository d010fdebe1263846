// SPDX-License-Identifier: BSD-3-Clause
#include "libc-shim/preload/stdio_slots.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

#include "libc-shim/calls/attributes.h"
#include "libc-shim/calls/data.h"
#include "libc-shim/calls/descriptor.h"
#include "libc-shim/calls/output.h"
#include "libc-shim/preload/last_stream.h"
#include "libc-shim/preload/libc_stream.h"
#include "libc-shim/preload/wrapper.h"
#include "src/sys/early.h"

namespace nvcache::preload {

using namespace calls;

namespace {

// libc's own, which the program may not have asked for.
struct Originals {
  ssize_t (*read)(FILE*, void*, ssize_t);
  ssize_t (*write)(FILE*, const void*, ssize_t);
  off64_t (*seek)(FILE*, off64_t, int);
  int (*stat)(FILE*, void*);
  int (*close)(FILE*);
};

NVCACHE_EARLY constinit Originals g_original = {};
NVCACHE_EARLY constinit const void* g_file_table = nullptr;

// A stream that was opened with `c` is no cancellation point.
void StreamCancellationPoint(const FILE* stream) {
  if ((stream->_flags2 & kNotCancelled) == 0) CancellationPoint();
}

// ---------------------------------------------------------------------------------------------
// These functions stand in libc's tables instead. libc calls them with the lock of the stream: so
// nothing here waits for a fork (vfs.h), but for closing, when libc does not know the stream any
// more.

ssize_t ReadStream(FILE* stream, void* buffer, ssize_t count) {
  StreamCancellationPoint(stream);
  const auto real = [=](int, void*, size_t) { return g_original.read(stream, buffer, count); };
  return Read(stream->_fileno, buffer, static_cast<size_t>(count), real);
}

// Writes all of it, as libc's does, and keeps the same books.
ssize_t WriteStream(FILE* stream, const void* data, ssize_t count) {
  StreamCancellationPoint(stream);
  const auto* bytes = static_cast<const char*>(data);
  ssize_t done = 0;
  while (done < count) {
    const auto rest = static_cast<size_t>(count - done);
    if (!MayLeaveBy(stream->_fileno)) {
      stream->_flags |= _IO_ERR_SEEN;
      break;
    }
    const long answer = vfs::Write(stream->_fileno, bytes + done, rest);
    if (answer == vfs::kNotOurs) {
      done += g_original.write(stream, bytes + done, count - done);
      if (Changed(stream->_fileno, done) >= 0) return done;
      stream->_flags |= _IO_ERR_SEEN;
      return 0;
    }
    if (FromAnswer(answer) < 0 || Changed(stream->_fileno, answer) < 0) {
      stream->_flags |= _IO_ERR_SEEN;
      break;
    }
    done += answer;
    if (stream->_offset >= 0) stream->_offset += answer;
  }
  return done;
}

off64_t SeekStream(FILE* stream, off64_t offset, int whence) {
  if (IsLastStream(stream)) {
    if (const int status = ExitStatus(0); status != 0) NVCACHE_REAL(_exit)(status);
    return -1;
  }
  const auto real = [=](int, off_t, int) { return g_original.seek(stream, offset, whence); };
  return Lseek(stream->_fileno, offset, whence, real);
}

int StatStream(FILE* stream, void* st) {
  return GetStreamAttributes(stream->_fileno, static_cast<struct stat64*>(st),
                             [=] { return g_original.stat(stream, st); });
}

int CloseStream(FILE* stream) {
  return Close(stream->_fileno, [=](int) { return g_original.close(stream); });
}

// ---------------------------------------------------------------------------------------------
// Finding the tables, and writing to them.

// Eight-byte words that are read-only once libc has been relocated; the tables are among them.
struct Words {
  uintptr_t* begin = nullptr;
  uintptr_t* end = nullptr;
};

struct Search {
  uintptr_t address;
  Words found;
};

bool Holds(const struct dl_phdr_info& info, uintptr_t address) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const auto& segment = info.dlpi_phdr[i];
    if (segment.p_type == PT_LOAD &&
        address - (info.dlpi_addr + segment.p_vaddr) < segment.p_memsz) {
      return true;
    }
  }
  return false;
}

// The dynamic linker protects the whole pages.
int TakeIfSearched(struct dl_phdr_info* info, size_t /*size*/, void* argument) {
  auto* search = static_cast<Search*>(argument);
  if (!Holds(*info, search->address)) return 0;
  constexpr uintptr_t kPage = 4096;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_GNU_RELRO) continue;
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    search->found = {reinterpret_cast<uintptr_t*>(begin & -kPage),
                     reinterpret_cast<uintptr_t*>((begin + segment.p_memsz) & -kPage)};
  }
  return 1;
}

// Not dladdr: that looks at each of the object's symbols.
Words ReadOnlyWordsAround(const void* address) {
  Search search = {reinterpret_cast<uintptr_t>(address), {}};
  dl_iterate_phdr(TakeIfSearched, &search);
  return search.found;
}

template <typename Function>
bool FindOriginal(Function** function, const char* name) {
  *function = reinterpret_cast<Function*>(FindNext(name));
  return *function != nullptr;
}

bool FindOriginals() {
  return FindOriginal(&g_original.read, "_IO_file_read") &&
         FindOriginal(&g_original.write, "_IO_file_write") &&
         FindOriginal(&g_original.seek, "_IO_file_seek") &&
         FindOriginal(&g_original.stat, "_IO_file_stat") &&
         FindOriginal(&g_original.close, "_IO_file_close");
}

template <typename Function>
uintptr_t AddressOf(Function* function) {
  return reinterpret_cast<uintptr_t>(function);
}

// The five lie close together, and few other words lead there.
bool IsNear(uintptr_t word) {
  constexpr uintptr_t kNear = 1u << 16;
  return word - AddressOf(g_original.read) + kNear < 2 * kNear;
}

// Ours for libc's; 0 for any other word.
uintptr_t Replacement(uintptr_t word) {
  if (word == AddressOf(g_original.read)) return AddressOf(ReadStream);
  if (word == AddressOf(g_original.write)) return AddressOf(WriteStream);
  if (word == AddressOf(g_original.seek)) return AddressOf(SeekStream);
  if (word == AddressOf(g_original.stat)) return AddressOf(StatStream);
  if (word == AddressOf(g_original.close)) return AddressOf(CloseStream);
  return 0;
}

// A stream that is mapped, or a pipe, closes in its own way.
bool IsTable(const uintptr_t* words) {
  if (words[0] != 0 || words[1] != 0) return false;
  for (int i = 2; i < kPlaces; ++i) {
    if (words[i] == 0) return false;
  }
  return words[kRead] == AddressOf(g_original.read) &&
         words[kWrite] == AddressOf(g_original.write) &&
         words[kSeek] == AddressOf(g_original.seek) && words[kStat] == AddressOf(g_original.stat);
}

// libc's tables for streams that have a file: of bytes and wide characters, mapped and not, pipes.
class Tables {
 public:
  // False: one of the five addresses lies elsewhere, so there is something that we do not know.
  bool Find(const Words& words) {
    for (uintptr_t* word = words.begin; word != words.end; ++word) {
      if (!IsNear(*word) || Replacement(*word) == 0) continue;
      const bool inside = word - words.begin >= kRead && words.end - word >= kPlaces - kRead;
      if (!inside || !IsTable(word - kRead) || count_ == kMost) return false;
      uintptr_t* const table = word - kRead;
      tables_[count_++] = table;
      word = table + kPlaces - 1;
    }
    return true;
  }

  bool Has(const void* table) const {
    for (size_t i = 0; i < count_; ++i) {
      if (tables_[i] == table) return true;
    }
    return false;
  }

  void PutOursIn() {
    for (size_t i = 0; i < count_; ++i) {
      for (uintptr_t* word = tables_[i] + kRead; word <= tables_[i] + kStat; ++word) {
        const uintptr_t ours = Replacement(*word);
        if (ours != 0) __atomic_store_n(word, ours, __ATOMIC_RELAXED);
      }
    }
  }

 private:
  static constexpr size_t kMost = 16;  // seven, from glibc 2.34 to 2.41
  uintptr_t* tables_[kMost];
  size_t count_ = 0;
};

}  // namespace

bool CatchStreams() {
  if (!FindOriginals()) return false;
  const Words words = ReadOnlyWordsAround(reinterpret_cast<void*>(g_original.read));
  Tables tables;
  if (!tables.Find(words)) return false;
  // These two have names; and a stream has its table where we think.
  const void* of_bytes = FindNext("_IO_file_jumps");
  const auto* input = static_cast<const LibcStream*>(FindNext("_IO_2_1_stdin_"));
  if (!tables.Has(of_bytes) || !tables.Has(FindNext("_IO_wfile_jumps")) || input == nullptr ||
      input->table != of_bytes) {
    return false;
  }

  const auto length = static_cast<size_t>(words.end - words.begin) * sizeof(uintptr_t);
  // Pages that can be written can be read. With PROT_READ, the kernel would make one mapping of
  // these pages and libc's data behind them, and two again: that takes twice as long.
  if (NVCACHE_REAL(mprotect)(words.begin, length, PROT_WRITE) != 0) return false;
  tables.PutOursIn();
  NVCACHE_REAL(mprotect)(words.begin, length, PROT_READ);
  g_file_table = of_bytes;
  return true;
}

bool StreamsCaught() { return g_file_table != nullptr; }

const void* FileTable() { return g_file_table; }

}  // namespace nvcache::preload
