// SPDX-License-Identifier: BSD-3-Clause
#include "src/replay/moved.h"

#include <fcntl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <utility>

#include "src/replay/resolve.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"

namespace nvcache::replay {

using sys::Descriptor;

namespace {

// As getdents64 has it: the entry's bytes, then a type, then the name.
struct Entry {
  uint64_t inode;
  int64_t next;
  uint16_t size;
};
constexpr size_t kNameOffset = 19;

int64_t BirthOf(const pool::Identity& file) {
  return NsOf(file.birth_seconds, file.birth_nanoseconds);
}

uint64_t Mix(uint64_t inode) {
  const uint64_t h = inode * 0x9e3779b97f4a7c15;
  return h ^ (h >> 32);
}

}  // namespace

// ------------------------------------------------------------------------------------------- Find

void MovedNames::FindMoved() {
  for (uint32_t i = 0; i < whos_.count(); ++i) {
    if (whos_[i].born != nvlog::kNoPlace) newest_ = std::max(newest_, BirthOf(whos_[i].identity));
  }
  if (!AnyElsewhere() || !NoteInodes()) return;
  KnowAnnounced();
  bool again;
  do {
    again = false;
    for (uint32_t i = 0; i < whos_.count(); ++i) {
      again = (whos_[i].is_folder && SearchFolder(i)) || again;
    }
  } while (again);
}

// A file has none of the names that the logs have for it, or they cannot say which.
bool MovedNames::AnyElsewhere() const {
  if (open_ != nvlog::kNoPlace) return true;
  for (uint32_t i = 0; i < whos_.count(); ++i) {
    if (HasLast(i) && !IsPlaced(i)) return true;
  }
  return false;
}

bool MovedNames::NoteInodes() {
  if (!inodes_.Open(std::bit_ceil(uint64_t{2} * whos_.count()))) return false;
  for (uint32_t i = 0; i < whos_.count(); ++i) {
    uint64_t slot = Mix(whos_[i].identity.inode);
    while (inodes_[slot & (inodes_.max() - 1)] != 0) ++slot;
    inodes_[slot & (inodes_.max() - 1)] = whos_[i].identity.inode;
  }
  return true;
}

bool MovedNames::IsNoted(uint64_t inode) const {
  for (uint64_t slot = Mix(inode);; ++slot) {
    const uint64_t noted = inodes_[slot & (inodes_.max() - 1)];
    if (noted == inode || noted == 0) return noted != 0;
  }
}

// The logs know these names, whether the call was made or not.
void MovedNames::KnowAnnounced() {
  if (open_ == nvlog::kNoPlace) return;
  const Change& change = open_change_;
  TieOf(change.spot, change.who);
  if (change.from != kNobody) TieOf(change.from, change.who);
  if (change.other != kNobody) TieOf(change.spot, change.other);
}

bool MovedNames::IsAnnounced(uint32_t who) const {
  return open_ != nvlog::kNoPlace && (open_change_.who == who || open_change_.other == who);
}

// True: something was found. Once, when the folder itself is there.
bool MovedNames::SearchFolder(uint32_t number) {
  if (marks_[number].is_searched) return false;
  const Descriptor look(Open(number));
  if (!look.IsOpen()) return false;
  marks_[number].is_searched = true;
  const Descriptor folder(sys::Openat(look.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.IsOpen()) return false;
  sys::Scratch<uint8_t[sys::kScratchSize]> scratch;
  uint8_t* entries = scratch.get();
  bool found = false;
  for (;;) {
    const long n =
        sys::Call(SYS_getdents64, folder.get(), sys::Address(entries), long{sys::kScratchSize});
    if (n <= 0) return found;
    found = SearchEntries(number, folder.get(), entries, n) || found;
  }
}

bool MovedNames::SearchEntries(uint32_t number, int folder, const uint8_t* entries, long size) {
  bool found = false;
  for (long at = 0; at < size;) {
    Entry entry;
    std::memcpy(&entry, entries + at, kNameOffset);
    const auto* name = reinterpret_cast<const char*>(entries + at + kNameOffset);
    if (IsNoted(entry.inode)) found = NoteEntry(number, folder, name) || found;
    at += entry.size;
  }
  return found;
}

// The logs do not know that name of the file. One that has others than they know may have had it
// before, unless they know whose it is. So may one that was not born in them: since its birth at
// most, for its last change may be a recovery's.
bool MovedNames::NoteEntry(uint32_t number, int folder, const char* name) {
  if (sys::Equal(name, ".") || sys::Equal(name, "..")) return false;
  Occupant occupant;
  if (LookAt(folder, name, &occupant) < 0 || !occupant.exists || occupant.who == kNobody) {
    return false;
  }
  const uint32_t number_of_file = occupant.who;
  const Who& who = whos_[number_of_file];
  if (who.gone || sys::Equal(SafeNameOf(who).c_str(), name)) return false;
  const uint32_t spot = FindSpot(number, name);
  if (spot != kNobody && HasTie(spot, number_of_file)) return false;
  const bool replaces = spot != kNobody && spots_[spot].last != 0;
  const bool has_last = HasLast(number_of_file) || IsAnnounced(number_of_file);
  if (!replaces && (who.has_others || !has_last)) return false;
  if (moved_ == more()) return false;
  ++moved_;
  ties_[TieOf(SpotOf(number, name), number_of_file)].came =
      who.born != nvlog::kNoPlace ? occupant.changed : occupant.born;
  for (uint32_t i = 0; i < whos_.count(); ++i) marks_[i].missing = 0;
  return true;
}

// -------------------------------------------------------------------------------------- Announced

// A name that the logs know as its own only now, it has by the call. And where another file has the
// name that the call took away, and has it in no log, it has got it afterwards.
bool MovedNames::WasMade(const pool::NameRecord& record) const {
  const Change& change = open_change_;
  if (record.deed == pool::Deed::kRemoves) {
    return IsNowhere(change.who) && IsTakenLater(change.spot, change.who);
  }
  if (record.deed != pool::Deed::kRenames) return false;
  if (HasCome(change.who, kNobody)) return true;
  if (!LeadsTo(change.spot, change.who)) return false;
  return (open_is_new_ && !LeadsTo(change.from, change.who)) ||
         IsTakenLater(change.from, change.who);
}

bool MovedNames::HasCome(uint32_t who, uint32_t spot) const {
  for (uint32_t tie = whos_[who].ties; tie != 0; tie = ties_[tie - 1].next) {
    const Tie& found = ties_[tie - 1];
    if (found.came != 0 && (spot == kNobody || found.spot == spot)) return true;
  }
  return false;
}

bool MovedNames::IsTakenLater(uint32_t number, uint32_t who) const {
  const Spot& spot = spots_[number];
  const Descriptor folder(Open(spot.folder));
  Occupant occupant;
  if (!folder.IsOpen() || LookAt(folder.get(), NameOf(spot), &occupant) < 0) return false;
  if (!occupant.exists || occupant.who == who) return false;
  return occupant.who == kNobody || HasCome(occupant.who, number);
}

// ------------------------------------------------------------------------------------------- Fold

void MovedNames::FoldMoved() {
  for (uint32_t i = 0; i < ties_.count(); ++i) {
    if (ties_[i].came != 0) FoldMove(i);
  }
  for (uint32_t i = 0; i < spots_.count(); ++i) FoldReplaced(i);
  for (uint32_t i = 0; i < whos_.count(); ++i) {
    if (marks_[i].has_lost && IsLost(i)) whos_[i].gone = true;
  }
}

// The names that it has kept stay: a link, or the half of a rename. One that came before the file
// was born to which the logs give its name is somebody's, who has put it back there.
void MovedNames::FoldMove(uint32_t number) {
  const Tie tie = ties_[number];
  const uint32_t last = spots_[tie.spot].last;
  if (last == tie.who + 1) return;
  if (last != 0) {
    if (tie.came < BirthOf(whos_[last - 1].identity) && !IsElsewhere(last - 1)) return;
    Lose(tie.spot);
  }
  for (uint32_t other = whos_[tie.who].ties; other != 0; other = ties_[other - 1].next) {
    const uint32_t spot = ties_[other - 1].spot;
    if (spots_[spot].last == tie.who + 1 && !LeadsTo(spot, tie.who)) Take(spot, tie.who, false);
  }
  Give(tie.spot, tie.who);
}

// By one that no log knows. If the file has a name of before, the file system may be behind.
void MovedNames::FoldReplaced(uint32_t number) {
  const Spot& spot = spots_[number];
  if (!spot.is_final || spot.last == 0) return;
  const Who& who = whos_[spot.last - 1];
  const Descriptor folder(Open(spot.folder));
  Occupant occupant;
  if (!folder.IsOpen() || LookAt(folder.get(), NameOf(spot), &occupant) < 0) return;
  if (!occupant.exists || occupant.who != kNobody) return;
  if (occupant.born < std::max(newest_, BirthOf(who.identity))) return;
  if (!HasName(spot.last - 1, false)) Lose(number);
}

// Where no log knows of: so the name that it has lost is nobody's loss.
bool MovedNames::IsElsewhere(uint32_t who) const { return IsFound(who) && !HasName(who, false); }

void MovedNames::Lose(uint32_t spot) {
  const uint32_t who = spots_[spot].last - 1;
  marks_[who].has_lost = true;
  Take(spot, who, false);
}

bool MovedNames::IsLost(uint32_t who) const {
  return !whos_[who].has_others && !HasLast(who) && IsNowhere(who);
}

// Where the logs have more, a call that takes a name from it waits for the journal.
bool MovedNames::MayBeGone(uint32_t number) const {
  const Who& who = whos_[number];
  const auto is_none = [](nvlog::Place place) { return place == nvlog::kNoPlace; };
  return !who.is_folder && !who.is_described &&
         std::all_of(std::begin(who.attributes), std::end(who.attributes), is_none) &&
         IsNowhere(number);
}

bool MovedNames::WasReplaced(const pool::FileRecord& record) const {
  if (moved_ == 0 || (!journal_ && !MayLookByHandle(record))) return false;
  const int64_t born = NsOf(record.birth_seconds, record.birth_nanoseconds);
  for (uint32_t i = 0; i < ties_.count(); ++i) {
    const Tie& tie = ties_[i];
    if (tie.came == 0 || tie.came < born) continue;
    const Spot& spot = spots_[tie.spot];
    const char* folder = &texts_[whos_[spot.folder].path];
    const size_t n = sys::Length(folder);
    if (n < record.path_length && std::equal(folder, folder + n, record.path) &&
        record.path[n] == '/' && sys::Equal(record.path + n + 1, NameOf(spot))) {
      return LeadsTo(tie.spot, tie.who);
    }
  }
  return false;
}

}  // namespace nvcache::replay
