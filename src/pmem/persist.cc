// SPDX-License-Identifier: BSD-3-Clause
#include "src/pmem/persist.h"

#include <cpuid.h>

#include <cstring>

#include "src/sys/check.h"
#include "src/sys/crc32c.h"
#include "src/sys/kernel.h"
#include "src/sys/user_copy.h"

namespace nvcache::pmem {

namespace {

// PMEM_F_MEM_NODRAIN of <libpmem.h>: flush, but leave the fence to us.
constexpr unsigned kNoDrain = 1u << 0;

// What of the program's bytes is on the stack at a time.
constexpr size_t kPart = 256;
static_assert(kPart % kLine == 0);

WriteBack write_back = WriteBack::kClflush;
void* (*libpmem_memcpy)(void*, const void*, size_t, unsigned) = nullptr;

}  // namespace

WriteBack BestWriteBack() {
  unsigned eax, ebx, ecx, edx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return WriteBack::kClflush;
  if ((ebx & bit_CLWB) != 0) return WriteBack::kClwb;
  return (ebx & bit_CLFLUSHOPT) != 0 ? WriteBack::kClflushopt : WriteBack::kClflush;
}

void Initialize(const Libpmem* libpmem) {
  write_back = BestWriteBack();
  libpmem_memcpy = libpmem != nullptr ? libpmem->memcpy : nullptr;
}

void WriteBackLines(const void* address, size_t n) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(address) & ~uintptr_t{kLine - 1};
  const uintptr_t end = reinterpret_cast<uintptr_t>(address) + n;
  for (uintptr_t line = begin; line < end; line += kLine) {
    // The instructions differ by prefix only; assemblers that know none of them can build this.
    volatile char* p = reinterpret_cast<volatile char*>(line);
    switch (write_back) {
      case WriteBack::kClwb:
        asm volatile(".byte 0x66; xsaveopt %0" : "+m"(*p));
        break;
      case WriteBack::kClflushopt:
        asm volatile(".byte 0x66; clflush %0" : "+m"(*p));
        break;
      case WriteBack::kClflush:
        asm volatile("clflush %0" : "+m"(*p));
        break;
    }
  }
}

void CopyAndWriteBack(void* destination, const void* source, size_t n) {
  if (libpmem_memcpy != nullptr) {
    libpmem_memcpy(destination, source, n, kNoDrain);
    return;
  }
  std::memcpy(destination, source, n);
  WriteBackLines(destination, n);
}

bool CopyUserByParts(void* destination, const void* source, size_t n, void* copy, uint32_t* crc,
                     Step step) {
  NVCACHE_CHECK(n <= kMaxUserCopy);
  alignas(kLine) uint8_t bytes[kPart];
  auto* to = static_cast<uint8_t*>(destination);
  const auto* from = static_cast<const uint8_t*>(source);
  auto* second = static_cast<uint8_t*>(copy);
  for (size_t done = 0; done < n; done += kPart) {
    const size_t part = n - done < kPart ? n - done : kPart;
    if (sys::CopyFromUser(bytes, from + done, part) != part) return false;
    const size_t lines = (part + kLine - 1) / kLine * kLine;
    std::memset(bytes + part, 0, lines - part);
    Copy(to + done, bytes, lines, step);
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
