// SPDX-License-Identifier: BSD-3-Clause
//
// A system call by its number. kernel.h has them by their names.
#ifndef NVCACHE_SYS_CALL_H_
#define NVCACHE_SYS_CALL_H_

#ifndef __x86_64__
#error "NVCache knows the system calls and the cache instructions of x86-64 only"
#endif

namespace nvcache::sys {

inline long CallKernel(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

#ifndef NVCACHE_RECORD
inline long Call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0,
                 long f = 0) {
  return CallKernel(number, a, b, c, d, e, f);
}
#else
// The tests of crash states (tests/crash) note what happens to files, and answer for them.
long Call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0);
#endif

// Calls of three arguments, or of four: for where each instruction counts.
#ifdef NVCACHE_RECORD
inline long CallShort(long number, long a, long b, long c, long d = 0) {
  return Call(number, a, b, c, d);
}
#else
inline long CallShort(long number, long a, long b, long c) {
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "0"(number), "D"(a), "S"(b), "d"(c)
               : "rcx", "r11", "memory");
  return result;
}
inline long CallShort(long number, long a, long b, long c, long d) {
  long result;
  register long r10 asm("r10") = d;
  asm volatile("syscall"
               : "=a"(result)
               : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
               : "rcx", "r11", "memory");
  return result;
}
#endif

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_CALL_H_
