// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/replay/window.h"

#include <algorithm>

#include "src/sys/arena.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"

namespace nvcache::recovery {

Window::~Window() {
  if (items_ != nullptr) sys::Munmap(items_, kCapacity * sizeof(Item));
}

bool Window::Open() {
  items_ = static_cast<Item*>(sys::Reserve(kCapacity * sizeof(Item)));
  return items_ != nullptr;
}

void Window::Add(const nvlog::EntryHeader& header) {
  NVCACHE_CHECK(count_ < kCapacity);
  items_[count_] = {header.offset / pool::kPageSize, header.position, header.file,
                    static_cast<uint16_t>(header.offset % pool::kPageSize),
                    static_cast<uint16_t>(header.length)};
  in_order_ = in_order_ && (count_ == 0 || items_[count_ - 1] < items_[count_]);
  bytes_held_ += header.length;
  ++count_;
}

void Window::Apply(void (*progress)(void* context, uint64_t units), void* context) {
  if (!in_order_) std::sort(items_, items_ + count_);
  for (uint32_t i = 0; i < count_; ++i) {
    const Item& item = items_[i];
    if (i + 1 == count_ || !items_[i + 1].Hides(item)) Append(item);
    progress(context, nvlog::EntryUnits(item.length));
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
  if (!follows || bytes_ + item.length > kMaxWrite || pieces_ + 2 > kMaxPieces) Flush();
  if (pieces_ == 0) {
    slot_ = item.slot;
    offset_ = item.offset();
  }
  pieces_ += reader_.PayloadInPlace(item.position, item.length, vector_ + pieces_);
  bytes_ += item.length;
}

void Window::Flush() {
  if (pieces_ > 0) files_.Write(slot_, vector_, pieces_, bytes_, offset_);
  pieces_ = 0;
  bytes_ = 0;
}

}  // namespace nvcache::recovery
