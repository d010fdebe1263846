// SPDX-License-Identifier: BSD-3-Clause
//
// Functions that glibc, libaio and liburing export, and that no header declares (or only one that
// the library should not need to be built).
#ifndef NVCACHE_LIBC_SHIM_PRELOAD_UNDECLARED_H_
#define NVCACHE_LIBC_SHIM_PRELOAD_UNDECLARED_H_

#include <linux/aio_abi.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdarg>
#include <cstddef>

struct __user_cap_header_struct;  // the kernel's
struct __user_cap_data_struct;

struct io_uring;         // liburing's
struct io_uring_params;  // the kernel's

extern "C" {

// _FORTIFY_SOURCE puts these in place of the plain names.
int __open_2(const char* path, int flags);
int __open64_2(const char* path, int flags);
int __openat_2(int dirfd, const char* path, int flags);
int __openat64_2(int dirfd, const char* path, int flags);
ssize_t __read_chk(int fd, void* buffer, size_t count, size_t buffer_size);
ssize_t __pread64_chk(int fd, void* buffer, size_t count, off64_t offset, size_t buffer_size);
int __dprintf_chk(int fd, int flag, const char* format, ...);
int __vdprintf_chk(int fd, int flag, const char* format, va_list arguments);
void __syslog_chk(int priority, int flag, const char* format, ...);
void __vsyslog_chk(int priority, int flag, const char* format, va_list arguments);

// Further names of functions that are declared.
ssize_t __send(int fd, const void* buffer, size_t count, int flags);
int __connect(int fd, const struct sockaddr* to, unsigned length);

// at_quick_exit
int __cxa_at_quick_exit(void (*function)(void*), void* library);

// Binaries built before glibc 2.33 call these for stat and its family.
int __xstat(int version, const char* path, struct stat* st);
int __xstat64(int version, const char* path, struct stat64* st);
int __lxstat(int version, const char* path, struct stat* st);
int __lxstat64(int version, const char* path, struct stat64* st);
int __fxstat(int version, int fd, struct stat* st);
int __fxstat64(int version, int fd, struct stat64* st);
int __fxstatat(int version, int dirfd, const char* path, struct stat* st, int flags);
int __fxstatat64(int version, int dirfd, const char* path, struct stat64* st, int flags);

// The kernel's headers have its types; libcap declares it.
int capset(struct __user_cap_header_struct* header, const struct __user_cap_data_struct* data);

// libaio. The first argument is its io_context_t.
int io_submit(void* context, long count, struct iocb** requests);

// liburing.
int io_uring_setup(unsigned entries, struct io_uring_params* parameters);
int io_uring_queue_init(unsigned entries, struct io_uring* ring, unsigned flags);
int io_uring_queue_init_params(unsigned entries, struct io_uring* ring,
                               struct io_uring_params* parameters);

}  // extern "C"

#endif  // NVCACHE_LIBC_SHIM_PRELOAD_UNDECLARED_H_
