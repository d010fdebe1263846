/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A front end that counts what it is offered, and answers as the program under test says. */
#ifndef NVCACHE_TESTS_MUSL_FAKE_H_
#define NVCACHE_TESTS_MUSL_FAKE_H_

enum { kNumbers = 512 };

enum fake_answer {
  kRefuse,   /* libc makes the call */
  kDone,     /* nothing happens, and `result` is returned */
  kMake,     /* the fake makes the call, as a cancellation point where it is one */
  kHoldHeld, /* as kRefuse, but `held` waits in the offer until it is released */
};

struct fake {
  int registered; /* both registrations went as they should */
  enum fake_answer answer;
  long result;
  long offers[kNumbers]; /* outside of spawn() */
  long spawned_offers;   /* inside */
  long foreign;          /* outside, but by another process than ours */
  long last[6];          /* the registers of the last offer of `watched` */
  int last_cancellable;
  long watched;
  long held;
  int inside, release, finished;
  long begun, ended, retired, left;
  long handed_over;
  int last_handed_over;
  long rights_begun, rights_ended;
};

/* Absent where no front end is linked or loaded. */
extern struct fake fake __attribute__((weak));

static inline int HasFake(void) { return &fake && fake.registered; }

#endif /* NVCACHE_TESTS_MUSL_FAKE_H_ */
