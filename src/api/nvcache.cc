// SPDX-License-Identifier: BSD-3-Clause
//
// The C API: offers each call to the engine, and makes libc's call when it is not the engine's.
#include "src/api/nvcache.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

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
  pthread_atfork(vfs::BeforeFork, vfs::AfterForkInParent, vfs::AfterForkInChild);
  g_engine = Engine::kStarted;
}

__attribute__((destructor)) void Stop() {
  if (g_engine == Engine::kStarted) vfs::Stop();
}

bool Started() { return g_engine.load(std::memory_order_acquire) == Engine::kStarted; }

// As libc's functions do it.
template <typename T>
T Result(long result) {
  if (result >= 0) return static_cast<T>(result);
  errno = static_cast<int>(-result);
  return -1;
}

// Offers a call to the engine; `real` is libc's.
template <typename EngineCall, typename RealCall>
auto Offer(EngineCall engine, RealCall real) -> decltype(real()) {
  if (Started()) {
    const long result = engine();
    if (result != vfs::kNotOurs) return Result<decltype(real())>(result);
  }
  return real();
}

// open(2)'s rule for whether a mode follows.
bool HasMode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

int Open(const char* path, int flags, mode_t mode) {
  if (!Started()) return open(path, flags, mode);
  vfs::OpenGuard guard(AT_FDCWD, path, flags, mode);
  if (guard.error() < 0) return Result<int>(guard.error());
  int fd;
  if (const long answer = guard.Replace(); answer != vfs::kNotOurs) {
    fd = Result<int>(answer);
  } else if (guard.holds_locks()) {
    // A thread that is cancelled in here would leave the locks behind.
    fd = Result<int>(sys::Openat(AT_FDCWD, path, flags, mode));
  } else {
    fd = open(path, flags, mode);
  }
  if (const long error = guard.Opened(fd); error < 0) {
    close(fd);
    return Result<int>(error);
  }
  return fd;
}

}  // namespace
}  // namespace nvcache::api

namespace api = nvcache::api;
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
  return api::Offer([=] { return vfs::Close(fd); }, [=] { return close(fd); });
}

NVCACHE_API ssize_t nvcache_read(int fd, void* buffer, size_t count) {
  return api::Offer([=] { return vfs::Read(fd, buffer, count); },
                    [=] { return read(fd, buffer, count); });
}

NVCACHE_API ssize_t nvcache_pread(int fd, void* buffer, size_t count, off_t offset) {
  return api::Offer([=] { return vfs::Pread(fd, buffer, count, offset); },
                    [=] { return pread(fd, buffer, count, offset); });
}

NVCACHE_API ssize_t nvcache_write(int fd, const void* buffer, size_t count) {
  return api::Offer([=] { return vfs::Write(fd, buffer, count); },
                    [=] { return write(fd, buffer, count); });
}

NVCACHE_API ssize_t nvcache_pwrite(int fd, const void* buffer, size_t count, off_t offset) {
  return api::Offer([=] { return vfs::Pwrite(fd, buffer, count, offset); },
                    [=] { return pwrite(fd, buffer, count, offset); });
}

NVCACHE_API off_t nvcache_lseek(int fd, off_t offset, int whence) {
  return api::Offer([=] { return vfs::Lseek(fd, offset, whence); },
                    [=] { return lseek(fd, offset, whence); });
}

NVCACHE_API int nvcache_fsync(int fd) {
  return api::Offer([=] { return vfs::Fsync(fd); }, [=] { return fsync(fd); });
}

NVCACHE_API int nvcache_ftruncate(int fd, off_t length) {
  return api::Offer([=] { return vfs::Ftruncate(fd, length); },
                    [=] { return ftruncate(fd, length); });
}

NVCACHE_API int nvcache_fstat(int fd, struct stat* st) {
  int result = fstat(fd, st);
  if (result != 0 || !api::Started() || !vfs::PublishInode(st->st_dev, st->st_ino)) return result;
  result = fstat(fd, st);
  if (result == 0) vfs::NewestSize(st->st_dev, st->st_ino, &st->st_size);
  return result;
}

NVCACHE_API int nvcache_drain(int fd) {
  if (api::g_engine == api::Engine::kPreload) return syncfs(fd);
  return api::Offer([=] { return vfs::Drain(fd); }, [=] { return fdatasync(fd); });
}
