// SPDX-License-Identifier: BSD-3-Clause
//
// Runs a command with a /dev/shm and a loopback device of its own: in the one the processes of a
// user meet, on the other are the ports of servers. So a test is alone with its own, whatever else
// runs, and what it leaves there goes with it.
//
//   apart COMMAND [ARGUMENT...]
//
// Where this user may not make such name spaces, the command has what all have; then tests run one
// at a time.
#define _GNU_SOURCE
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

static int own_memory(void) {
  // Nobody else sees what is mounted here.
  if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return -1;
  return mount("shm", "/dev/shm", "tmpfs", 0, "mode=1777");
}

static int own_ports(void) {
  struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP};
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int result = ioctl(fd, SIOCSIFFLAGS, &loopback);
  close(fd);
  return result;
}

static int leave_the_others(void) {
  if (unshare(CLONE_NEWNS | CLONE_NEWNET) != 0) return errno == EPERM ? 0 : -1;
  return own_memory() != 0 || own_ports() != 0 ? -1 : 0;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "apart: run what? apart COMMAND [ARGUMENT...]\n");
    return 2;
  }
  if (leave_the_others() != 0) {
    fprintf(stderr, "apart: no /dev/shm or no loopback device of its own: %s\n", strerror(errno));
    return 126;
  }
  execvp(argv[1], argv + 1);
  fprintf(stderr, "apart: %s: %s\n", argv[1], strerror(errno));
  return 127;
}
