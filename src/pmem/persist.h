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
// both SFENCE (the memory controller's write queue is within the persistence domain, ADR). They
// order the PWBs of their own thread only.
//
// All that the engine and recovery store in a pool goes through here, so that the tests of crash
// states see it (record.h). Stores to one line become durable in the order of these calls.
#ifndef NVCACHE_PMEM_PERSIST_H_
#define NVCACHE_PMEM_PERSIST_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "src/pmem/marks.h"
#include "src/pmem/step.h"
#include "src/sys/user_stream.h"
#ifdef NVCACHE_RECORD
#include "src/pmem/record.h"
#endif

namespace nvcache::pmem {

inline constexpr size_t kLine = 64;  // bytes of a cache line

// kMark: of memory with a journal; see below.
enum class WriteBack { kClflush, kClflushopt, kClwb, kMark };

// The instruction that is this processor's PWB.
WriteBack BestWriteBack();

// Chooses the instruction. A thread calls it before any other function here.
void Initialize();

// Memory that has a journal on a disk (docs/disk.md). There, PWB marks the lines, and whoever
// writes the journal takes the marks. PSYNC waits for the journal; but not that of a commit, or of
// what a commit begins with: whoever has to know that his groups are in the journal waits for
// himself. Nor does PsyncOfHeader: what the journal has of the pool's header is in the order of the
// stores, and no older than anything else that it has.
struct Journaled {
  uint8_t* base;
  size_t size;
  Marks marks;
  void (*await)(void* context);  // until all that was marked before is in the journal
  void* context;
};
// From now on this process stores to such a memory, until EndMarking of the same context, or until
// it begins with another one. No thread stores to any other pool meanwhile.
void BeginMarking(const Journaled& journaled);
void EndMarking(const void* context);

// The work of the functions below; only they call these.
void WriteBackLines(const void* address, size_t n);
bool CopyByParts(void* destination, const void* source, size_t n, void* copy, uint32_t* crc);
bool CopyAndMark(void* destination, const void* source, size_t n, void* copy, uint32_t* crc);
extern constinit std::atomic<bool> marks_lines;
constexpr bool AwaitsJournal(Step step) {
  return step != Step::kCommitted && step != Step::kSegmentTaken;
}

// Waits until all that was stored and written back before is in the journal, if there is one.
void AwaitJournal();

// Copy takes so many bytes at most.
inline constexpr size_t kMaxCopy = 4096;

#ifndef NVCACHE_RECORD

// Writes back every line that [address, address + n) touches.
inline void Pwb(const void* address, size_t n, Step) { WriteBackLines(address, n); }
inline void Pfence(Step) { asm volatile("sfence" ::: "memory"); }
inline void Psync(Step step) {
  asm volatile("sfence" ::: "memory");
  if (AwaitsJournal(step)) AwaitJournal();
}
// After stores to the header, before others to the pool. Where nobody may be told before the header
// is durable, the caller awaits the journal.
inline void PsyncOfHeader(Step) { asm volatile("sfence" ::: "memory"); }

// Copies 1 to kMaxCopy bytes, of the program's or our own, around the cache: after a PFENCE or
// PSYNC they are ordered or durable. `destination` begins a line; zeros fill the last one up. Each
// byte is read once. The bytes go to `copy`, too, unless it is null, and `*crc` goes on over them
// as in sys::Crc32c. False: a byte cannot be read, and the bytes stored here and there are
// anything.
inline bool Copy(void* destination, const void* source, size_t n, void* copy, uint32_t* crc, Step) {
  if (marks_lines.load(std::memory_order_relaxed)) [[unlikely]] {
    return CopyAndMark(destination, source, n, copy, crc);
  }
  return sys::CanStreamUser() ? sys::StreamUser(destination, source, n, copy, crc)
                              : CopyByParts(destination, source, n, copy, crc);
}

// One store, after all before it and before all after it: also in the compiler's eyes, to which a
// release alone would let later stores pass.
template <typename Integer>
inline void Store(Integer& field, Integer value) {
  std::atomic_ref(field).store(value, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}
// Stores in any order among themselves; after all before them and before all after them.
inline void StoreBytes(void* destination, const void* source, size_t n) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(destination, source, n);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}
inline void Fill(void* destination, uint8_t byte, size_t n) { std::memset(destination, byte, n); }

// Counters, which nothing depends on.
inline void Add(uint64_t& counter, uint64_t n) {
  std::atomic_ref(counter).fetch_add(n, std::memory_order_relaxed);
}
inline void Note(uint64_t& counter, uint64_t value) {
  std::atomic_ref(counter).store(value, std::memory_order_relaxed);
}

#else  // the same, for tests/crash

inline void Pwb(const void* address, size_t n, Step step) { record::Pwb(address, n, step); }
inline void Pfence(Step step) { record::Fence(step); }
inline void Psync(Step step) { record::Fence(step); }
inline void PsyncOfHeader(Step step) { record::Fence(step); }
inline bool Copy(void* destination, const void* source, size_t n, void* copy, uint32_t* crc,
                 Step step) {
  return record::Copy(destination, source, n, copy, crc, step);
}
template <typename Integer>
inline void Store(Integer& field, Integer value) {
  record::Store(&field, &value, sizeof(value));
}
inline void StoreBytes(void* destination, const void* source, size_t n) {
  record::Store(destination, source, n);
}
inline void Fill(void* destination, uint8_t byte, size_t n) { record::Fill(destination, byte, n); }
inline void Add(uint64_t& counter, uint64_t n) { record::Add(&counter, n); }
inline void Note(uint64_t& counter, uint64_t value) {
  record::Store(&counter, &value, sizeof(value));
}

#endif

// Brings the line at `address` into the cache, to be written soon.
inline void FetchForWriting(const void* address) {
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
}

// Maps the pages of [address, address + n) for writing now, so that nobody takes a page fault there
// later. Where the kernel cannot (before 5.14), nothing happens.
void Prefault(void* address, size_t n);

}  // namespace nvcache::pmem

#endif  // NVCACHE_PMEM_PERSIST_H_
