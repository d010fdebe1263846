// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/scratch.h"

#include <atomic>
#include <bit>
#include <cstdint>

#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/lock.h"
#include "src/sys/memory.h"

namespace nvcache::sys {

namespace {

// The first ones are there without a call of the kernel's, which may have no memory: most programs
// need no others, and each call comes to its end.
constexpr size_t kFirst = 8;
alignas(64) constinit uint8_t first_blocks[kFirst * kScratchSize] = {};
constexpr uint64_t kNoneOfFirst = ~uint64_t{0} << kFirst;
constinit std::atomic<uint64_t> first_in_use{kNoneOfFirst};

// A bit for each block: in use. The lowest free one is taken, so that few blocks are ever used.
constexpr size_t kWords = 8;
constexpr size_t kBlocksPerWord = 64;
constexpr size_t kBytes = kWords * kBlocksPerWord * kScratchSize;  // 8 MiB
constinit std::atomic<uint64_t> in_use[kWords] = {};
constinit std::atomic<uint8_t*> blocks{nullptr};

// Between two looks for a block, while the kernel refuses memory.
constexpr uint64_t kRetryNs = 1000 * 1000;

// Takes one of 64 blocks, the first of which lies at `first`.
void* TakeOf(std::atomic<uint64_t>& word, uint8_t* first) {
  uint64_t seen = word.load(std::memory_order_relaxed);
  while (seen != ~uint64_t{0}) {
    const int bit = std::countr_one(seen);
    if (word.compare_exchange_weak(seen, seen | uint64_t{1} << bit, std::memory_order_acquire,
                                   std::memory_order_relaxed)) {
      return first + static_cast<size_t>(bit) * kScratchSize;
    }
  }
  return nullptr;
}

void* TakeBlock() {
  if (void* block = TakeOf(first_in_use, first_blocks); block != nullptr) return block;
  if (!OpenScratch()) return nullptr;
  uint8_t* first = blocks.load(std::memory_order_relaxed);
  for (auto& word : in_use) {
    if (void* block = TakeOf(word, first); block != nullptr) return block;
    first += kBlocksPerWord * kScratchSize;
  }
  return nullptr;
}

void GiveTo(std::atomic<uint64_t>& word, size_t number) {
  word.fetch_and(~(uint64_t{1} << number), std::memory_order_release);
}

// At the low end of a stack: a function that has taken more has stored something else there.
constexpr uint64_t kMark = 0x6e76636163686521;
constexpr size_t kMarks = 8;

extern "C" void nvcache_call_on(void (*function)(void*), void* argument, void* stack_end);
// clang-format off
asm(".text\n"
    ".globl nvcache_call_on\n"
    ".hidden nvcache_call_on\n"
    ".type nvcache_call_on, @function\n"
    "nvcache_call_on:\n"
    "  .cfi_startproc\n"
    "  push %rbp\n"
    "  .cfi_def_cfa_offset 16\n"
    "  .cfi_offset rbp, -16\n"
    "  mov %rsp, %rbp\n"
    "  .cfi_def_cfa_register rbp\n"
    "  mov %rdx, %rsp\n"
    "  mov %rdi, %rax\n"
    "  mov %rsi, %rdi\n"
    "  call *%rax\n"
    "  mov %rbp, %rsp\n"
    "  pop %rbp\n"
    "  .cfi_def_cfa rsp, 8\n"
    "  ret\n"
    "  .cfi_endproc\n"
    ".size nvcache_call_on, .-nvcache_call_on\n");
// clang-format on

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
    void* block = TakeBlock();
    if (block != nullptr) return block;
    const long more =
        Mmap(nullptr, kScratchSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!IsError(more)) return reinterpret_cast<void*>(more);
    Word word{0};
    FutexWait(&word, 0, kRetryNs);
  }
}

void GiveScratch(void* block) {
  const auto of = [block](const uint8_t* first) {
    return (reinterpret_cast<uintptr_t>(block) - reinterpret_cast<uintptr_t>(first)) / kScratchSize;
  };
  if (const size_t number = of(first_blocks); number < kFirst) {
    GiveTo(first_in_use, number);
  } else if (const size_t later = of(blocks.load(std::memory_order_relaxed));
             later < kWords * kBlocksPerWord) {
    GiveTo(in_use[later / kBlocksPerWord], later % kBlocksPerWord);
  } else {
    Munmap(block, kScratchSize);
  }
}

void RunOnScratch(void (*function)(void*), void* argument) {
  auto* block = static_cast<uint8_t*>(TakeScratch());
  auto* marks = reinterpret_cast<volatile uint64_t*>(block);
  for (size_t i = 0; i < kMarks; ++i) marks[i] = kMark;
  nvcache_call_on(function, argument, block + kScratchSize);
  for (size_t i = 0; i < kMarks; ++i) NVCACHE_CHECK(marks[i] == kMark);
  GiveScratch(block);
}

void ForgetScratch() {
  // The kernel copies a page that a child writes to.
  const auto set = [](std::atomic<uint64_t>& word, uint64_t value) {
    if (word.load(std::memory_order_relaxed) != value) word.store(value, std::memory_order_relaxed);
  };
  set(first_in_use, kNoneOfFirst);
  for (auto& word : in_use) set(word, 0);
}

}  // namespace nvcache::sys
