// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/pool/marks.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "mirror/pool/faults.h"

namespace nvcache::mirror {

using nvlog::RecordHeader;

namespace {

auto FirstFrom(const std::vector<Mark>& marks, uint32_t unit) {
  return std::lower_bound(marks.begin(), marks.end(), unit,
                          [](const Mark& mark, uint32_t at) { return mark.unit < at; });
}

}  // namespace

const Marks::Watched* Marks::Find(uint32_t number) const {
  const auto found =
      std::lower_bound(watched_.begin(), watched_.end(), number,
                       [](const Watched& watched, uint32_t at) { return watched.number < at; });
  return found != watched_.end() && found->number == number &&
                 found->generation == lives_[number].generation
             ? &*found
             : nullptr;
}

// All kept segments, and all of unresolved seats.
void Marks::Choose() {
  std::erase_if(watched_, [this](const Watched& watched) {
    return watched.generation != lives_[watched.number].generation;
  });
  std::vector<Watched> fresh;
  for (const uint32_t number : lives_.kept()) {
    if (Find(number) == nullptr) fresh.push_back({number, lives_[number].generation, {}});
  }
  if (seats_.HasUnresolved()) {
    for (uint32_t number = 0; number < lives_.count(); ++number) {
      const Life& life = lives_[number];
      if (life.generation == 0 || life.kept || Find(number) != nullptr ||
          seats_.State(life.log / pool::kLogsOfSeat) != pool::kSeatUnresolved) {
        continue;
      }
      fresh.push_back({number, life.generation, {}});
      WatchLog(&fresh.back());
    }
  }
  if (fresh.empty()) return;
  watched_.insert(watched_.end(), fresh.begin(), fresh.end());
  std::sort(watched_.begin(), watched_.end(),
            [](const Watched& a, const Watched& b) { return a.number < b.number; });
}

// Nobody appends to it any more.
void Marks::WatchLog(Watched* watched) {
  RecordHeader header;
  Lsn last = watched->generation;
  for (uint64_t unit = nvlog::kFirstUnit;
       lives_.CopyHeader(watched->number, unit, &header) && header.lsn >= last;
       unit += nvlog::RecordUnits(header)) {
    last = header.lsn;
    if (header.index != 0) continue;
    watched->marks.push_back({header.lsn, static_cast<uint32_t>(unit), false, false});
  }
}

bool Marks::Extend(Lsn bound, bool* grew) {
  for (Watched& watched : watched_) {
    if (!lives_[watched.number].kept) continue;
    bool lost = false;
    for (Lsn lsn; (lsn = lives_.Peek(watched.number, ~Lsn{0}, &lost)) != 0;) {
      if (lsn >= bound) return false;
      const uint32_t unit = lives_[watched.number].unit;
      if (!lives_.Walk(watched.number, &moves_)) {
        lives_[watched.number].stuck = true;
        break;
      }
      lives_.Go(moves_, lsn);
      watched.marks.push_back({lsn, unit, false, false});
      *grew = true;
    }
    if (lost) return false;
  }
  return true;
}

bool Marks::ReadWords(bool* changed) {
  for (Watched& watched : watched_) {
    for (Mark& mark : watched.marks) {
      if (mark.is_void) continue;
      auto* header =
          reinterpret_cast<RecordHeader*>(view_.unit(watched.number * lives_.units() + mark.unit));
      const uint64_t word = std::atomic_ref(header->commit).load(std::memory_order_acquire);
      Pass(Point::kMark);
      if (word == nvlog::VoidWord(mark.lsn, view_.salt())) mark.is_void = *changed = true;
    }
    if (!lives_.Has(watched.number)) return false;
  }
  Pass(Point::kWords);
  return true;
}

bool Marks::Look(Lsn bound, uint64_t taken) {
  if (!LookForSegments(&taken)) return false;
  Choose();
  bool grew = false, changed = false;
  if (!Extend(bound, &grew)) return false;
  if (Is(Mutant::kNoVoids)) return true;
  if (!ReadWords(&changed)) return false;
  if (Is(Mutant::kOneReading)) return true;
  do {
    grew = changed = false;
    if (!LookForSegments(&taken)) return false;
    Choose();
    if (!Extend(bound, &grew) || !ReadWords(&changed)) return false;
  } while (grew || changed);
  return true;
}

// Kept segments that were taken since.
bool Marks::LookForSegments(uint64_t* taken) {
  const uint64_t now = seats_.taken();
  if (now == *taken) return true;
  *taken = now;
  return lives_.ScanKept();
}

// The process of a segment that is not watched lives, or another one is about to bring it to the
// files, and nothing of what the round has was written after that.
void Marks::SetWords(uint32_t number, uint32_t from, uint32_t end, uint8_t* bytes) const {
  const Watched* watched = Find(number);
  for (uint64_t unit = from; unit < end;) {
    RecordHeader header;
    uint8_t* place = bytes + (unit - from) * pool::kUnitSize;
    std::memcpy(&header, place, sizeof(header));
    if (!nvlog::IsSane(header, end - unit)) return;  // it is lost, as the caller will find
    if (header.index == 0) {
      header.commit = nvlog::CommitWord(header.lsn, view_.salt());
      if (watched != nullptr) {
        const auto mark = FirstFrom(watched->marks, static_cast<uint32_t>(unit));
        if (mark != watched->marks.end() && mark->unit == unit && mark->is_void) {
          header.commit = nvlog::VoidWord(header.lsn, view_.salt());
        }
      }
      std::memcpy(place, &header.commit, sizeof(header.commit));
    }
    unit += nvlog::RecordUnits(header);
  }
}

void Marks::Sent(uint32_t number, uint32_t from, uint32_t end) {
  auto* watched = const_cast<Watched*>(Find(number));
  if (watched == nullptr) return;
  const auto first = FirstFrom(watched->marks, from) - watched->marks.begin();
  for (size_t i = static_cast<size_t>(first);
       i < watched->marks.size() && watched->marks[i].unit < end; ++i) {
    watched->marks[i].sent = watched->marks[i].is_void;
  }
}

uint32_t Marks::CutAt(uint32_t number, uint32_t from, uint32_t end, uint64_t units) const {
  if (end - from <= units) return end;
  const Watched* watched = Find(number);
  if (watched == nullptr) return end;
  auto cut = FirstFrom(watched->marks, static_cast<uint32_t>(from + units + 1));
  if (cut == watched->marks.begin()) return end;
  --cut;
  if (cut->unit > from) return cut->unit;
  ++cut;
  return cut != watched->marks.end() && cut->unit < end ? cut->unit : end;
}

std::vector<Marks::Change> Marks::Changes() const {
  std::vector<Change> changes;
  for (const Watched& watched : watched_) {
    if (watched.generation != lives_[watched.number].generation) continue;
    for (const Mark& mark : watched.marks) {
      if (mark.unit >= lives_[watched.number].copied) break;
      if (mark.is_void && !mark.sent) changes.push_back({mark.lsn, watched.number, mark.unit});
    }
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Change& a, const Change& b) { return a.lsn < b.lsn; });
  return changes;
}

}  // namespace nvcache::mirror
