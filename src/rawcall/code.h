// SPDX-License-Identifier: BSD-3-Clause
//
// Code that is read piece by piece: it may be gone at any moment, and is as long as it likes.
#ifndef NVCACHE_RAWCALL_CODE_H_
#define NVCACHE_RAWCALL_CODE_H_

#include <cstddef>
#include <cstdint>

#include "src/rawcall/image.h"
#include "src/rawcall/instruction.h"
#include "src/sys/scratch.h"

namespace nvcache::rawcall {

class Code {
 public:
  explicit Code(const Range& range) : range_(range) {}

  const Range& range() const { return range_; }
  // The instruction there, all of which lies before `end`.
  bool Decode(uintptr_t at, uintptr_t end, Instruction* instruction);
  // Up to kPiece bytes from there on; how many.
  static constexpr size_t kPiece = sys::kScratchSize;
  const uint8_t* Piece(uintptr_t at, size_t* n);

  // Whether the code from `begin` on, read instruction by instruction, comes to `at`. One that
  // leads elsewhere, or is none, does not.
  bool Reaches(uintptr_t begin, uintptr_t at);
  // Whether an instruction seems to begin at `at`, where nobody knows where the function begins.
  // Code that is read from a wrong byte falls into step within a few instructions: so most of the
  // bytes before `at` lead there if an instruction begins there, and few if it lies within one.
  bool IsInStep(uintptr_t at, uintptr_t lowest);
  // The code there is such as follows a system call: a look at its result, a move, a return.
  bool LooksLikeAnEnd(uintptr_t at);

 private:
  Range range_;
  Range held_;
  sys::Scratch<uint8_t[kPiece]> bytes_;
};

}  // namespace nvcache::rawcall

#endif  // NVCACHE_RAWCALL_CODE_H_
