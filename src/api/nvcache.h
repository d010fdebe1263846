/* SPDX-License-Identifier: BSD-3-Clause
 *
 * NVCache for programs that ask for it: file calls whose writes are durable when they return.
 *
 * The functions take the arguments of the system calls that they are named after, return the same
 * values and set errno alike. They add that a write that has returned is in non-volatile memory,
 * and fsync has nothing left to wait for.
 *
 * SETTINGS
 *   The first nvcache_open() reads them from the environment: NVCACHE_POOL names the pool (without
 *   it, every function here is the plain system call), NVCACHE_DRAM, NVCACHE_INCLUDE and so on as
 *   for the preload library; docs/settings.md is the table. One default is another: where
 *   NVCACHE_WRITE_BACK is not set, it is `always` here, so a file is cached from its first open for
 *   writing. With `auto`, a write is durable when it returns only after the file's second sync;
 *   with `never`, none is.
 *
 *   When the cache cannot be had, one line on stderr says why, and the functions are the plain
 *   system calls; with NVCACHE_REQUIRED=1 the program ends with status 125 instead.
 *
 * RULES
 *   A file that is open here must not be written, mapped or truncated by other means at the same
 *   time: neither by libc's functions in this process nor by another process. A descriptor from
 *   nvcache_open() is closed by nvcache_close(), and not passed to dup, fcntl(F_DUPFD) or stdio.
 *   fork() is safe; before exec, close the files or nvcache_drain() them.
 *
 *   At exit() pending bytes are written to the files. After _exit() or a crash they stay in the
 *   pool, and the next start, or `nvcache recover`, brings them to the files.
 *
 *   In a process that runs under LD_PRELOAD=libnvcache.so there is one cache, that of the preload
 *   library: these functions then make libc's calls, which that library catches. Its default is
 *   `auto`: set NVCACHE_WRITE_BACK=always for what is promised here.
 *
 * THREADS
 *   Every function may be called from any thread at any time, the first nvcache_open() included.
 *   Writes that overlap have one order, the same for readers and after a crash. None is
 *   async-signal-safe: a handler that interrupted one of them and calls another may wait for ever.
 *
 * BUFFERS
 *   A buffer that is not there ends the program with SIGSEGV or SIGBUS where the system call would
 *   say EFAULT: these signals are the program's own.
 *
 * BUILD
 *   cc program.c $(pkg-config --cflags --libs nvcache)
 */
#ifndef NVCACHE_H_
#define NVCACHE_H_

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* nvcache_open - open or create a file
 *
 * path, flags   as in open(2). `mode` follows when flags have O_CREAT or O_TMPFILE.
 * Returns a descriptor, or -1 with errno of open(2).
 *
 * A regular file opened for writing is cached; on any other file, or one that the settings exclude
 * or another process uses, the functions here work as the plain calls do.
 *
 *   int fd = nvcache_open("/srv/journal", O_WRONLY | O_CREAT | O_APPEND, 0644);
 */
int nvcache_open(const char *path, int flags, ...);

/* nvcache_close - close a descriptor
 *
 * Returns 0, or -1 with errno: EBADF, or EIO, ENOSPC or EDQUOT when earlier writes of this file
 * could not be brought to the disk; they stay in the pool and are tried again. The descriptor is
 * closed in any case but EBADF.
 *
 *   if (nvcache_close(fd) != 0) perror("journal");
 */
int nvcache_close(int fd);

/* nvcache_read, nvcache_pread - read
 *
 * fd, buffer, count, offset   as in read(2) and pread(2); bytes. nvcache_read() starts at the
 *                             descriptor's offset and moves it.
 * Returns the bytes read, 0 at the end of the file, or -1 with errno of read(2).
 *
 * Sees every write that has returned, whichever thread made it.
 *
 *   ssize_t n = nvcache_pread(fd, page, sizeof(page), 4096 * number);
 */
ssize_t nvcache_read(int fd, void *buffer, size_t count);
ssize_t nvcache_pread(int fd, void *buffer, size_t count, off_t offset);

/* nvcache_write, nvcache_pwrite - write, durably
 *
 * fd, buffer, count, offset   as in write(2) and pwrite(2); bytes. nvcache_write() starts at the
 *                             descriptor's offset and moves it, or appends with O_APPEND.
 * Returns the bytes written, which may be less than count, or -1 with errno of write(2).
 *
 * When n > 0 is returned for a cached file, these n bytes are durable: they survive a power failure
 * on persistent memory, the death of the process on an emulated pool. A call of up to 2 MiB is
 * there whole or not at all after a crash. Waits while the log is full.
 *
 *   if (nvcache_write(fd, record, size) != (ssize_t)size) perror("journal");
 */
ssize_t nvcache_write(int fd, const void *buffer, size_t count);
ssize_t nvcache_pwrite(int fd, const void *buffer, size_t count, off_t offset);

/* nvcache_lseek - move the descriptor's offset
 *
 * offset, whence   as in lseek(2); bytes.
 * Returns the new offset from the start of the file, or -1 with errno of lseek(2).
 *
 *   off_t size = nvcache_lseek(fd, 0, SEEK_END);
 */
off_t nvcache_lseek(int fd, off_t offset, int whence);

/* nvcache_fsync - make sure that a file's writes and its name are durable
 *
 * Returns 0, or -1 with errno of fsync(2).
 *
 * Data is durable already; after the file was opened, created, renamed or linked the first call is
 * a real fsync(2), for the name's sake. Later calls return at once. Reports an error of writing to
 * the disk once, as Linux does. For a file that is not cached: fsync(2).
 *
 *   int fd = nvcache_open("new", O_WRONLY | O_CREAT, 0644);
 *   if (nvcache_fsync(fd) != 0) perror("new");
 */
int nvcache_fsync(int fd);

/* nvcache_ftruncate - set a file's size
 *
 * length   bytes; added bytes read as zeros.
 * Returns 0, or -1 with errno of ftruncate(2). On a cached file it is durable then, like a write.
 * It waits for the disk only while that refuses the file's bytes, or many cuts are pending.
 *
 *   if (nvcache_ftruncate(fd, 0) != 0) perror("journal");
 */
int nvcache_ftruncate(int fd, off_t length);

/* nvcache_fstat - a file's attributes
 *
 * Returns 0 and fills *st as fstat(2), st_size being the newest size; or -1 with errno of fstat(2).
 *
 *   struct stat st;
 *   if (nvcache_fstat(fd, &st) == 0) printf("%lld bytes\n", (long long)st.st_size);
 */
int nvcache_fstat(int fd, struct stat *st);

/* nvcache_drain - wait until everything written to a file so far is on its disk
 *
 * Returns 0, or -1 with errno: EBADF, or what the file system said when it refused (EIO, ENOSPC,
 * EDQUOT); the writes then stay in the pool and are tried again.
 *
 * Not needed for durability. For those who want the bytes in the file itself: before another
 * program reads it, before a disk is unmounted. Under LD_PRELOAD=libnvcache.so: syncfs(2).
 *
 *   if (nvcache_drain(fd) == 0) system("backup /srv/journal");
 */
int nvcache_drain(int fd);

#ifdef __cplusplus
}
#endif

#endif /* NVCACHE_H_ */
