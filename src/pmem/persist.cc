// SPDX-License-Identifier: BSD-3-Clause
#include "src/pmem/persist.h"

#include <emmintrin.h>

#include <cstring>

#include "src/sys/check.h"
#include "src/sys/cpu.h"
#include "src/sys/crc32c.h"
#include "src/sys/kernel.h"
#include "src/sys/user_copy.h"

namespace nvcache::pmem {

namespace {

// The bytes of a copy that are on the stack at a time: a write has little stack left here.
constexpr size_t kPart = 128;
static_assert(kPart % kLine == 0);

constinit std::atomic<WriteBack> write_back{WriteBack::kClflush};
constinit Journaled journaled = {};

// Whole lines, `from` an aligned place.
void StreamLines(uint8_t* lines, const uint8_t* from, size_t n) {
  for (size_t at = 0; at < n; at += sizeof(__m128i)) {
    const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(from + at));
    _mm_stream_si128(reinterpret_cast<__m128i*>(lines + at), bytes);
  }
}

void WriteBackBy(WriteBack how, uintptr_t begin, uintptr_t end);

// Memory that has no journal may be stored to as well, when a pool is made.
void MarkLines(uintptr_t begin, uintptr_t end) {
  const uintptr_t offset = begin - reinterpret_cast<uintptr_t>(journaled.base);
  if (offset >= journaled.size) return WriteBackBy(BestWriteBack(), begin, end);
  journaled.marks.Set(offset / kLine, (end - begin + kLine - 1) / kLine);
}

}  // namespace

constinit std::atomic<bool> marks_lines{false};

WriteBack BestWriteBack() {
  if (sys::CpuHas(sys::kClwb)) return WriteBack::kClwb;
  return sys::CpuHas(sys::kClflushopt) ? WriteBack::kClflushopt : WriteBack::kClflush;
}

void Initialize() {
  if (!marks_lines.load()) write_back.store(BestWriteBack(), std::memory_order_relaxed);
}

void BeginMarking(const Journaled& memory) {
  journaled = memory;
  write_back.store(WriteBack::kMark);
  marks_lines.store(true);
}

void EndMarking(const void* context) {
  if (journaled.context != context) return;
  marks_lines.store(false);
  write_back.store(BestWriteBack());
}

void AwaitJournal() {
  if (marks_lines.load(std::memory_order_relaxed)) journaled.await(journaled.context);
}

void WriteBackLines(const void* address, size_t n) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(address) & ~uintptr_t{kLine - 1};
  const uintptr_t end = reinterpret_cast<uintptr_t>(address) + n;
  WriteBackBy(write_back.load(std::memory_order_relaxed), begin, end);
}

namespace {

inline void WriteBackBy(WriteBack how, uintptr_t begin, uintptr_t end) {
  for (uintptr_t line = begin; line < end; line += kLine) {
    // The instructions differ by prefix only; assemblers that know none of them can build this.
    volatile char* p = reinterpret_cast<volatile char*>(line);
    switch (how) {
      case WriteBack::kClwb:
        asm volatile(".byte 0x66; xsaveopt %0" : "+m"(*p));
        break;
      case WriteBack::kClflushopt:
        asm volatile(".byte 0x66; clflush %0" : "+m"(*p));
        break;
      case WriteBack::kClflush:
        asm volatile("clflush %0" : "+m"(*p));
        break;
      case WriteBack::kMark:
        return MarkLines(line, end);
    }
  }
}

}  // namespace

// What is stored around the cache is there when the marks are set: that is a full barrier.
bool CopyAndMark(void* destination, const void* source, size_t n, void* copy, uint32_t* crc) {
  const bool copied = sys::CanStreamUser() ? sys::StreamUser(destination, source, n, copy, crc)
                                           : CopyByParts(destination, source, n, copy, crc);
  WriteBackLines(destination, n);
  return copied;
}

bool CopyByParts(void* destination, const void* source, size_t n, void* copy, uint32_t* crc) {
  NVCACHE_CHECK(n <= kMaxCopy);
  alignas(__m128i) uint8_t bytes[kPart];
  auto* to = static_cast<uint8_t*>(destination);
  const auto* from = static_cast<const uint8_t*>(source);
  auto* second = static_cast<uint8_t*>(copy);
  for (size_t done = 0; done < n; done += kPart) {
    const size_t part = n - done < kPart ? n - done : kPart;
    if (sys::CopyFromUser(bytes, from + done, part) != part) return false;
    const size_t lines = (part + kLine - 1) / kLine * kLine;
    std::memset(bytes + part, 0, lines - part);
    StreamLines(to + done, bytes, lines);
    if (second != nullptr) std::memcpy(second + done, bytes, part);
    *crc = sys::Crc32c(bytes, part, *crc);
  }
  return true;
}

void Prefault(void* address, size_t n) {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE
  constexpr uintptr_t kPage = 4096;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(address) & ~(kPage - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(address) + n + kPage - 1) & ~(kPage - 1);
  sys::Madvise(reinterpret_cast<void*>(begin), end - begin, kPopulateWrite);
}

}  // namespace nvcache::pmem
