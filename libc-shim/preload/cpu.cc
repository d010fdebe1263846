// SPDX-License-Identifier: BSD-3-Clause
#include "libc-shim/preload/cpu.h"

#if __has_include(<sys/platform/x86.h>)
#ifdef __clang__
#define _Bool bool  // a word of C, which the header uses in C++ as well
#endif
#include <sys/platform/x86.h>
#endif

#include "src/sys/cpu.h"

namespace nvcache::preload {

#if __has_include(<sys/platform/x86.h>)

// A library for several releases of libc, and for others: it may not be there.
#pragma weak __x86_get_cpuid_feature_leaf

bool CpuOfLibc(uint32_t* features) {
  if (&__x86_get_cpuid_feature_leaf == nullptr) return false;
  const auto add = [features](bool has, sys::CpuFeature feature) {
    if (has) *features |= feature;
  };
  *features = 0;
  add(CPU_FEATURE_PRESENT(SSE4_2), sys::kCrc32);
  const bool avx = CPU_FEATURE_ACTIVE(AVX);
  add(avx, sys::kAvx);
  add(avx && CPU_FEATURE_PRESENT(CLFLUSHOPT), sys::kClflushopt);
  add(avx && CPU_FEATURE_PRESENT(CLWB), sys::kClwb);
  add(CPU_FEATURE_ACTIVE(AVX512F) && CPU_FEATURE_ACTIVE(AVX512DQ) && CPU_FEATURE_ACTIVE(AVX512BW) &&
          CPU_FEATURE_ACTIVE(AVX512VL) && CPU_FEATURE_ACTIVE(VPCLMULQDQ) &&
          CPU_FEATURE_PRESENT(BMI2) && CPU_FEATURE_PRESENT(SSE4_2),
      sys::kAvx512Crc);
  add(avx && CPU_FEATURE_ACTIVE(PCLMULQDQ) && CPU_FEATURE_PRESENT(SSE4_2) &&
          CPU_FEATURE_PRESENT(BMI2),
      sys::kAvxCrc);
  return true;
}

#else

bool CpuOfLibc(uint32_t*) { return false; }

#endif

}  // namespace nvcache::preload
