// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/name_record.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/text.h"

namespace nvcache::pool {

namespace {

constexpr uint16_t NameRecord::*kLengths[kNameTexts] = {
    &NameRecord::name_length, &NameRecord::from_length, &NameRecord::target_length,
    &NameRecord::folder_path_length, &NameRecord::from_folder_path_length};

// Each ends where its length says.
bool AreTexts(const NameRecord& record) {
  const char* text = record.text;
  for (const auto length : kLengths) {
    const size_t n = record.*length;
    if (text[n] != '\0' || sys::Length(text) != n) return false;
    text += n + 1;
  }
  return true;
}

bool IsName(const char* name) {
  const size_t length = sys::Length(name);
  if (length == 0 || length > kMaxName) return false;
  if (name[0] == '.' && (length == 1 || (name[1] == '.' && length == 2))) return false;
  return std::find(name, name + length, '/') == name + length;
}

bool IsWhole(const Identity& identity) {
  return !IsNone(identity) && identity.handle_size <= kMaxNameHandle;
}

bool IsNoneAtAll(const Identity& identity) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&identity);
  return std::all_of(bytes, bytes + sizeof(identity), [](uint8_t byte) { return byte == 0; });
}

bool IsPlace(const Identity& folder, const char* path, const char* name) {
  return IsWhole(folder) && path[0] == '/' && IsName(name);
}

bool HasNoFrom(const NameRecord& record) {
  return IsNoneAtAll(record.from_folder) && record.from_length == 0 &&
         record.from_folder_path_length == 0;
}

bool CanBe(const NameRecord& record) {
  const NameTexts texts = TextsOf(record);
  const bool has_place = IsPlace(record.folder, texts.folder_path, texts.name);
  const bool has_from = IsPlace(record.from_folder, texts.from_folder_path, texts.from);
  const bool has_other = !IsNoneAtAll(record.other);
  switch (record.deed) {
    case Deed::kCreated:
      return has_place && HasNoFrom(record) && !has_other &&
             (S_ISREG(record.mode) || S_ISDIR(record.mode) ||
              (S_ISLNK(record.mode) && record.target_length > 0));
    case Deed::kLinks:
    case Deed::kLinked:
      return has_place && has_from && !has_other;
    case Deed::kRemoves:
    case Deed::kRemoved:
      return has_place && HasNoFrom(record) && !has_other;
    case Deed::kRenames:
    case Deed::kRenamed:
      return has_place && has_from &&
             (!has_other || (IsWhole(record.other) && !S_ISDIR(record.mode)));
    case Deed::kAttributes:
      return !has_other && IsNoneAtAll(record.folder) && HasNoFrom(record) &&
             record.name_length == 0 && record.folder_path_length == 0 && record.set != 0;
  }
  return false;
}

}  // namespace

NameTexts TextsOf(const NameRecord& record) {
  const char* texts[kNameTexts];
  const char* text = record.text;
  for (size_t i = 0; i < kNameTexts; ++i) {
    texts[i] = text;
    text += record.*kLengths[i] + 1;
  }
  return {texts[0], texts[1], texts[2], texts[3], texts[4]};
}

bool AddText(NameRecord* record, uint16_t NameRecord::*length, const char* text, size_t* end) {
  const size_t n = sys::Length(text);
  const size_t most = length == &NameRecord::name_length || length == &NameRecord::from_length
                          ? kMaxName + 1
                          : kMaxPath;
  if (n >= most) return false;
  NVCACHE_CHECK(*end + n + 1 <= kMaxNameText);
  std::memcpy(record->text + *end, text, n + 1);
  record->*length = static_cast<uint16_t>(n);
  *end += n + 1;
  return true;
}

bool IsNameRecord(const NameRecord& record, size_t size) {
  if (size < offsetof(NameRecord, text) + kNameTexts || size > sizeof(record) ||
      size != NameRecordSize(record)) {
    return false;
  }
  const bool in_bounds = record.name_length <= kMaxName && record.from_length <= kMaxName &&
                         record.target_length < kMaxPath && record.folder_path_length < kMaxPath &&
                         record.from_folder_path_length < kMaxPath;
  return in_bounds && AreTexts(record) && (record.flags & ~kNameFlags) == 0 &&
         (record.set & ~kSetAll) == 0 && (record.set == 0) == (record.deed != Deed::kAttributes) &&
         IsWhole(record.file) && CanBe(record);
}

size_t PathOfNamed(const NameRecord& name, char* path) {
  const NameTexts texts = TextsOf(name);
  // "/" ends with the slash that the others lack.
  const size_t folder = name.folder_path_length - (name.folder_path_length == 1 ? 1u : 0u);
  const size_t length = folder + 1 + name.name_length;
  if (length >= kMaxPath) return 0;
  std::memcpy(path, texts.folder_path, folder);
  path[folder] = '/';
  std::memcpy(path + folder + 1, texts.name, name.name_length + 1u);
  return length;
}

bool DescribeMade(const NameRecord& name, FileRecord* record) {
  NVCACHE_CHECK(name.deed == Deed::kCreated && name.file.handle_size <= kMaxNameHandle);
  std::memset(record, 0, offsetof(FileRecord, path));
  record->path_length = static_cast<uint32_t>(PathOfNamed(name, record->path));
  if (record->path_length == 0) return false;
  record->device = name.device;
  record->inode = name.file.inode;
  record->birth_seconds = name.file.birth_seconds;
  record->birth_nanoseconds = name.file.birth_nanoseconds;
  record->mode = name.mode;
  record->uid = name.uid;
  record->gid = name.gid;
  record->file_system = name.file_system;
  record->handle_type = name.file.handle_type;
  record->handle_size = name.file.handle_size;
  std::memcpy(record->handle, name.file.handle, name.file.handle_size);
  return true;
}

bool SameIdentity(const Identity& a, const Identity& b) {
  return a.inode == b.inode && a.birth_seconds == b.birth_seconds &&
         a.birth_nanoseconds == b.birth_nanoseconds && a.handle_type == b.handle_type &&
         a.handle_size == b.handle_size && a.handle_size <= kMaxNameHandle &&
         std::memcmp(a.handle, b.handle, a.handle_size) == 0;
}

}  // namespace nvcache::pool
