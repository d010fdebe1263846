// SPDX-License-Identifier: BSD-3-Clause
//
// Calls that make descriptors of what is no file. Nothing is done around them, but that the engine
// gives up its own where the program's limit has no room for one more.
#include <dirent.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "libc-shim/preload/wrapper.h"

using namespace nvcache::calls;
using namespace nvcache::preload;

NVCACHE_EXPORT int accept(int fd, struct sockaddr* address, socklen_t* length) {
  return WithRoom([=] { return NVCACHE_REAL(accept)(fd, address, length); });
}

NVCACHE_EXPORT int accept4(int fd, struct sockaddr* address, socklen_t* length, int flags) {
  return WithRoom([=] { return NVCACHE_REAL(accept4)(fd, address, length, flags); });
}

NVCACHE_EXPORT int epoll_create(int size) noexcept {
  return WithRoom([=] { return NVCACHE_REAL(epoll_create)(size); });
}

NVCACHE_EXPORT int epoll_create1(int flags) noexcept {
  return WithRoom([=] { return NVCACHE_REAL(epoll_create1)(flags); });
}

NVCACHE_EXPORT int eventfd(unsigned int count, int flags) noexcept {
  return WithRoom([=] { return NVCACHE_REAL(eventfd)(count, flags); });
}

NVCACHE_EXPORT int inotify_init() noexcept {
  return WithRoom([] { return NVCACHE_REAL(inotify_init)(); });
}

NVCACHE_EXPORT int inotify_init1(int flags) noexcept {
  return WithRoom([=] { return NVCACHE_REAL(inotify_init1)(flags); });
}

NVCACHE_EXPORT int memfd_create(const char* name, unsigned int flags) noexcept {
  return WithRoom([=] { return NVCACHE_REAL(memfd_create)(name, flags); });
}

NVCACHE_EXPORT DIR* opendir(const char* path) {
  return WithRoom([=] { return NVCACHE_REAL(opendir)(path); });
}

NVCACHE_EXPORT int pidfd_open(pid_t process, unsigned int flags) noexcept {
  return WithRoom([=] { return NVCACHE_REAL(pidfd_open)(process, flags); });
}

NVCACHE_EXPORT int pipe(int ends[2]) noexcept {
  return WithRoom([=] { return NVCACHE_REAL(pipe)(ends); });
}
NVCACHE_EXPORT_ALIAS(__pipe, pipe);

NVCACHE_EXPORT int pipe2(int ends[2], int flags) noexcept {
  return WithRoom([=] { return NVCACHE_REAL(pipe2)(ends, flags); });
}

NVCACHE_EXPORT int signalfd(int fd, const sigset_t* mask, int flags) noexcept {
  return WithRoom([=] { return NVCACHE_REAL(signalfd)(fd, mask, flags); });
}

NVCACHE_EXPORT int socket(int domain, int type, int protocol) noexcept {
  return WithRoom([=] { return NVCACHE_REAL(socket)(domain, type, protocol); });
}

NVCACHE_EXPORT int socketpair(int domain, int type, int protocol, int ends[2]) noexcept {
  return WithRoom([=] { return NVCACHE_REAL(socketpair)(domain, type, protocol, ends); });
}

NVCACHE_EXPORT int timerfd_create(clockid_t clock, int flags) noexcept {
  return WithRoom([=] { return NVCACHE_REAL(timerfd_create)(clock, flags); });
}
