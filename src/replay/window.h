// SPDX-License-Identifier: BSD-3-Clause
//
// A run of committed records, a bounded number of pages of them, brought to their files page by
// page instead of one by one: bytes next to each other in a file are written by one call, and each
// byte once.
//
// Where others may look at the files meanwhile, what the kernel has never had goes there record by
// record, in the order of the log, behind the rest. What it has had stays as it is for them: no
// older byte comes back, as each is written once.
#ifndef NVCACHE_REPLAY_WINDOW_H_
#define NVCACHE_REPLAY_WINDOW_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "src/nvlog/reader.h"
#include "src/pool/seats.h"
#include "src/replay/files.h"

namespace nvcache::replay {

class Window {
 public:
  Window(const nvlog::Reader& reader, Files& files) : reader_(reader), files_(files) {}
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // False without memory. `watched`: others may look at the files.
  bool Open(bool watched);

  // How many items Add() takes for a record.
  static uint64_t ItemsOf(const nvlog::RecordHeader& header) {
    const bool data = header.kind == nvlog::Kind::kData;
    return data ? nvlog::PagesOf(header.offset, header.length) : 1;
  }
  // It should be applied before `items` more are added: it is full, or nothing is gained by going
  // on, because they come in order anyway.
  bool IsEnough(uint64_t items) const {
    return count_ + items > kCapacity || (may_end_ && in_order_ && bytes_held_ >= kEnough);
  }
  // A committed record of a good file, after all that come before it: data, a truncation or an
  // erasure. Its payload must stay until it is applied. `seat`: others look, and the kernel may
  // never have had the record, nor any later one of this seat: how far it has them is noted. Or
  // kNoSeat.
  void Add(uint32_t file, const nvlog::RecordHeader& header, nvlog::Place place, uint32_t seat);

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
    nvlog::Lsn lsn;
    uint32_t file;
    uint32_t epoch;
    uint32_t seat;
    uint16_t length;  // kData
    nvlog::Kind kind;

    bool unseen() const { return seat != pool::kNoSeat; }

    uint64_t page() const { return offset / pool::kPageSize; }
    bool operator<(const Item& other) const;
    bool IsOfPage(const Item& other) const {
      return file == other.file && epoch == other.epoch && page() == other.page();
    }
  };
  static_assert(sizeof(Item) == 40);
  static constexpr uint32_t kCapacity = 1u << 18;  // 1 GiB of whole pages; 10 MiB of memory
  static_assert(kCapacity >= nvlog::kMaxGroupRecords * nvlog::kMaxGroupPages);
  static constexpr uint64_t kEnough = 1u << 20;  // checked bytes are still in the caches then
  static constexpr int kMaxPieces = 1024;        // the kernel's limit (UIO_MAXIOV)
  static constexpr size_t kMaxWrite = 1u << 20;
  static constexpr size_t kSmall = 1024;  // cheaper to copy than to name
  static constexpr size_t kCopied = 128u << 10;

  void Add(const Item& item);
  const Item* AppendPage(const Item* item, const Item* end);
  void Append(const Item& item, bool copy);
  void Copy(const Item& item);
  void Change(const Item& item);
  void Flush();
  void NoteWrittenBack(uint32_t seat, nvlog::Lsn lsn) const;

  struct Memory {
    Item items[kCapacity];
    iovec pieces[kMaxPieces];
    uint8_t copies[kCopied];
    uint8_t page[pool::kPageSize];
  };

  const nvlog::Reader& reader_;
  Files& files_;
  Memory* memory_ = nullptr;
  uint32_t count_ = 0;
  uint64_t bytes_held_ = 0;
  bool in_order_ = true;
  bool watched_ = false;
  // Records that the kernel has had must be together: an older byte of one window would be to be
  // seen until the next one.
  bool may_end_ = true;

  // The write that is being put together.
  uint32_t file_ = 0;
  uint64_t offset_ = 0;
  size_t bytes_ = 0;
  int pieces_ = 0;
  size_t copied_ = 0;
  // Its last record.
  uint32_t seat_ = pool::kNoSeat;
  nvlog::Lsn lsn_ = 0;
};

}  // namespace nvcache::replay

#endif  // NVCACHE_REPLAY_WINDOW_H_
