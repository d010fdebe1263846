// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/descriptors.h"

#include "src/sys/check.h"
#include "src/sys/early.h"
#include "src/sys/memory.h"
#include "src/vfs/engine/engine.h"

namespace nvcache::vfs {

namespace {

// Most programs have few: these cost no mapping.
NVCACHE_EARLY constinit std::atomic<Description*> few_meanings[kFewDescriptors] = {};

}  // namespace

void Descriptors::Open() {
  meanings_.store(few_meanings);
  count_.store(kFewDescriptors, std::memory_order_release);
}

// A thread that reads a meaning meanwhile reads it as it was before: the old ones do not change any
// more.
bool Descriptors::MakeRoomFor(uint32_t number) {
  NVCACHE_CHECK(engine.table_lock.IsLocked());
  const uint32_t count = count_.load();
  if (number < count) return true;
  if (number >= kMaxDescriptors) return false;
  auto* meanings = static_cast<Meaning*>(sys::Reserve(kMaxDescriptors * sizeof(Meaning)));
  if (meanings == nullptr) return false;
  const Meaning* old = meanings_.load();
  for (uint32_t i = 0; i < count; ++i) meanings[i].store(old[i].load());
  meanings_.store(meanings);
  count_.store(kMaxDescriptors, std::memory_order_release);
  return true;
}

void Descriptors::Set(int fd, Description* description) {
  const auto number = static_cast<uint32_t>(fd);
  NVCACHE_CHECK(engine.table_lock.IsLocked());
  if (description == kUntracked && number >= end()) return;
  if (MakeRoomFor(number)) Store(fd, description);
}

void Descriptors::Store(int fd, Description* description) {
  const auto number = static_cast<uint32_t>(fd);
  if (number >= count_.load()) return;
  uint32_t end = end_.load();
  while (end <= number && !end_.compare_exchange_weak(end, number + 1)) {
  }
  meanings_.load(std::memory_order_relaxed)[number].store(description, std::memory_order_seq_cst);
}

void Descriptors::BeginToAsk(int fd) {
  if (!sys::IsSharing()) Change(fd, kAsking);
}

void Descriptors::NotePlain(int fd) {
  if (!sys::IsSharing()) Change(fd, kPlain);
}

void Descriptors::Change(int fd, uint64_t to) {
  const auto number = static_cast<uint32_t>(fd);
  if (number >= kFewDescriptors) return;
  const uint32_t shift = number % kInWord * kAskedBits;
  std::atomic<uint64_t>& word = asked_[number / kInWord];
  uint64_t now = word.load();
  do {
    if (to == kPlain && (now >> shift & kAskedMask) != kAsking) return;
  } while (!word.compare_exchange_weak(now, (now & ~(kAskedMask << shift)) | to << shift));
}

int Descriptors::NumberOf(const Description& description) const {
  for (uint32_t fd = 0; fd < end(); ++fd) {
    if (Of(static_cast<int>(fd)) == &description) return static_cast<int>(fd);
  }
  return -1;
}

uint32_t Descriptors::CountInternal() const {
  uint32_t count = 0;
  for (uint32_t fd = 0; fd < end(); ++fd) {
    if (Of(static_cast<int>(fd)) == Internal()) ++count;
  }
  return count;
}

}  // namespace nvcache::vfs
