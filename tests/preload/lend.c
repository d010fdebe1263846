// SPDX-License-Identifier: BSD-3-Clause
//
// Files that the kernel is given to use by itself: it finds what was written to them, and what it
// writes is there for the program, then and at the end. With loop devices and swap, which need
// root; without the right, the kernel's refusal is all that there is to compare.
//
//   lend DIRECTORY PLUGIN
#define _GNU_SOURCE
#include <linux/loop.h>
#include <sys/fanotify.h>
#include <sys/swap.h>

#include "libc.h"
#include "tests/kit/program.h"

enum { kSize = 64 * 1024, kPage = 4096 };

static char g_bytes[kSize];
static char g_back[kSize];

static void fill(char letter) { memset(g_bytes, letter, sizeof(g_bytes)); }

// A file in the cache whose newest bytes the kernel does not have.
static int make(const char* path, char letter) {
  const int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
  fill('.');
  if (write(fd, g_bytes, kSize) != kSize || fsync(fd) != 0) exit(2);
  fill(letter);
  if (pwrite(fd, g_bytes, kSize, 0) != kSize) exit(2);
  return fd;
}

// Every byte must be this letter.
static void show(const char* what, int fd, char letter) {
  memset(g_back, '?', sizeof(g_back));
  const ssize_t n = pread(fd, g_back, kSize, 0);
  long good = 0;
  for (ssize_t i = 0; i < n; ++i) good += g_back[i] == letter;
  printf("%s: %zd bytes, %ld are %c\n", what, n, good, letter);
}

static int free_device(char* name, size_t size) {
  const int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  const int number = ioctl(control, LOOP_CTL_GET_FREE);
  close(control);
  snprintf(name, size, "/dev/loop%d", number);
  return number;
}

// Gives `fd` to a device that is free. -1: there is none, or it may not be had.
static int attach(int fd, unsigned long request, int by_number, int read_only) {
  // Another process may be faster.
  for (int attempt = 0; attempt < 20; ++attempt) {
    char name[32];
    if (free_device(name, sizeof(name)) < 0) return -1;
    const int device = open(name, (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
    if (device < 0) return -1;
    struct loop_config config = {.fd = (uint32_t)fd};
    config.info.lo_flags = read_only ? LO_FLAGS_READ_ONLY : 0;
    const long argument = request == LOOP_SET_FD ? fd : (long)(intptr_t)&config;
    const long done = by_number ? syscall(SYS_ioctl, device, request, argument)
                                : ioctl(device, request, argument);
    if (done == 0) return device;
    close(device);
    if (errno != EBUSY) return -1;
  }
  return -1;
}

static void detach(int device) {
  ioctl(device, LOOP_CLR_FD);
  close(device);
}

static void write_by_device(int device, char letter) {
  fill(letter);
  if (pwrite(device, g_bytes, kSize, 0) != kSize || fsync(device) != 0) {
    printf("device: errno %d\n", errno);
  }
}

static void check_loop(const char* path, unsigned long request, int by_number) {
  printf("--- %s\n", path);
  const int fd = make(path, 'a');
  const int device = attach(fd, request, by_number, 0);
  if (device < 0) {
    printf("no device: errno %d\n", errno);
    close(fd);
    return;
  }
  show("device", device, 'a');
  write_by_device(device, 'b');
  show("file", fd, 'b');
  fill('c');
  if (pwrite(fd, g_bytes, kSize, 0) != kSize) printf("pwrite: errno %d\n", errno);
  // A descriptor of its own; the program's are closed while the device is there.
  close(fd);
  const int again = open(path, O_RDWR);
  fill('d');
  if (pwrite(again, g_bytes, kSize, 0) != kSize) printf("pwrite: errno %d\n", errno);
  ioctl(device, 0x1261);  // BLKFLSBUF
  show("device, anew", device, 'd');
  write_by_device(device, 'e');
  show("file, anew", again, 'e');
  detach(device);
  close(again);
}

static void check_change(void) {
  printf("--- LOOP_CHANGE_FD\n");
  const int first = make("first", 'f');
  const int second = make("second", 's');
  const int device = attach(first, LOOP_CONFIGURE, 0, 1);
  if (device < 0) {
    printf("no device: errno %d\n", errno);
    return;
  }
  show("device", device, 'f');
  errno = 0;
  const int changed = ioctl(device, LOOP_CHANGE_FD, second);
  printf("changed: %d errno %d\n", changed, errno);
  ioctl(device, 0x1261);
  show("device", device, 's');
  detach(device);
  close(first);
  close(second);
}

// What mkswap(8) writes. The file is open when the kernel gets it, or is opened afterwards.
static void check_swap(const char* path, int stays_open) {
  printf("--- swapon, %s\n", path);
  int fd = make(path, 0);
  struct {
    char boot[1024];
    uint32_t version, last_page, bad_pages;
  } header = {.version = 1, .last_page = kSize / kPage - 1};
  fill(0);
  memcpy(g_bytes, &header, sizeof(header));
  memcpy(g_bytes + kPage - 10, "SWAPSPACE2", 10);
  if (fchmod(fd, 0600) != 0 || pwrite(fd, g_bytes, kSize, 0) != kSize) exit(2);
  if (!stays_open) close(fd);
  errno = 0;
  const int on = swapon(path, 0);
  printf("swapon: %d errno %d\n", on, errno);
  if (!stays_open) fd = open(path, O_RDWR);
  errno = 0;
  const ssize_t written = pwrite(fd, "x", 1, 0);
  printf("pwrite: %zd errno %d\n", written, errno);
  errno = 0;
  const int off = swapoff(path);
  printf("swapoff: %d errno %d\n", off, errno);
  close(fd);
}

// An event of a fanotify group brings a descriptor of the file, by which it is read.
static void check_fanotify(const char* path, int by_number) {
  printf("--- fanotify, %s\n", path);
  errno = 0;
  const unsigned flags = FAN_CLASS_NOTIF | FAN_NONBLOCK | FAN_CLOEXEC;
  const int group =
      by_number ? (int)syscall(SYS_fanotify_init, flags, O_RDWR) : fanotify_init(flags, O_RDWR);
  if (group < 0) {
    printf("no group: errno %d\n", errno);
    return;
  }
  const int fd = make(path, 'a');
  const int marked = fanotify_mark(group, FAN_MARK_ADD, FAN_MODIFY, AT_FDCWD, path);
  fill('n');
  if (pwrite(fd, g_bytes, kSize, 0) != kSize) printf("pwrite: errno %d\n", errno);
  struct fanotify_event_metadata event = {.fd = -1};
  const ssize_t n = read(group, &event, sizeof(event));
  printf("marked: %d, event: %d\n", marked, n > 0 && (event.mask & FAN_MODIFY) != 0);
  if (n > 0) {
    show("event", event.fd, 'n');
    fill('m');
    if (pwrite(event.fd, g_bytes, kSize, 0) != kSize) printf("pwrite: errno %d\n", errno);
    show("file", fd, 'm');
    close(event.fd);
  }
  close(fd);
  close(group);
}

int main(int argc, char** argv) {
  enter(argc, argv);
  check_loop("LOOP_SET_FD", LOOP_SET_FD, 0);
  check_loop("LOOP_CONFIGURE", LOOP_CONFIGURE, 0);
  check_loop("LOOP_SET_FD.number", LOOP_SET_FD, 1);
  check_loop("LOOP_CONFIGURE.number", LOOP_CONFIGURE, 1);
  check_change();
  check_swap("open", 1);
  check_swap("closed", 0);
  // Each of these may be the last that is cached: a process of its own.
  for (int by_number = 0; by_number < 2; ++by_number) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      check_fanotify(by_number ? "by number" : "by name", by_number);
      return 0;
    }
    int status = -1;
    waitpid(child, &status, 0);
    printf("child: %d\n", status);
  }
  return 0;
}
