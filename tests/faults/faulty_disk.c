/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A disk that fails on command: a file system (FUSE) with one file, `disk`, for a loop device, and
 * one, `control`, which takes a command a line:
 *
 *   read|write|flush ERROR [COUNT]   refuse the next COUNT of these, or all, with this errno
 *   write ERROR from BYTE            refuse writes that end behind BYTE
 *   delay MICROSECONDS [FLUSH]       make every read, write and flush wait so long, one at a time;
 * a flush, if it has another number, so long ok                               work again
 *
 * The bytes are kept in memory, and gone at the end.
 *
 *   faulty_disk FOLDER BYTES         in the foreground, until FOLDER is unmounted
 */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <errno.h>
#include <fuse.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum kind { kRead, kWrite, kFlush, kKinds };
static const char* const kind_names[kKinds] = {"read", "write", "flush"};

struct rule {
  int error;
  long left; /* -1: all */
  off_t from;
};

static char* bytes;
static off_t size;
static struct rule rules[kKinds];
static useconds_t delays[kKinds];
static pthread_mutex_t rules_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t arm = PTHREAD_MUTEX_INITIALIZER; /* the disk does one thing at a time */

static int failure(enum kind kind, off_t end) {
  pthread_mutex_lock(&rules_lock);
  const useconds_t wait = delays[kind];
  struct rule* rule = &rules[kind];
  int error = 0;
  if (rule->left != 0 && end > rule->from) {
    error = rule->error;
    if (rule->left > 0) --rule->left;
  }
  pthread_mutex_unlock(&rules_lock);
  if (wait > 0) {
    pthread_mutex_lock(&arm);
    usleep(wait);
    pthread_mutex_unlock(&arm);
  }
  return -error;
}

/* 0, or -EINVAL for what is no command. */
static int command(const char* line) {
  char word[16] = "", more[16] = "";
  long number = -1;
  long from = 0;
  int error = 0;
  if (strcmp(line, "ok") == 0) {
    memset(rules, 0, sizeof rules);
    memset(delays, 0, sizeof delays);
    return 0;
  }
  const int delayed = sscanf(line, "delay %ld %ld", &number, &from);
  if (delayed > 0) {
    delays[kRead] = delays[kWrite] = (useconds_t)number;
    delays[kFlush] = (useconds_t)(delayed == 2 ? from : number);
    return 0;
  }
  if (sscanf(line, "%15s %d %15s %ld", word, &error, more, &from) == 4) {
    if (strcmp(more, "from") != 0) return -EINVAL;
  } else if (sscanf(line, "%15s %d %ld", word, &error, &number) < 2) {
    return -EINVAL;
  }
  for (int kind = 0; kind < kKinds; ++kind) {
    if (strcmp(word, kind_names[kind]) != 0) continue;
    rules[kind] = (struct rule){error, number, from};
    return 0;
  }
  return -EINVAL;
}

static int is_disk(const char* path) { return strcmp(path, "/disk") == 0; }
static int is_control(const char* path) { return strcmp(path, "/control") == 0; }

static int get_attributes(const char* path, struct stat* st, struct fuse_file_info* info) {
  (void)info;
  memset(st, 0, sizeof *st);
  st->st_nlink = 1;
  if (strcmp(path, "/") == 0) {
    st->st_mode = S_IFDIR | 0700;
  } else if (is_disk(path) || is_control(path)) {
    st->st_mode = S_IFREG | 0600;
    st->st_size = is_disk(path) ? size : 0;
  } else {
    return -ENOENT;
  }
  return 0;
}

static int list(const char* path, void* buffer, fuse_fill_dir_t fill, off_t offset,
                struct fuse_file_info* info, enum fuse_readdir_flags flags) {
  (void)path, (void)offset, (void)info, (void)flags;
  fill(buffer, "disk", NULL, 0, 0);
  fill(buffer, "control", NULL, 0, 0);
  return 0;
}

/* Nothing is kept in the kernel's page cache: every request comes here. */
static int open_file(const char* path, struct fuse_file_info* info) {
  info->direct_io = 1;
  return is_disk(path) || is_control(path) ? 0 : -ENOENT;
}

static int cut(const char* path, off_t length, struct fuse_file_info* info) {
  (void)length, (void)info;
  return is_control(path) ? 0 : -EPERM;
}

static int read_bytes(const char* path, char* buffer, size_t n, off_t at,
                      struct fuse_file_info* info) {
  (void)info;
  if (!is_disk(path) || at >= size) return 0;
  if ((off_t)n > size - at) n = (size_t)(size - at);
  const int error = failure(kRead, at + (off_t)n);
  if (error == 0) memcpy(buffer, bytes + at, n);
  return error < 0 ? error : (int)n;
}

static int write_bytes(const char* path, const char* buffer, size_t n, off_t at,
                       struct fuse_file_info* info) {
  (void)info;
  if (is_control(path)) {
    char line[80] = "";
    if (n >= sizeof line) return -EINVAL;
    memcpy(line, buffer, n);
    line[strcspn(line, "\n")] = '\0';
    pthread_mutex_lock(&rules_lock);
    const int error = command(line);
    pthread_mutex_unlock(&rules_lock);
    return error < 0 ? error : (int)n;
  }
  if (at + (off_t)n > size) return -ENOSPC;
  const int error = failure(kWrite, at + (off_t)n);
  if (error == 0) memcpy(bytes + at, buffer, n);
  return error < 0 ? error : (int)n;
}

static int flush_bytes(const char* path, int data_only, struct fuse_file_info* info) {
  (void)data_only, (void)info;
  return is_disk(path) ? failure(kFlush, size) : 0;
}

static const struct fuse_operations operations = {.getattr = get_attributes,
                                                  .readdir = list,
                                                  .open = open_file,
                                                  .truncate = cut,
                                                  .read = read_bytes,
                                                  .write = write_bytes,
                                                  .fsync = flush_bytes};

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: faulty_disk FOLDER BYTES\n");
    return 2;
  }
  size = atol(argv[2]);
  bytes = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (size <= 0 || bytes == MAP_FAILED) {
    fprintf(stderr, "faulty_disk: no memory for %s bytes\n", argv[2]);
    return 1;
  }
  char* const arguments[] = {argv[0], (char*)"-f", (char*)"-o", (char*)"fsname=faulty", argv[1]};
  return fuse_main(5, (char**)arguments, &operations, NULL);
}
