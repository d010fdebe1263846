// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/scratch.h"

#include <atomic>
#include <bit>
#include <cstdint>

#include "src/sys/kernel.h"
#include "src/sys/lock.h"
#include "src/sys/memory.h"

namespace nvcache::sys {

namespace {

// A bit for each block: in use. The lowest free one is taken, so that what is used stays little.
constexpr size_t kWords = 8;
constexpr size_t kBlocksPerWord = 64;
constexpr size_t kBytes = kWords * kBlocksPerWord * kScratchSize;  // 8 MiB
constinit std::atomic<uint64_t> in_use[kWords] = {};
constinit std::atomic<uint8_t*> blocks{nullptr};

// Between two looks for a block, while the kernel refuses memory.
constexpr uint64_t kRetryNs = 1000 * 1000;

void* TakeBlock() {
  for (size_t word = 0; word < kWords; ++word) {
    uint64_t seen = in_use[word].load(std::memory_order_relaxed);
    while (seen != ~uint64_t{0}) {
      const int bit = std::countr_one(seen);
      if (in_use[word].compare_exchange_weak(seen, seen | uint64_t{1} << bit,
                                             std::memory_order_acquire,
                                             std::memory_order_relaxed)) {
        return blocks.load(std::memory_order_relaxed) +
               (word * kBlocksPerWord + static_cast<size_t>(bit)) * kScratchSize;
      }
    }
  }
  return nullptr;
}

}  // namespace

bool OpenScratch() {
  if (blocks.load(std::memory_order_acquire) != nullptr) return true;
  auto* memory = static_cast<uint8_t*>(Reserve(kBytes));
  uint8_t* none = nullptr;
  if (memory != nullptr && !blocks.compare_exchange_strong(none, memory)) {
    UnmapUnlocked(memory, kBytes);
  }
  return blocks.load(std::memory_order_acquire) != nullptr;
}

void* TakeScratch() {
  for (;;) {
    void* block = OpenScratch() ? TakeBlock() : nullptr;
    if (block != nullptr) return block;
    const long more =
        Mmap(nullptr, kScratchSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!IsError(more)) return reinterpret_cast<void*>(more);
    Word word{0};
    FutexWait(&word, 0, kRetryNs);
  }
}

void GiveScratch(void* block) {
  const auto offset = reinterpret_cast<uintptr_t>(block) -
                      reinterpret_cast<uintptr_t>(blocks.load(std::memory_order_relaxed));
  if (offset >= kBytes) {
    Munmap(block, kScratchSize);
    return;
  }
  const size_t number = offset / kScratchSize;
  const uint64_t bit = uint64_t{1} << number % kBlocksPerWord;
  in_use[number / kBlocksPerWord].fetch_and(~bit, std::memory_order_release);
}

void ForgetScratch() {
  for (auto& word : in_use) word.store(0, std::memory_order_relaxed);
}

}  // namespace nvcache::sys
