// SPDX-License-Identifier: BSD-3-Clause
//
// The meaning of each descriptor number of the process: an open file description of a file that
// is tracked, one of the engine's own descriptors, or nothing of ours.
#ifndef NVCACHE_VFS_ENGINE_DESCRIPTORS_H_
#define NVCACHE_VFS_ENGINE_DESCRIPTORS_H_

#include <atomic>
#include <cstdint>

#include "src/sys/sharing.h"
#include "src/vfs/engine/file.h"

namespace nvcache::vfs {

inline constexpr uint32_t kMaxDescriptors = 1u << 20;  // the kernel's own limit (fs.nr_open)
inline constexpr uint32_t kFewDescriptors = 512;       // those of the engine's own are among them

// The meanings of a number, besides a Description.
Description* const kUntracked = nullptr;
inline Description* Closing() { return reinterpret_cast<Description*>(1); }   // close() is at work
inline Description* Internal() { return reinterpret_cast<Description*>(2); }  // opened by us
inline bool IsDescription(const Description* d) { return reinterpret_cast<uintptr_t>(d) > 2; }

class Descriptors {
 public:
  constexpr Descriptors() = default;

  // Once, before any other.
  void Open();
  // Any thread may ask, without a lock. Nothing is tracked for a child that shares our memory.
  Description* Of(int fd) const { return sys::IsSharing() ? kUntracked : OfParent(fd); }
  // For such a child, which may have put something else there.
  Description* OfParent(int fd) const {
    if (static_cast<uint32_t>(fd) >= count_.load(std::memory_order_acquire)) return kUntracked;
    return meanings_.load(std::memory_order_relaxed)[fd].load(std::memory_order_acquire);
  }
  // Of(fd) has just answered that, to the same thread.
  bool IsStill(int fd, const Description* description) const {
    return meanings_.load(std::memory_order_acquire)[fd].load(std::memory_order_acquire) ==
           description;
  }
  // Table lock.
  void Set(int fd, Description* description);
  // Without it: for numbers of ours only.
  void Store(int fd, Description* description);
  // Whether there is room for that number, and all below. Table lock.
  bool MakeRoomFor(uint32_t number);
  // No number at or above was ever set.
  uint32_t end() const { return end_.load(std::memory_order_relaxed); }
  // One of the description's; -1: it has none. Table lock.
  int NumberOf(const Description& description) const;
  // The kernel has said of what is untracked there that no write by it promises durability. That
  // stays so while it is open. No lock.
  bool IsPlain(int fd) const { return (AskedOf(fd) & kPlain) != 0; }
  // The kernel is about to be asked. Its answer counts unless what is open there is closed
  // meanwhile.
  void BeginToAsk(int fd);
  void NotePlain(int fd);
  // Before it is closed, or where the answer is another one.
  void ForgetPlain(int fd) {
    if (AskedOf(fd) != 0) [[unlikely]]
      Change(fd, 0);
  }

  // The engine's own. No lock.
  uint32_t CountInternal() const;
  // From now on nothing is tracked: the open files are another process's, too.
  void LeaveInChild() { count_.store(0); }

 private:
  using Meaning = std::atomic<Description*>;

  static constexpr uint64_t kAsking = 1, kPlain = 2, kAskedMask = 3;
  static constexpr uint32_t kAskedBits = 2, kInWord = 64 / kAskedBits;

  // Zero above kFewDescriptors.
  uint64_t AskedOf(int fd) const {
    const auto number = static_cast<uint32_t>(fd);
    if (number >= kFewDescriptors) return 0;
    return asked_[number / kInWord].load() >> number % kInWord * kAskedBits & kAskedMask;
  }
  // Not to kPlain but from kAsking.
  void Change(int fd, uint64_t to);

  std::atomic<uint32_t> count_{0};
  std::atomic<Meaning*> meanings_{nullptr};
  std::atomic<uint32_t> end_{0};
  std::atomic<uint64_t> asked_[kFewDescriptors / kInWord] = {};
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_DESCRIPTORS_H_
