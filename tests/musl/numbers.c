/* SPDX-License-Identifier: BSD-3-Clause
 *
 * syscall() with every number: prints the numbers that are offered. A filter keeps all calls with
 * our mark in their first register from the kernel, so none of them does anything. */
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#include "fake.h"
#include "tests/kit/program.h"

enum { kMark = 0x5eed1234, kReached = 77 };

int main(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kMark, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | kReached),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
  CHECK(HasFake());
  char offered[kNumbers] = {0};
  for (long n = 0; n < kNumbers; n++) {
    if (n == 335 || n == 336) continue; /* uretprobe, uprobe: the kernel does not filter them */
    const long before = fake.offers[n];
    fake.watched = n;
    fake.result = 1000 + n;
    fake.answer = kDone;
    const long result = syscall(n, kMark, 2L, 3L, 4L, 5L, -6L);
    fake.answer = kRefuse;
    offered[n] = (char)(fake.offers[n] - before);
    CHECK(offered[n] == 0 || offered[n] == 1);
    if (!offered[n]) {
      CHECK(result == -1 && errno == kReached);
      continue;
    }
    CHECK(result == 1000 + n && !fake.last_cancellable);
    const long wanted[6] = {kMark, 2, 3, 4, 5, -6};
    CHECK(memcmp(fake.last, wanted, sizeof(wanted)) == 0);
    CHECK(syscall(n, kMark) == -1 && errno == kReached); /* refused: it is made */
  }
  for (int n = 0; n < kNumbers; n++) {
    if (offered[n]) printf("%d\n", n);
  }
  return 0;
}
