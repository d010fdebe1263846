// SPDX-License-Identifier: BSD-3-Clause
//
// The number of the system call that a `syscall` instruction makes, as far as the function around
// it shows it: the last constant that was moved to EAX.
#ifndef NVCACHE_RAWCALL_NUMBER_H_
#define NVCACHE_RAWCALL_NUMBER_H_

#include <cstdint>

#include "src/rawcall/instruction.h"

namespace nvcache::rawcall {

inline constexpr int64_t kUnknownNumber = -1;

// A call with that number changes, reads and locks no file, changes no descriptor and no mapping,
// and makes no process: what docs/posix.md has as threads, time, signals and the process itself.
// io_uring_enter and io_uring_register need a ring, which io_uring_setup alone makes.
bool IsHarmless(int64_t number);

// The registers that a function keeps for its callers, as instructions number them: RBX, RBP, and
// R12 to R15. A compiler that makes the same call several times may have its number there.
inline constexpr unsigned kNoRegister = 0;
constexpr bool IsKept(unsigned number) { return number == 3 || number == 5 || number >= 12; }

// EAX, as far as it is known, while a function is read from its beginning.
class Accumulator {
 public:
  void Step(const Instruction& instruction);
  // Somebody may come here from elsewhere.
  void Forget() { *this = {}; }
  int64_t value() const { return value_; }
  // The kept register that its unknown value is from, or kNoRegister.
  unsigned source() const { return source_; }

 private:
  int64_t value_ = kUnknownNumber;
  unsigned source_ = kNoRegister;
  int64_t pushed_ = kUnknownNumber;  // the instruction before has pushed it
};

// The one constant that a whole function ever moves to a kept register.
class KeptConstant {
 public:
  explicit KeptConstant(unsigned number) : number_(number) {}
  // False: the register may be changed otherwise, or to another constant.
  bool Step(const Instruction& instruction);
  int64_t value() const { return value_; }

 private:
  bool MayChange(const Instruction& instruction) const;
  bool Is(unsigned number, const Instruction& instruction) const;
  bool IsReg(const Instruction& instruction) const;
  bool IsRm(const Instruction& instruction) const;

  unsigned number_;
  int64_t value_ = kUnknownNumber;
};

}  // namespace nvcache::rawcall

#endif  // NVCACHE_RAWCALL_NUMBER_H_
