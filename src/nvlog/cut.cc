// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/cut.h"

#include "src/nvlog/scan.h"
#include "src/pmem/persist.h"
#include "src/sys/words.h"

namespace nvcache::nvlog {

namespace {

using pmem::Step;
using pool::SegmentHeader;

void Erase(const pool::View& view, Place place) {
  pmem::Fill(view.unit(place), 0, pool::kUnitSize);
  pmem::Pwb(view.unit(place), pool::kUnitSize, Step::kSeenGroup);
}

// As it is while a segment is being taken: nothing in it counts.
void BlotHeader(SegmentHeader* header) {
  pmem::Store(header->word, uint64_t{0});
  pmem::Pwb(header, sizeof(*header), Step::kSeenContent);
}

// In the life of a segment that stays. Each line came into the journal in one piece: so a header
// is either as it was written or not there.
void CutRecords(const pool::View& view, uint32_t number, Lsn generation, Lsn cut) {
  const uint64_t units = view.segment_units();
  for (uint64_t unit = kFirstUnit; unit < units - kLastUnits; ++unit) {
    const Place place = number * units + unit;
    Lsn lsn;
    sys::CopyWords(&lsn, &reinterpret_cast<const RecordHeader*>(view.unit(place))->lsn,
                   sizeof(lsn));
    RecordHeader header;
    if (lsn < cut || lsn >> pool::kLsnBits != 0) continue;
    if (CopyHeader(view, place, generation, &header)) Erase(view, place);
  }
}

// In one that does not. What lies in it by chance, and looks like a group that was committed, must
// not look as if a segment had been lost. (The copy of such a group within a payload is older than
// the group that has it, and that one is older than the cut.)
void CutCommitted(const pool::View& view, uint32_t number, Lsn cut) {
  const uint64_t units = view.segment_units();
  for (uint64_t unit = kFirstUnit; unit < units - kLastUnits; ++unit) {
    const Place place = number * units + unit;
    RecordHeader header;
    sys::CopyWords(&header, view.unit(place), sizeof(header));
    const bool is_later = header.lsn >= cut && header.lsn >> pool::kLsnBits == 0;
    if (is_later && WasCommitted(header, view.salt())) Erase(view, place);
  }
}

}  // namespace

void CutFrom(const pool::View& view, Lsn cut) {
  for (uint32_t number = 0; number < view.segment_count(); ++number) {
    SegmentHeader* const places[] = {view.segment(number), view.segment_copy(number)};
    Lsn generation = 0;
    for (const SegmentHeader* place : places) {
      SegmentHeader header;
      if (!pool::CopySegmentHeader(view, *place, number, &header)) continue;
      if (header.generation > generation) generation = header.generation;
    }
    if (generation == 0 || generation >= cut) {
      for (SegmentHeader* place : places) {
        if (generation != 0) BlotHeader(place);
      }
      CutCommitted(view, number, cut);
    } else {
      CutRecords(view, number, generation, cut);
    }
  }
}

}  // namespace nvcache::nvlog
