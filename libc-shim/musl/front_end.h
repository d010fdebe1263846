/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the patched musl and the engine in front of it ask of each other. C, for both include it:
 * musl's build copies this file into its source tree.
 *
 * The libc holds one pointer to a table of functions, hidden and null until the engine registers:
 * without a pool nothing is registered, and every system call is made as by plain musl. */
#ifndef NVCACHE_LIBC_SHIM_MUSL_FRONT_END_H_
#define NVCACHE_LIBC_SHIM_MUSL_FRONT_END_H_

#ifdef __cplusplus
extern "C" {
#endif

enum { NVCACHE_FRONT_END_VERSION = 2 };

/* By the engine, for the libc. */
struct nvcache_front_end {
  /* NVCACHE_FRONT_END_VERSION of the header that the engine was built with. */
  long version;

  /* Offers a system call that the program, or libc for it, is about to make. 0: nothing has
   * happened, and libc makes the call. 1: it is done, and *result is what the kernel would have
   * returned (a result, or a negated errno). `cancellable`: the call is a cancellation point, and a
   * real call in its place is made by __nvcache_cancellable. Called on the program's threads with
   * the thread pointer in place, maybe with all signals blocked and locks of libc held (malloc's
   * too); not while the thread may be cancelled at any instruction. The dispositions of libc's own
   * signals, 32 to 34, are not offered. */
  int (*offer)(long number, const long registers[6], int cancellable, long* result);

  /* Around the making of a child that shares this process's memory (posix_spawn), by the parent:
   * begins 1 before, 0 when the child has its own program or is gone. In between the front end
   * refuses whatever is offered on this thread: it comes from the child, which runs on it. Signals
   * are blocked. */
  void (*spawn)(int begins);

  /* Before clone() makes a child that is no thread: what becomes of its descriptors and memory
   * cannot be followed, so the cache is left for good. */
  void (*retire)(void);

  /* Before spawn(1): the child gets this descriptor under another number (a file action), and keeps
   * it. */
  void (*hand_over)(int fd);

  /* Around a change of users or groups that libc makes in all threads: begins 1 before the first
   * has changed, 0 after the last. In between nothing is offered. */
  void (*rights)(int begins);
  /* Between retire() and anything else in a child of clone() that has a copy of this process's
   * memory: it leaves the cache, too. */
  void (*leave)(void);
};

/* By the libc, for the engine. */

/* From now on system calls are offered; with a null pointer they are not any more. By the only
 * thread that there is. 0, or -1: the libc is of another version, and nothing has happened. */
int __nvcache_register(const struct nvcache_front_end* front_end);

/* The real system call as a cancellation point: acts on a cancellation that is pending or comes
 * while it sleeps (and does not return then). A result, or a negated errno. */
long __nvcache_cancellable(long number, const long registers[6]);

#ifdef __cplusplus
}
#endif

#endif /* NVCACHE_LIBC_SHIM_MUSL_FRONT_END_H_ */
