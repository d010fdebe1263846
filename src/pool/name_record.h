// SPDX-License-Identifier: BSD-3-Clause
//
// The effects of a call on names: the payload of a name record (src/nvlog/record.h). It explains
// itself: which files, by the properties by which they are known again, and in which folders.
//
// A call that destroys no name but makes one is logged when it has happened (kCreated). Every other
// change is announced first, and logged once more when it has happened: kRemoves, then kRemoved.
// All under the lock of names, so that of all announcements only the last one of the pool can lack
// its outcome. tests/names is the model, of recovery as well.
#ifndef NVCACHE_POOL_NAME_RECORD_H_
#define NVCACHE_POOL_NAME_RECORD_H_

#include <cstddef>
#include <cstdint>

#include "src/pool/format.h"

namespace nvcache::pool {

// File systems with longer handles have no names in the log.
inline constexpr size_t kMaxNameHandle = 44;

// A file, a folder, or a symbolic link. All zero: none.
struct Identity {
  uint64_t inode;
  int64_t birth_seconds;  // statx btime; with the inode it names the file, not its successor
  uint32_t birth_nanoseconds;
  int32_t handle_type;   // name_to_handle_at's
  uint32_t handle_size;  // bytes; 0: the file system has no handles
  uint8_t handle[kMaxNameHandle];
};
static_assert(offsetof(Identity, inode) == 0);
static_assert(offsetof(Identity, birth_seconds) == 8);
static_assert(offsetof(Identity, birth_nanoseconds) == 16);
static_assert(offsetof(Identity, handle_type) == 20);
static_assert(offsetof(Identity, handle_size) == 24);
static_assert(offsetof(Identity, handle) == 28);
static_assert(sizeof(Identity) == 72);

enum class Deed : uint32_t {
  // `file` is new, empty, and has `name` in `folder`; if it is a symbolic link, to `target`
  kCreated = 1,
  kLinks = 2,    // `file`, which has `from` in `from_folder`, gets `name` in `folder` as well
  kLinked = 3,   // it has
  kRemoves = 4,  // `file` loses `name` in `folder`
  kRemoved = 5,  // it has
  // `file` moves from `from` to `name`, which `other` loses, if it is not free; or an empty folder
  // moves to a free one
  kRenames = 6,
  kRenamed = 7,  // it has
  // those of `file` that `set` says are as in the record; `target` is its path, or ""
  kAttributes = 8,
};
constexpr bool IsAnnouncement(Deed deed) {
  return deed == Deed::kLinks || deed == Deed::kRemoves || deed == Deed::kRenames;
}

// NameRecord::flags.
// The file that has lost, or is about to lose, its name has no other one.
inline constexpr uint32_t kNameGone = 1;
// `file` has names that the log need not know.
inline constexpr uint32_t kNameHasOthers = 2;
// With kNameGone; counts in an announcement alone: the file that is about to lose its name may have
// bytes that no log has.
inline constexpr uint32_t kNameLacks = 4;
inline constexpr uint32_t kNameFlags = kNameGone | kNameHasOthers | kNameLacks;

// NameRecord::set, of kAttributes.
inline constexpr uint32_t kSetMode = 1;
inline constexpr uint32_t kSetOwner = 2;
inline constexpr uint32_t kSetTimes = 4;
inline constexpr uint32_t kSetAll = kSetMode | kSetOwner | kSetTimes;

inline constexpr size_t kMaxName = 255;  // without the final zero
inline constexpr size_t kNameTexts = 5;
inline constexpr size_t kMaxNameText = 2 * (kMaxName + 1) + 3 * kMaxPath;

struct NameRecord {
  uint64_t device;       // st_dev of all of them; not stable across boots
  uint64_t file_system;  // statfs f_fsid
  Deed deed;
  uint32_t flags;
  uint32_t set;
  // st_mode of `file` after kCreated and kAttributes, its owner and its times. kRenames and
  // kRenamed have S_IFDIR, if it is a folder, or 0.
  uint32_t mode;
  uint32_t uid;
  uint32_t gid;
  int64_t access_seconds;
  int64_t change_seconds;  // its bytes': st_mtime
  uint32_t access_nanoseconds;
  uint32_t change_nanoseconds;
  Identity file;
  Identity other;        // kRenames and kRenamed have it, or none
  Identity folder;       // all but kAttributes
  Identity from_folder;  // kLinks, kLinked, kRenames and kRenamed have it
  // Bytes of the texts, without the zero behind each of them; 0: it has none.
  uint16_t name_length;
  uint16_t from_length;
  uint16_t target_length;
  uint16_t folder_path_length;       // absolute, when the record was written
  uint16_t from_folder_path_length;  // the same
  uint16_t zero[3];
  char text[kMaxNameText];  // in that order
};
static_assert(offsetof(NameRecord, device) == 0);
static_assert(offsetof(NameRecord, file_system) == 8);
static_assert(offsetof(NameRecord, deed) == 16);
static_assert(offsetof(NameRecord, flags) == 20);
static_assert(offsetof(NameRecord, set) == 24);
static_assert(offsetof(NameRecord, mode) == 28);
static_assert(offsetof(NameRecord, uid) == 32);
static_assert(offsetof(NameRecord, gid) == 36);
static_assert(offsetof(NameRecord, access_seconds) == 40);
static_assert(offsetof(NameRecord, change_seconds) == 48);
static_assert(offsetof(NameRecord, access_nanoseconds) == 56);
static_assert(offsetof(NameRecord, change_nanoseconds) == 60);
static_assert(offsetof(NameRecord, file) == 64);
static_assert(offsetof(NameRecord, other) == 136);
static_assert(offsetof(NameRecord, folder) == 208);
static_assert(offsetof(NameRecord, from_folder) == 280);
static_assert(offsetof(NameRecord, name_length) == 352);
static_assert(offsetof(NameRecord, from_length) == 354);
static_assert(offsetof(NameRecord, target_length) == 356);
static_assert(offsetof(NameRecord, folder_path_length) == 358);
static_assert(offsetof(NameRecord, from_folder_path_length) == 360);
static_assert(offsetof(NameRecord, zero) == 362);
static_assert(offsetof(NameRecord, text) == 368);

struct NameTexts {
  const char *name, *from, *target, *folder_path, *from_folder_path;  // "" for one it has not
};
// IsNameRecord() is true of the record; the texts lie in it.
NameTexts TextsOf(const NameRecord& record);

// Bytes of the record in a pool.
constexpr size_t NameRecordSize(const NameRecord& record) {
  return offsetof(NameRecord, text) + record.name_length + record.from_length +
         record.target_length + record.folder_path_length + record.from_folder_path_length +
         kNameTexts;
}

// Adds a text, in the order of the fields, to a record whose lengths are 0 as yet: once for each of
// the five. `*end` is where the next one goes, 0 at first. False: it is too long.
bool AddText(NameRecord* record, uint16_t NameRecord::*length, const char* text, size_t* end);

// Whether `size` bytes, of which the checksum is right, say something that a call can do: the texts
// and identities that the deed needs are there, names are no paths and neither `.` nor `..`, paths
// are absolute.
bool IsNameRecord(const NameRecord& record, size_t size);

bool SameIdentity(const Identity& a, const Identity& b);
constexpr bool IsNone(const Identity& identity) {
  return identity.inode == 0;  // no file system has such a file
}
// The path of the name that a call makes, of kMaxPath bytes. Its length; 0: it is too long.
size_t PathOfNamed(const NameRecord& name, char* path);
// The fields of a record of write-through, of kCreated, from the file that has just been made.
// False: its path is too long.
bool DescribeMade(const NameRecord& name, FileRecord* record);

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_NAME_RECORD_H_
