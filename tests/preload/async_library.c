// SPDX-License-Identifier: BSD-3-Clause
//
// What libaio and liburing are to every_call: functions whose system calls nobody sees, and a ring
// through which the kernel gets at a file without any.
#include <sys/syscall.h>

static long Raw(long number, long a, long b, long c, long d) {
  register long fourth __asm__("r10") = d;
  __asm__ volatile("syscall"
                   : "+a"(number)
                   : "D"(a), "S"(b), "d"(c), "r"(fourth)
                   : "rcx", "r11", "memory");
  return number;
}

struct iocb;
struct io_uring;
struct io_uring_params;

int io_submit(void* context, long count, struct iocb** requests) {
  return (int)Raw(SYS_io_submit, (long)context, count, (long)requests, 0);
}

int io_uring_setup(unsigned entries, struct io_uring_params* parameters) {
  return parameters == 0 ? (int)entries : -1;
}

int io_uring_queue_init(unsigned entries, struct io_uring* ring, unsigned flags) {
  return ring == 0 ? (int)(entries + flags) : -1;
}

int io_uring_queue_init_params(unsigned entries, struct io_uring* ring,
                               struct io_uring_params* parameters) {
  return ring == 0 && parameters == 0 ? (int)entries : -1;
}

// As if the ring had told the kernel to.
long write_by_ring(int fd, const char* bytes, long count, long offset) {
  return Raw(SYS_pwrite64, fd, (long)bytes, count, offset);
}
