// SPDX-License-Identifier: BSD-3-Clause
//
// Messages, signals and what else leaves the program by a call that nothing else need be done
// around.
#include "libc-shim/calls/output.h"

#include <mqueue.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <syslog.h>

#include "libc-shim/preload/wrapper.h"

using namespace nvcache::calls;
using namespace nvcache::preload;
using nvcache::vfs::Output;

// ---------------------------------------------------------------------------------------------
// Sockets.

NVCACHE_EXPORT ssize_t send(int fd, const void* buffer, size_t count, int flags) {
  return Leave(Output::kSocket, [=] { return NVCACHE_REAL(send)(fd, buffer, count, flags); });
}
NVCACHE_EXPORT_ALIAS(__send, send);

NVCACHE_EXPORT ssize_t sendto(int fd, const void* buffer, size_t count, int flags,
                              const struct sockaddr* to, socklen_t length) {
  return Leave(Output::kSocket,
               [=] { return NVCACHE_REAL(sendto)(fd, buffer, count, flags, to, length); });
}

NVCACHE_EXPORT int connect(int fd, const struct sockaddr* to, socklen_t length) {
  return Leave(Output::kSocket, [=] { return NVCACHE_REAL(connect)(fd, to, length); });
}
NVCACHE_EXPORT_ALIAS(__connect, connect);

NVCACHE_EXPORT int bind(int fd, const struct sockaddr* to, socklen_t length) noexcept {
  return Leave(Output::kSocket, [=] { return NVCACHE_REAL(bind)(fd, to, length); });
}

NVCACHE_EXPORT int listen(int fd, int backlog) noexcept {
  return Leave(Output::kSocket, [=] { return NVCACHE_REAL(listen)(fd, backlog); });
}

NVCACHE_EXPORT int shutdown(int fd, int how) noexcept {
  return Leave(Output::kSocket, [=] { return NVCACHE_REAL(shutdown)(fd, how); });
}

// libc writes to its own socket.
NVCACHE_EXPORT void vsyslog(int priority, const char* format, va_list arguments) {
  LeaveSilently(Output::kSocket, [&] { NVCACHE_REAL(vsyslog)(priority, format, arguments); });
}

NVCACHE_EXPORT void __vsyslog_chk(int priority, int flag, const char* format, va_list arguments) {
  LeaveSilently(Output::kSocket, [&] {
    NVCACHE_REAL(__vsyslog_chk)(priority, flag, format, arguments);
  });
}

NVCACHE_EXPORT void syslog(int priority, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsyslog(priority, format, arguments);
  va_end(arguments);
}

NVCACHE_EXPORT void __syslog_chk(int priority, int flag, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  __vsyslog_chk(priority, flag, format, arguments);
  va_end(arguments);
}

// ---------------------------------------------------------------------------------------------
// Pipes, and what is read as one.

NVCACHE_EXPORT ssize_t tee(int from, int to, size_t count, unsigned flags) {
  return Leave(Output::kPipe, [=] { return NVCACHE_REAL(tee)(from, to, count, flags); });
}

NVCACHE_EXPORT ssize_t vmsplice(int fd, const struct iovec* iov, size_t count, unsigned flags) {
  return Leave(Output::kPipe, [=] { return NVCACHE_REAL(vmsplice)(fd, iov, count, flags); });
}

NVCACHE_EXPORT int eventfd_write(int fd, eventfd_t value) {
  return LeaveBy(fd, [=] { return NVCACHE_REAL(eventfd_write)(fd, value); });
}

// The other end hears of its end.
NVCACHE_EXPORT int pclose(FILE* stream) {
  return Leave(Output::kPipe, [=] { return NVCACHE_REAL(pclose)(stream); });
}

// ---------------------------------------------------------------------------------------------
// Queues and semaphores.

NVCACHE_EXPORT int msgsnd(int queue, const void* message, size_t count, int flags) {
  return Leave(Output::kOther, [=] { return NVCACHE_REAL(msgsnd)(queue, message, count, flags); });
}

NVCACHE_EXPORT int semop(int set, struct sembuf* operations, size_t count) noexcept {
  return Leave(Output::kOther, [=] { return NVCACHE_REAL(semop)(set, operations, count); });
}

NVCACHE_EXPORT int semtimedop(int set, struct sembuf* operations, size_t count,
                              const struct timespec* timeout) noexcept {
  return Leave(Output::kOther,
               [=] { return NVCACHE_REAL(semtimedop)(set, operations, count, timeout); });
}

NVCACHE_EXPORT int mq_send(mqd_t queue, const char* message, size_t count, unsigned priority) {
  return Leave(Output::kOther,
               [=] { return NVCACHE_REAL(mq_send)(queue, message, count, priority); });
}

NVCACHE_EXPORT int mq_timedsend(mqd_t queue, const char* message, size_t count, unsigned priority,
                                const struct timespec* timeout) {
  return Leave(Output::kOther, [=] {
    return NVCACHE_REAL(mq_timedsend)(queue, message, count, priority, timeout);
  });
}

// ---------------------------------------------------------------------------------------------
// Other processes.

NVCACHE_EXPORT int kill(pid_t process, int signal) noexcept {
  return Leave(Output::kOther, [=] { return NVCACHE_REAL(kill)(process, signal); });
}

NVCACHE_EXPORT int killpg(pid_t group, int signal) noexcept {
  return Leave(Output::kOther, [=] { return NVCACHE_REAL(killpg)(group, signal); });
}

NVCACHE_EXPORT int sigqueue(pid_t process, int signal, const union sigval value) noexcept {
  return Leave(Output::kOther, [=] { return NVCACHE_REAL(sigqueue)(process, signal, value); });
}

NVCACHE_EXPORT int tgkill(pid_t process, pid_t thread, int signal) {
  return Leave(Output::kOther, [=] { return NVCACHE_REAL(tgkill)(process, thread, signal); });
}

NVCACHE_EXPORT ssize_t process_vm_writev(pid_t process, const struct iovec* from,
                                         unsigned long from_count, const struct iovec* to,
                                         unsigned long to_count, unsigned long flags) noexcept {
  return Leave(Output::kOther, [=] {
    return NVCACHE_REAL(process_vm_writev)(process, from, from_count, to, to_count, flags);
  });
}
