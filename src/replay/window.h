// SPDX-License-Identifier: BSD-3-Clause
//
// A run of committed records, a bounded number of pages of them, brought to their files page by
// page instead of one by one: bytes next to each other in a file are written by one call.
#ifndef NVCACHE_REPLAY_WINDOW_H_
#define NVCACHE_REPLAY_WINDOW_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "src/nvlog/reader.h"
#include "src/replay/files.h"

namespace nvcache::replay {

class Window {
 public:
  Window(const nvlog::Reader& reader, Files& files) : reader_(reader), files_(files) {}
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // False without memory.
  bool Open();

  // As many items Add() takes for a record.
  static uint64_t ItemsOf(const nvlog::RecordHeader& header) {
    const bool data = header.kind == nvlog::Kind::kData;
    return data ? nvlog::PagesOf(header.offset, header.length) : 1;
  }
  // It should be applied before `items` more are added: it is full, or nothing is gained by going
  // on, because they come in order anyway.
  bool IsEnough(uint64_t items) const {
    return count_ + items > kCapacity || (in_order_ && bytes_held_ >= kEnough);
  }
  // A committed record of a good file, after all that come before it: data, a truncation or an
  // erasure. Its payload must stay until it is applied.
  void Add(uint32_t file, const nvlog::RecordHeader& header, nvlog::Place place);

  // Applies all of them and forgets them. Where two overlap, the later one stays. Files that refuse
  // get no more. `progress(context, units)` is told how many units of the log were dealt with.
  void Apply(void (*progress)(void* context, uint64_t units), void* context);

 private:
  // The bytes of one page, or a truncation or an erasure. Data overlaps only within a page, so the
  // order of the log matters only there. But data before a truncation or an erasure of its file
  // stays before it, and data behind it, behind: each is an epoch of its own.
  struct Item {
    uint64_t offset;
    union {
      const uint8_t* bytes;   // kData
      uint64_t erase_length;  // kErase
    };
    uint32_t file;
    uint32_t epoch;
    uint32_t sequence;
    uint16_t length;  // kData
    nvlog::Kind kind;

    uint64_t page() const { return offset / pool::kPageSize; }
    bool operator<(const Item& other) const;
    bool Hides(const Item& earlier) const;
  };
  static_assert(sizeof(Item) == 32);
  static constexpr uint32_t kCapacity = 1u << 18;  // 1 GiB of whole pages; 8 MiB of memory
  static_assert(kCapacity >= nvlog::kMaxGroupRecords * nvlog::kMaxGroupPages);
  static constexpr uint64_t kEnough = 1u << 20;  // checked bytes are still in the caches then
  static constexpr int kMaxPieces = 1024;        // the kernel's limit (UIO_MAXIOV)
  static constexpr size_t kMaxWrite = 1u << 20;
  static constexpr size_t kSmall = 1024;  // cheaper to copy than to name
  static constexpr size_t kCopied = 128u << 10;

  void Add(const Item& item);
  void Append(const Item& item);
  void Copy(const Item& item);
  void Change(const Item& item);
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
  uint32_t file_ = 0;
  uint64_t offset_ = 0;
  size_t bytes_ = 0;
  int pieces_ = 0;
  size_t copied_ = 0;
};

}  // namespace nvcache::replay

#endif  // NVCACHE_REPLAY_WINDOW_H_
