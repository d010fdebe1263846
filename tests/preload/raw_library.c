// SPDX-License-Identifier: BSD-3-Clause
//
// A library that makes a call past libc.
long raw_call(long number, long a, long b, long c, long d);

long raw_call(long number, long a, long b, long c, long d) {
  long result;
  register long fourth __asm__("r10") = d;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "0"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                   : "rcx", "r11", "memory");
  return result;
}
