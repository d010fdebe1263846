// SPDX-License-Identifier: BSD-3-Clause
#include "src/rawcall/unwind.h"

namespace nvcache::rawcall {

namespace {

// In the form that every toolchain of x86-64 makes: a count of 4 bytes, and pairs of distances from
// the table, in order.
struct Header {
  uint8_t version, frame_encoding, count_encoding, table_encoding;
  int32_t frame;
  uint32_t count;
};
struct Pair {
  int32_t begin, description;
};
constexpr uint8_t kVersion = 1, kCountOf4 = 0x03, kDistancesOf4 = 0x3b;

// The beginning of a description: its begin as a distance from that place, and its size.
struct Description {
  uint32_t length, information;
  int32_t begin;
  uint32_t size;
};

}  // namespace

UnwindTable::UnwindTable(const Image& image) : image_(image) {
  const Range table = image.Segment(PT_GNU_EH_FRAME);
  Header header;
  if (!table.Holds(table.begin, sizeof(header)) ||
      !image.Read(&header, table.begin, sizeof(header)) || header.version != kVersion ||
      header.count_encoding != kCountOf4 || header.table_encoding != kDistancesOf4) {
    return;
  }
  const uint64_t room = (table.size() - sizeof(header)) / sizeof(Pair);
  if (header.count > room) return;
  base_ = table.begin;
  count_ = header.count;
}

bool UnwindTable::Entry(uint32_t n, Range* function) const {
  Pair pair;
  Description description;
  const uintptr_t at = base_ + sizeof(Header) + uint64_t{n} * sizeof(Pair);
  if (!image_.Read(&pair, at, sizeof(pair))) return false;
  const uintptr_t begin = base_ + static_cast<uintptr_t>(intptr_t{pair.begin});
  const uintptr_t place = base_ + static_cast<uintptr_t>(intptr_t{pair.description});
  if (!image_.Read(&description, place, sizeof(description))) return false;
  const uintptr_t said =
      place + offsetof(Description, begin) + static_cast<uintptr_t>(intptr_t{description.begin});
  *function = {begin, begin + description.size};
  return said == begin;
}

bool UnwindTable::FunctionAround(uintptr_t at, Range* around) const {
  *around = {};
  uint32_t low = 0, high = count_;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    Pair pair;
    if (!image_.Read(&pair, base_ + sizeof(Header) + uint64_t{middle} * sizeof(Pair), sizeof(pair)))
      return false;
    if (base_ + static_cast<uintptr_t>(intptr_t{pair.begin}) <= at) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  Range function;
  if (low == 0 || !Entry(low - 1, &function)) return false;
  if (function.Holds(at, 1)) {
    *around = function;
    return true;
  }
  around->begin = around->end = function.end;
  return false;
}

Range UnwindTable::Functions() const {
  Range first, last;
  if (count_ == 0 || !Entry(0, &first) || !Entry(count_ - 1, &last)) return {};
  return first.begin < last.end ? Range{first.begin, last.end} : Range{};
}

bool UnwindTable::Covers(const Range& text) {
  constexpr uint64_t kNearlyAll = 80;  // parts of 100
  if (covered_.begin == text.begin && covered_.end == text.end) return covers_;
  uint64_t bytes = 0;
  uintptr_t first = text.end, last = text.begin;
  for (uint32_t n = 0; n < count_; ++n) {
    Range function;
    if (!Entry(n, &function) || !text.Holds(function.begin, function.size())) continue;
    bytes += function.size();
    if (function.begin < first) first = function.begin;
    if (function.end > last) last = function.end;
  }
  covered_ = text;
  // Bytes before the first and behind the last may be data.
  covers_ = first < last && bytes * 100 >= (last - first) * kNearlyAll;
  return covers_;
}

}  // namespace nvcache::rawcall
