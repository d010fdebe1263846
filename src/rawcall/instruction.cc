// SPDX-License-Identifier: BSD-3-Clause
#include "src/rawcall/instruction.h"

namespace nvcache::rawcall {

namespace {

// The bytes behind an opcode.
enum Form : uint8_t {
  kPlain = 0,
  kModrm = 1,
  kByte = 2,       // an immediate of one byte
  kLong = 4,       // an immediate of 4, or 2 with prefix 66
  kShort = 8,      // one of 2
  kDistance = 16,  // one of 4, whatever the prefix
  kNone = 32,      // no instruction
  kPrefix = 64,
};

constexpr bool Within(unsigned value, unsigned first, unsigned last) {
  return value >= first && value <= last;
}

// The first quarter of the table: 8 operations, each in 6 forms.
constexpr uint8_t ArithmeticForm(unsigned opcode) {
  switch (opcode & 7) {
    case 4:
      return kByte;
    case 5:
      return kLong;
    case 6:
    case 7:
      return Within(opcode, 0x26, 0x3e) && (opcode & 7) == 6 ? kPrefix : kNone;
    default:
      return kModrm;
  }
}

constexpr uint8_t MiddleForm(unsigned opcode) {
  if (Within(opcode, 0x64, 0x67)) return kPrefix;
  if (Within(opcode, 0x70, 0x7f)) return kByte;
  if (Within(opcode, 0x84, 0x8f)) return kModrm;
  switch (opcode) {
    case 0x60:
    case 0x61:
    case 0x82:
      return kNone;
    case 0x63:
      return kModrm;
    case 0x68:
      return kLong;
    case 0x69:
    case 0x81:
      return kModrm | kLong;
    case 0x6a:
      return kByte;
    case 0x6b:
    case 0x80:
    case 0x83:
      return kModrm | kByte;
    default:
      return kPlain;
  }
}

constexpr uint8_t HighForm(unsigned opcode) {
  if (Within(opcode, 0xb0, 0xb7) || Within(opcode, 0xe0, 0xe7)) return kByte;
  if (Within(opcode, 0xd0, 0xd3) || Within(opcode, 0xd8, 0xdf)) return kModrm;
  switch (opcode) {
    case 0x9a:
    case 0xce:
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xea:
      return kNone;
    case 0xa8:
    case 0xcd:
    case 0xeb:
      return kByte;
    case 0xa9:
      return kLong;
    case 0xc0:
    case 0xc1:
    case 0xc6:
      return kModrm | kByte;
    case 0xc7:
      return kModrm | kLong;
    case 0xc2:
    case 0xca:
      return kShort;
    case 0xc8:
      return kShort | kByte;
    case 0xe8:
    case 0xe9:
      return kDistance;
    case 0xf0:
    case 0xf2:
    case 0xf3:
      return kPrefix;
    case 0xf6:
    case 0xf7:
    case 0xfe:
    case 0xff:
      return kModrm;
    default:
      return kPlain;
  }
}

constexpr uint8_t FormOf(unsigned opcode) {
  if (opcode < 0x40) return ArithmeticForm(opcode);
  return opcode < 0x90 ? MiddleForm(opcode) : HighForm(opcode);
}

struct Forms {
  uint8_t of[256];
};

constexpr Forms FormsOfOne() {
  Forms forms = {};
  for (unsigned i = 0; i < 256; ++i) forms.of[i] = FormOf(i);
  return forms;
}

constexpr Forms kForms = FormsOfOne();

// Behind 0f.
uint8_t FormOf0f(unsigned opcode) {
  if (Within(opcode, 0x80, 0x8f)) return kDistance;
  if (Within(opcode, 0x04, 0x0e) && opcode != 0x0d) {
    return opcode == 0x04 || opcode == 0x0a || opcode == 0x0c ? kNone : kPlain;
  }
  if (Within(opcode, 0x24, 0x27) || opcode == 0x36 || Within(opcode, 0x39, 0x3f)) return kNone;
  if (Within(opcode, 0x30, 0x37) || opcode == 0x77 || Within(opcode, 0xa0, 0xa2) ||
      Within(opcode, 0xa8, 0xaa) || Within(opcode, 0xc8, 0xcf)) {
    return kPlain;
  }
  if (opcode == 0x0f || Within(opcode, 0x70, 0x73) || opcode == 0xa4 || opcode == 0xac ||
      opcode == 0xba || opcode == 0xc2 || Within(opcode, 0xc4, 0xc6)) {
    return kModrm | kByte;
  }
  return kModrm;
}

// The bytes of one instruction that are left.
class Bytes {
 public:
  Bytes(const uint8_t* code, size_t n)
      : begin_(code), at_(code), end_(code + (n < kLongestInstruction ? n : kLongestInstruction)) {}
  bool Has(size_t n) const { return static_cast<size_t>(end_ - at_) >= n; }
  uint8_t Next() { return *at_++; }
  uint8_t Peek() const { return *at_; }
  void Skip(size_t n) { at_ += n; }
  int64_t Signed(size_t n) {
    uint64_t value = 0;
    for (size_t i = 0; i < n; ++i) value |= uint64_t{at_[i]} << (8 * i);
    at_ += n;
    const unsigned unused = static_cast<unsigned>(64 - 8 * n);
    return static_cast<int64_t>(value << unused) >> unused;
  }
  uint8_t Length() const { return static_cast<uint8_t>(at_ - begin_); }

 private:
  const uint8_t* begin_;
  const uint8_t* at_;
  const uint8_t* end_;
};

struct Prefixes {
  bool address = false;  // 67
};

bool TakePrefixes(Bytes* bytes, Instruction* i, Prefixes* prefixes) {
  for (; bytes->Has(1) && (kForms.of[bytes->Peek()] & kPrefix) != 0; bytes->Skip(1)) {
    i->small = i->small || bytes->Peek() == 0x66;
    prefixes->address = prefixes->address || bytes->Peek() == 0x67;
  }
  if (bytes->Has(1) && (bytes->Peek() & 0xf0) == 0x40) i->rex = bytes->Next();
  return bytes->Has(1);
}

// C5, C4, 62 and 8f, the first bytes of what has its prefixes and its map in a payload.
bool TakeVector(Bytes* bytes, Instruction* i, uint8_t* form) {
  const uint8_t kind = i->opcode;
  const size_t payload = kind == 0xc5 ? 1 : kind == 0x62 ? 3 : 2;
  if (!bytes->Has(payload + 1)) return false;
  const unsigned map = kind == 0xc5 ? 1 : bytes->Peek() & (kind == 0x62 ? 0x07 : 0x1f);
  bytes->Skip(payload);
  i->map = OpcodeMap::kVector;
  i->opcode = bytes->Next();
  if (kind == 0x8f) {
    *form = kModrm | (map == 8 ? kByte : map == 10 ? kDistance : kPlain);
    return Within(map, 8, 10);
  }
  switch (map) {
    case 1:
      *form = i->opcode == 0x77 ? kPlain : kModrm | (FormOf0f(i->opcode) & kByte);
      return true;
    case 2:
    case 5:
    case 6:
      *form = kModrm;
      return true;
    case 3:
      *form = kModrm | kByte;
      return true;
    default:
      return false;
  }
}

bool TakeOpcode(Bytes* bytes, Instruction* i, uint8_t* form) {
  i->opcode = bytes->Next();
  const bool pops = i->opcode == 0x8f && (!bytes->Has(1) || (bytes->Peek() & 0x38) == 0);
  if (i->opcode == 0xc4 || i->opcode == 0xc5 || i->opcode == 0x62 || (i->opcode == 0x8f && !pops)) {
    return TakeVector(bytes, i, form);
  }
  *form = kForms.of[i->opcode];
  if (i->opcode != 0x0f) return true;
  if (!bytes->Has(1)) return false;
  i->opcode = bytes->Next();
  i->map = OpcodeMap::k0f;
  *form = FormOf0f(i->opcode);
  if (i->opcode != 0x38 && i->opcode != 0x3a) return true;
  if (!bytes->Has(1)) return false;
  i->map = i->opcode == 0x38 ? OpcodeMap::k0f38 : OpcodeMap::k0f3a;
  *form = i->opcode == 0x38 ? kModrm : kModrm | kByte;
  i->opcode = bytes->Next();
  return true;
}

// The byte itself, that behind it for an address with an index, and the distance.
bool TakeModrm(Bytes* bytes, Instruction* i) {
  if (!bytes->Has(1)) return false;
  i->modrm = bytes->Next();
  i->has_modrm = true;
  if (i->mod() == 3) return true;
  size_t distance = i->mod() == 1 ? 1 : i->mod() == 2 ? 4 : 0;
  if (i->rm() == 4) {
    if (!bytes->Has(1)) return false;
    const uint8_t index = bytes->Next();
    if (i->mod() == 0 && (index & 7) == 5) distance = 4;
  } else if (i->mod() == 0 && i->rm() == 5) {
    distance = 4;
  }
  if (!bytes->Has(distance)) return false;
  bytes->Skip(distance);
  return true;
}

bool TakeImmediate(Bytes* bytes, Instruction* i, size_t n) {
  if (!bytes->Has(n)) return false;
  if (n > 0) i->immediate = bytes->Signed(n);
  return true;
}

// Opcodes whose immediate is not told by their form.
bool TakeUnusual(Bytes* bytes, Instruction* i, const Prefixes& prefixes, bool* is_unusual) {
  *is_unusual = true;
  if (i->map == OpcodeMap::kOne) {
    if (Within(i->opcode, 0xa0, 0xa3)) return TakeImmediate(bytes, i, prefixes.address ? 4 : 8);
    if (Within(i->opcode, 0xb8, 0xbf)) {
      return TakeImmediate(bytes, i, i->wide() ? 8 : i->small ? 2 : 4);
    }
    const bool tests = (i->opcode & 0xfe) == 0xf6 && i->reg() < 2;
    if (tests)
      return TakeImmediate(bytes, i, i->opcode == 0xf6 ? 1 : i->small && !i->wide() ? 2 : 4);
  }
  *is_unusual = false;
  return true;
}

}  // namespace

bool Decode(const uint8_t* code, size_t n, Instruction* instruction) {
  *instruction = {};
  Instruction* const i = instruction;
  Bytes bytes(code, n);
  Prefixes prefixes;
  uint8_t form = kPlain;
  bool is_unusual = false;
  if (!TakePrefixes(&bytes, i, &prefixes) || !TakeOpcode(&bytes, i, &form)) return false;
  if ((form & (kNone | kPrefix)) != 0) return false;
  if ((form & kModrm) != 0 && !TakeModrm(&bytes, i)) return false;
  if (!TakeUnusual(&bytes, i, prefixes, &is_unusual)) return false;
  if (!is_unusual) {
    if ((form & kShort) != 0 && !TakeImmediate(&bytes, i, 2)) return false;
    if ((form & kByte) != 0 && !TakeImmediate(&bytes, i, 1)) return false;
    if ((form & kLong) != 0 && !TakeImmediate(&bytes, i, i->small && !i->wide() ? 2 : 4))
      return false;
    if ((form & kDistance) != 0 && !TakeImmediate(&bytes, i, 4)) return false;
  }
  i->length = bytes.Length();
  return true;
}

bool IsCallOfKernel(const Instruction& i) {
  if (i.map == OpcodeMap::k0f) return i.opcode == 0x05 || i.opcode == 0x34;
  return i.map == OpcodeMap::kOne && i.opcode == 0xcd && static_cast<uint8_t>(i.immediate) == 0x80;
}

bool IsDirectJump(const Instruction& i) {
  if (i.map == OpcodeMap::k0f) return Within(i.opcode, 0x80, 0x8f);
  return i.map == OpcodeMap::kOne &&
         (Within(i.opcode, 0x70, 0x7f) || Within(i.opcode, 0xe0, 0xe3) || i.opcode == 0xe9 ||
          i.opcode == 0xeb);
}

}  // namespace nvcache::rawcall
