/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libc-shim/musl/front_end.h"

struct fake fake;
static __thread int spawning;
static long process;

static long Raw(long number, const long r[6]) {
  register long r10 __asm__("r10") = r[3];
  register long r8 __asm__("r8") = r[4];
  register long r9 __asm__("r9") = r[5];
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(r[0]), "S"(r[1]), "d"(r[2]), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}

static long Raw0(long number) { return Raw(number, (const long[6]){0}); }

static void Hold(void) {
  __atomic_store_n(&fake.inside, 1, __ATOMIC_SEQ_CST);
  while (!__atomic_load_n(&fake.release, __ATOMIC_SEQ_CST)) Raw0(SYS_sched_yield);
  Raw0(SYS_sched_yield); /* whatever signal was sent has come */
  __atomic_store_n(&fake.finished, 1, __ATOMIC_SEQ_CST);
}

static int Offer(long number, const long registers[6], int cancellable, long* result) {
  if (spawning) {
    fake.spawned_offers++;
    return 0;
  }
  __atomic_add_fetch(&fake.offers[number], 1, __ATOMIC_SEQ_CST);
  if (Raw0(SYS_getpid) != process) fake.foreign++;
  if (number == fake.watched) {
    for (int i = 0; i < 6; i++) fake.last[i] = registers[i];
    fake.last_cancellable = cancellable;
  }
  if (fake.answer == kHoldHeld && number == fake.held) Hold();
  if (fake.answer == kDone) {
    *result = fake.result;
    return 1;
  }
  if (fake.answer == kMake) {
    *result = cancellable ? __nvcache_cancellable(number, registers) : Raw(number, registers);
    return 1;
  }
  if (number == SYS_exit_group && getenv("FAKE_EXIT")) {
    Raw(SYS_write, (const long[6]){1, (long)"exit is offered\n", 16});
  }
  return 0;
}

static void Spawn(int begins) {
  if (begins) {
    fake.begun++;
  } else {
    fake.ended++;
  }
  spawning = begins;
}

static void Retire(void) { fake.retired++; }

static void HandOver(int fd) {
  fake.handed_over++;
  fake.last_handed_over = fd;
}

static void Rights(int begins) {
  if (begins) {
    fake.rights_begun++;
  } else {
    fake.rights_ended++;
  }
}

static const struct nvcache_front_end kOther = {
    NVCACHE_FRONT_END_VERSION + 1, Offer, Spawn, Retire, HandOver, Rights};
static const struct nvcache_front_end kFake = {
    NVCACHE_FRONT_END_VERSION, Offer, Spawn, Retire, HandOver, Rights};

void __nvcache_attach(void);
__attribute__((constructor)) void __nvcache_attach(void) {
  if (!getenv("NVCACHE_POOL")) return;
  process = Raw0(SYS_getpid);
  if (getenv("FAKE_MAKE")) fake.answer = kMake;
  const int refused = __nvcache_register(&kOther) == -1;
  const int left = __nvcache_register(&kFake) == 0 && __nvcache_register(NULL) == 0;
  if (left) close(-1);
  fake.registered =
      refused && left && fake.offers[SYS_close] == 0 && __nvcache_register(&kFake) == 0;
}
