// SPDX-License-Identifier: BSD-3-Clause
#include "src/replay/window.h"

#include <algorithm>
#include <cstring>

#include "src/sys/check.h"
#include "src/sys/memory.h"

namespace nvcache::replay {

using nvlog::Kind;

Window::~Window() {
  if (memory_ != nullptr) sys::UnmapUnlocked(memory_, sizeof(Memory));
}

bool Window::Open() {
  memory_ = static_cast<Memory*>(sys::Reserve(sizeof(Memory)));
  return memory_ != nullptr;
}

void Window::Add(uint32_t file, const nvlog::RecordHeader& header, nvlog::Place place) {
  uint32_t& epoch = files_[file].epoch;
  if (header.kind != Kind::kData) {
    Add({.offset = header.offset,
         .erase_length = header.length,
         .file = file,
         .epoch = ++epoch,
         .sequence = count_,
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
         .file = file,
         .epoch = epoch,
         .sequence = count_,
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
  ++count_;
}

void Window::Apply(void (*progress)(void* context, uint64_t units), void* context) {
  const Item* end = memory_->items + count_;
  if (!in_order_) std::sort(memory_->items, memory_->items + count_);
  for (const Item* item = memory_->items; item < end; ++item) {
    if (item->kind != Kind::kData) {
      Change(*item);
    } else if (item + 1 == end || !item[1].Hides(*item)) {
      Append(*item);
    }
    progress(context, item->length == 0 ? 1 : nvlog::UnitsOf(item->length));
  }
  Flush();
  count_ = 0;
  bytes_held_ = 0;
  in_order_ = true;
}

bool Window::Item::operator<(const Item& other) const {
  if (file != other.file) return file < other.file;
  if (epoch != other.epoch) return static_cast<int32_t>(epoch - other.epoch) < 0;
  if (page() != other.page()) return page() < other.page();
  return sequence < other.sequence;
}

bool Window::Item::Hides(const Item& earlier) const {
  return file == earlier.file && epoch == earlier.epoch && page() == earlier.page() &&
         offset <= earlier.offset && offset + length >= earlier.offset + earlier.length;
}

void Window::Append(const Item& item) {
  const bool follows = item.file == file_ && item.offset == offset_ + bytes_;
  const bool fits = bytes_ + item.length <= kMaxWrite && pieces_ + 1 <= kMaxPieces &&
                    copied_ + item.length <= kCopied;
  if (!follows || !fits) Flush();
  if (pieces_ == 0) {
    file_ = item.file;
    offset_ = item.offset;
  }
  if (item.length <= kSmall) {
    Copy(item);
  } else {
    memory_->pieces[pieces_++] = {const_cast<uint8_t*>(item.bytes), item.length};
  }
  bytes_ += item.length;
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
  if (item.kind == Kind::kTruncate) {
    files_.Truncate(item.file, item.offset);
  } else {
    files_.Erase(item.file, item.offset, item.erase_length);
  }
}

void Window::Flush() {
  if (pieces_ > 0) files_.Write(file_, memory_->pieces, pieces_, bytes_, offset_);
  pieces_ = 0;
  bytes_ = 0;
  copied_ = 0;
}

}  // namespace nvcache::replay
