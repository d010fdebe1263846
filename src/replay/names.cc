// SPDX-License-Identifier: BSD-3-Clause
#include "src/replay/names.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "src/pmem/persist.h"
#include "src/pool/identify.h"
#include "src/pool/pool.h"
#include "src/replay/attributes.h"
#include "src/replay/made.h"
#include "src/replay/replay.h"
#include "src/replay/resolve.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"

namespace nvcache::replay {

using nvlog::RecordHeader;
using pool::Deed;
using pool::NameRecord;
using sys::Descriptor;

namespace {

constexpr unsigned kNoReplace = 1;  // RENAME_NOREPLACE

long Remove(int folder, const char* name, bool is_folder) {
  return sys::Unlinkat(folder, name, is_folder ? AT_REMOVEDIR : 0);
}

// Removes a file that has a safe name and was made in vain, if nobody has put anything into it.
long RemoveVain(int folder, const char* safe) {
  struct stat st;
  const long error = sys::Fstatat(folder, safe, &st, AT_SYMLINK_NOFOLLOW);
  if (error < 0) return error == -ENOENT ? 0 : error;
  if (S_ISREG(st.st_mode) && st.st_size != 0) return -EEXIST;
  return Remove(folder, safe, S_ISDIR(st.st_mode));
}

}  // namespace

long Names::Look(uint64_t fingerprint, uint64_t* successor) const {
  const uint32_t number = Find(fingerprint);
  if (number == kNobody) return kNotMine;
  *successor = whos_[number].successor;
  const long found = Open(number);
  if (found >= 0 || IsOutOfDescriptors(found)) return found;
  if (found == -ENOENT && whos_[number].gone) return found;
  return dry_run_ && IsToBeMade(number) ? kToBeMade : kNotMine;
}

// ------------------------------------------------------------------------------------------- Tell

void Names::Tell(NameAct act, const Spot& spot) const {
  ++summary_.names;
  if (observer_.name == nullptr) return;
  const Who& folder = whos_[spot.folder];
  observer_.name(observer_.context, act, &texts_[folder.path], NameOf(spot));
}

// A file that has lost another name for it is renamed.
NameAct Names::PlaceActOf(uint32_t number) const {
  if (number == kNobody) return NameAct::kLink;
  for (uint32_t tie = whos_[number].ties; tie != 0; tie = ties_[tie - 1].next) {
    const bool there = spots_[ties_[tie - 1].spot].last == number + 1;
    if (ties_[tie - 1].removed && !there) return NameAct::kRename;
  }
  return NameAct::kLink;
}

void Names::Fail(uint32_t spot, long error) {
  if (spots_[spot].error == 0) spots_[spot].error = static_cast<int>(-error);
}

void Names::TellUnresolved(const char* folder, const char* name, int error) {
  ++summary_.unresolved_names;
  if (IsRefusal(-error)) ++summary_.refused_names;
  if (summary_.error == 0) summary_.error = error;
  if (observer_.unresolved_name == nullptr) return;
  observer_.unresolved_name(observer_.context, folder, name, error);
}

// ENODEV: its file system is not mounted where it was.
int Names::WhyNotThere(uint32_t number) const {
  const Who& who = whos_[number];
  const Descriptor folder(Open(number));
  if (folder.IsOpen()) return 0;
  if (folder.error() != -ENOENT) return static_cast<int>(-folder.error());
  return IsMountedAt(&texts_[who.path], who.file_system) ? ENOTDIR : ENODEV;
}

int Names::WhyNot(uint32_t number) const {
  const Spot& spot = spots_[number];
  const int no_folder = WhyNotThere(spot.folder);
  if (no_folder != 0) return no_folder;
  const Descriptor folder(Open(spot.folder));
  Occupant occupant;
  const long error = LookAt(folder.get(), NameOf(spot), &occupant);
  if (error < 0) return static_cast<int>(-error);
  return occupant.exists ? EEXIST : ENOENT;
}

// A file that has one of its last names is not missed; nor is one that somebody has moved. A
// removed file is not in a folder that is gone, but where nothing is mounted it may come back, with
// its folder: if the logs have removed that, its own name is told.
void Names::TellUnresolvedSpot(uint32_t number) {
  Spot& spot = spots_[number];
  int error = spot.error;
  if (spot.last == 0 && error == 0 && !whos_[spot.folder].gone) {
    error = WhyNotThere(spot.folder);
    if (error == ENOTDIR) error = 0;
  }
  if (spot.last != 0) {
    const uint32_t who = spot.last - 1;
    if (LeadsTo(number, who) || (IsOfMirror() && MayBeGone(who))) return;
    const bool is_there = IsPlaced(who) || (IsFound(who) && WasMoved(who));
    if (error == 0 && !is_there) error = WhyNot(number);
  }
  if (error == 0) return;
  spot.is_told = true;
  TellUnresolved(&texts_[whos_[spot.folder].path], NameOf(spot), error);
}

void Names::TellUnresolved() {
  for (uint32_t i = 0; i < spots_.count(); ++i) {
    if (spots_[i].is_final) TellUnresolvedSpot(i);
  }
}

// Each name that the logs have the last word of, with its folder: many have the same one. One that
// is gone needs nothing.
template <typename Function>
void Names::ForEachFinal(Function function) {
  Descriptor folder(-ENOENT);
  uint32_t opened = kNobody;
  for (uint32_t i = 0; i < spots_.count(); ++i) {
    const Spot& spot = spots_[i];
    if (!spot.is_final) continue;
    if (spot.folder != opened) folder = Descriptor(Open(spot.folder));
    opened = spot.folder;
    if (folder.IsOpen()) {
      function(i, spot, folder.get());
    } else if (folder.error() != -ENOENT) {
      Fail(i, folder.error());
    }
  }
}

// ---------------------------------------------------------------------------------- Made before

bool Names::IsOfMirror() const { return reader_.view().superblock->commit != pool::kCommitOwn; }

// A link has no attributes of its own. One that leads to the same is as good.
bool Names::IsSameLink(int look, uint32_t number) const {
  sys::Scratch<NameRecord> record;
  if (whos_[number].born == nvlog::kNoPlace || !CopyAt(whos_[number].born, record.get()) ||
      !S_ISLNK(record->mode)) {
    return false;
  }
  sys::Scratch<char[pool::kMaxPath + 1]> target;
  const long n = sys::Call(SYS_readlinkat, look, sys::Address(""), sys::Address(target.get()),
                           long{pool::kMaxPath});
  if (n < 0) return false;
  char* const text = target.get();
  text[n] = '\0';
  return sys::Equal(text, pool::TextsOf(*record).target);
}

// An earlier recovery, which this pool knows nothing of, has made what is there. `last`: as
// Spot::last.
bool Names::TakeMade(uint32_t in, const char* name, uint32_t last) {
  const Descriptor folder(Open(in));
  if (!folder.IsOpen()) return false;
  const Descriptor look(sys::Openat(folder.get(), name, kToLook));
  pool::Identity now;
  if (!look.IsOpen() || pool::Identify(look.get(), &now) < 0) return false;
  const uint64_t fingerprint = pool::Fingerprint(now);
  if (Find(fingerprint) != kNobody) return false;
  uint32_t number = kNobody;
  if (const uint64_t made = MadeFor(look.get(), reader_.view().salt()); made != 0) {
    number = Find(made);
  } else if (last != 0 && IsSameLink(look.get(), last - 1)) {
    number = last - 1;
  }
  if (number == kNobody || IsFound(number)) return false;
  SetSuccessor(number, fingerprint);
  // Also what is in a folder that was not found.
  for (uint32_t i = 0; i < whos_.count(); ++i) marks_[i].missing = 0;
  return true;
}

// Before anything is decided.
void Names::FindMade() {
  bool again;
  do {
    again = false;
    for (uint32_t i = 0; i < spots_.count(); ++i) {
      const Spot& spot = spots_[i];
      again = TakeMade(spot.folder, NameOf(spot), spot.last) || again;
    }
    for (uint32_t i = 0; i < ties_.count(); ++i) {
      const SafeName safe = SafeNameOf(whos_[ties_[i].who]);
      again = TakeMade(spots_[ties_[i].spot].folder, safe.c_str(), 0) || again;
    }
  } while (again);
}

// ------------------------------------------------------------------------------------ Make, secure

// A file with a name that it has to give away gets another one before that: here, for the folder
// that it belongs to may have to be made first.
void Names::Secure(uint32_t number, const Spot& spot, int folder) {
  Occupant occupant;
  const long error = LookAt(folder, NameOf(spot), &occupant);
  if (error < 0) return Fail(number, error);
  if (!occupant.exists || occupant.is_folder || occupant.who + 1 == spot.last) return;
  if (!WasRemoved(number, occupant) || whos_[occupant.who].gone) return;
  const SafeName safe = SafeNameOf(whos_[occupant.who]);
  const long linked = sys::Linkat(folder, NameOf(spot), folder, safe.c_str(), 0);
  if (linked < 0 && linked != -EEXIST) Fail(number, linked);
}

long Names::StoreSuccessor(uint32_t number, int fd) {
  pool::Identity made;
  if (const long error = pool::Identify(fd, &made); error < 0) return error;
  auto* header = reinterpret_cast<RecordHeader*>(reader_.view().unit(whos_[number].born));
  SetSuccessor(number, pool::Fingerprint(made));
  marks_[number].missing = 0;
  pmem::Store(header->link, whos_[number].successor);
  pmem::Pwb(header, sizeof(*header), pmem::Step::kSuccessor);
  pmem::Psync(pmem::Step::kSuccessorDurable);
  return 0;
}

// Empty, with its owner and mode.
long Names::MakeAs(const NameRecord& record, uint32_t number, int folder) {
  const SafeName safe = SafeNameOf(whos_[number]);
  long error;
  if (S_ISDIR(record.mode)) {
    error = sys::Call(SYS_mkdirat, folder, sys::Address(safe.c_str()), 0700);
  } else if (S_ISLNK(record.mode)) {
    const char* target = pool::TextsOf(record).target;
    error = sys::Call(SYS_symlinkat, sys::Address(target), folder, sys::Address(safe.c_str()));
  } else {
    error = sys::Openat(folder, safe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (error >= 0) sys::Close(static_cast<int>(error));
  }
  if (error < 0) return error;
  const Descriptor made(sys::Openat(folder, safe.c_str(), kToLook));
  if (!made.IsOpen()) return made.error();
  // It may not be written to afterwards.
  if (IsOfMirror() && !S_ISLNK(record.mode)) {
    SayMade(made.get(), reader_.view().salt(), whos_[number].fingerprint);
  }
  error = SetAsBorn(made.get(), record);
  return error < 0 ? error : StoreSuccessor(number, made.get());
}

// Makes it under its safe name. An earlier recovery that has not come so far may have left
// something there.
long Names::Make(uint32_t number, int folder) {
  const SafeName safe = SafeNameOf(whos_[number]);
  sys::Scratch<NameRecord> record;
  if (!CopyAt(whos_[number].born, record.get())) return -EBADMSG;
  if (const long error = RemoveVain(folder, safe.c_str()); error < 0) return error;
  const long error = MakeAs(*record, number, folder);
  if (error < 0) RemoveVain(folder, safe.c_str());
  return error;
}

// True: it is there now. Once, even if it cannot be found then: it may be too deep.
bool Names::MakeLost(uint32_t number) {
  const Who& who = whos_[number];
  if (Lacks(who) || who.gone || marks_[number].is_made || !IsNowhere(number)) return false;
  for (uint32_t tie = who.ties; tie != 0; tie = ties_[tie - 1].next) {
    const uint32_t spot_number = ties_[tie - 1].spot;
    const Spot& spot = spots_[spot_number];
    if (spot.last != number + 1) continue;
    const Descriptor folder(Open(spot.folder));
    Occupant occupant;
    if (!folder.IsOpen() || LookAt(folder.get(), NameOf(spot), &occupant) < 0 ||
        !MayGive(spot_number, number, occupant)) {
      continue;
    }
    if (const long error = Make(number, folder.get()); error < 0) {
      Fail(spot_number, error);
      continue;
    }
    Tell(NameAct::kCreate, spot);
    // Its contents are made next.
    if (who.is_folder && Clear(folder.get(), NameOf(spot), occupant) == 0) {
      Move(number, folder.get(), NameOf(spot));
    }
    marks_[number].is_made = true;
    return true;
  }
  return false;
}

// Folders first, then the files in them. Each is younger than the one that it is in, unless it was
// moved there.
void Names::MakeLost() {
  bool again;
  do {
    again = false;
    for (uint32_t i = 0; i < whos_.count(); ++i) {
      again = (whos_[i].is_folder && MakeLost(i)) || again;
    }
  } while (again);
  for (uint32_t i = 0; i < whos_.count(); ++i) {
    if (!whos_[i].is_folder) MakeLost(i);
  }
}

// ------------------------------------------------------------------------------------------ Place

// Removes the files that the logs have removed. A folder may have something in it that goes later,
// or may get its own name later.
long Names::Clear(int folder, const char* name, const Occupant& occupant) const {
  if (!occupant.exists) return 0;
  const bool goes = !occupant.is_folder || whos_[occupant.who].gone;
  const long error = goes ? Remove(folder, name, occupant.is_folder) : -ENOTEMPTY;
  if (error != -ENOTEMPTY) return error;
  const SafeName safe = SafeNameOf(whos_[occupant.who]);
  return sys::Call(SYS_renameat2, folder, sys::Address(name), folder, sys::Address(safe.c_str()),
                   kNoReplace);
}

// A folder has one name: a safe one, or one that it had in the logs.
long Names::Move(uint32_t number, int folder, const char* name) const {
  const SafeName safe = SafeNameOf(whos_[number]);
  for (uint32_t tie = whos_[number].ties; tie != 0; tie = ties_[tie - 1].next) {
    const Spot& spot = spots_[ties_[tie - 1].spot];
    const Descriptor at(Open(spot.folder));
    for (const char* now : {safe.c_str(), NameOf(spot)}) {
      Occupant occupant;
      if (!at.IsOpen() || LookAt(at.get(), now, &occupant) < 0) continue;
      if (!occupant.exists || occupant.who != number) continue;
      return sys::Call(SYS_renameat2, at.get(), sys::Address(now), folder, sys::Address(name),
                       kNoReplace);
    }
  }
  return -ENOENT;
}

// The file system may have kept a file that an earlier run has made as it was before it had its
// owner and its mode. It has no name of its own yet, so nobody else has given it others.
long Names::SetAsBornAgain(uint32_t number, int look) const {
  sys::Scratch<NameRecord> record;
  return CopyAt(whos_[number].born, record.get()) ? SetAsBorn(look, *record) : -EBADMSG;
}

// True: it has the name now, and had not.
bool Names::PlaceAt(uint32_t number, const Spot& spot, int folder) {
  if (spot.last == 0) return false;
  const uint32_t who = spot.last - 1;
  const char* name = NameOf(spot);
  Occupant occupant;
  long error = LookAt(folder, name, &occupant);
  if (error < 0) Fail(number, error);
  if (error < 0 || (occupant.exists && occupant.who == who)) return false;
  if (whos_[who].is_folder && IsPlaced(who)) return false;
  const Descriptor found(Open(who));
  if (!found.IsOpen() || WasMoved(who) || !MayGive(number, who, occupant)) return false;
  const bool is_new = whos_[who].successor != 0;
  if (is_new && !IsPlaced(who)) error = SetAsBornAgain(who, found.get());
  if (error == 0) error = Clear(folder, name, occupant);
  if (error == 0) {
    error = whos_[who].is_folder ? Move(who, folder, name)
                                 : sys::Linkat(AT_FDCWD, sys::LinkTo(found.get()).c_str(), folder,
                                               name, AT_SYMLINK_FOLLOW);
  }
  if (error < 0) Fail(number, error);
  if (error == 0 && !is_new) Tell(PlaceActOf(who), spot);
  return error == 0;
}

// Before anything is looked for in them. One may have to wait until another one has given its name
// away.
void Names::MoveFolders() {
  bool again;
  do {
    again = false;
    ForEachFinal([&](uint32_t i, const Spot& at, int folder) {
      const bool has_folder = at.last != 0 && whos_[at.last - 1].is_folder;
      again = (has_folder && PlaceAt(i, at, folder)) || again;
    });
  } while (again);
}

// True: a name is gone.
bool Names::RemoveName(uint32_t number, const Spot& spot, int folder) {
  Occupant occupant;
  const bool is_free = spot.last == 0 || (IsFound(spot.last - 1) && WasMoved(spot.last - 1));
  if (!is_free) return false;
  long error = LookAt(folder, NameOf(spot), &occupant);
  if (error < 0) Fail(number, error);
  if (error < 0 || !occupant.exists || !WasRemoved(number, occupant)) return false;
  if (IsLastName(occupant, CountSafeNames(occupant.who))) return false;
  error = Remove(folder, NameOf(spot), occupant.is_folder);
  if (error == 0) Tell(NameAct::kRemove, spot);
  // A folder that somebody has put something into stays.
  if (error < 0 && error != -ENOTEMPTY) Fail(number, error);
  return error == 0;
}

// A folder goes when its contents are gone.
void Names::RemoveNames() {
  bool again;
  do {
    again = false;
    ForEachFinal([&](uint32_t i, const Spot& at, int folder) {
      again = RemoveName(i, at, folder) || again;
    });
  } while (again);
}

// A folder's goes, too, that had to give its name to another one, if it is empty by now. A file
// made in vain has such a name as well. True: one is gone.
bool Names::RemoveSafeNamesOf(uint32_t number) {
  const SafeName safe = SafeNameOf(whos_[number]);
  bool gone = false;
  for (uint32_t tie = whos_[number].ties; tie != 0; tie = ties_[tie - 1].next) {
    const Descriptor folder(Open(spots_[ties_[tie - 1].spot].folder));
    Occupant occupant;
    if (!folder.IsOpen() || LookAt(folder.get(), safe.c_str(), &occupant) < 0 || !occupant.exists) {
      continue;
    }
    if (occupant.who != number) {
      gone = RemoveVain(folder.get(), safe.c_str()) == 0 || gone;
    } else if (!IsLastName(occupant, CountSafeNames(number) - 1)) {
      gone = Remove(folder.get(), safe.c_str(), occupant.is_folder) == 0 || gone;
    }
  }
  return gone;
}

// Those of files first: a folder goes when it is empty, and another folder's safe name may be in
// it.
void Names::RemoveSafeNames() {
  for (uint32_t i = 0; i < whos_.count(); ++i) {
    if (!whos_[i].is_folder) RemoveSafeNamesOf(i);
  }
  bool again;
  do {
    RemoveNames();
    again = false;
    for (uint32_t i = whos_.count(); i-- > 0;) {
      again = (whos_[i].is_folder && RemoveSafeNamesOf(i)) || again;
    }
  } while (again);
}

// ------------------------------------------------------------------------------------- Attributes

// It was told as one of its names.
bool Names::IsTold(uint32_t number) const {
  for (uint32_t tie = whos_[number].ties; tie != 0; tie = ties_[tie - 1].next) {
    if (spots_[ties_[tie - 1].spot].is_told) return true;
  }
  return false;
}

void Names::TellUnresolvedAttributes(uint32_t number, int error) {
  const Who& who = whos_[number];
  const Spot* spot = who.ties != 0 ? &spots_[ties_[who.ties - 1].spot] : nullptr;
  TellUnresolved(spot != nullptr ? &texts_[whos_[spot->folder].path] : "",
                 spot != nullptr ? NameOf(*spot) : &texts_[who.path], error);
}

// If a file is not there any more, somebody whom no log knows has removed it; but that has to be
// seen.
void Names::TellUnreachableAttributes(uint32_t number) {
  const Who& who = whos_[number];
  const auto is_none = [](nvlog::Place place) { return place == nvlog::kNoPlace; };
  if (std::all_of(std::begin(who.attributes), std::end(who.attributes), is_none)) return;
  int error = WhyNotThere(number);
  if (error == 0 || IsTold(number)) return;
  const bool has_folder = who.path == 0 && who.ties != 0;
  if (error == ENOTDIR && has_folder) error = WhyNotThere(spots_[ties_[who.ties - 1].spot].folder);
  if (error != 0 && error != ENOTDIR) TellUnresolvedAttributes(number, error);
}

void Names::SetAttributes(uint32_t number) {
  const Who& who = whos_[number];
  sys::Scratch<NameRecord> record;
  for (const uint32_t which : kInOrder) {
    const nvlog::Place place = who.attributes[std::countr_zero(which)];
    if (place == nvlog::kNoPlace || !CopyAt(place, record.get())) continue;
    const Descriptor look(Open(number));
    if (!look.IsOpen()) return TellUnreachableAttributes(number);
    const bool is_changed = reader_.At(place).lsn < who.changed;
    const long error = SetAttribute(which, *record, is_changed, look.get());
    if (error < 0) return TellUnresolvedAttributes(number, static_cast<int>(-error));
  }
}

// A folder may be closed to its owner then: so the files in it come first.
void Names::SetAttributesOf(bool folders) {
  for (uint32_t i = whos_.count(); i-- > 0;) {
    if (whos_[i].is_folder == folders) SetAttributes(i);
  }
}

// ---------------------------------------------------------------------------------------- Together

// Tells how it would be, name by name.
void Names::TellOfDryRun(uint32_t number) {
  const Spot& spot = spots_[number];
  const uint32_t who = spot.last - 1;
  const Descriptor folder(Open(spot.folder));
  Occupant occupant = {};
  const long error = folder.IsOpen() ? LookAt(folder.get(), NameOf(spot), &occupant) : 0;
  if (error < 0) {
    Fail(number, error);
    return TellUnresolvedSpot(number);
  }
  if (spot.last == 0) {
    if (!folder.IsOpen()) return TellUnresolvedSpot(number);
    if (!occupant.exists || !WasRemoved(number, occupant)) return;
    const bool moves = occupant.is_folder && HasLast(occupant.who);
    const bool goes = occupant.is_folder || !IsLastName(occupant, 0) || HasLast(occupant.who);
    if (goes && !moves) Tell(NameAct::kRemove, spot);
    return;
  }
  if (occupant.exists && occupant.who == who) return;
  const bool is_free = !occupant.exists || WasRemoved(number, occupant);
  const bool has_folder = folder.IsOpen() || IsToBeMade(spot.folder);
  if (is_free && has_folder && IsToBeMade(who)) {
    Tell(NameAct::kCreate, spot);
  } else if (is_free && has_folder && IsFound(who) && !WasMoved(who)) {
    Tell(PlaceActOf(who), spot);
  } else {
    TellUnresolvedSpot(number);
  }
}

bool Names::Fold() {
  if (!any()) return true;
  uint32_t unreadable = 0;
  if (!FoldAll(&unreadable) || !OpenMarks()) return false;
  for (uint32_t i = 0; i < unreadable; ++i) TellUnresolved("", "", EBADMSG);
  return true;
}

// Whether the call was made, the names cannot tell: they may have been so long before. So it was
// not, unless it must have been: the file that it destroys is nowhere, and cannot be made again, or
// not with all of its bytes.
void Names::FoldAnnouncement(const NameRecord& record, const Change& change, nvlog::Place place) {
  const bool removes = record.deed == Deed::kRemoves;
  const uint32_t destroyed = removes ? change.who : change.other;
  if (destroyed != kNobody && (record.flags & pool::kNameGone) == 0) {
    whos_[destroyed].has_others = true;
  }
  TieOf(change.spot, change.who);
  if (!removes) TieOf(change.from, change.who);
  if (destroyed != kNobody) {
    TieOf(change.spot, destroyed);
    const bool lacks = Lacks(whos_[destroyed]) || (record.flags & pool::kNameLacks) != 0;
    const bool lost = lacks && IsNowhere(destroyed);
    if (lost && (removes || IsOfMirror() || LeadsTo(change.spot, change.who))) {
      return FoldChange(record, change, place);
    }
  }
  if (IsOfMirror() && WasMade(record)) return FoldChange(record, change, place);
  if (removes) return Give(change.spot, change.who);
  if (record.deed == Deed::kRenames) Take(change.spot, change.who, false);
  Give(change.from, change.who);
  if (change.other != kNobody) Give(change.spot, change.other);
}

void Names::FoldOpen() {
  sys::Scratch<NameRecord> record;
  if (open_ == nvlog::kNoPlace || !CopyAt(open_, record.get())) return;
  FoldAnnouncement(*record, open_change_, open_);
}

void Names::Agree(bool dry_run) {
  if (!any()) return;
  dry_run_ = dry_run;
  if (IsOfMirror()) {
    FindMade();
    FindMoved();
  }
  FoldOpen();
  if (IsOfMirror()) FoldMoved();
  if (dry_run) {
    for (uint32_t i = 0; i < spots_.count(); ++i) {
      if (spots_[i].is_final) TellOfDryRun(i);
    }
    for (uint32_t i = 0; i < whos_.count(); ++i) TellUnreachableAttributes(i);
    return;
  }
  MoveFolders();
  ForEachFinal([&](uint32_t i, const Spot& at, int folder) { Secure(i, at, folder); });
  MakeLost();
  ForEachFinal([&](uint32_t i, const Spot& at, int folder) { PlaceAt(i, at, folder); });
  RemoveNames();
}

bool Names::Finish() {
  if (!any()) return true;
  RemoveSafeNames();
  TellUnresolved();
  SetAttributesOf(false);
  SetAttributesOf(true);
  return Sync() == 0;
}

// One with that file system's folder. -ENOENT: it cannot be had.
long Names::SyncFileSystemOf(uint32_t number) const {
  const Descriptor look(Open(number));
  if (!look.IsOpen()) return -ENOENT;
  const Descriptor folder(sys::Openat(look.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return folder.IsOpen() ? sys::Syncfs(folder.get()) : -ENOENT;
}

// Each file system by one of the folders; or all that there are, if one has none that can be had.
long Names::Sync() const {
  constexpr uint32_t kMost = 8;
  uint64_t synced[kMost];
  uint32_t n = 0;
  const auto is_synced = [&](const Who& who) {
    return std::find(synced, synced + n, who.file_system) != synced + n;
  };
  for (uint32_t i = 0; i < whos_.count() && n < kMost; ++i) {
    if (!whos_[i].is_folder || is_synced(whos_[i])) continue;
    const long error = SyncFileSystemOf(i);
    if (error == -ENOENT) continue;
    if (error < 0) {
      if (summary_.error == 0) summary_.error = static_cast<int>(-error);
      return error;
    }
    synced[n++] = whos_[i].file_system;
  }
  for (uint32_t i = 0; i < whos_.count(); ++i) {
    if (is_synced(whos_[i])) continue;
    sys::Call(SYS_sync);
    break;
  }
  return 0;
}

}  // namespace nvcache::replay
