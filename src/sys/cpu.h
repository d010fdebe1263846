// SPDX-License-Identifier: BSD-3-Clause
//
// The features that both the processor and the system have. They are asked once, when a caller
// wants to know, and not at start: CPUID leaves a virtual machine, which takes 16 µs and more each
// time.
#ifndef NVCACHE_SYS_CPU_H_
#define NVCACHE_SYS_CPU_H_

#include <cstdint>

namespace nvcache::sys {

enum CpuFeature : uint32_t {
  kCrc32 = 1,       // SSE4.2
  kAvx = 2,         // the system saves its registers, too; likewise below
  kAvx512Crc = 4,   // AVX-512 F, DQ, BW and VL, VPCLMULQDQ, BMI2, SSE4.2
  kClflushopt = 8,  // only on processors that have AVX; likewise kClwb
  kClwb = 16,
  kAvxCrc = 32,  // AVX, PCLMULQDQ, SSE4.2; and BMI2, for processors before it multiply slowly
};

bool CpuHas(CpuFeature feature);

// All of them, from a caller that knows them already: libc asks at each program's start. Before any
// call of CpuHas.
void KnowCpu(uint32_t features);

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_CPU_H_
