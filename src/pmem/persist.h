// SPDX-License-Identifier: BSD-3-Clause
//
// The three instructions of persistent memory, by the names of the literature (J. Izraelevitz et
// al., "Linearizability of Persistent Memory Objects", DISC 2016):
//
//   PWB     starts to write a cache line back to memory; returns at once
//   PFENCE  orders the PWBs before it before the stores and PWBs after it
//   PSYNC   as PFENCE, and waits until the PWBs before it have reached the persistence domain
//
// On x86-64, PWB is CLWB, CLFLUSHOPT or CLFLUSH, whichever the processor has; PFENCE and PSYNC are
// both SFENCE (the memory controller's write queue is within the persistence domain, ADR).
#ifndef NVCACHE_PMEM_PERSIST_H_
#define NVCACHE_PMEM_PERSIST_H_

#include <cstddef>
#include <cstdint>

#include "src/pmem/libpmem.h"

namespace nvcache::pmem {

inline constexpr size_t kLine = 64;  // bytes of a cache line

enum class WriteBack { kClflush, kClflushopt, kClwb };

// What this processor's PWB is.
WriteBack BestWriteBack();

// Chooses the instruction and the copy routine. Called before any other function here, by one
// thread. `libpmem` may be null.
void Initialize(const Libpmem* libpmem);

// Of every line that [address, address + n) touches.
void Pwb(const void* address, size_t n);

inline void Pfence() { asm volatile("sfence" ::: "memory"); }
inline void Psync() { asm volatile("sfence" ::: "memory"); }

// memcpy into a pool, with the PWBs included: after a PFENCE or PSYNC the bytes are ordered or
// durable. Large copies go around the cache. `destination` and `source` must not overlap.
void Copy(void* destination, const void* source, size_t n);

// Maps the pages of [address, address + n) for writing now, so that nobody takes a page fault there
// later. Where the kernel cannot (before 5.14), nothing happens.
void Prefault(void* address, size_t n);

}  // namespace nvcache::pmem

#endif  // NVCACHE_PMEM_PERSIST_H_
