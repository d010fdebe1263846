// SPDX-License-Identifier: BSD-3-Clause
//
// Memory for data that is too large for a stack.
//
// The engine runs on the program's stacks, and these may be as small as libc allows (16 KiB), or an
// alternate one for signals (8 KiB). So no path takes more than 2 KiB of them, and no function has
// a large array there: it takes a block of scratch memory for as long as it needs one.
//
// Blocks are taken and given back by one atomic operation each, in handlers as well. They never
// fault, so a fault in a copy is always the program's (user_copy.h).
#ifndef NVCACHE_SYS_SCRATCH_H_
#define NVCACHE_SYS_SCRATCH_H_

#include <cstddef>
#include <new>

namespace nvcache::sys {

// Bytes of a block: an array of IOV_MAX pieces.
inline constexpr size_t kScratchSize = size_t{16} << 10;

// Reserves all blocks but the first few. None is there before it is used. Taking one reserves them,
// too, so this call only says early whether there is the address space.
bool OpenScratch();

// A block of kScratchSize bytes, as its last user has left it. Does not fail: when all blocks are
// in use, and the kernel has no memory for another one, it waits for one.
void* TakeScratch();
void GiveScratch(void* block);

// Calls function(argument) with a block as its stack. The caller blocks all signals, for there is
// no room for a handler. Where the function takes more than the block, the process ends. Not in a
// child that shares memory: only by the thread's own stack can such children be told apart.
void RunOnScratch(void (*function)(void*), void* argument);

// In a child of fork, in which nobody uses any.
void ForgetScratch();

// One T in a block, which is taken when it is asked for first.
template <typename T>
class Scratch {
  static_assert(sizeof(T) <= kScratchSize);
  static_assert(alignof(T) <= 64);

 public:
  Scratch() = default;
  ~Scratch() {
    if (object_ == nullptr) return;
    object_->~T();
    GiveScratch(object_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* get() {
    if (object_ == nullptr) object_ = new (TakeScratch()) T;
    return object_;
  }
  T& operator*() { return *get(); }
  T* operator->() { return get(); }

 private:
  T* object_ = nullptr;
};

// `n` of them, which have no constructor.
template <typename T, size_t n>
class Scratch<T[n]> {
  static_assert(sizeof(T[n]) <= kScratchSize);

 public:
  Scratch() = default;
  ~Scratch() {
    if (first_ != nullptr) GiveScratch(first_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* get() {
    if (first_ == nullptr) first_ = static_cast<T*>(TakeScratch());
    return first_;
  }
  static constexpr size_t size() { return n; }

 private:
  T* first_ = nullptr;
};

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_SCRATCH_H_
