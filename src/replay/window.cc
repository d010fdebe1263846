// SPDX-License-Identifier: BSD-3-Clause
#include "src/replay/window.h"

#include <algorithm>
#include <cstring>

#include "src/nvlog/byte_set.h"
#include "src/sys/check.h"
#include "src/sys/memory.h"

namespace nvcache::replay {

using nvlog::Kind;

Window::~Window() {
  if (memory_ != nullptr) sys::UnmapUnlocked(memory_, sizeof(Memory));
}

bool Window::Open(bool watched) {
  watched_ = watched;
  memory_ = static_cast<Memory*>(sys::Reserve(sizeof(Memory)));
  return memory_ != nullptr;
}

void Window::Add(uint32_t file, const nvlog::RecordHeader& header, nvlog::Place place,
                 uint32_t seat) {
  uint32_t& epoch = files_[file].epoch;
  if (header.kind != Kind::kData) {
    Add({.offset = header.offset,
         .erase_length = header.length,
         .lsn = header.lsn,
         .file = file,
         .epoch = ++epoch,
         .seat = seat,
         .length = 0,
         .kind = header.kind});
    ++epoch;
    return;
  }
  const uint64_t first = header.offset / pool::kPageSize;
  const uint64_t pages = nvlog::PagesOf(header.offset, header.length);
  for (uint64_t page = first; page < first + pages; ++page) {
    const nvlog::Reader::Piece piece = reader_.PieceAt(header, place, page);
    Add({.offset = piece.offset,
         .bytes = piece.bytes,
         .lsn = header.lsn,
         .file = file,
         .epoch = epoch,
         .seat = seat,
         .length = static_cast<uint16_t>(piece.length),
         .kind = Kind::kData});
  }
}

void Window::Add(const Item& item) {
  NVCACHE_CHECK(count_ < kCapacity);
  Item* place = memory_->items + count_;
  *place = item;
  in_order_ = in_order_ && (count_ == 0 || place[-1] < item);
  bytes_held_ += item.length;
  may_end_ = !watched_ || item.unseen();
  ++count_;
}

void Window::Apply(void (*progress)(void* context, uint64_t units), void* context) {
  const Item* const end = memory_->items + count_;
  if (!in_order_) std::sort(memory_->items, memory_->items + count_);
  for (const Item* item = memory_->items; item < end;) {
    const Item* next = item + 1;
    if (item->kind != Kind::kData) {
      Change(*item);
    } else if (item->unseen() || next == end || next->unseen() || !next->IsOfPage(*item)) {
      Append(*item, item->length <= kSmall);
    } else {
      next = AppendPage(item, end);
    }
    for (; item < next; ++item) {
      progress(context, item->length == 0 ? 1 : nvlog::UnitsOf(item->length));
    }
  }
  Flush();
  count_ = 0;
  bytes_held_ = 0;
  in_order_ = true;
}

bool Window::Item::operator<(const Item& other) const {
  if (unseen() != other.unseen()) return !unseen();
  if (unseen() && lsn != other.lsn) return lsn < other.lsn;
  if (file != other.file) return file < other.file;
  if (epoch != other.epoch) return static_cast<int32_t>(epoch - other.epoch) < 0;
  if (page() != other.page()) return page() < other.page();
  return lsn != other.lsn ? lsn < other.lsn : offset < other.offset;
}

// Several records of one page, from `first` on: the newest bytes of each. Returns what follows.
const Window::Item* Window::AppendPage(const Item* first, const Item* end) {
  const Item* next = first + 1;
  while (next < end && !next->unseen() && next->kind == Kind::kData && next->IsOfPage(*first)) {
    ++next;
  }
  const uint64_t begin = first->page() * pool::kPageSize;
  nvlog::ByteSet laid;
  for (const Item* item = next; item-- > first && !laid.full();) {
    const uint64_t at = item->offset - begin;
    laid.Add(at, at + item->length, [&](size_t from, size_t to) {
      std::memcpy(memory_->page + from, item->bytes + (from - at), to - from);
    });
  }
  laid.ForEachRun([&](size_t from, size_t to) {
    Item run = *first;
    run.offset = begin + from;
    run.bytes = memory_->page + from;
    run.length = static_cast<uint16_t>(to - from);
    Append(run, true);
  });
  return next;
}

// `copy`: its bytes do not stay, or are cheaper to copy than to name.
void Window::Append(const Item& item, bool copy) {
  const bool follows = item.file == file_ && item.seat == seat_ && item.offset == offset_ + bytes_;
  const bool fits = bytes_ + item.length <= kMaxWrite && pieces_ + 1 <= kMaxPieces &&
                    copied_ + item.length <= kCopied;
  if (!follows || !fits) Flush();
  if (pieces_ == 0) {
    file_ = item.file;
    offset_ = item.offset;
  }
  if (copy) {
    Copy(item);
  } else {
    memory_->pieces[pieces_++] = {const_cast<uint8_t*>(item.bytes), item.length};
  }
  bytes_ += item.length;
  seat_ = item.seat;
  lsn_ = item.lsn;
}

void Window::Copy(const Item& item) {
  uint8_t* copy = memory_->copies + copied_;
  std::memcpy(copy, item.bytes, item.length);
  copied_ += item.length;
  iovec* next = memory_->pieces + pieces_;
  if (pieces_ > 0 && static_cast<uint8_t*>(next[-1].iov_base) + next[-1].iov_len == copy) {
    next[-1].iov_len += item.length;
  } else {
    *next = {copy, item.length};
    ++pieces_;
  }
}

void Window::Change(const Item& item) {
  Flush();
  NoteWrittenBack(item.seat, item.lsn);
  if (item.kind == Kind::kTruncate) {
    files_.Truncate(item.file, item.offset);
  } else {
    files_.Erase(item.file, item.offset, item.erase_length);
  }
}

void Window::Flush() {
  if (pieces_ > 0) {
    NoteWrittenBack(seat_, lsn_);
    files_.Write(file_, memory_->pieces, pieces_, bytes_, offset_);
  }
  pieces_ = 0;
  bytes_ = 0;
  copied_ = 0;
}

// If this process is killed as well, the next one must not show again what was there before: so it
// is told before the kernel has the bytes.
void Window::NoteWrittenBack(uint32_t seat, nvlog::Lsn lsn) const {
  if (seat != pool::kNoSeat) pool::Note(*reader_.view().written_back(seat), lsn);
}

}  // namespace nvcache::replay
