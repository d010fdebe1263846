// SPDX-License-Identifier: BSD-3-Clause
//
// A bounded supply of objects of one type, named by 32-bit numbers (I14). The address space is
// reserved at start, memory is used as objects are, and an object's memory is never anything else:
// a stale number still names an object of this type, whose lock word still is a lock.
#ifndef NVCACHE_SYS_ARENA_H_
#define NVCACHE_SYS_ARENA_H_

#include <cstddef>
#include <cstdint>

#include "src/sys/check.h"
#include "src/sys/lock.h"
#include "src/sys/memory.h"

namespace nvcache::sys {

// The number of no object.
inline constexpr uint32_t kNone = ~uint32_t{0};

// T must be usable when all its bytes are zero. An object that was freed is handed out again as it
// was left: the caller of Free clears it.
template <typename T>
class Arena {
 public:
  // `large`: in large pages, of which the first object takes a whole one, and the time to clear it.
  bool Open(uint32_t capacity, bool large = true) {
    NVCACHE_CHECK(objects_ == nullptr && capacity < kNone);
    const size_t bytes = size_t{capacity} * sizeof(T);
    objects_ = static_cast<T*>(large ? ReserveLarge(bytes) : Reserve(bytes));
    free_ = static_cast<uint32_t*>(Reserve(size_t{capacity} * sizeof(uint32_t)));
    if (objects_ == nullptr || free_ == nullptr) {
      Close();
      return false;
    }
    capacity_ = capacity;
    return true;
  }
  void Close() {
    if (objects_ != nullptr) UnmapUnlocked(objects_, size_t{capacity_} * sizeof(T));
    if (free_ != nullptr) UnmapUnlocked(free_, size_t{capacity_} * sizeof(uint32_t));
    objects_ = nullptr;
    free_ = nullptr;
    capacity_ = used_ = free_count_ = 0;
  }

  // The number of an object, or kNone when all are in use.
  uint32_t Allocate() {
    Lock lock(mutex_);
    if (free_count_ > 0) return free_[--free_count_];
    return used_ < capacity_ ? used_++ : kNone;
  }
  void Free(uint32_t index) {
    Lock lock(mutex_);
    NVCACHE_CHECK(index < used_ && free_count_ < used_);
    free_[free_count_++] = index;
  }

  T& operator[](uint32_t index) { return objects_[index]; }
  const T& operator[](uint32_t index) const { return objects_[index]; }
  uint32_t IndexOf(const T* object) const { return static_cast<uint32_t>(object - objects_); }
  uint32_t capacity() const { return capacity_; }
  uint32_t Available() {
    Lock lock(mutex_);
    return capacity_ - used_ + free_count_;
  }

 private:
  Mutex<Rank::kArena> mutex_;
  T* objects_ = nullptr;
  uint32_t* free_ = nullptr;
  uint32_t capacity_ = 0;
  uint32_t used_ = 0;        // objects below were handed out at least once
  uint32_t free_count_ = 0;  // elements of free_
};

// An arena in two parts. The first is there anyway, and the second is reserved when it is needed:
// an arena of few objects has no mapping for them, which each fork would copy. One call at a time.
template <typename T>
class GrowingArena {
 public:
  // `few` objects, all zero, and the room for as many numbers.
  void Open(T* first, uint32_t* first_free, uint32_t few, uint32_t capacity) {
    NVCACHE_CHECK(first_ == nullptr && few <= capacity && capacity < kNone);
    first_ = first;
    free_ = first_free;
    few_ = few;
    capacity_ = capacity;
  }

  // Returns kNone, too, if there is no address space for the second part.
  uint32_t Allocate() {
    if (free_count_ > 0) return free_[--free_count_];
    if (used_ >= few_ && rest_ == nullptr && (used_ == capacity_ || !Grow())) return kNone;
    return used_ < capacity_ ? used_++ : kNone;
  }
  void Free(uint32_t index) {
    NVCACHE_CHECK(index < used_ && free_count_ < used_);
    free_[free_count_++] = index;
  }

  bool empty() const { return used_ == free_count_; }
  T& operator[](uint32_t index) { return index < few_ ? first_[index] : rest_[index - few_]; }
  uint32_t IndexOf(const T* object) const {
    const bool early = object >= first_ && object < first_ + few_;
    return static_cast<uint32_t>(early ? object - first_ : object - rest_ + few_);
  }

 private:
  bool Grow() {
    const size_t rest = size_t{capacity_ - few_} * sizeof(T);
    const size_t numbers = size_t{capacity_} * sizeof(uint32_t);
    auto* memory = static_cast<uint8_t*>(Reserve(rest + numbers));
    if (memory == nullptr) return false;
    auto* free = reinterpret_cast<uint32_t*>(memory + rest);
    for (uint32_t i = 0; i < free_count_; ++i) free[i] = free_[i];
    free_ = free;
    rest_ = reinterpret_cast<T*>(memory);
    return true;
  }

  static_assert(sizeof(T) % alignof(uint32_t) == 0);

  T* first_ = nullptr;
  T* rest_ = nullptr;
  uint32_t* free_ = nullptr;
  uint32_t few_ = 0;
  uint32_t capacity_ = 0;
  uint32_t used_ = 0;        // objects below were handed out at least once
  uint32_t free_count_ = 0;  // elements of free_
};

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_ARENA_H_
