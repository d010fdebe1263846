// SPDX-License-Identifier: BSD-3-Clause
#include "src/rawcall/code.h"

#include <algorithm>

#include "src/sys/user_copy.h"

namespace nvcache::rawcall {

const uint8_t* Code::Piece(uintptr_t at, size_t* n) {
  uint8_t* const bytes = bytes_.get();
  *n = 0;
  if (!range_.Holds(at, 1)) return bytes;
  *n = sys::CopyFromUser(bytes, reinterpret_cast<const void*>(at),
                         std::min(kPiece, range_.end - at));
  held_ = {at, at + *n};
  return bytes;
}

bool Code::Decode(uintptr_t at, uintptr_t end, Instruction* instruction) {
  end = std::min(end, range_.end);
  if (at >= end) return false;
  const size_t wanted = std::min(kLongestInstruction, end - at);
  if (!held_.Holds(at, wanted)) {
    size_t n;
    Piece(at, &n);
    if (n == 0) return false;
  }
  const size_t there = std::min(wanted, held_.end - at);
  return rawcall::Decode(bytes_.get() + (at - held_.begin), there, instruction);
}

bool Code::Reaches(uintptr_t begin, uintptr_t at) {
  Instruction instruction;
  uintptr_t here = begin;
  while (here < at && Decode(here, at, &instruction)) here += instruction.length;
  return here == at;
}

bool Code::IsInStep(uintptr_t at, uintptr_t lowest) {
  constexpr uintptr_t kFurthest = 64, kStarts = 32;
  lowest = std::max(lowest, range_.begin);
  const uintptr_t from = at - lowest > kFurthest ? at - kFurthest : lowest;
  const uintptr_t starts = std::min(kStarts, at - from + 1);
  // Read at once, so that the steps back are not read again and again.
  size_t n;
  Piece(from, &n);
  // Code may begin just there.
  if (from == range_.begin && Reaches(from, at)) return true;
  uintptr_t arrived = 0;
  for (uintptr_t i = 0; i < starts; ++i) arrived += Reaches(from + i, at) ? 1 : 0;
  return arrived * 4 >= starts * 3;
}

bool Code::LooksLikeAnEnd(uintptr_t at) {
  Instruction first, second;
  if (!Decode(at, range_.end, &first)) return false;
  const uint8_t op = first.opcode;
  if (first.map == OpcodeMap::k0f) return op == 0x0b;  // ud2
  if (first.map != OpcodeMap::kOne) return false;
  if (op == 0xc3 || op == 0xcc || op == 0xf4 || op == 0xeb || op == 0xe9) return true;
  if (!Decode(at + first.length, range_.end, &second)) return false;
  return op == 0x3d || op == 0x83 || op == 0x81 || op == 0x85 || op == 0x89 || op == 0x8b ||
         op == 0xc7 || op == 0xc9 || op == 0xf7 || op == 0x98 || (op >= 0x58 && op <= 0x5f) ||
         (op >= 0xb8 && op <= 0xbf);
}

}  // namespace nvcache::rawcall
