// SPDX-License-Identifier: BSD-3-Clause
#include "src/replay/names.h"

#include <errno.h>
#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <utility>

#include "src/pmem/persist.h"
#include "src/pool/pool.h"
#include "src/replay/replay.h"
#include "src/replay/resolve.h"
#include "src/sys/check.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/sys/text.h"

namespace nvcache::recovery {

using nvlog::RecordHeader;
using pool::NameRecord;

namespace {

constexpr unsigned kNoReplace = 1;  // RENAME_NOREPLACE
constexpr int kToLook = O_PATH | O_NOFOLLOW | O_CLOEXEC;

// Of a file that has to give its names away, or is made: in each folder that it belongs to.
using SafeName = sys::Text<40>;
SafeName SafeNameOf(uint64_t fingerprint) {
  SafeName name;
  name.Append(".nvcache-").AppendNumber(fingerprint);
  return name;
}

using FdLink = sys::Text<32>;
FdLink LinkTo(long fd) {
  FdLink link;
  link.Append(NVCACHE_DESCRIPTORS "/").AppendNumber(static_cast<uint64_t>(fd));
  return link;
}

class Descriptor {
 public:
  explicit Descriptor(long fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) sys::Close(static_cast<int>(fd_));
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  bool ok() const { return fd_ >= 0; }
  long error() const { return fd_; }
  int get() const { return static_cast<int>(fd_); }
  long Release() {
    const long fd = fd_;
    fd_ = -1;
    return fd;
  }
  void Take(Descriptor& other) { Reset(other.Release()); }
  void Reset(long fd) {
    if (fd_ >= 0) sys::Close(static_cast<int>(fd_));
    fd_ = fd;
  }

 private:
  long fd_;
};

bool IsOutOfDescriptors(long error) { return error == -EMFILE || error == -ENFILE; }
// Or something else has the name, or that of a folder before it.
bool IsMissing(long error) { return error == -ENOENT || error == -ENOTDIR || error == -ELOOP; }

long Remove(int folder, const char* name, bool is_folder) {
  return sys::Unlinkat(folder, name, is_folder ? AT_REMOVEDIR : 0);
}

// Away with what has a safe name and was made in vain, if nobody has put anything into it.
long RemoveVain(int folder, const char* safe) {
  struct stat st;
  const long error = sys::Fstatat(folder, safe, &st, AT_SYMLINK_NOFOLLOW);
  if (error < 0) return error == -ENOENT ? 0 : error;
  if (S_ISREG(st.st_mode) && st.st_size != 0) return -EEXIST;
  return Remove(folder, safe, S_ISDIR(st.st_mode));
}

// Attributes of what `look` is open to, with O_PATH, if it has others.

long SetOwner(int look, uint32_t uid, uint32_t gid) {
  struct stat st;
  const long error = sys::Fstat(look, &st);
  if (error < 0 || (st.st_uid == uid && st.st_gid == gid)) return error;
  return sys::Call(SYS_fchownat, look, sys::Address(""), uid, gid, AT_EMPTY_PATH);
}

// The mode of a record, for a file that the file system may have with a later owner, whom no record
// names: what the kernel took from it then (chown(2)), that one must not get.
mode_t ModeFor(const struct stat& st, const NameRecord& record) {
  mode_t mode = record.mode & 07777;
  const bool is_same = st.st_uid == record.uid && st.st_gid == record.gid;
  if (is_same || S_ISDIR(st.st_mode)) return mode;
  mode &= ~mode_t{S_ISUID};
  return (mode & S_IXGRP) != 0 ? mode & ~mode_t{S_ISGID} : mode;
}

// After the owner.
long SetMode(int look, const NameRecord& record) {
  struct stat st;
  if (S_ISLNK(record.mode)) return 0;
  if (const long error = sys::Fstat(look, &st); error < 0) return error;
  const mode_t mode = ModeFor(st, record);
  if ((st.st_mode & 07777) == mode) return 0;
  return sys::Fchmodat(AT_FDCWD, LinkTo(look).c_str(), mode);
}

long SetAsBorn(int look, const NameRecord& record) {
  const long error = SetOwner(look, record.uid, record.gid);
  return error < 0 ? error : SetMode(look, record);
}

// `is_changed`: bytes that came later have set one of them anew.
long SetTimes(int look, const NameRecord& record, bool is_changed) {
  const timespec access = {record.access_seconds, static_cast<long>(record.access_nanoseconds)};
  const timespec change = {record.change_seconds, static_cast<long>(record.change_nanoseconds)};
  const timespec times[2] = {access, is_changed ? timespec{0, UTIME_OMIT} : change};
  if (S_ISLNK(record.mode)) {
    return sys::Call(SYS_utimensat, look, sys::Address(""), sys::Address(times), AT_EMPTY_PATH);
  }
  return sys::Call(SYS_utimensat, AT_FDCWD, sys::Address(LinkTo(look).c_str()), sys::Address(times),
                   0);
}

}  // namespace

// ------------------------------------------------------------------------------------------- Find

// The file itself, or what was made in its place.
bool Names::Is(const Who& who, const pool::Identity& identity) const {
  return pool::SameIdentity(who.identity, identity) ||
         (who.successor != 0 && pool::Fingerprint(identity) == who.successor);
}

long Names::LookInFolder(const Who& who, int folder, const char* name) const {
  Descriptor look(sys::Openat(folder, name, kToLook));
  if (!look.ok()) return look.error();
  pool::Identity now;
  const long error = pool::Identify(look.get(), &now);
  if (error < 0) return error;
  return Is(who, now) ? look.Release() : -ENOENT;
}

// On whichever file system: the number of one (XFS) is that of its device, which may be another one
// after a boot.
long Names::LookByPathOf(const Who& who) const {
  Descriptor look(who.path != 0 ? LookByPath(&texts_[who.path]) : -ENOENT);
  pool::Identity now;
  if (look.ok() && pool::Identify(look.get(), &now) == 0 && Is(who, now)) return look.Release();
  return look.ok() ? -ENOENT : look.error();
}

// With O_PATH: by the path that it had, by a name that it had in the logs, or by a safe one, or
// wherever it is. -ENOENT: it is nowhere; anything else: that cannot be told. Then it is not looked
// for again before it is made: many names may be in it, and it may be in itself.
long Names::Open(uint32_t number, uint32_t depth) const {
  Mark& mark = marks_[number];
  if (mark.missing != 0 && mark.depth <= depth) return mark.missing;
  const long found = Seek(number, depth);
  if (found < 0 && !IsOutOfDescriptors(found)) {
    mark.missing = static_cast<int>(found);
    mark.depth = depth;
  }
  return found;
}

long Names::Seek(uint32_t number, uint32_t depth) const {
  const Who& who = whos_[number];
  long found = LookByPathOf(who);
  if (found >= 0 || IsOutOfDescriptors(found)) return found;
  long why = IsMissing(found) ? -ENOENT : found;
  const SafeName safe = SafeNameOf(who.fingerprint);
  Descriptor near(-1);
  for (uint32_t tie = who.ties; tie != 0 && depth < kMaxDepth; tie = ties_[tie - 1].next) {
    const Spot& spot = spots_[ties_[tie - 1].spot];
    Descriptor folder(Open(spot.folder, depth + 1));
    for (const char* name : {NameOf(spot), safe.c_str()}) {
      found = folder.ok() ? LookInFolder(who, folder.get(), name) : folder.error();
      if (found >= 0 || IsOutOfDescriptors(found)) return found;
      if (!IsMissing(found)) why = found;
    }
    if (!near.ok()) near.Take(folder);
  }
  found = LookByIdentity(who.identity, who.file_system, near.ok() ? near.get() : -1);
  return found == -ENOENT ? why : found;
}

bool Names::IsFound(uint32_t who) const { return Descriptor(Open(who)).ok(); }
bool Names::IsNowhere(uint32_t who) const { return Descriptor(Open(who)).error() == -ENOENT; }

long Names::LookAt(int folder, const char* name, Occupant* occupant) const {
  *occupant = {};
  pool::Identity now;
  struct statx st;
  const long error = pool::IdentifyAt(folder, name, &now, &st);
  if (error == -ENOENT) return 0;
  if (error < 0) return error;
  *occupant = {true, S_ISDIR(st.stx_mode), Find(pool::Fingerprint(now)), st.stx_nlink};
  return 0;
}

bool Names::LeadsTo(uint32_t number, uint32_t who) const {
  const Spot& spot = spots_[number];
  const Descriptor folder(Open(spot.folder));
  Occupant occupant;
  return folder.ok() && LookAt(folder.get(), NameOf(spot), &occupant) == 0 && occupant.exists &&
         occupant.who == who;
}

bool Names::WasRemoved(uint32_t spot, const Occupant& occupant) const {
  if (occupant.who == kNobody) return false;
  for (uint32_t tie = whos_[occupant.who].ties; tie != 0; tie = ties_[tie - 1].next) {
    if (ties_[tie - 1].spot == spot) return ties_[tie - 1].removed;
  }
  return false;
}

// Of a file that was not removed altogether. Folders have one name.
bool Names::IsLastName(const Occupant& occupant, uint32_t safe_names) const {
  if (occupant.who != kNobody && whos_[occupant.who].gone) return false;
  return occupant.is_folder || occupant.links <= 1 + safe_names;
}

// Nobody's file has the name but one that the logs removed from it; nor a folder, but one that has
// another name in the logs.
bool Names::MayGive(uint32_t spot, uint32_t who, const Occupant& occupant) const {
  if (!occupant.exists || occupant.who == who) return true;
  if (!WasRemoved(spot, occupant)) return false;
  return !IsLastName(occupant, 0) || (occupant.is_folder && HasLast(occupant.who));
}

uint32_t Names::CountSafeNames(uint32_t number) const {
  const Who& who = whos_[number];
  const SafeName safe = SafeNameOf(who.fingerprint);
  uint32_t count = 0;
  ++counts_;
  for (uint32_t tie = who.ties; tie != 0; tie = ties_[tie - 1].next) {
    const uint32_t folder = spots_[ties_[tie - 1].spot].folder;
    if (std::exchange(marks_[folder].seen, counts_) == counts_) continue;
    const Descriptor at(Open(folder));
    Occupant occupant;
    if (at.ok() && LookAt(at.get(), safe.c_str(), &occupant) == 0 && occupant.exists &&
        occupant.who == number) {
      ++count;
    }
  }
  return count;
}

// By somebody whom no log knows, and later: it is there, but not where the logs know of.
bool Names::WasMoved(uint32_t number) const {
  const Who& who = whos_[number];
  if (who.has_others) return false;
  const SafeName safe = SafeNameOf(who.fingerprint);
  for (uint32_t tie = who.ties; tie != 0; tie = ties_[tie - 1].next) {
    const Spot& spot = spots_[ties_[tie - 1].spot];
    const Descriptor folder(Open(spot.folder));
    Occupant occupant;
    if (!folder.ok()) continue;
    for (const char* name : {NameOf(spot), safe.c_str()}) {
      if (LookAt(folder.get(), name, &occupant) < 0) continue;
      if (occupant.exists && occupant.who == number) return false;
    }
  }
  return true;
}

bool Names::IsPlaced(uint32_t number) const {
  for (uint32_t tie = whos_[number].ties; tie != 0; tie = ties_[tie - 1].next) {
    const uint32_t spot = ties_[tie - 1].spot;
    if (spots_[spot].last == number + 1 && LeadsTo(spot, number)) return true;
  }
  return false;
}

bool Names::HasLast(uint32_t number) const {
  for (uint32_t tie = whos_[number].ties; tie != 0; tie = ties_[tie - 1].next) {
    if (spots_[ties_[tie - 1].spot].last == number + 1) return true;
  }
  return false;
}

// By a run that is no dry one.
bool Names::IsToBeMade(uint32_t number, uint32_t depth) const {
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

bool Names::LooksToBeMade(uint32_t number, uint32_t depth) const {
  const Who& who = whos_[number];
  if (Lacks(who) || who.gone || depth > kMaxDepth || !IsNowhere(number)) return false;
  for (uint32_t tie = who.ties; tie != 0; tie = ties_[tie - 1].next) {
    const Spot& spot = spots_[ties_[tie - 1].spot];
    if (spot.last != number + 1) continue;
    const Descriptor folder(Open(spot.folder));
    if (!folder.ok() && IsToBeMade(spot.folder, depth + 1)) return true;
    Occupant occupant;
    const bool is_free = folder.ok() && LookAt(folder.get(), NameOf(spot), &occupant) == 0 &&
                         (!occupant.exists || WasRemoved(ties_[tie - 1].spot, occupant));
    if (is_free) return true;
  }
  return false;
}

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

// What has lost another name for it is renamed.
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
  if (folder.ok()) return 0;
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

// A file that has one of its last names is not missed; nor is one that somebody has moved. What was
// removed is not in a folder that is gone, but where nothing is mounted it may come back, with its
// folder: if the logs have removed that, its own name is told.
void Names::TellUnresolvedSpot(uint32_t number) {
  Spot& spot = spots_[number];
  int error = spot.error;
  if (spot.last == 0 && error == 0 && !whos_[spot.folder].gone) {
    error = WhyNotThere(spot.folder);
    if (error == ENOTDIR) error = 0;
  }
  if (spot.last != 0) {
    const uint32_t who = spot.last - 1;
    if (LeadsTo(number, who)) return;
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
    if (spot.folder != opened) folder.Reset(Open(spot.folder));
    opened = spot.folder;
    if (folder.ok()) {
      function(i, spot, folder.get());
    } else if (folder.error() != -ENOENT) {
      Fail(i, folder.error());
    }
  }
}

// ------------------------------------------------------------------------------------ Make, secure

// What has a name that it has to give away has another one before that: here, for the folder that
// it belongs to may have to be made first.
void Names::Secure(uint32_t number, const Spot& spot, int folder) {
  Occupant occupant;
  const long error = LookAt(folder, NameOf(spot), &occupant);
  if (error < 0) return Fail(number, error);
  if (!occupant.exists || occupant.is_folder || occupant.who + 1 == spot.last) return;
  if (!WasRemoved(number, occupant) || whos_[occupant.who].gone) return;
  const SafeName safe = SafeNameOf(whos_[occupant.who].fingerprint);
  const long linked = sys::Linkat(folder, NameOf(spot), folder, safe.c_str(), 0);
  if (linked < 0 && linked != -EEXIST) Fail(number, linked);
}

long Names::StoreSuccessor(uint32_t number, int fd) {
  pool::Identity made;
  if (const long error = pool::Identify(fd, &made); error < 0) return error;
  auto* header = reinterpret_cast<RecordHeader*>(reader_.view().unit(whos_[number].born));
  SetSuccessor(number, pool::Fingerprint(made));
  pmem::Store(header->link, whos_[number].successor);
  pmem::Pwb(header, sizeof(*header), pmem::Step::kSuccessor);
  pmem::Psync(pmem::Step::kSuccessorDurable);
  return 0;
}

// Empty, with its owner and mode.
long Names::MakeAs(const NameRecord& record, uint32_t number, int folder) {
  const SafeName safe = SafeNameOf(whos_[number].fingerprint);
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
  if (!made.ok()) return made.error();
  error = SetAsBorn(made.get(), record);
  return error < 0 ? error : StoreSuccessor(number, made.get());
}

// Under its safe name. Of an earlier recovery that has not come so far, something may be there.
long Names::Make(uint32_t number, int folder) {
  const SafeName safe = SafeNameOf(whos_[number].fingerprint);
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
    if (!folder.ok() || LookAt(folder.get(), NameOf(spot), &occupant) < 0 ||
        !MayGive(spot_number, number, occupant)) {
      continue;
    }
    if (const long error = Make(number, folder.get()); error < 0) {
      Fail(spot_number, error);
      continue;
    }
    Tell(NameAct::kCreate, spot);
    // What is in it is made next.
    if (who.is_folder && Clear(folder.get(), NameOf(spot), occupant) == 0) {
      Move(number, folder.get(), NameOf(spot));
    }
    marks_[number].is_made = true;
    return true;
  }
  return false;
}

// Folders first, then what is in them. Each is younger than the one that it is in, unless it was
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

// Away with what the logs have removed. A folder may have something in it that goes later, or may
// get its own name later.
long Names::Clear(int folder, const char* name, const Occupant& occupant) const {
  if (!occupant.exists) return 0;
  const bool goes = !occupant.is_folder || whos_[occupant.who].gone;
  const long error = goes ? Remove(folder, name, occupant.is_folder) : -ENOTEMPTY;
  if (error != -ENOTEMPTY) return error;
  const SafeName safe = SafeNameOf(whos_[occupant.who].fingerprint);
  return sys::Call(SYS_renameat2, folder, sys::Address(name), folder, sys::Address(safe.c_str()),
                   kNoReplace);
}

// A folder has one name: a safe one, or one that it had in the logs.
long Names::Move(uint32_t number, int folder, const char* name) const {
  const SafeName safe = SafeNameOf(whos_[number].fingerprint);
  for (uint32_t tie = whos_[number].ties; tie != 0; tie = ties_[tie - 1].next) {
    const Spot& spot = spots_[ties_[tie - 1].spot];
    const Descriptor at(Open(spot.folder));
    for (const char* now : {safe.c_str(), NameOf(spot)}) {
      Occupant occupant;
      if (!at.ok() || LookAt(at.get(), now, &occupant) < 0) continue;
      if (!occupant.exists || occupant.who != number) continue;
      return sys::Call(SYS_renameat2, at.get(), sys::Address(now), folder, sys::Address(name),
                       kNoReplace);
    }
  }
  return -ENOENT;
}

// Of what an earlier run has made, the file system may have kept the file alone, as it was before
// it had its owner and its mode. It has no name of its own yet, so nobody else has given it others.
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
  if (!found.ok() || WasMoved(who) || !MayGive(number, who, occupant)) return false;
  const bool is_new = whos_[who].successor != 0;
  if (is_new && !IsPlaced(who)) error = SetAsBornAgain(who, found.get());
  if (error == 0) error = Clear(folder, name, occupant);
  if (error == 0) {
    error = whos_[who].is_folder ? Move(who, folder, name)
                                 : sys::Linkat(AT_FDCWD, LinkTo(found.get()).c_str(), folder, name,
                                               AT_SYMLINK_FOLLOW);
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

// A folder goes when what was in it is gone.
void Names::RemoveNames() {
  bool again;
  do {
    again = false;
    ForEachFinal([&](uint32_t i, const Spot& at, int folder) {
      again = RemoveName(i, at, folder) || again;
    });
  } while (again);
}

// Of a folder that had to give its name to another one, too, if it is empty by now. What was made
// in vain has such a name as well. True: one is gone.
bool Names::RemoveSafeNamesOf(uint32_t number) {
  const SafeName safe = SafeNameOf(whos_[number].fingerprint);
  bool gone = false;
  for (uint32_t tie = whos_[number].ties; tie != 0; tie = ties_[tie - 1].next) {
    const Descriptor folder(Open(spots_[ties_[tie - 1].spot].folder));
    Occupant occupant;
    if (!folder.ok() || LookAt(folder.get(), safe.c_str(), &occupant) < 0 || !occupant.exists) {
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

namespace {

constexpr uint32_t kInOrder[] = {pool::kSetOwner, pool::kSetMode, pool::kSetTimes};

long SetAttribute(uint32_t which, const NameRecord& record, bool is_changed, int look) {
  switch (which) {
    case pool::kSetOwner:
      return SetOwner(look, record.uid, record.gid);
    case pool::kSetMode:
      return SetMode(look, record);
    default:
      return SetTimes(look, record, is_changed);
  }
}

}  // namespace

// As one of its names.
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

// What is not there any more was removed by somebody whom no log knows; but that has to be seen.
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

// Owner before mode: to be given away takes set-user-ID away.
void Names::SetAttributes(uint32_t number) {
  const Who& who = whos_[number];
  sys::Scratch<NameRecord> record;
  for (const uint32_t which : kInOrder) {
    const nvlog::Place place = who.attributes[std::countr_zero(which)];
    if (place == nvlog::kNoPlace || !CopyAt(place, record.get())) continue;
    const Descriptor look(Open(number));
    if (!look.ok()) return TellUnreachableAttributes(number);
    const bool is_changed = reader_.At(place).lsn < who.changed;
    const long error = SetAttribute(which, *record, is_changed, look.get());
    if (error < 0) return TellUnresolvedAttributes(number, static_cast<int>(-error));
  }
}

// A folder may be closed to its owner then: so what is in it comes first.
void Names::SetAttributesOf(bool folders) {
  for (uint32_t i = whos_.count(); i-- > 0;) {
    if (whos_[i].is_folder == folders) SetAttributes(i);
  }
}

// ---------------------------------------------------------------------------------------- Together

// As it would be, name by name.
void Names::TellOfDryRun(uint32_t number) {
  const Spot& spot = spots_[number];
  const uint32_t who = spot.last - 1;
  const Descriptor folder(Open(spot.folder));
  Occupant occupant = {};
  const long error = folder.ok() ? LookAt(folder.get(), NameOf(spot), &occupant) : 0;
  if (error < 0) {
    Fail(number, error);
    return TellUnresolvedSpot(number);
  }
  if (spot.last == 0) {
    if (!folder.ok()) return TellUnresolvedSpot(number);
    if (!occupant.exists || !WasRemoved(number, occupant)) return;
    const bool moves = occupant.is_folder && HasLast(occupant.who);
    const bool goes = occupant.is_folder || !IsLastName(occupant, 0) || HasLast(occupant.who);
    if (goes && !moves) Tell(NameAct::kRemove, spot);
    return;
  }
  if (occupant.exists && occupant.who == who) return;
  const bool is_free = !occupant.exists || WasRemoved(number, occupant);
  const bool has_folder = folder.ok() || IsToBeMade(spot.folder);
  if (is_free && has_folder && IsToBeMade(who)) {
    Tell(NameAct::kCreate, spot);
  } else if (is_free && has_folder && IsFound(who) && !WasMoved(who)) {
    Tell(PlaceActOf(who), spot);
  } else {
    TellUnresolvedSpot(number);
  }
}

void Names::Agree(bool dry_run) {
  if (!any()) return;
  dry_run_ = dry_run;
  FoldOpen();
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
  if (!look.ok()) return -ENOENT;
  const Descriptor folder(sys::Openat(look.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return folder.ok() ? sys::Syncfs(folder.get()) : -ENOENT;
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

}  // namespace nvcache::recovery
