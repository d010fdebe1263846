// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/cpu.h"

#include <cpuid.h>

#include <atomic>

#include "src/sys/early.h"

namespace nvcache::sys {

namespace {

constexpr uint32_t kAsked = 1u << 31;
NVCACHE_EARLY constinit std::atomic<uint32_t> features{0};

// XCR0: the states of the processor that the system saves.
uint32_t SavedStates() {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

uint32_t Ask() {
  constexpr uint32_t kYmm = 0x6, kZmm = 0xe6;  // with all that these stand on
  uint32_t found = kAsked, eax, ebx, ecx, edx;
  __cpuid(1, eax, ebx, ecx, edx);
  if ((ecx & bit_SSE4_2) != 0) found |= kCrc32;
  if ((ecx & bit_AVX) == 0 || (ecx & bit_OSXSAVE) == 0) return found;
  const uint32_t saved = SavedStates();
  if ((saved & kYmm) == kYmm) found |= kAvx;
  const bool multiplies = (found & kAvx) != 0 && (ecx & bit_PCLMUL) != 0 && (found & kCrc32) != 0;
  // Each processor that has AVX has this leaf.
  __cpuid_count(7, 0, eax, ebx, ecx, edx);
  if ((ebx & bit_CLFLUSHOPT) != 0) found |= kClflushopt;
  if ((ebx & bit_CLWB) != 0) found |= kClwb;
  if (multiplies && (ebx & bit_BMI2) != 0) found |= kAvxCrc;
  constexpr uint32_t kInEbx = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL | bit_BMI2;
  if ((saved & kZmm) == kZmm && (ebx & kInEbx) == kInEbx && (ecx & bit_VPCLMULQDQ) != 0 &&
      (found & kCrc32) != 0) {
    found |= kAvx512Crc;
  }
  return found;
}

}  // namespace

void KnowCpu(uint32_t known) { features.store(known | kAsked, std::memory_order_relaxed); }

bool CpuHas(CpuFeature feature) {
  uint32_t known = features.load(std::memory_order_relaxed);
  if (__builtin_expect(known == 0, 0)) features.store(known = Ask(), std::memory_order_relaxed);
  return (known & feature) != 0;
}

}  // namespace nvcache::sys
