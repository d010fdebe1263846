// SPDX-License-Identifier: BSD-3-Clause
//
// Instructions of x86-64 in 64-bit mode, as far as it takes to find where the next one begins.
#ifndef NVCACHE_RAWCALL_INSTRUCTION_H_
#define NVCACHE_RAWCALL_INSTRUCTION_H_

#include <cstddef>
#include <cstdint>

namespace nvcache::rawcall {

inline constexpr size_t kLongestInstruction = 15;

// The tables of opcodes: that of one byte, those behind 0f, 0f 38 and 0f 3a, and those that VEX,
// EVEX and XOP begin.
enum class OpcodeMap : uint8_t { kOne, k0f, k0f38, k0f3a, kVector };

struct Instruction {
  uint8_t length = 0;
  OpcodeMap map = OpcodeMap::kOne;
  uint8_t opcode = 0;
  uint8_t rex = 0;     // 0: there is none
  uint8_t modrm = 0;   // if the opcode has one
  bool small = false;  // operands of 16 bits (prefix 66)
  bool has_modrm = false;
  // The immediate, or the distance of a jump; sign-extended.
  int64_t immediate = 0;

  unsigned mod() const { return modrm >> 6; }
  unsigned reg() const { return modrm >> 3 & 7; }  // without REX.R
  unsigned rm() const { return modrm & 7; }        // without REX.B
  bool wide() const { return (rex & 8) != 0; }
  bool extends_reg() const { return (rex & 4) != 0; }
  bool extends_rm() const { return (rex & 1) != 0; }
};

// Decodes the instruction at `code`, where `n` bytes can be read. False: there is none, or it does
// not end within them. Instructions that only AMD or only a kernel has are taken as they come.
bool Decode(const uint8_t* code, size_t n, Instruction* instruction);

// A call to the kernel: syscall, sysenter or int $0x80.
bool IsCallOfKernel(const Instruction& instruction);
// A jump, conditional or not, whose target is in the instruction.
bool IsDirectJump(const Instruction& instruction);

}  // namespace nvcache::rawcall

#endif  // NVCACHE_RAWCALL_INSTRUCTION_H_
