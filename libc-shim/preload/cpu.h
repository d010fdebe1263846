// SPDX-License-Identifier: BSD-3-Clause
//
// The processor, as libc knows it.
#ifndef NVCACHE_LIBC_SHIM_PRELOAD_CPU_H_
#define NVCACHE_LIBC_SHIM_PRELOAD_CPU_H_

#include <cstdint>

namespace nvcache::preload {

// sys::CpuFeature, for sys::KnowCpu(). False: this libc does not say (before 2.33).
bool CpuOfLibc(uint32_t* features);

}  // namespace nvcache::preload

#endif  // NVCACHE_LIBC_SHIM_PRELOAD_CPU_H_
