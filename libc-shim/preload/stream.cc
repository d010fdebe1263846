// SPDX-License-Identifier: BSD-3-Clause
//
// Standard I/O, and whatever else opens, reads and writes inside libc.
//
// The streams' file calls come to us (stdio_slots.h), so a file may be cached while a stream has
// it. Where they do not, and for calls that never do, the file is the kernel's before libc gets
// hold of it, and known as such for as long as libc has it.
#include "libc-shim/preload/stream.h"

#include <execinfo.h>
#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>
#include <sys/stat.h>
#include <utmp.h>
#include <utmpx.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>

#include "libc-shim/calls/data.h"
#include "libc-shim/calls/descriptor.h"
#include "libc-shim/calls/names.h"
#include "libc-shim/calls/open.h"
#include "libc-shim/preload/last_stream.h"
#include "libc-shim/preload/libc_stream.h"
#include "libc-shim/preload/stdio_slots.h"
#include "libc-shim/preload/wrapper.h"

namespace nvcache {
namespace {

// One bit a descriptor, up to the kernel's own limit (fs.nr_open). Pages of it that are never
// needed cost nothing.
constexpr unsigned kBits = 64;
constexpr unsigned kMaxDescriptors = 1u << 20;
std::atomic<uint64_t> g_has_stream[kMaxDescriptors / kBits];

}  // namespace

namespace calls {

bool HasStream(int fd) {
  const auto number = static_cast<unsigned>(fd);
  if (number <= STDERR_FILENO) return !preload::StreamsCaught();
  if (number >= kMaxDescriptors) return false;
  const uint64_t word = g_has_stream[number / kBits].load(std::memory_order_relaxed);
  return (word >> number % kBits & 1) != 0;
}

}  // namespace calls

namespace preload {

void SetHasStream(int fd, bool has) {
  const auto number = static_cast<unsigned>(fd);
  if (number >= kMaxDescriptors) return;
  const uint64_t bit = uint64_t{1} << number % kBits;
  if (has) {
    g_has_stream[number / kBits].fetch_or(bit, std::memory_order_relaxed);
  } else {
    g_has_stream[number / kBits].fetch_and(~bit, std::memory_order_relaxed);
  }
}

}  // namespace preload
}  // namespace nvcache

using namespace nvcache::calls;
using namespace nvcache::preload;
namespace vfs = nvcache::vfs;

namespace {

// -1 for a stream that has no descriptor (fmemopen).
int DescriptorOf(FILE* stream) {
  const int saved_errno = errno;
  const int fd = fileno(stream);
  errno = saved_errno;
  return fd;
}

// A stream that libc may map reads its file, and closes it, in ways of its own.
bool IsCaught(const FILE* stream) { return StreamsCaught() && (stream->_flags2 & kMapped) == 0; }

FILE* AdoptStream(FILE* stream) {
  if (stream == nullptr || !vfs::IsActive()) return stream;
  const int fd = DescriptorOf(stream);
  if (IsCaught(stream)) {
    TrackOpened(fd, NVCACHE_REAL(fcntl64)(fd, F_GETFL));
    return stream;
  }
  if (!StreamsCaught()) vfs::SayStreamsPass();  // a child of fork has not
  long error = vfs::Adopt(fd);
  if (error == 0) error = vfs::PassThrough(fd);
  if (error < 0) {
    NVCACHE_REAL(fclose)(stream);
    errno = static_cast<int>(-error);
    return nullptr;
  }
  SetHasStream(fd, true);
  return stream;
}

// Twice a signal for a broken pipe would be once too often.
bool IsRegular(int fd) {
  const int saved_errno = errno;
  struct stat64 st;
  const bool regular = NVCACHE_REAL(fstat64)(fd, &st) == 0 && S_ISREG(st.st_mode);
  errno = saved_errno;
  return regular;
}

// Before libc closes the stream. The bytes in its buffer are written while the file is still known,
// for nobody may begin to cache the file in between. Streams that have nothing to write are left
// alone: flushing them would move the offset. Returns the errno of a write that failed, else 0:
// libc does not keep the bytes, so the close would not meet the error again.
int ReleaseStream(FILE* stream) {
  const int fd = DescriptorOf(stream);
  if (fd < 0) return 0;
  int error = 0;
  if (__fpending(stream) != 0 && IsRegular(fd)) {
    const int saved_errno = errno;
    if (fflush(stream) != 0) error = errno;
    errno = saved_errno;
  }
  SetHasStream(fd, false);
  Release(fd);
  return error;
}

}  // namespace

// ---------------------------------------------------------------------------------------------
// FILE.

namespace {

// The mode of fopen asks for this.
struct Mode {
  int flags = 0;         // open()'s
  int stream_flags = 0;  // the FILE's
  char plain[3] = {};    // all that fdopen has to know
};

// libc reads it so: a letter, and at most `count` characters behind it, of which others are
// ignored. `m` is ignored as well: it wants the file mapped to read it faster.
bool Parse(const char* text, int count, Mode* mode) {
  switch (text[0]) {
    case 'r':
      mode->flags = O_RDONLY;
      break;
    case 'w':
      mode->flags = O_WRONLY | O_CREAT | O_TRUNC;
      break;
    case 'a':
      mode->flags = O_WRONLY | O_CREAT | O_APPEND;
      break;
    default:
      return false;
  }
  mode->plain[0] = text[0];
  for (int i = 1; i <= count && text[i] != '\0'; ++i) {
    switch (text[i]) {
      case '+':
        mode->flags = (mode->flags & ~O_ACCMODE) | O_RDWR;
        mode->plain[1] = '+';
        break;
      case 'x':
        mode->flags |= O_EXCL;
        break;
      case 'c':
        mode->stream_flags |= kNotCancelled;
        break;
      case 'e':
        mode->flags |= O_CLOEXEC;
        mode->stream_flags |= kCloseOnExec;
        break;
      default:
        break;
    }
  }
  return true;
}

int OpenForStream(const char* path, const Mode& mode) {
  const int flags = mode.flags;
  constexpr mode_t kPermissions = 0666;
  const auto uncancelled = [=] { return OpenUncancelled(AT_FDCWD, path, flags, kPermissions); };
  if ((mode.stream_flags & kNotCancelled) != 0) {
    return Open(
        AT_FDCWD, path, flags, kPermissions,
        [=](int with) { return OpenUncancelled(AT_FDCWD, path, with, kPermissions); }, uncancelled);
  }
  return Open(
      AT_FDCWD, path, flags, kPermissions,
      [=](int with) { return NVCACHE_LIBCS(open64)(path, with, kPermissions); }, uncancelled);
}

// A stream that only appends begins at the end. False: not possible there.
bool SeekToAppend(int fd, const Mode& mode) {
  if ((mode.flags & (O_APPEND | O_RDWR)) != O_APPEND) return true;
  return Lseek(fd, 0, SEEK_END, NVCACHE_REAL(lseek64)) >= 0 || errno == ESPIPE;
}

// An interposer's fopen. A stream whose file cannot be had is lost: it has no descriptor any more.
template <typename RealCall>
FILE* OpenInterposed(const char* path, const Mode& mode, RealCall real) {
  FILE* stream = nullptr;
  const auto open = [&](int /*flags*/) {
    stream = real();
    return stream != nullptr ? DescriptorOf(stream) : -1;
  };
  if ((mode.flags & O_TRUNC) != 0) vfs::Release();
  const int fd = Open(AT_FDCWD, path, mode.flags, 0, open, [&] { return open(0); });
  return fd < 0 && stream != nullptr && DescriptorOf(stream) >= 0 ? nullptr : stream;
}

// libc's fopen, of its own open.
FILE* OpenStream(const char* path, const Mode& mode) {
  const int fd = OpenForStream(path, mode);
  if (fd < 0) return nullptr;
  FILE* stream = SeekToAppend(fd, mode) ? NVCACHE_REAL(fdopen)(fd, mode.plain) : nullptr;
  if (stream == nullptr) {
    const int error = errno;
    Close(fd, NVCACHE_REAL(close));
    errno = error;
    return nullptr;
  }
  // A bit-field of 24 bits since glibc 2.41: only what fits is put there, to the compiler as well.
  stream->_flags2 |= mode.stream_flags & (kNotCancelled | kCloseOnExec);
  return stream;
}

}  // namespace

// Only libc knows which of its tables it takes for a stream that converts (`,ccs=`), and whether a
// mode ends with its comma: it does since glibc 2.41 at the latest, and did not in 2.36.
namespace {

// Around an open inside libc, which may cut the file: no log knows of it then, and what one has is
// on the disk. `refuse` is called instead where the disk refuses that; errno says so afterwards.
template <typename RealCall, typename Refuse>
FILE* OpenInsideLibc(const char* path, const char* mode, RealCall real, Refuse refuse) {
  FILE* stream = nullptr;
  {
    vfs::UnseenCall unseen;
    vfs::Claim claim;
    const bool cuts = path != nullptr && mode[0] == 'w';
    long error = path != nullptr ? vfs::LendPath(AT_FDCWD, path) : 0;
    if (error == 0 && cuts && !unseen.Begin()) {
      error = claim.TakePath(AT_FDCWD, path, true);
      if (error == 0) error = claim.ToChange();
    }
    if (error < 0) {
      refuse();
      FromAnswer(error);
      return nullptr;
    }
    stream = MakeIfMissing(path, real);
  }
  return AdoptStream(stream);
}

template <typename RealCall>
FILE* Fopen(const char* path, const char* mode, bool is_libcs, RealCall real) {
  Mode parsed;
  constexpr int kRead = 6;
  if (StreamsCaught() && vfs::IsActive() && std::strchr(mode, ',') == nullptr &&
      Parse(mode, kRead, &parsed)) {
    return is_libcs ? OpenStream(path, parsed) : OpenInterposed(path, parsed, real);
  }
  return OpenInsideLibc(
      path, mode, [=] { return WithRoom(real); }, [] {});
}

}  // namespace

#define NVCACHE_DEFINE_FOPEN(name)                                \
  NVCACHE_EXPORT FILE* name(const char* path, const char* mode) { \
    return Fopen(path, mode, NVCACHE_IS_LIBCS(name),              \
                 [=] { return NVCACHE_REAL(name)(path, mode); }); \
  }
NVCACHE_DEFINE_FOPEN(fopen)
NVCACHE_DEFINE_FOPEN(fopen64)
NVCACHE_EXPORT_ALIAS(_IO_fopen, fopen);

// The old file is closed in any case.
#define NVCACHE_DEFINE_FREOPEN(name)                                            \
  NVCACHE_EXPORT FILE* name(const char* path, const char* mode, FILE* stream) { \
    ReleaseStream(stream);                                                      \
    return OpenInsideLibc(                                                      \
        path, mode, [=] { return NVCACHE_REAL(name)(path, mode, stream); },     \
        [=] {                                                                   \
          NVCACHE_REAL(fclose)                                                  \
          (stream);                                                             \
        });                                                                     \
  }
NVCACHE_DEFINE_FREOPEN(freopen)
NVCACHE_DEFINE_FREOPEN(freopen64)

// Appending is a property of the descriptor, which libc sets inside itself.
NVCACHE_EXPORT FILE* fdopen(int fd, const char* mode) noexcept {
  Mode parsed;
  constexpr int kRead = 4;
  if (IsHidden(fd)) return nullptr;
  if (StreamsCaught() && vfs::IsActive() && Parse(mode, kRead, &parsed)) {
    FILE* stream = NVCACHE_REAL(fdopen)(fd, parsed.plain);
    if (stream != nullptr && (parsed.flags & O_APPEND) != 0) {
      vfs::Fcntl(fd, F_SETFL, static_cast<long>(NVCACHE_REAL(fcntl64)(fd, F_GETFL)));
    }
    return stream;
  }
  if (!ToKernel(fd)) return nullptr;
  return AdoptStream(NVCACHE_REAL(fdopen)(fd, mode));
}
NVCACHE_EXPORT_ALIAS(_IO_fdopen, fdopen);

NVCACHE_EXPORT int fclose(FILE* stream) {
  const int error = IsCaught(stream) ? 0 : ReleaseStream(stream);
  const int result = NVCACHE_REAL(fclose)(stream);
  if (error == 0) return result;
  errno = error;
  return EOF;
}
NVCACHE_EXPORT_ALIAS(_IO_fclose, fclose);

// Closes nothing: takes the buffers away.
NVCACHE_EXPORT int fcloseall() {
  const NotTheEnd not_the_end;
  return NVCACHE_REAL(fcloseall)();
}

NVCACHE_EXPORT FILE* tmpfile64() {
  return AdoptStream(WithRoom([] { return NVCACHE_REAL(tmpfile64)(); }));
}
NVCACHE_EXPORT_ALIAS(tmpfile, tmpfile64);

// ---------------------------------------------------------------------------------------------
// Writing to a descriptor inside libc.

#pragma weak gnu_get_libc_version  // life.cc says why

namespace {

// Up to glibc 2.36, dprintf makes a stream for the descriptor; later it writes to that inside
// itself.
bool DprintfCaught() { return StreamsCaught() && strverscmp(gnu_get_libc_version(), "2.37") < 0; }

constexpr size_t kPrintBuffer = 2048;  // libc's is as long: what is no longer is one write

// Prints to a stream for the descriptor: print(stream) is as vfprintf.
template <typename Print>
int PrintTo(int fd, char* buffer, Print print) {
  LibcStream stream = {};
  stream.table = FileTable();
  FILE& file = stream.file;
  file._flags = kMagic | kUserBuffer | kUserLock | kNoReads | kPutting;
  file._IO_buf_base = file._IO_read_base = file._IO_read_ptr = file._IO_read_end = buffer;
  file._IO_write_base = file._IO_write_ptr = buffer;
  file._IO_buf_end = file._IO_write_end = buffer + kPrintBuffer;
  file._fileno = fd;
  file._mode = kOfBytes;
  file._offset = kUnknownOffset;
  const int printed = print(&file);
  return printed < 0 || fflush(&file) != 0 ? -1 : printed;
}

// Whether a stream of ours is to take the place of libc's dprintf.
bool PrintsByStream() { return StreamsCaught() && vfs::IsActive() && !DprintfCaught(); }

bool BeforePrinting(int fd) { return DprintfCaught() || ToKernel(fd); }

}  // namespace

// The buffer is on the caller's stack, which libc would take as much of.
#pragma GCC diagnostic ignored "-Walloca"

NVCACHE_EXPORT int vdprintf(int fd, const char* format, va_list arguments) {
  if (PrintsByStream()) {
    static decltype(&::vfprintf) real;
    return PrintTo(fd, static_cast<char*>(__builtin_alloca(kPrintBuffer)), [&](FILE* stream) {
      return Real(&real, "vfprintf")(stream, format, arguments);
    });
  }
  return BeforePrinting(fd) ? NVCACHE_REAL(vdprintf)(fd, format, arguments) : -1;
}

NVCACHE_EXPORT int __vdprintf_chk(int fd, int flag, const char* format, va_list arguments) {
  if (PrintsByStream()) {
    static int (*real)(FILE*, int, const char*, va_list);
    return PrintTo(fd, static_cast<char*>(__builtin_alloca(kPrintBuffer)), [&](FILE* stream) {
      return Real(&real, "__vfprintf_chk")(stream, flag, format, arguments);
    });
  }
  return BeforePrinting(fd) ? NVCACHE_REAL(__vdprintf_chk)(fd, flag, format, arguments) : -1;
}

NVCACHE_EXPORT int dprintf(int fd, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int result = vdprintf(fd, format, arguments);
  va_end(arguments);
  return result;
}

NVCACHE_EXPORT int __dprintf_chk(int fd, int flag, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int result = __vdprintf_chk(fd, flag, format, arguments);
  va_end(arguments);
  return result;
}

// To standard error, by a number that libc makes for it.

NVCACHE_EXPORT void perror(const char* text) {
  const int error = errno;
  if (!ToKernel(DescriptorOf(stderr))) return;
  errno = error;
  NVCACHE_REAL(perror)(text);
}

NVCACHE_EXPORT void psignal(int signal, const char* text) {
  if (ToKernel(DescriptorOf(stderr))) NVCACHE_REAL(psignal)(signal, text);
}

NVCACHE_EXPORT void psiginfo(const siginfo_t* signal, const char* text) {
  if (ToKernel(DescriptorOf(stderr))) NVCACHE_REAL(psiginfo)(signal, text);
}

NVCACHE_EXPORT void backtrace_symbols_fd(void* const* buffer, int size, int fd) noexcept {
  if (!ToKernel(fd)) return;
  NVCACHE_REAL(backtrace_symbols_fd)(buffer, size, fd);
}
NVCACHE_EXPORT_ALIAS(__backtrace_symbols_fd, backtrace_symbols_fd);

// ---------------------------------------------------------------------------------------------
// Opening inside libc.

NVCACHE_EXPORT int shm_open(const char* name, int flags, mode_t mode) {
  return Adopt([=] { return NVCACHE_REAL(shm_open)(name, flags, mode); });
}

// The login records. The first two do not say which file they write.
NVCACHE_EXPORT struct utmpx* pututxline(const struct utmpx* record) {
  vfs::Release();
  return NVCACHE_REAL(pututxline)(record);
}

NVCACHE_EXPORT struct utmp* pututline(const struct utmp* record) noexcept {
  vfs::Release();
  return NVCACHE_REAL(pututline)(record);
}

NVCACHE_EXPORT void updwtmpx(const char* path, const struct utmpx* record) {
  if (!ToKernelByPath(AT_FDCWD, path)) return;
  NVCACHE_REAL(updwtmpx)(path, record);
}

NVCACHE_EXPORT void updwtmp(const char* path, const struct utmp* record) noexcept {
  if (!ToKernelByPath(AT_FDCWD, path)) return;
  NVCACHE_REAL(updwtmp)(path, record);
}
