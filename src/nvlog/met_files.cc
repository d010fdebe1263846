// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/met_files.h"

#include <algorithm>
#include <cstring>

#include "src/pool/identify.h"
#include "src/sys/check.h"
#include "src/sys/crc32c.h"

namespace nvcache::nvlog {

namespace {

constexpr uint64_t kFirstFiles = 1024;
constexpr uint64_t kFirstNames = 4096;

uint64_t NameKey(uint32_t segment, uint32_t number) {
  return (uint64_t{segment} << 32 | number) + 1;
}

// Where the key is, or may go. There is always room.
template <typename Names>
auto& SlotOf(Names& names, uint64_t key) {
  uint64_t at = (key * 0x9e3779b97f4a7c15) >> 32;
  while (names[at % names.max()].key != 0 && names[at % names.max()].key != key) ++at;
  return names[at % names.max()];
}

}  // namespace

bool MetFiles::Open() {
  return epochs_.Open(reader_.view().segment_count()) && records_.Open(2) && Grow() && GrowNames();
}

void MetFiles::Meet(const RecordHeader& header, Place place) {
  pool::FileRecord* record = &records_[0];
  if (!CopyRecordAt(place, record)) return SetName(SegmentOf(place), header.file, kNoFile);
  const uint64_t hash = pool::Fingerprint(*record) ^ record->file_system * 0x9e3779b97f4a7c15;
  uint32_t file = Find(*record, hash);
  if (file == kNoFile) file = Add(hash);
  if (file != kNoFile) {
    File& known = files_[file];
    if (header.lsn >= known.lsn) known.record = place;
    known.lsn = std::max(known.lsn, header.lsn);
  }
  SetName(SegmentOf(place), header.file, file);
}

bool MetFiles::CopyRecordAt(Place place, pool::FileRecord* copy) const {
  RecordHeader header;
  if (!reader_.CopyHeader(place, &header) || header.kind != Kind::kFile) return false;
  void* bytes = copy;
  std::memset(bytes, 0, sizeof(*copy));
  std::memcpy(bytes, reader_.view().unit(place + 1), header.length);
  return sys::Crc32c(copy, header.length) == header.payload_crc &&
         pool::IsFileRecord(*copy, header.length);
}

bool MetFiles::IsRecord(const uint8_t* bytes, uint64_t length) const {
  if (length > sizeof(pool::FileRecord)) return false;
  void* record = &records_[0];
  std::memset(record, 0, sizeof(records_[0]));
  std::memcpy(record, bytes, length);
  return pool::IsFileRecord(records_[0], length);
}

bool MetFiles::CopyRecord(uint32_t file, pool::FileRecord* copy) const {
  return CopyRecordAt(RecordOf(file), copy);
}

Place MetFiles::RecordOf(uint32_t file) const {
  NVCACHE_CHECK(file < files_.count());
  return files_[file].record;
}

uint32_t MetFiles::Find(const pool::FileRecord& record, uint64_t hash) const {
  for (uint32_t i = buckets_[hash % files_.max()]; i != 0; i = files_[i - 1].next) {
    pool::FileRecord* other = &records_[1];
    if (files_[i - 1].hash == hash && CopyRecordAt(files_[i - 1].record, other) &&
        pool::SameFile(record, *other) && record.file_system == other->file_system) {
      return i - 1;
    }
  }
  return kNoFile;
}

uint32_t MetFiles::Add(uint64_t hash) {
  if (files_.count() == files_.max() && !Grow()) return kNoFile;
  const uint32_t file = files_.Add();
  files_[file] = {kNoPlace, 0, hash, 0};
  AddToBucket(file);
  return file;
}

void MetFiles::AddToBucket(uint32_t file) {
  uint32_t& bucket = buckets_[files_[file].hash % files_.max()];
  files_[file].next = bucket;
  bucket = file + 1;
}

bool MetFiles::Grow() {
  const uint64_t max = std::max(2 * files_.max(), kFirstFiles);
  sys::Table<File> files;
  sys::Table<uint32_t> buckets;
  if (!files.Open(max) || !buckets.Open(max)) return false;
  files_.Swap(files);
  buckets_.Swap(buckets);
  for (uint32_t i = 0; i < files.count(); ++i) {
    files_[files_.Add()] = files[i];
    AddToBucket(i);
  }
  return true;
}

uint32_t MetFiles::FileOf(const RecordHeader& header, Place place) const {
  if (header.kind == Kind::kName) return kNoFile;
  const uint32_t segment = SegmentOf(place);
  const Name& name = SlotOf(names_, NameKey(segment, header.file));
  return name.key != 0 && name.epoch == epochs_[segment] ? name.file : kNoFile;
}

void MetFiles::SetName(uint32_t segment, uint32_t number, uint32_t file) {
  const uint64_t key = NameKey(segment, number);
  const bool is_new = SlotOf(names_, key).key == 0;
  if (is_new && names_.count() >= names_.max() / 2 && !GrowNames()) return;
  if (is_new) names_.Add();
  SlotOf(names_, key) = {key, epochs_[segment], file};
}

bool MetFiles::GrowNames() {
  sys::Table<Name> names;
  if (!names.Open(std::max(2 * names_.max(), kFirstNames))) return false;
  names.Add(names_.count());
  for (uint64_t i = 0; i < names_.max(); ++i) {
    if (names_[i].key != 0) SlotOf(names, names_[i].key) = names_[i];
  }
  names_.Swap(names);
  return true;
}

}  // namespace nvcache::nvlog
