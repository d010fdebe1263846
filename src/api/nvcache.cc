// SPDX-License-Identifier: BSD-3-Clause
//
// The C API: each call as libc-shim/calls has it for all front ends, around libc's own. Until the
// engine has started, libc's own alone: other threads may make calls while the first one starts it.
#include "src/api/nvcache.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <atomic>

#include "libc-shim/calls/attributes.h"
#include "libc-shim/calls/calls.h"
#include "libc-shim/calls/data.h"
#include "libc-shim/calls/descriptor.h"
#include "libc-shim/calls/open.h"
#include "libc-shim/calls/size.h"
#include "src/sys/kernel.h"
#include "src/sys/thread.h"
#include "src/vfs/vfs.h"

#define NVCACHE_API extern "C" __attribute__((visibility("default")))

namespace nvcache::api {
namespace {

enum class Engine {
  kOff,      // not started yet, or not ours to start: libc's calls
  kPreload,  // libnvcache.so has one, behind libc's calls
  kStarted,
};

std::atomic<Engine> g_engine{Engine::kOff};
pthread_once_t g_once = PTHREAD_ONCE_INIT;

// libc's calls lead into libnvcache.so. The environment does not tell: the program may have changed
// it, and a library can be preloaded by other means, too.
bool IsPreloaded() {
  constexpr char kLibrary[] = "libnvcache.so";
  Dl_info info = {};
  void* call = dlsym(RTLD_DEFAULT, "pwrite");
  if (call == nullptr || dladdr(call, &info) == 0 || info.dli_fname == nullptr) return false;
  const char* slash = strrchr(info.dli_fname, '/');
  const char* name = slash != nullptr ? slash + 1 : info.dli_fname;
  return strncmp(name, kLibrary, sizeof(kLibrary) - 1) == 0;
}

void StartOnce() {
  if (IsPreloaded()) {
    g_engine = Engine::kPreload;
    return;
  }
  // A program with more rights than its user must not write where the user's environment says.
  if (getauxval(AT_SECURE) != 0) return;
  // Its calls promise what only the cache keeps.
  vfs::Start(sys::kOwnThreads, environ, settings::WriteBack::kAlways);
  vfs::LeaveUnseen();  // the program's other calls are libc's
  pthread_atfork(vfs::BeforeFork, vfs::AfterForkInParent, vfs::AfterForkInChild);
  g_engine = Engine::kStarted;
}

__attribute__((destructor)) void Stop() {
  if (g_engine == Engine::kStarted) vfs::Stop();
}

bool Started() { return g_engine.load(std::memory_order_acquire) == Engine::kStarted; }

// open(2)'s rule for whether a mode follows.
bool HasMode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

int Open(const char* path, int flags, mode_t mode) {
  const auto real = [=](int with) { return open(path, with, mode); };
  if (!Started()) return real(flags);
  // Past libc: a thread that is cancelled in here would leave the engine's locks behind.
  const auto uncancelled = [=] {
    return static_cast<int>(calls::FromAnswer(sys::Openat(AT_FDCWD, path, flags, mode)));
  };
  return calls::OpenPrivately(AT_FDCWD, path, flags, mode, real, uncancelled);
}

}  // namespace
}  // namespace nvcache::api

namespace api = nvcache::api;
namespace calls = nvcache::calls;
namespace vfs = nvcache::vfs;

NVCACHE_API int nvcache_open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if (api::HasMode(flags)) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  pthread_once(&api::g_once, api::StartOnce);
  return api::Open(path, flags, mode);
}

NVCACHE_API int nvcache_close(int fd) {
  return api::Started() ? calls::Close(fd, close) : close(fd);
}

NVCACHE_API ssize_t nvcache_read(int fd, void* buffer, size_t count) {
  return api::Started() ? calls::Read(fd, buffer, count, read) : read(fd, buffer, count);
}

NVCACHE_API ssize_t nvcache_pread(int fd, void* buffer, size_t count, off_t offset) {
  return api::Started() ? calls::Pread(fd, buffer, count, offset, pread)
                        : pread(fd, buffer, count, offset);
}

NVCACHE_API ssize_t nvcache_write(int fd, const void* buffer, size_t count) {
  return api::Started() ? calls::Write(fd, buffer, count, write) : write(fd, buffer, count);
}

NVCACHE_API ssize_t nvcache_pwrite(int fd, const void* buffer, size_t count, off_t offset) {
  return api::Started() ? calls::Pwrite(fd, buffer, count, offset, pwrite)
                        : pwrite(fd, buffer, count, offset);
}

NVCACHE_API off_t nvcache_lseek(int fd, off_t offset, int whence) {
  return api::Started() ? calls::Lseek(fd, offset, whence, lseek) : lseek(fd, offset, whence);
}

NVCACHE_API int nvcache_fsync(int fd) {
  return api::Started() ? calls::Fsync(fd, fsync) : fsync(fd);
}

NVCACHE_API int nvcache_ftruncate(int fd, off_t length) {
  return api::Started() ? calls::Ftruncate(fd, length, ftruncate) : ftruncate(fd, length);
}

NVCACHE_API int nvcache_fstat(int fd, struct stat* st) {
  const auto real = [=] { return fstat(fd, st); };
  return api::Started() ? calls::GetAttributesOf(fd, st, real) : real();
}

NVCACHE_API int nvcache_drain(int fd) {
  if (api::g_engine == api::Engine::kPreload) return syncfs(fd);
  if (!api::Started()) return fdatasync(fd);
  return calls::Synced(fd, calls::Answer(vfs::Drain(fd), fdatasync, fd));
}
