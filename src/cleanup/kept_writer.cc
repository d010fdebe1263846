// SPDX-License-Identifier: BSD-3-Clause
#include "src/cleanup/kept_writer.h"

#include "src/nvlog/log_reading.h"
#include "src/sys/check.h"

namespace nvcache::cleanup {

using dramcache::CachedFile;
using nvlog::Kind;
using nvlog::kNoPlace;
using nvlog::Lsn;
using nvlog::Place;
using nvlog::RecordHeader;
using nvlog::RecordUnits;

Lsn KeptWriter::KeepFailing(Lsn end) {
  log_.ForEachRead([&](Place place) {
    const RecordHeader& header = log_.At(place);
    if (header.lsn >= end) return false;
    CachedFile& file = calls_.file_of(header.file);
    if (header.kind == Kind::kFile || file.IsHandedOver(header.lsn)) return true;
    if (file.failing.load() == 0) return true;
    if (KeepRecord(file, place)) return true;
    end = header.lsn;
    return false;
  });
  return end;
}

bool KeptWriter::KeepRecord(CachedFile& file, Place place) {
  const RecordHeader& header = log_.At(place);
  const Place file_record = FileRecordBefore(place);
  if (header.kind != Kind::kData) return cache_.KeepMark(file, place, file_record);
  bool done = true;
  ForEachPage(header, [&](uint64_t number) {
    if (!done || (!cache_.kept().Holds(place) && cache_.Moved(place, number))) return;
    radix::PageDescriptor* page = file.pages.Find(cache_.supply(), number);
    NVCACHE_CHECK(page != nullptr);
    sys::Lock lock(page->lock);
    done = cache_.Keep(file, number, *page, place, file_record);
  });
  return done;
}

void KeptWriter::Compact() {
  const auto copy = [&](Place place) {
    CachedFile& file = calls_.file_of(log_.At(place).file);
    if (file.IsHandedOver(log_.At(place).lsn)) {
      if (KeepHandedOverRecord(place)) cache_.kept().Void(place);
      return;
    }
    if (KeepRecord(file, place)) cache_.VoidRecord(file, place);
  };
  nvlog::Kept& kept = cache_.kept();
  for (uint32_t before = ~0u; kept.segments() < before;) {
    before = kept.segments();
    if (!kept.Compact(copy)) break;
    kept.Settle();
  }
}

Lsn KeptWriter::KeepHandedOver(Lsn end) {
  log_.ForEachRead([&](Place place) {
    const RecordHeader& header = log_.At(place);
    if (header.lsn >= end) return false;
    const bool handed_over = calls_.file_of(header.file).IsHandedOver(header.lsn);
    if (header.kind == Kind::kFile || !handed_over || KeepHandedOverRecord(place)) return true;
    end = header.lsn;
    return false;
  });
  return end;
}

// Page by page. Killed in between, the record itself counts as well, and says the same.
bool KeptWriter::KeepHandedOverRecord(Place place) {
  const RecordHeader header = log_.At(place);
  const Place file_record = FileRecordBefore(place);
  Lsn declared = 0;
  const auto append = [&](uint64_t offset, uint64_t length, const uint8_t* bytes) {
    const nvlog::Kept::Copy copy = {header.kind, header.lsn, header.file, offset,
                                    length,      bytes,      kNoPlace};
    return cache_.kept().Append(copy, &declared, file_record, 0) != kNoPlace;
  };
  if (header.kind != Kind::kData) return append(header.offset, header.length, nullptr);
  bool done = true;
  ForEachPage(header, [&](uint64_t page) {
    const nvlog::Log::Piece piece = log_.PieceAt(place, page);
    const uint64_t offset = page * pool::kPageSize + piece.begin;
    done = done && append(offset, piece.length, piece.bytes);
  });
  return done;
}

// The newest file record of the same number in the segment.
Place KeptWriter::FileRecordBefore(Place place) const {
  const uint64_t units = log_.segments().units();
  Place found = kNoPlace;
  for (Place at = place / units * units + nvlog::kFirstUnit; at < place;) {
    const RecordHeader& header = log_.At(at);
    if (header.kind == Kind::kFile && header.file == log_.At(place).file) found = at;
    at += RecordUnits(header);
  }
  NVCACHE_CHECK(found != kNoPlace);
  return found;
}

}  // namespace nvcache::cleanup
