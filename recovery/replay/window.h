// SPDX-License-Identifier: BSD-3-Clause
//
// A run of committed entries, a bounded number of them, brought to their files page by page instead
// of one by one: what is next to each other in a file is written by one call.
#ifndef NVCACHE_RECOVERY_REPLAY_WINDOW_H_
#define NVCACHE_RECOVERY_REPLAY_WINDOW_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "recovery/replay/files.h"
#include "src/nvlog/reader.h"

namespace nvcache::recovery {

class Window {
 public:
  Window(const nvlog::Reader& reader, Files& files) : reader_(reader), files_(files) {}
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // False without memory.
  bool Open();

  // It should be applied before `entries` more are added: it is full, or nothing is gained by going
  // on, because they come in order anyway.
  bool IsEnough(uint32_t entries) const {
    return count_ + entries > kCapacity || (in_order_ && bytes_held_ >= kEnough);
  }
  // A committed entry of a good file, after all that are in the log before it.
  void Add(const nvlog::EntryHeader& header);

  // Writes all of them and forgets them. Where two overlap, the later one stays. Files that refuse
  // get no more. `progress(context, units)` is told how many units of the log were dealt with.
  void Apply(void (*progress)(void* context, uint64_t units), void* context);

 private:
  // Entries overlap only within a page, so the order of the log matters only there.
  struct Item {
    uint64_t page;
    nvlog::Position position;
    uint32_t slot;
    uint16_t begin;  // within the page
    uint16_t length;

    uint64_t offset() const { return page * pool::kPageSize + begin; }
    bool operator<(const Item& other) const;
    bool Hides(const Item& earlier) const;
  };
  static constexpr uint32_t kCapacity = 1u << 18;  // 1 GiB of whole pages; 6 MiB of memory
  static_assert(kCapacity >= nvlog::kMaxGroupEntries);
  static constexpr uint64_t kEnough = 1u << 20;  // what was checked is still in the caches then
  static constexpr int kMaxPieces = 1024;        // the kernel's limit (UIO_MAXIOV)
  static constexpr size_t kMaxWrite = 1u << 20;
  static constexpr size_t kSmall = 1024;  // cheaper to copy than to name
  static constexpr size_t kCopied = 128u << 10;

  void Append(const Item& item);
  void Copy(const Item& item);
  void Flush();

  struct Memory {
    Item items[kCapacity];
    iovec pieces[kMaxPieces];
    uint8_t copies[kCopied];
  };

  const nvlog::Reader& reader_;
  Files& files_;
  Memory* memory_ = nullptr;
  uint32_t count_ = 0;
  uint64_t bytes_held_ = 0;
  bool in_order_ = true;

  // The write that is being put together.
  uint32_t slot_ = 0;
  uint64_t offset_ = 0;
  size_t bytes_ = 0;
  int pieces_ = 0;
  size_t copied_ = 0;
};

}  // namespace nvcache::recovery

#endif  // NVCACHE_RECOVERY_REPLAY_WINDOW_H_
