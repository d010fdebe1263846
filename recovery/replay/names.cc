// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/replay/names.h"

#include <errno.h>
#include <fcntl.h>

#include <cstring>

#include "recovery/replay/replay.h"
#include "recovery/replay/resolve.h"
#include "src/pmem/persist.h"
#include "src/pool/pool.h"
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

 private:
  long fd_;
};

long Remove(int folder, const char* name, bool is_folder) {
  return sys::Unlinkat(folder, name, is_folder ? AT_REMOVEDIR : 0);
}

}  // namespace

// ------------------------------------------------------------------------------------------- Find

// The file itself, or what was made in its place.
bool Names::Is(const Who& who, const pool::Identity& identity) const {
  return pool::SameIdentity(who.identity, identity) ||
         (who.successor != 0 && pool::Fingerprint(identity) == who.successor);
}

// With O_PATH. By the path that it had, or as any file.
long Names::OpenFolder(uint32_t number, uint32_t depth) const {
  const Who& who = whos_[number];
  if (who.path != 0) {
    Descriptor folder(LookByPath(&texts_[who.path]));
    pool::Identity now;
    if (folder.ok() && pool::Identify(folder.get(), &now) == 0 && Is(who, now) &&
        IsOnFileSystem(LinkTo(folder.get()).c_str(), who.file_system)) {
      return folder.Release();
    }
  }
  return depth < kMaxDepth ? OpenFound(number, depth + 1) : -ELOOP;
}

// With O_PATH: by a name that it had in the logs, or by a safe one, or wherever it is.
long Names::OpenFound(uint32_t number, uint32_t depth) const {
  const Who& who = whos_[number];
  const SafeName safe = SafeNameOf(who.fingerprint);
  for (uint32_t tie = who.ties; tie != 0; tie = ties_[tie - 1].next) {
    const Spot& spot = spots_[ties_[tie - 1].spot];
    const Descriptor folder(OpenFolder(spot.folder, depth));
    if (!folder.ok()) continue;
    for (const char* name : {NameOf(spot), safe.c_str()}) {
      Descriptor look(sys::Openat(folder.get(), name, kToLook));
      pool::Identity now;
      if (look.ok() && pool::Identify(look.get(), &now) == 0 && Is(who, now)) {
        return look.Release();
      }
    }
  }
  return LookByIdentity(who.identity, who.file_system);
}

bool Names::IsFound(uint32_t who) const { return Descriptor(OpenFound(who)).ok(); }

// False: it cannot be told.
bool Names::LookAt(int folder, const char* name, Occupant* occupant) const {
  *occupant = {};
  pool::Identity now;
  struct statx st;
  const long error = pool::IdentifyAt(folder, name, &now, &st);
  if (error == -ENOENT) return true;
  if (error < 0) return false;
  *occupant = {true, S_ISDIR(st.stx_mode), Find(pool::Fingerprint(now)), st.stx_nlink};
  return true;
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

// Nobody's file has the name but one that the logs removed from it.
bool Names::MayGive(uint32_t spot, uint32_t who, const Occupant& occupant) const {
  return !occupant.exists || occupant.who == who ||
         (WasRemoved(spot, occupant) && !IsLastName(occupant, 0));
}

uint32_t Names::CountSafeNames(uint32_t number) const {
  const Who& who = whos_[number];
  const SafeName safe = SafeNameOf(who.fingerprint);
  uint32_t count = 0;
  for (uint32_t tie = who.ties; tie != 0; tie = ties_[tie - 1].next) {
    const uint32_t folder = spots_[ties_[tie - 1].spot].folder;
    bool seen = false;
    for (uint32_t before = who.ties; before != tie; before = ties_[before - 1].next) {
      seen = seen || spots_[ties_[before - 1].spot].folder == folder;
    }
    if (seen) continue;
    const Descriptor at(OpenFolder(folder));
    Occupant occupant;
    if (at.ok() && LookAt(at.get(), safe.c_str(), &occupant) && occupant.exists &&
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
    const Descriptor folder(OpenFolder(spot.folder));
    Occupant occupant;
    if (!folder.ok()) continue;
    for (const char* name : {NameOf(spot), safe.c_str()}) {
      if (!LookAt(folder.get(), name, &occupant)) continue;
      if (occupant.exists && occupant.who == number) return false;
    }
  }
  return true;
}

bool Names::IsPlaced(uint32_t number) const {
  for (uint32_t tie = whos_[number].ties; tie != 0; tie = ties_[tie - 1].next) {
    const Spot& spot = spots_[ties_[tie - 1].spot];
    if (spot.last != number + 1) continue;
    const Descriptor folder(OpenFolder(spot.folder));
    Occupant occupant;
    if (folder.ok() && LookAt(folder.get(), NameOf(spot), &occupant) && occupant.exists &&
        occupant.who == number) {
      return true;
    }
  }
  return false;
}

long Names::Look(uint64_t fingerprint, uint64_t* successor) const {
  const uint32_t number = Find(fingerprint);
  if (number == kNobody) return kNotMine;
  *successor = whos_[number].successor;
  const Who& who = whos_[number];
  const long found = OpenFound(number);
  // In a dry run it would have been made.
  if (found < 0 && dry_run_ && !Lacks(who)) return -ENOENT;
  return found < 0 && !who.gone ? kNotMine : found;
}

// ------------------------------------------------------------------------------------------- Tell

void Names::Tell(NameAct act, const Spot& spot) const {
  ++summary_.names;
  if (observer_.name == nullptr) return;
  const Who& folder = whos_[spot.folder];
  observer_.name(observer_.context, act, &texts_[folder.path], NameOf(spot));
}

void Names::TellUnresolved(const Spot& spot, long error) {
  ++summary_.unresolved_names;
  if (summary_.error == 0) summary_.error = static_cast<int>(-error);
  if (observer_.unresolved_name == nullptr) return;
  const Who& folder = whos_[spot.folder];
  observer_.unresolved_name(observer_.context, &texts_[folder.path], NameOf(spot),
                            static_cast<int>(-error));
}

// Each name that the logs have the last word of, with its folder. One whose folder cannot be had is
// unresolved, if it is to lead to something.
template <typename Function>
void Names::ForEachFinal(Function function) {
  for (uint32_t i = 0; i < spots_.count(); ++i) {
    const Spot& spot = spots_[i];
    if (!spot.is_final) continue;
    const Descriptor folder(OpenFolder(spot.folder));
    if (folder.ok()) function(i, spot, folder.get());
  }
}

// ------------------------------------------------------------------------------------ Make, secure

// What has a name that it has to give away has another one before that: here, for the folder that
// it belongs to may have to be made first.
void Names::Secure(uint32_t, const Spot& spot, int folder) {
  Occupant occupant;
  if (!LookAt(folder, NameOf(spot), &occupant) || !occupant.exists || occupant.is_folder) return;
  if (occupant.who == kNobody || occupant.who + 1 == spot.last) return;
  const Who& who = whos_[occupant.who];
  if (who.gone) return;
  sys::Linkat(folder, NameOf(spot), folder, SafeNameOf(who.fingerprint).c_str(), 0);
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

// Under its safe name. Of an earlier recovery that has not come so far, something may be there.
long Names::Make(uint32_t number, int folder) {
  const Who& who = whos_[number];
  sys::Scratch<NameRecord> record;
  if (!CopyAt(who.born, record.get())) return -EBADMSG;
  const SafeName safe = SafeNameOf(who.fingerprint);
  const mode_t mode = record->mode & 07777;
  if (Remove(folder, safe.c_str(), false) == -EISDIR) Remove(folder, safe.c_str(), true);
  long error;
  if (S_ISDIR(record->mode)) {
    error = sys::Call(SYS_mkdirat, folder, sys::Address(safe.c_str()), static_cast<long>(mode));
  } else if (S_ISLNK(record->mode)) {
    error = sys::Call(SYS_symlinkat, sys::Address(pool::TextsOf(*record).target), folder,
                      sys::Address(safe.c_str()));
  } else {
    error = sys::Openat(folder, safe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (error >= 0) sys::Close(static_cast<int>(error));
  }
  if (error < 0) return error;
  const Descriptor made(sys::Openat(folder, safe.c_str(), kToLook));
  if (!made.ok()) return made.error();
  const FdLink link = LinkTo(made.get());
  struct stat st;
  if (sys::Fstat(made.get(), &st) == 0 && (st.st_uid != record->uid || st.st_gid != record->gid)) {
    error = sys::Call(SYS_fchownat, folder, sys::Address(safe.c_str()), record->uid, record->gid,
                      AT_SYMLINK_NOFOLLOW);
    if (error < 0) return error;
  }
  if (!S_ISLNK(record->mode)) {
    error = sys::Fchmodat(AT_FDCWD, link.c_str(), mode);
    if (error < 0) return error;
  }
  return StoreSuccessor(number, made.get());
}

void Names::MakeLost(uint32_t number) {
  const Who& who = whos_[number];
  if (Lacks(who) || who.gone) return;
  for (uint32_t tie = who.ties; tie != 0; tie = ties_[tie - 1].next) {
    const uint32_t number_of_spot = ties_[tie - 1].spot;
    const Spot& spot = spots_[number_of_spot];
    if (spot.last != number + 1) continue;
    const Descriptor folder(OpenFolder(spot.folder));
    Occupant occupant;
    if (!folder.ok() || IsFound(number) || !LookAt(folder.get(), NameOf(spot), &occupant) ||
        !MayGive(number_of_spot, number, occupant)) {
      continue;
    }
    if (const long error = Make(number, folder.get()); error < 0) {
      TellUnresolved(spot, error);
      return;
    }
    Tell(NameAct::kCreate, spot);
    // What is in it is made next.
    if (who.is_folder && Clear(folder.get(), NameOf(spot), occupant) == 0) {
      Move(number, folder.get(), NameOf(spot));
    }
    return;
  }
}

// ------------------------------------------------------------------------------------------ Place

// Away with what the logs have removed. A folder may have something in it that goes later.
long Names::Clear(int folder, const char* name, const Occupant& occupant) const {
  if (!occupant.exists) return 0;
  const long error = Remove(folder, name, occupant.is_folder);
  if (error != -ENOTEMPTY) return error;
  const SafeName safe = SafeNameOf(whos_[occupant.who].fingerprint);
  return sys::Call(SYS_renameat2, folder, sys::Address(name), folder, sys::Address(safe.c_str()),
                   kNoReplace);
}

long Names::Move(uint32_t number, int folder, const char* name) const {
  const SafeName safe = SafeNameOf(whos_[number].fingerprint);
  return sys::Call(SYS_renameat2, folder, sys::Address(safe.c_str()), folder, sys::Address(name),
                   kNoReplace);
}

void Names::PlaceAt(uint32_t number, const Spot& spot, int folder) {
  if (spot.last == 0) return;
  const uint32_t who = spot.last - 1;
  const char* name = NameOf(spot);
  Occupant occupant;
  if (!LookAt(folder, name, &occupant)) return;
  if (occupant.exists && occupant.who == who) return;
  const Descriptor found(OpenFound(who));
  if (!found.ok() || WasMoved(who) || !MayGive(number, who, occupant)) return;
  if (Clear(folder, name, occupant) < 0) return;
  const long error = whos_[who].is_folder ? Move(who, folder, name)
                                          : sys::Linkat(AT_FDCWD, LinkTo(found.get()).c_str(),
                                                        folder, name, AT_SYMLINK_FOLLOW);
  if (error == 0) Tell(NameAct::kPlace, spot);
}

// True: a name is gone.
bool Names::RemoveName(uint32_t number, const Spot& spot, int folder) {
  Occupant occupant;
  const bool is_free = spot.last == 0 || (IsFound(spot.last - 1) && WasMoved(spot.last - 1));
  if (!is_free || !LookAt(folder, NameOf(spot), &occupant) || !occupant.exists) return false;
  if (!WasRemoved(number, occupant)) return false;
  if (IsLastName(occupant, CountSafeNames(occupant.who))) return false;
  const long error = Remove(folder, NameOf(spot), occupant.is_folder);
  if (error == 0) Tell(NameAct::kRemove, spot);
  // A folder that somebody has put something into stays.
  if (error < 0 && error != -ENOTEMPTY) TellUnresolved(spot, error);
  return error == 0;
}

// Of a folder that had to give its name to another one, too, if it is empty by now. What was made
// in vain has such a name as well.
void Names::RemoveSafeNames(uint32_t number) {
  const Who& who = whos_[number];
  const SafeName safe = SafeNameOf(who.fingerprint);
  for (uint32_t tie = who.ties; tie != 0; tie = ties_[tie - 1].next) {
    const Descriptor folder(OpenFolder(spots_[ties_[tie - 1].spot].folder));
    Occupant occupant;
    if (!folder.ok() || !LookAt(folder.get(), safe.c_str(), &occupant) || !occupant.exists) {
      continue;
    }
    const bool is_its = occupant.who == number;
    if (is_its && IsLastName(occupant, CountSafeNames(number) - 1)) continue;
    Remove(folder.get(), safe.c_str(), occupant.is_folder);
  }
}

// ---------------------------------------------------------------------------------------- Together

// As it would be, name by name.
void Names::TellOfDryRun(uint32_t number, const Spot& spot, int folder) {
  Occupant occupant;
  if (!LookAt(folder, NameOf(spot), &occupant)) return;
  if (spot.last == 0) {
    if (occupant.exists && WasRemoved(number, occupant)) Tell(NameAct::kRemove, spot);
    return;
  }
  const uint32_t who = spot.last - 1;
  if (occupant.exists && occupant.who == who) return;
  if (IsFound(who)) {
    if (!WasMoved(who) && MayGive(number, who, occupant)) Tell(NameAct::kPlace, spot);
  } else if (!Lacks(whos_[who]) && MayGive(number, who, occupant)) {
    Tell(NameAct::kCreate, spot);
  } else {
    TellUnresolved(spot, -ENOENT);
  }
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

void Names::Agree(bool dry_run) {
  if (!any()) return;
  dry_run_ = dry_run;
  FoldOpen();
  if (dry_run) {
    ForEachFinal([&](uint32_t i, const Spot& at, int folder) { TellOfDryRun(i, at, folder); });
    return;
  }
  ForEachFinal([&](uint32_t i, const Spot& at, int folder) { Secure(i, at, folder); });
  // Folders in the order in which they were born, for these are never moved; then what is in them.
  for (const bool folders : {true, false}) {
    for (uint32_t i = 0; i < whos_.count(); ++i) {
      if (whos_[i].is_folder == folders) MakeLost(i);
    }
  }
  ForEachFinal([&](uint32_t i, const Spot& at, int folder) { PlaceAt(i, at, folder); });
  for (uint32_t i = 0; i < spots_.count(); ++i) {
    const Spot& spot = spots_[i];
    if (spot.last == 0) continue;
    const uint32_t who = spot.last - 1;
    if (!IsPlaced(who) && !(IsFound(who) && WasMoved(who))) TellUnresolved(spot, -ENOENT);
  }
  RemoveNames();
}

// Owner before mode: to be given away takes set-user-ID away.
void Names::SetAttributes(uint32_t number) {
  const Who& who = whos_[number];
  sys::Scratch<NameRecord> record;
  Descriptor found(-1);
  for (const uint32_t set : {pool::kSetOwner, pool::kSetMode, pool::kSetTimes}) {
    const nvlog::Place place = who.attributes[set == pool::kSetMode    ? 0
                                              : set == pool::kSetOwner ? 1
                                                                       : 2];
    if (place == nvlog::kNoPlace || !CopyAt(place, record.get())) continue;
    const Descriptor look(OpenFound(number));
    if (!look.ok() || S_ISLNK(record->mode)) return;
    const FdLink link = LinkTo(look.get());
    const timespec times[2] = {
        {record->access_seconds, static_cast<long>(record->access_nanoseconds)},
        {record->change_seconds, static_cast<long>(record->change_nanoseconds)}};
    long error = 0;
    if (set == pool::kSetOwner) {
      error = sys::Call(SYS_fchownat, AT_FDCWD, sys::Address(link.c_str()), record->uid,
                        record->gid, 0);
    } else if (set == pool::kSetMode) {
      error = sys::Fchmodat(AT_FDCWD, link.c_str(), record->mode & 07777);
    } else {
      error =
          sys::Call(SYS_utimensat, AT_FDCWD, sys::Address(link.c_str()), sys::Address(times), 0);
    }
    if (error < 0) refused_ = true;
  }
}

bool Names::Finish() {
  if (!any()) return true;
  for (uint32_t i = 0; i < whos_.count(); ++i) SetAttributes(i);
  for (uint32_t i = whos_.count(); i-- > 0;) RemoveSafeNames(i);
  RemoveNames();  // of folders that had a safe one in them
  return Sync() && !refused_;
}

// Of each file system that has one of the folders; all of them, if none can be had.
bool Names::Sync() const {
  bool synced = false;
  uint64_t last = 0;
  for (uint32_t i = 0; i < whos_.count(); ++i) {
    const Who& who = whos_[i];
    if (!who.is_folder || (synced && who.file_system == last)) continue;
    const Descriptor look(OpenFolder(i));
    if (!look.ok()) continue;
    const Descriptor folder(sys::Openat(look.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.ok()) continue;
    if (sys::Syncfs(folder.get()) < 0) return false;
    synced = true;
    last = who.file_system;
  }
  if (!synced) sys::Call(SYS_sync);
  return true;
}

}  // namespace nvcache::recovery
