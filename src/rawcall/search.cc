// SPDX-License-Identifier: BSD-3-Clause
#include "src/rawcall/search.h"

#include <emmintrin.h>

#include "src/rawcall/code.h"
#include "src/rawcall/number.h"
#include "src/rawcall/unwind.h"
#include "src/sys/text.h"

namespace nvcache::rawcall {

namespace {

// A function that is longer is not read as a whole.
constexpr size_t kLongestFunction = 1u << 20;

// The places of 0f 05, 0f 34 and cd 80 among the 16 that begin at `p`, of which 17 bytes are there.
unsigned Places(const uint8_t* p) {
  const auto load = [](const uint8_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  };
  const auto is = [](__m128i bytes, int value) {
    return _mm_cmpeq_epi8(bytes, _mm_set1_epi8(static_cast<char>(value)));
  };
  const __m128i first = load(p), second = load(p + 1);
  const __m128i calls =
      _mm_and_si128(is(first, 0x0f), _mm_or_si128(is(second, 0x05), is(second, 0x34)));
  const __m128i interrupts = _mm_and_si128(is(first, 0xcd), is(second, 0x80));
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_or_si128(calls, interrupts)));
}

// Calls found(offset) for each place among `n` bytes; false: that was enough.
template <typename Function>
bool ForEachPlace(const uint8_t* bytes, size_t n, Function found) {
  size_t i = 0;
  for (; i + 17 <= n; i += 16) {
    for (unsigned places = Places(bytes + i); places != 0; places &= places - 1) {
      if (!found(i + static_cast<size_t>(__builtin_ctz(places)))) return false;
    }
  }
  uint8_t last[32] = {};
  __builtin_memcpy(last, bytes + i, n - i);
  for (unsigned places = Places(last); places != 0; places &= places - 1) {
    if (!found(i + static_cast<size_t>(__builtin_ctz(places)))) return false;
  }
  return true;
}

// ForEachPlace() for a whole range. `readable`: all of it could be read.
template <typename Function>
bool ForEachPlaceOf(const Range& range, bool* readable, Function found) {
  Code text(range);
  *readable = true;
  for (uintptr_t at = range.begin; at + 1 < range.end;) {
    size_t n;
    const uint8_t* bytes = text.Piece(at, &n);
    if (n < 2) {
      *readable = false;
      return true;
    }
    if (!ForEachPlace(bytes, n, [&](size_t offset) { return found(at + offset); })) return false;
    at += n - 1;
  }
  return true;
}

// ------------------------------------------------------------------------------------- A function

// Nobody jumps to a place behind `set`, up to `at`, by a jump that can be read.
bool IsStraight(Code* code, const Range& function, uintptr_t set, uintptr_t at) {
  Instruction i;
  for (uintptr_t here = function.begin; code->Decode(here, function.end, &i);) {
    here += i.length;
    const uintptr_t target = here + static_cast<uintptr_t>(i.immediate);
    if (IsDirectJump(i) && target > set && target <= at) return false;
  }
  return true;
}

// The constant that the function has in the kept register, wherever it has set it.
int64_t ConstantOf(unsigned kept, Code* code, const Range& function) {
  KeptConstant constant(kept);
  Instruction i;
  for (uintptr_t here = function.begin; here < function.end; here += i.length) {
    if (!code->Decode(here, function.end, &i) || !constant.Step(i)) return kUnknownNumber;
  }
  return constant.value();
}

int64_t NumberIn(const Accumulator& eax, Code* code, const Range& function) {
  return eax.source() != kNoRegister ? ConstantOf(eax.source(), code, function) : eax.value();
}

enum class Found : uint8_t { kSite, kNothing, kUnreadable };

Found ReadFunction(Code* code, const Range& function, uintptr_t at, int64_t* number) {
  Accumulator eax;
  Instruction i;
  uintptr_t here = function.begin, set = 0;
  while (here < at) {
    if (!code->Decode(here, function.end, &i)) return Found::kUnreadable;
    const Accumulator before = eax;
    eax.Step(i);
    const bool is_other = before.value() != eax.value() || before.source() != eax.source();
    const bool is_known = eax.value() != kUnknownNumber || eax.source() != kNoRegister;
    if (is_known && (is_other || set == 0)) set = here;
    here += i.length;
  }
  if (here != at) return Found::kNothing;
  if (!code->Decode(at, function.end, &i)) return Found::kUnreadable;
  *number = kUnknownNumber;
  if (i.map == OpcodeMap::k0f && i.opcode == 0x05) *number = NumberIn(eax, code, function);
  if (*number != kUnknownNumber && !IsStraight(code, function, set, at)) *number = kUnknownNumber;
  return Found::kSite;
}

// A constant that is moved to EAX by the instruction before, as in a few lines of assembly.
int64_t NumberJustBefore(Code* code, uintptr_t at) {
  constexpr uintptr_t kMoves[] = {7, 5};  // with REX.W, and without
  for (const uintptr_t length : kMoves) {
    Instruction i;
    Accumulator eax;
    if (at - code->range().begin < length || !code->Decode(at - length, at, &i)) continue;
    eax.Step(i);
    if (i.length == length && eax.value() != kUnknownNumber) return eax.value();
  }
  return kUnknownNumber;
}

// ------------------------------------------------------------------------------------- An object

class ObjectSearch {
 public:
  ObjectSearch(const Image& image, const Listener& listener) : table_(image), listener_(listener) {}

  // False: that was enough.
  bool Look(const Range& text) {
    Code code(text);
    bool readable;
    const bool goes_on = ForEachPlaceOf(text, &readable, [&](uintptr_t at) {
      Site site = {at, kUnknownNumber, false};
      return !IsSite(&code, &site) || Note(site);
    });
    if (!readable) verdict_ = Verdict::kRaw;
    return goes_on && readable;
  }
  Verdict verdict() const { return verdict_; }
  Range functions() const { return table_.Functions(); }

 private:
  // A table may lie about where a function begins: what it says is within an instruction is a site
  // all the same if it looks like one in every other way.
  bool IsSite(Code* code, Site* site) {
    Range around;
    Found found = Found::kUnreadable;
    site->in_function = table_.FunctionAround(site->at, &around);
    if (site->in_function && around.size() <= kLongestFunction) {
      found = ReadFunction(code, around, site->at, &site->number);
      if (found == Found::kSite) return true;
    }
    if (!code->IsInStep(site->at, site->in_function ? 0 : around.begin)) return false;
    Instruction i;
    if (!code->Decode(site->at, code->range().end, &i)) return false;
    site->number = NumberJustBefore(code, site->at);
    const bool is_doubtful = found == Found::kNothing || table_.Covers(code->range());
    return !is_doubtful || code->LooksLikeAnEnd(site->at + i.length);
  }

  bool Note(const Site& site) {
    if (!IsHarmless(site.number)) verdict_ = Verdict::kRaw;
    if (listener_.hear != nullptr) return listener_.hear(listener_.context, site);
    return verdict_ != Verdict::kRaw;
  }

  UnwindTable table_;
  const Listener& listener_;
  Verdict verdict_ = Verdict::kHarmless;
};

}  // namespace

Verdict SearchObject(const Image& image, const Listener& listener) {
  ObjectSearch search(image, listener);
  for (size_t i = 0;; ++i) {
    const Range text = image.Text(i, search.functions());
    if (text.size() == 0 || !search.Look(text)) return search.verdict();
  }
}

Verdict SearchMemory(const Range& range) {
  Code code(range);
  bool readable;
  const bool harmless = ForEachPlaceOf(range, &readable, [&](uintptr_t at) {
    Instruction i;
    return !code.Decode(at, range.end, &i) || !code.IsInStep(at, range.begin) ||
           !code.LooksLikeAnEnd(at + i.length);
  });
  return harmless ? Verdict::kHarmless : Verdict::kRaw;
}

const char* NameOf(const char* path) {
  const char* name = path;
  for (const char* p = path; *p != '\0'; ++p) {
    if (*p == '/') name = p + 1;
  }
  return name;
}

bool IsTrusted(const char* path) {
  const char* const name = NameOf(path);
  // futex alone (OpenMP, transactional memory); the return from a handler; a ring, whose beginning
  // is watched by its name; sanitizers, which read what is mapped and write reports; ours, whose
  // calls are those of the library's own when both are there.
  constexpr const char* kTrusted[] = {"libgomp.so.",   "libitm.so.",       "libunwind.so.",
                                      "liburing.so.",  "liburing-ffi.so.", "libasan.so.",
                                      "libhwasan.so.", "liblsan.so.",      "libtsan.so.",
                                      "libubsan.so.",  "libclang_rt.",     "libnvcache-api.so"};
  for (const char* const trusted : kTrusted) {
    size_t n = 0;
    while (trusted[n] != '\0' && trusted[n] == name[n]) ++n;
    if (trusted[n] == '\0') return true;
  }
  return false;
}

}  // namespace nvcache::rawcall
