// SPDX-License-Identifier: BSD-3-Clause
#include "src/replay/fold.h"

#include <sys/stat.h>

#include <bit>
#include <cstring>

#include "src/pool/identify.h"
#include "src/pool/pool.h"
#include "src/sys/check.h"
#include "src/sys/scratch.h"
#include "src/sys/text.h"

namespace nvcache::replay {

using nvlog::Place;
using nvlog::RecordHeader;
using pool::Deed;
using pool::NameRecord;

namespace {

// One record adds no more.
constexpr uint64_t kWhosOfRecord = 4, kSpotsOfRecord = 2, kTiesOfRecord = 5;

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t h = (a ^ (b * 0x9e3779b97f4a7c15)) * 0xd6e8feb86659fd93;
  return h ^ (h >> 32);
}

uint64_t HashOf(const char* text) {
  uint64_t h = 0xcbf29ce484222325;
  for (; *text != '\0'; ++text) h = (h ^ static_cast<uint8_t>(*text)) * 0x100000001b3;
  return h;
}

// The slot of a table of power-of-two size that `is_right` or nobody has.
template <typename Slots, typename IsRight>
auto& SlotOf(Slots& slots, uint64_t hash, IsRight is_right) {
  for (uint64_t i = hash;; ++i) {
    auto& slot = slots[i & (slots.max() - 1)];
    if (slot == 0 || is_right(slot - 1)) return slot;
  }
}

}  // namespace

bool FoldedNames::Note(const RecordHeader& header, Place place) {
  if (notes_.max() == 0) {
    const pool::View& view = reader_.view();
    const uint64_t units = view.segment_count() * view.segment_units();
    constexpr uint64_t kLeast = 1 + nvlog::UnitsOf(1);  // if it says nothing
    if (!notes_.Open(units / kLeast + 1)) return false;
  }
  if (notes_.count() == notes_.max()) return false;
  notes_[notes_.Add()] = place;
  text_bytes_ += header.length;
  return true;
}

bool FoldedNames::OpenTables() {
  const uint64_t n = notes_.count();
  const uint64_t spots = n * kSpotsOfRecord + more(), ties = n * kTiesOfRecord + more();
  const uint64_t texts = text_bytes_ + n * pool::kNameTexts + more() * (pool::kMaxName + 1);
  if (texts > UINT32_MAX) return false;
  const auto slots = [](uint64_t most) { return std::bit_ceil(2 * most); };
  return texts_.Open(texts) && whos_.Open(n * kWhosOfRecord) && spots_.Open(spots) &&
         ties_.Open(ties) && successor_slots_.Open(slots(2 * n * kWhosOfRecord)) &&
         who_slots_.Open(slots(n * kWhosOfRecord)) && spot_slots_.Open(slots(spots)) &&
         tie_slots_.Open(slots(ties));
}

uint32_t FoldedNames::AddText(const char* text) {
  const size_t n = sys::Length(text) + 1;
  const uint32_t at = texts_.Add(static_cast<uint32_t>(n));
  NVCACHE_CHECK(at + n <= texts_.max());
  std::memcpy(&texts_[at], text, n);
  return at;
}

uint32_t FoldedNames::WhoIs(const pool::Identity& identity, uint64_t file_system) {
  const uint64_t fingerprint = pool::Fingerprint(identity);
  uint32_t& slot = SlotOf(who_slots_, Mix(fingerprint, 0), [&](uint32_t i) {
    return whos_[i].file_system == file_system && pool::SameIdentity(whos_[i].identity, identity);
  });
  if (slot != 0) return slot - 1;
  const uint32_t number = whos_.Add();
  Who& who = whos_[number];
  who.identity = identity;
  who.file_system = file_system;
  who.fingerprint = fingerprint;
  slot = number + 1;
  return number;
}

uint32_t FoldedNames::Find(uint64_t fingerprint) const {
  if (who_slots_.max() == 0) return kNobody;
  for (uint64_t i = Mix(fingerprint, 0);; ++i) {
    const uint32_t slot = who_slots_[i & (who_slots_.max() - 1)];
    if (slot == 0) break;
    if (whos_[slot - 1].fingerprint == fingerprint) return slot - 1;
  }
  for (uint64_t i = Mix(fingerprint, 0);; ++i) {
    const uint32_t slot = successor_slots_[i & (successor_slots_.max() - 1)];
    if (slot == 0) return kNobody;
    if (whos_[slot - 1].successor == fingerprint) return slot - 1;
  }
}

void FoldedNames::SetSuccessor(uint32_t number, uint64_t fingerprint) {
  whos_[number].successor = fingerprint;
  if (fingerprint == 0) return;
  SlotOf(successor_slots_, Mix(fingerprint, 0), [](uint32_t) { return false; }) = number + 1;
}

uint32_t FoldedNames::FolderOf(const pool::Identity& identity, uint64_t file_system,
                               const char* path) {
  const uint32_t number = WhoIs(identity, file_system);
  whos_[number].is_folder = true;
  SetPath(whos_[number], path);
  return number;
}

void FoldedNames::SetPath(Who& who, const char* path) {
  if (who.path == 0 || !sys::Equal(&texts_[who.path], path)) who.path = AddText(path);
}

uint32_t FoldedNames::SpotOf(uint32_t folder, const char* name) {
  uint32_t& slot = SlotOf(spot_slots_, Mix(HashOf(name), folder), [&](uint32_t i) {
    return spots_[i].folder == folder && sys::Equal(NameOf(spots_[i]), name);
  });
  if (slot != 0) return slot - 1;
  const uint32_t number = spots_.Add();
  spots_[number].folder = folder;
  spots_[number].name = AddText(name);
  slot = number + 1;
  return number;
}

uint32_t FoldedNames::FindSpot(uint32_t folder, const char* name) const {
  return SlotOf(spot_slots_, Mix(HashOf(name), folder),
                [&](uint32_t i) {
                  return spots_[i].folder == folder && sys::Equal(NameOf(spots_[i]), name);
                }) -
         1;  // kNobody of 0
}

bool FoldedNames::HasTie(uint32_t spot, uint32_t who) const {
  return SlotOf(tie_slots_, Mix(spot, who),
                [&](uint32_t i) { return ties_[i].spot == spot && ties_[i].who == who; }) != 0;
}

uint32_t FoldedNames::TieOf(uint32_t spot, uint32_t who) {
  uint32_t& slot = SlotOf(tie_slots_, Mix(spot, who),
                          [&](uint32_t i) { return ties_[i].spot == spot && ties_[i].who == who; });
  if (slot != 0) return slot - 1;
  const uint32_t number = ties_.Add();
  ties_[number] = {spot, who, whos_[who].ties, false, 0};
  whos_[who].ties = number + 1;
  slot = number + 1;
  return number;
}

void FoldedNames::Give(uint32_t spot, uint32_t who) {
  spots_[spot].last = who + 1;
  spots_[spot].is_final = true;
  whos_[who].gone = false;
  TieOf(spot, who);
}

void FoldedNames::Take(uint32_t spot, uint32_t who, bool gone) {
  spots_[spot].last = 0;
  spots_[spot].is_final = true;
  if (gone) whos_[who].gone = true;
  ties_[TieOf(spot, who)].removed = true;
}

FoldedNames::Change FoldedNames::Resolve(const NameRecord& record) {
  const pool::NameTexts texts = pool::TextsOf(record);
  Change change = {kNobody, kNobody, kNobody, kNobody};
  if (record.deed != Deed::kAttributes) {
    const uint32_t folder = FolderOf(record.folder, record.file_system, texts.folder_path);
    change.spot = SpotOf(folder, texts.name);
  }
  if (record.from_length > 0) {
    const uint32_t folder =
        FolderOf(record.from_folder, record.file_system, texts.from_folder_path);
    change.from = SpotOf(folder, texts.from);
  }
  change.who = WhoIs(record.file, record.file_system);
  if (record.deed == Deed::kAttributes && texts.target[0] == '/') {
    SetPath(whos_[change.who], texts.target);
  }
  if (!pool::IsNone(record.other)) change.other = WhoIs(record.other, record.file_system);
  if ((record.flags & pool::kNameHasOthers) != 0) whos_[change.who].has_others = true;
  if (S_ISDIR(record.mode)) whos_[change.who].is_folder = true;
  return change;
}

void FoldedNames::FoldChange(const NameRecord& record, const Change& change, Place place) {
  const bool gone = (record.flags & pool::kNameGone) != 0;
  Who& who = whos_[change.who];
  // A link leaves the folder of the name that is there as it was.
  const bool links = record.deed == Deed::kLinks || record.deed == Deed::kLinked;
  for (const uint32_t spot : {change.spot, links ? kNobody : change.from}) {
    if (spot != kNobody) whos_[spots_[spot].folder].changed = reader_.At(place).lsn;
  }
  switch (record.deed) {
    case Deed::kCreated:
      who.born = place;
      SetSuccessor(change.who, pool::Peek(reader_.At(place).link));
      return Give(change.spot, change.who);
    case Deed::kLinks:
    case Deed::kLinked:
      TieOf(change.from, change.who);
      return Give(change.spot, change.who);
    case Deed::kRemoves:
    case Deed::kRemoved:
      return Take(change.spot, change.who, gone);
    case Deed::kRenames:
    case Deed::kRenamed:
      if (change.other != kNobody) Take(change.spot, change.other, gone);
      Take(change.from, change.who, false);
      return Give(change.spot, change.who);
    case Deed::kAttributes:
      for (uint32_t i = 0; i < kAttributes; ++i) {
        if ((record.set >> i & 1) != 0) who.attributes[i] = place;
      }
  }
}

bool FoldedNames::CopyAt(Place place, NameRecord* record) const {
  const RecordHeader header = reader_.At(place);
  return header.kind == nvlog::Kind::kName && header.length <= sizeof(*record) &&
         reader_.CopyName(header, place, record);
}

bool FoldedNames::FoldAll(uint32_t* unreadable) {
  *unreadable = 0;
  if (!OpenTables()) return false;
  texts_.Add();
  sys::Scratch<NameRecord> record;
  for (uint32_t i = 0; i < notes_.count(); ++i) {
    if (!CopyAt(notes_[i], record.get())) {
      ++*unreadable;
      continue;
    }
    const Change change = Resolve(*record);
    const bool announces = pool::IsAnnouncement(record->deed);
    if (!announces) FoldChange(*record, change, notes_[i]);
    open_ = announces ? notes_[i] : nvlog::kNoPlace;
    open_change_ = change;
    open_is_new_ = announces && !HasTie(change.spot, change.who);
  }
  return true;
}

bool FoldedNames::NoteFile(uint64_t fingerprint, pool::Lsn settled, pool::Lsn changed) {
  const uint32_t number = Find(fingerprint);
  if (number == kNobody) return false;
  Who& who = whos_[number];
  who.is_described = true;
  who.incomplete = who.incomplete || settled != 0;
  for (Place& place : who.attributes) {
    if (place != nvlog::kNoPlace && reader_.At(place).lsn < settled) place = nvlog::kNoPlace;
  }
  who.changed = changed;
  return who.born != nvlog::kNoPlace;
}

}  // namespace nvcache::replay
