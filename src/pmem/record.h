// SPDX-License-Identifier: BSD-3-Clause
//
// Where persist.h goes in the tests of crash states (tests/crash), which define NVCACHE_RECORD.
// They note the engine's stores and flushes of the pool, in their order. Nothing here is in the
// library.
#ifndef NVCACHE_PMEM_RECORD_H_
#define NVCACHE_PMEM_RECORD_H_

#include <cstddef>
#include <cstdint>

#include "src/pmem/step.h"

namespace nvcache::pmem::record {

// Stores n bytes, and notes it. A store of up to eight aligned bytes is atomic, parts of others may
// become durable in any order.
void Store(void* destination, const void* source, size_t n);
void Fill(void* destination, uint8_t byte, size_t n);
void Add(uint64_t* counter, uint64_t n);

// This is pmem::Copy().
bool Copy(void* destination, const void* source, size_t n, void* copy, uint32_t* crc, Step step);

void Pwb(const void* address, size_t n, Step step);
void Fence(Step step);

}  // namespace nvcache::pmem::record

#endif  // NVCACHE_PMEM_RECORD_H_
