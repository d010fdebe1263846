// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/replay/window.h"

#include <algorithm>
#include <cstring>

#include "src/sys/arena.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"

namespace nvcache::recovery {

Window::~Window() {
  if (memory_ != nullptr) sys::UnmapUnlocked(memory_, sizeof(Memory));
}

bool Window::Open() {
  memory_ = static_cast<Memory*>(sys::Reserve(sizeof(Memory)));
  return memory_ != nullptr;
}

void Window::Add(const nvlog::EntryHeader& header) {
  NVCACHE_CHECK(count_ < kCapacity);
  Item* item = memory_->items + count_;
  *item = {header.offset / pool::kPageSize, header.position, header.file,
           static_cast<uint16_t>(header.offset % pool::kPageSize),
           static_cast<uint16_t>(header.length)};
  in_order_ = in_order_ && (count_ == 0 || item[-1] < *item);
  bytes_held_ += header.length;
  ++count_;
}

void Window::Apply(void (*progress)(void* context, uint64_t units), void* context) {
  const Item* end = memory_->items + count_;
  if (!in_order_) std::sort(memory_->items, memory_->items + count_);
  for (const Item* item = memory_->items; item < end; ++item) {
    if (item + 1 == end || !item[1].Hides(*item)) Append(*item);
    progress(context, nvlog::EntryUnits(item->length));
  }
  Flush();
  count_ = 0;
  bytes_held_ = 0;
  in_order_ = true;
}

bool Window::Item::operator<(const Item& other) const {
  if (slot != other.slot) return slot < other.slot;
  if (page != other.page) return page < other.page;
  return position < other.position;
}

bool Window::Item::Hides(const Item& earlier) const {
  return slot == earlier.slot && page == earlier.page && begin <= earlier.begin &&
         begin + length >= earlier.begin + earlier.length;
}

void Window::Append(const Item& item) {
  const bool follows = item.slot == slot_ && item.offset() == offset_ + bytes_;
  const bool fits = bytes_ + item.length <= kMaxWrite && pieces_ + 2 <= kMaxPieces &&
                    copied_ + item.length <= kCopied;
  if (!follows || !fits) Flush();
  if (pieces_ == 0) {
    slot_ = item.slot;
    offset_ = item.offset();
  }
  if (item.length <= kSmall) {
    Copy(item);
  } else {
    pieces_ += reader_.PayloadInPlace(item.position, item.length, memory_->pieces + pieces_);
  }
  bytes_ += item.length;
}

void Window::Copy(const Item& item) {
  iovec lies[2];
  const int n = reader_.PayloadInPlace(item.position, item.length, lies);
  uint8_t* copy = memory_->copies + copied_;
  std::memcpy(copy, lies[0].iov_base, lies[0].iov_len);
  if (n == 2) std::memcpy(copy + lies[0].iov_len, lies[1].iov_base, lies[1].iov_len);
  copied_ += item.length;
  iovec* next = memory_->pieces + pieces_;
  if (pieces_ > 0 && static_cast<uint8_t*>(next[-1].iov_base) + next[-1].iov_len == copy) {
    next[-1].iov_len += item.length;
  } else {
    *next = {copy, item.length};
    ++pieces_;
  }
}

void Window::Flush() {
  if (pieces_ > 0) files_.Write(slot_, memory_->pieces, pieces_, bytes_, offset_);
  pieces_ = 0;
  bytes_ = 0;
  copied_ = 0;
}

}  // namespace nvcache::recovery
