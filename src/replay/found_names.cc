// SPDX-License-Identifier: BSD-3-Clause
#include "src/replay/found_names.h"

#include <sys/stat.h>

#include <utility>

#include "src/pool/identify.h"
#include "src/replay/resolve.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"

namespace nvcache::replay {

using sys::Descriptor;

namespace {

// Or something else has the name, or that of a folder before it.
bool IsMissing(long error) { return error == -ENOENT || error == -ENOTDIR || error == -ELOOP; }

}  // namespace

FoundNames::SafeName FoundNames::SafeNameOf(const Who& who) {
  SafeName name;
  name.Append(".nvcache-").AppendNumber(who.fingerprint);
  return name;
}

// The file itself, or what was made in its place.
bool FoundNames::Is(const Who& who, const pool::Identity& identity) const {
  return pool::SameIdentity(who.identity, identity) ||
         (who.successor != 0 && pool::Fingerprint(identity) == who.successor);
}

long FoundNames::LookInFolder(const Who& who, int folder, const char* name) const {
  Descriptor look(sys::Openat(folder, name, kToLook));
  if (!look.IsOpen()) return look.error();
  pool::Identity now;
  const long error = pool::Identify(look.get(), &now);
  if (error < 0) return error;
  return Is(who, now) ? look.Release() : -ENOENT;
}

// On whichever file system: the number of one (XFS) is that of its device, which may be another one
// after a boot.
long FoundNames::LookByPathOf(const Who& who) const {
  Descriptor look(who.path != 0 ? LookByPath(&texts_[who.path]) : -ENOENT);
  pool::Identity now;
  if (look.IsOpen() && pool::Identify(look.get(), &now) == 0 && Is(who, now)) return look.Release();
  return look.IsOpen() ? -ENOENT : look.error();
}

long FoundNames::Open(uint32_t number, uint32_t depth) const {
  Mark& mark = marks_[number];
  if (mark.missing != 0 && mark.depth <= depth) return mark.missing;
  const long found = Seek(number, depth);
  if (found < 0 && !IsOutOfDescriptors(found)) {
    mark.missing = static_cast<int>(found);
    mark.depth = depth;
  }
  return found;
}

long FoundNames::Seek(uint32_t number, uint32_t depth) const {
  const Who& who = whos_[number];
  long found = LookByPathOf(who);
  if (found >= 0 || IsOutOfDescriptors(found)) return found;
  long why = IsMissing(found) ? -ENOENT : found;
  const SafeName safe = SafeNameOf(who);
  Descriptor near;
  for (uint32_t tie = who.ties; tie != 0 && depth < kMaxDepth; tie = ties_[tie - 1].next) {
    const Spot& spot = spots_[ties_[tie - 1].spot];
    Descriptor folder(Open(spot.folder, depth + 1));
    for (const char* name : {NameOf(spot), safe.c_str()}) {
      found = folder.IsOpen() ? LookInFolder(who, folder.get(), name) : folder.error();
      if (found >= 0 || IsOutOfDescriptors(found)) return found;
      if (!IsMissing(found)) why = found;
    }
    if (!near.IsOpen()) near = std::move(folder);
  }
  found = LookByIdentity(who.identity, who.file_system, near.IsOpen() ? near.get() : -1);
  return found == -ENOENT ? why : found;
}

bool FoundNames::IsFound(uint32_t who) const { return Descriptor(Open(who)).IsOpen(); }
bool FoundNames::IsNowhere(uint32_t who) const { return Descriptor(Open(who)).error() == -ENOENT; }

long FoundNames::LookAt(int folder, const char* name, Occupant* occupant) const {
  *occupant = {};
  pool::Identity now;
  struct statx st;
  const long error = pool::IdentifyAt(folder, name, &now, &st);
  if (error == -ENOENT) return 0;
  if (error < 0) return error;
  *occupant = {true,
               S_ISDIR(st.stx_mode),
               Find(pool::Fingerprint(now)),
               st.stx_nlink,
               NsOf(now.birth_seconds, now.birth_nanoseconds),
               NsOf(st.stx_ctime.tv_sec, st.stx_ctime.tv_nsec)};
  return 0;
}

bool FoundNames::LeadsTo(uint32_t number, uint32_t who) const {
  const Spot& spot = spots_[number];
  const Descriptor folder(Open(spot.folder));
  Occupant occupant;
  return folder.IsOpen() && LookAt(folder.get(), NameOf(spot), &occupant) == 0 && occupant.exists &&
         occupant.who == who;
}

bool FoundNames::WasRemoved(uint32_t spot, const Occupant& occupant) const {
  if (occupant.who == kNobody) return false;
  for (uint32_t tie = whos_[occupant.who].ties; tie != 0; tie = ties_[tie - 1].next) {
    if (ties_[tie - 1].spot == spot) return ties_[tie - 1].removed;
  }
  return false;
}

bool FoundNames::IsLastName(const Occupant& occupant, uint32_t safe_names) const {
  if (occupant.who != kNobody && whos_[occupant.who].gone) return false;
  return occupant.is_folder || occupant.links <= 1 + safe_names;
}

bool FoundNames::MayGive(uint32_t spot, uint32_t who, const Occupant& occupant) const {
  if (!occupant.exists || occupant.who == who) return true;
  if (!WasRemoved(spot, occupant)) return false;
  return !IsLastName(occupant, 0) || (occupant.is_folder && HasLast(occupant.who));
}

uint32_t FoundNames::CountSafeNames(uint32_t number) const {
  const Who& who = whos_[number];
  const SafeName safe = SafeNameOf(who);
  uint32_t count = 0;
  ++counts_;
  for (uint32_t tie = who.ties; tie != 0; tie = ties_[tie - 1].next) {
    const uint32_t folder = spots_[ties_[tie - 1].spot].folder;
    if (std::exchange(marks_[folder].seen, counts_) == counts_) continue;
    const Descriptor at(Open(folder));
    Occupant occupant;
    if (at.IsOpen() && LookAt(at.get(), safe.c_str(), &occupant) == 0 && occupant.exists &&
        occupant.who == number) {
      ++count;
    }
  }
  return count;
}

bool FoundNames::WasMoved(uint32_t number) const {
  return !whos_[number].has_others && !HasName(number, true);
}

bool FoundNames::HasName(uint32_t number, bool or_found) const {
  const Who& who = whos_[number];
  const SafeName safe = SafeNameOf(who);
  for (uint32_t tie = who.ties; tie != 0; tie = ties_[tie - 1].next) {
    if (ties_[tie - 1].came != 0 && !or_found) continue;
    const Spot& spot = spots_[ties_[tie - 1].spot];
    const Descriptor folder(Open(spot.folder));
    Occupant occupant;
    if (!folder.IsOpen()) continue;
    for (const char* name : {NameOf(spot), safe.c_str()}) {
      if (LookAt(folder.get(), name, &occupant) < 0) continue;
      if (occupant.exists && occupant.who == number) return true;
    }
  }
  return false;
}

bool FoundNames::IsPlaced(uint32_t number) const {
  for (uint32_t tie = whos_[number].ties; tie != 0; tie = ties_[tie - 1].next) {
    const uint32_t spot = ties_[tie - 1].spot;
    if (spots_[spot].last == number + 1 && LeadsTo(spot, number)) return true;
  }
  return false;
}

bool FoundNames::HasLast(uint32_t number) const {
  for (uint32_t tie = whos_[number].ties; tie != 0; tie = ties_[tie - 1].next) {
    if (spots_[ties_[tie - 1].spot].last == number + 1) return true;
  }
  return false;
}

bool FoundNames::IsToBeMade(uint32_t number, uint32_t depth) const {
  Mark& mark = marks_[number];
  if (mark.is_looked_at && (mark.is_to_be_made || mark.made_depth <= depth)) {
    return mark.is_to_be_made;
  }
  const bool is_to_be_made = LooksToBeMade(number, depth);
  mark.is_looked_at = true;
  mark.is_to_be_made = is_to_be_made;
  mark.made_depth = depth;
  return is_to_be_made;
}

bool FoundNames::LooksToBeMade(uint32_t number, uint32_t depth) const {
  const Who& who = whos_[number];
  if (Lacks(who) || who.gone || depth > kMaxDepth || !IsNowhere(number)) return false;
  for (uint32_t tie = who.ties; tie != 0; tie = ties_[tie - 1].next) {
    const Spot& spot = spots_[ties_[tie - 1].spot];
    if (spot.last != number + 1) continue;
    const Descriptor folder(Open(spot.folder));
    if (!folder.IsOpen() && IsToBeMade(spot.folder, depth + 1)) return true;
    Occupant occupant;
    const bool is_free = folder.IsOpen() && LookAt(folder.get(), NameOf(spot), &occupant) == 0 &&
                         (!occupant.exists || WasRemoved(ties_[tie - 1].spot, occupant));
    if (is_free) return true;
  }
  return false;
}

}  // namespace nvcache::replay
