// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_VFS_ENGINE_MAPPINGS_H_
#define NVCACHE_VFS_ENGINE_MAPPINGS_H_

#include <atomic>
#include <cstdint>

namespace nvcache::vfs {

struct File;

// Where the program has mapped files that can be written there as soon as it asks for that
// (mprotect). A mapping that was unmapped unseen stays, until another mapping is put there. Table
// lock, but for empty().
class Mappings {
 public:
  struct Range {
    uintptr_t begin = 0, end = 0;
    bool Overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
    bool Holds(const Range& other) const { return begin <= other.begin && other.end <= end; }
  };

  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }
  // False: there is no room.
  bool Add(const Range& range, File& file) {
    Remove(range);
    const uint32_t count = count_.load();
    if (count == kMost) return false;
    entries_[count] = {range, &file};
    count_.store(count + 1);
    return true;
  }
  // The mappings that lie in the range as a whole.
  void Remove(const Range& range) {
    uint32_t count = count_.load();
    for (uint32_t i = count; i > 0; --i) {
      if (range.Holds(entries_[i - 1].range)) entries_[i - 1] = entries_[--count];
    }
    count_.store(count);
  }
  // A file that has a part of the range, and of which `counts` says yes; or nullptr.
  template <typename Condition>
  File* Find(const Range& range, Condition counts) const {
    for (uint32_t i = 0; i < count_.load(); ++i) {
      const Entry& entry = entries_[i];
      if (entry.range.Overlaps(range) && counts(*entry.file)) return entry.file;
    }
    return nullptr;
  }

 private:
  static constexpr uint32_t kMost = 64;
  struct Entry {
    Range range;
    File* file = nullptr;  // is kept (File::forever)
  };
  std::atomic<uint32_t> count_{0};
  Entry entries_[kMost] = {};
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_MAPPINGS_H_
