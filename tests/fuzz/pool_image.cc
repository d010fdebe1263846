// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fuzz/pool_image.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/pool/identify.h"
#include "src/pool/pool.h"
#include "src/sys/boot.h"
#include "src/sys/crc32c.h"

namespace nvcache::fuzz {

using nvlog::Kind;
using nvlog::RecordHeader;
using pool::CheckpointRecord;
using pool::FileRecord;
using pool::NameRecord;
using pool::SegmentHeader;
using pool::Superblock;

namespace {

constexpr uint64_t kSalt = 0xf00d5a17f00d5a17;
constexpr nvlog::Lsn kCheckpoint = 5000;
constexpr uint32_t kKeptLog = 16;
constexpr size_t kMaxSteps = 64;

}  // namespace

uint64_t Input::Take(size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes && at_ != end_; ++i) value |= uint64_t{*at_++} << 8 * i;
  return value;
}

uint64_t Input::Below(uint64_t bound) { return Take(bound <= 256 ? 1 : 4) % bound; }

uint64_t Input::Number() {
  switch (Below(4)) {
    case 0:
      return Take(1);
    case 1:
      return ~Take(1);
    case 2:
      return (uint64_t{1} << Below(64)) + Take(1) - 128;
    default:
      return Take(8);
  }
}

PoolImage::PoolImage(const std::string& new_pool) : bytes_(new_pool), salt_(kSalt) {
  auto* superblock = At<Superblock>(0);
  superblock->salt = salt_;
  superblock->created = 0;
  std::memset(superblock->uuid, 'u', sizeof(superblock->uuid));
  Seal(superblock);
  std::memcpy(At<Superblock>(pool::kSuperblockCopyOffset), superblock, sizeof(*superblock));
  units_ = superblock->segment_size / pool::kUnitSize;
  for (uint64_t i : {0u, 1u}) {
    auto* record = At<CheckpointRecord>(pool::kCheckpointOffset + i * pool::kCheckpointDistance);
    *record = {kCheckpoint, 0, 0};
    Seal(record);
  }
  next_ = kCheckpoint;
  kept_next_ = kCheckpoint / 2;
  At<pool::StateRecord>(pool::kStateOffset)->state = pool::kStateInUse;
}

void PoolImage::Seal(Superblock* superblock) const {
  superblock->crc = sys::Crc32c(superblock, offsetof(Superblock, crc));
}
void PoolImage::Seal(CheckpointRecord* record) const {
  record->crc = sys::Crc32c(record, offsetof(CheckpointRecord, crc), static_cast<uint32_t>(salt_));
}
void PoolImage::Seal(SegmentHeader* header) const {
  header->crc = pool::SegmentHeaderCrc(*header, salt_);
}
nvlog::Lsn PoolImage::GenerationAt(nvlog::Place place) {
  return At<SegmentHeader>(OffsetOf(place / units_ * units_))->generation;
}
void PoolImage::Seal(nvlog::Place place) {
  RecordHeader* header = HeaderAt(place);
  header->header_crc = nvlog::HeaderCrc(*header, place, GenerationAt(place), salt_);
}
// Of a file record, or a name record.
void PoolImage::SealPayload(nvlog::Place place) {
  RecordHeader* header = HeaderAt(place);
  const uint64_t most = bytes_.size() - OffsetOf(place + 1);
  header->payload_crc =
      sys::Crc32c(At<uint8_t>(OffsetOf(place + 1)), std::min(header->length, most));
}

void PoolImage::AddFile(uint32_t number, const std::string& path) {
  FileRecord& record = files_[number];
  record = {};
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || pool::Identify(fd, &record) < 0) abort();
  close(fd);
  record.path_length = static_cast<uint32_t>(path.size());
  std::memcpy(record.path, path.c_str(), path.size() + 1);
  for (auto& [id, log] : logs_) log.declared.erase(number);
  kept_.declared.erase(number);
  Offer(path);
}

// Segments that lie apart, so that what comes after one is nothing.
void PoolImage::Take(Log* log, uint32_t id, pool::SegmentKind kind) {
  const uint32_t number = 2 * segments_taken_++;
  SegmentHeader header = {};
  header.generation = kind == pool::SegmentKind::kKept ? kCheckpoint / 2 : next_++;
  header.word = pool::SegmentWord(header.generation, salt_);
  header.checkpoint = kind == pool::SegmentKind::kKept ? 0 : kCheckpoint;
  if (log->open && kind == pool::SegmentKind::kLog) {
    header.previous_generation = log->generation;
    header.previous_last = log->last;
    header.previous_number = log->segment;
  }
  header.number = number;
  header.log = id;
  header.kind = kind;
  Seal(&header);
  *At<SegmentHeader>(OffsetOf(number * units_)) = header;
  *At<SegmentHeader>(OffsetOf((number + 1) * units_ - 1)) = header;
  *log = {true, number, nvlog::kFirstUnit, header.generation, log->last, {}};
}

nvlog::Place PoolImage::Place(Log* log, uint64_t units) {
  const nvlog::Place place = log->segment * units_ + log->unit;
  log->unit += units;
  group_.push_back(place);
  records_.push_back(place);
  return place;
}

void PoolImage::PutFile(Log* log, uint32_t number) {
  if (std::exchange(log->declared[number], true)) return;
  const FileRecord& record = files_.at(number);
  const size_t size = pool::FileRecordSize(record.path_length);
  const nvlog::Place place = Place(log, 1 + nvlog::UnitsOf(size));
  std::memcpy(At<uint8_t>(OffsetOf(place + 1)), &record, size);
  *HeaderAt(place) = {};
  HeaderAt(place)->kind = Kind::kFile;
  HeaderAt(place)->file = number;
  HeaderAt(place)->length = size;
  SealPayload(place);
  file_records_.push_back(place);
}

void PoolImage::PutData(Log* log, uint32_t number, uint64_t offset, const std::string& bytes) {
  const nvlog::Place place = Place(log, nvlog::DataUnits(offset, bytes.size()));
  const uint64_t first = nvlog::FirstLength(offset, bytes.size());
  const uint64_t links = nvlog::LinkUnits(nvlog::PagesOf(offset, bytes.size()));
  uint8_t* to = At<uint8_t>(OffsetOf(place + 1 + links));
  std::memcpy(to, bytes.data(), first);
  std::memcpy(to + nvlog::UnitsOf(first) * pool::kUnitSize, bytes.data() + first,
              bytes.size() - first);
  *HeaderAt(place) = {};
  HeaderAt(place)->kind = Kind::kData;
  HeaderAt(place)->file = number;
  HeaderAt(place)->offset = offset;
  HeaderAt(place)->length = bytes.size();
  HeaderAt(place)->payload_crc = sys::Crc32c(bytes.data(), bytes.size());
}

void PoolImage::PutMark(Log* log, uint32_t number, Kind kind, uint64_t offset, uint64_t length) {
  const nvlog::Place place = Place(log, 1);
  *HeaderAt(place) = {};
  HeaderAt(place)->kind = kind;
  HeaderAt(place)->file = number;
  HeaderAt(place)->offset = offset;
  HeaderAt(place)->length = length;
}

void PoolImage::Commit(Log* log, nvlog::Lsn lsn, uint64_t word_flip) {
  for (size_t i = 0; i < group_.size(); ++i) {
    RecordHeader* header = HeaderAt(group_[i]);
    header->lsn = lsn;
    header->commit = nvlog::CommitWord(lsn, salt_) ^ (i == 0 ? word_flip : 0);
    header->index = static_cast<uint16_t>(i);
    header->count = static_cast<uint16_t>(group_.size());
    header->life = nvlog::LifeOf(GenerationAt(group_[i]));
    Seal(group_[i]);
  }
  log->last = lsn;
  group_.clear();
}

void PoolImage::AddWrite(uint32_t log, uint32_t number, uint64_t offset, const std::string& bytes,
                         uint64_t word_flip) {
  Log& to = logs_[log];
  if (!to.open) Take(&to, log, pool::SegmentKind::kLog);
  for (size_t done = 0; done < bytes.size();) {
    const uint64_t at = offset + done;
    const uint64_t file = to.declared[number] ? 0 : nvlog::kMaxFileUnits;
    // As many pages as fit.
    size_t n = bytes.size() - done;
    while (n > 0 && nvlog::DataUnits(at, n) + file > Left(to)) {
      const uint64_t end = (at + n - 1) / pool::kPageSize * pool::kPageSize;
      n = end > at ? end - at : 0;
    }
    if (n > 0) {
      PutFile(&to, number);
      PutData(&to, number, at, bytes.substr(done, n));
      done += n;
    }
    if (done < bytes.size()) Take(&to, log, pool::SegmentKind::kLog);
  }
  Commit(&to, next_++, word_flip);
}

void PoolImage::AddMark(uint32_t log, uint32_t number, Kind kind, uint64_t offset,
                        uint64_t length) {
  Log& to = logs_[log];
  if (!to.open || Left(to) < 1 + nvlog::kMaxFileUnits) Take(&to, log, pool::SegmentKind::kLog);
  PutFile(&to, number);
  PutMark(&to, number, kind, offset, length);
  Commit(&to, next_++, 0);
}

size_t PoolImage::NameSize(const NameTexts& texts) {
  size_t size = offsetof(NameRecord, text);
  for (const std::string& text : texts) size += text.size() + 1;
  return size;
}

// The record's place has room for them.
void PoolImage::PutTexts(nvlog::Place place, const NameTexts& texts) {
  auto* record = At<NameRecord>(OffsetOf(place + 1));
  constexpr uint16_t NameRecord::*kLengths[] = {
      &NameRecord::name_length, &NameRecord::from_length, &NameRecord::target_length,
      &NameRecord::folder_path_length, &NameRecord::from_folder_path_length};
  size_t end = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    record->*kLengths[i] = static_cast<uint16_t>(texts[i].size());
    std::memcpy(record->text + end, texts[i].c_str(), texts[i].size() + 1);
    end += texts[i].size() + 1;
  }
  HeaderAt(place)->length = NameSize(texts);
  name_texts_[place] = texts;
}

void PoolImage::AddName(uint32_t log, const NameRecord& record, const NameTexts& texts) {
  Log& to = logs_[log];
  const uint64_t units = 1 + nvlog::UnitsOf(NameSize(texts));
  if (!to.open || Left(to) < units) Take(&to, log, pool::SegmentKind::kLog);
  const nvlog::Place place = Place(&to, units);
  std::memcpy(At<uint8_t>(OffsetOf(place + 1)), &record, offsetof(NameRecord, text));
  *HeaderAt(place) = {};
  HeaderAt(place)->kind = Kind::kName;
  PutTexts(place, texts);
  SealPayload(place);
  name_records_.push_back(place);
  Commit(&to, next_++, 0);
}

void PoolImage::Keep(uint32_t number, uint64_t offset, const std::string& bytes) {
  if (!kept_.open) Take(&kept_, kKeptLog, pool::SegmentKind::kKept);
  PutFile(&kept_, number);
  PutData(&kept_, number, offset, bytes);
  Commit(&kept_, ++kept_next_, 0);
}

// ---------------------------------------------------------------------------------------------

class Damage {
 public:
  Damage(PoolImage* image, Input* input) : image_(*image), input_(*input) {}

  // One step. The size changes at the very end only, so that every offset stays one.
  void Step();
  size_t size() const { return size_; }

 private:
  uint64_t Place();
  uint8_t* Byte(uint64_t offset) { return image_.At<uint8_t>(offset); }

  template <typename T, typename Field>
  void Set(T* structure, Field T::*field) {
    structure->*field = static_cast<Field>(input_.Number());
  }
  // Sets the field of this number, if there are so many. What is left of the number otherwise.
  template <typename T, typename... Fields>
  uint64_t SetOneOf(uint64_t number, T* structure, Fields T::*... fields) {
    uint64_t next = 0;
    ((number == next++ ? Set(structure, fields) : void()), ...);
    return number < next ? kSet : number - next;
  }
  static constexpr uint64_t kSet = ~uint64_t{0};

  void Flip();
  void Overwrite();
  void SetSuperblock();
  void SetCheckpoint();
  void SetSegment();
  void SetState();
  void SetFile();
  void SetName();
  void SetNameField(NameRecord* record);
  void SetIdentity(NameRecord* record);
  void SetTexts(nvlog::Place place);
  void CopyName(nvlog::Place place);
  const pool::Identity& AnyIdentity() {
    return image_.identities_[input_.Below(image_.identities_.size())];
  }
  void SetRecord();
  nvlog::Place AnyRecord() { return image_.records_[input_.Below(image_.records_.size())]; }

  PoolImage& image_;
  Input& input_;
  size_t size_ = image_.bytes_.size();
};

void Damage::Step() {
  // What takes up to which number of 24.
  constexpr struct {
    uint64_t end;
    void (Damage::*make)();
  } kSteps[] = {{1, &Damage::Flip},          {2, &Damage::Overwrite},  {3, &Damage::SetSuperblock},
                {4, &Damage::SetCheckpoint}, {5, &Damage::SetState},   {7, &Damage::SetSegment},
                {10, &Damage::SetFile},      {16, &Damage::SetRecord}, {24, &Damage::SetName}};
  const uint64_t number = input_.Below(24);
  const auto* step = kSteps;
  while (number >= step->end) ++step;
  (this->*step->make)();
}

void Damage::Flip() {
  *Byte(std::min(Place(), image_.bytes_.size() - 1)) ^= static_cast<uint8_t>(1 << input_.Below(8));
}

// Most of a small pool is empty: rather where something is.
uint64_t Damage::Place() {
  const uint64_t segment = image_.units_ * pool::kUnitSize;
  switch (input_.Below(4)) {
    case 0:
      return input_.Below(pool::kSegmentsOffset);
    case 1: {
      const uint64_t end = input_.Below(2) * (segment - pool::kUnitSize);
      return pool::kSegmentsOffset + input_.Below(2 * image_.segments_taken_) * segment + end +
             input_.Below(pool::kUnitSize);
    }
    case 2:
      return image_.OffsetOf(AnyRecord()) + input_.Below(4 * pool::kUnitSize);
    default:
      return input_.Below(image_.bytes_.size());
  }
}

void Damage::Overwrite() {
  const uint64_t to = std::min(Place(), image_.bytes_.size() - 1);
  const uint64_t n = std::min(input_.Below(16384), image_.bytes_.size() - to);
  switch (input_.Below(4)) {
    case 0:
      std::memset(Byte(to), 0, n);
      break;
    case 1:
      std::memset(Byte(to), 0xff, n);
      break;
    case 2: {
      const uint64_t from = std::min(Place(), image_.bytes_.size() - 1);
      std::memmove(Byte(to), Byte(from), std::min(n, image_.bytes_.size() - from));
      break;
    }
    default:
      size_ = std::min<size_t>(size_, to);
  }
}

void Damage::SetSuperblock() {
  const uint64_t which = input_.Below(3);
  for (const uint64_t place : {uint64_t{0}, pool::kSuperblockCopyOffset}) {
    if (which == 0 && place != 0) continue;
    if (which == 1 && place == 0) continue;
    auto* s = image_.At<Superblock>(place);
    using S = Superblock;
    if (SetOneOf(input_.Below(10), s, &S::version, &S::superblock_size, &S::pool_size, &S::salt,
                 &S::segment_size, &S::segment_count, &S::unit_size, &S::page_size,
                 &S::commit) != kSet) {
      std::memset(s, 0, sizeof(*s));
      return;
    }
    image_.Seal(s);
  }
}

void Damage::SetCheckpoint() {
  const uint64_t which = input_.Below(3);
  for (const uint64_t i : {0u, 1u}) {
    if (which == i) continue;
    auto* record =
        image_.At<CheckpointRecord>(pool::kCheckpointOffset + i * pool::kCheckpointDistance);
    switch (input_.Below(4)) {
      case 0:
        Set(record, &CheckpointRecord::checkpoint);
        break;
      case 1:
      case 2:
        record->checkpoint += input_.Below(64) - 32;
        break;
      default:
        record->crc ^= 1;
        continue;
    }
    image_.Seal(record);
  }
}

// In one place, or in the other, or in both.
void Damage::SetSegment() {
  const uint64_t number = input_.Below(2 * image_.segments_taken_);
  const uint64_t which = input_.Below(3);
  constexpr uint64_t kNoWord = 12;
  const uint64_t field = input_.Below(kNoWord + 1);
  const uint64_t other = 2 * input_.Below(image_.segments_taken_);
  const auto header_of = [&](uint64_t segment) {
    return image_.At<SegmentHeader>(image_.OffsetOf(segment * image_.units_));
  };
  SegmentHeader header = *header_of(number);
  using S = SegmentHeader;
  switch (SetOneOf(field, &header, &S::generation, &S::checkpoint, &S::previous_generation,
                   &S::number)) {
    case 0:
      header.generation += input_.Below(64) - 32;
      break;
    case 1:
      header.checkpoint += input_.Below(64) - 32;
      break;
    case 2:
      header.previous_last += input_.Below(64) - 32;
      break;
    case 3:
      header.previous_number = static_cast<uint32_t>(input_.Below(20));
      break;
    case 4:
      header.log = static_cast<uint32_t>(input_.Below(4));
      break;
    case 5:
      header.kind = static_cast<pool::SegmentKind>(input_.Below(5));
      break;
    case 6:  // another one, also where none was
      header = *header_of(other);
      header.number = static_cast<uint32_t>(number);
      break;
    case 7:  // one after the other
      header.previous_number = header_of(other)->number;
      header.previous_generation = header_of(other)->generation;
      header.log = header_of(other)->log;
      break;
    case 8:
      header.word = 0;
      break;
    default:
      break;
  }
  if (field != kNoWord) header.word = pool::SegmentWord(header.generation, image_.salt_);
  image_.Seal(&header);
  if (which != 0) *header_of(number) = header;
  if (which != 1) {
    *image_.At<SegmentHeader>(image_.OffsetOf((number + 1) * image_.units_ - 1)) = header;
  }
  // Its records are of this life.
  if (input_.Below(2) == 0) return;
  for (const nvlog::Place place : image_.records_) {
    if (place / image_.units_ != number) continue;
    image_.HeaderAt(place)->life = nvlog::LifeOf(header.generation);
    image_.Seal(place);
  }
}

void Damage::SetState() {
  auto* state = image_.At<pool::StateRecord>(pool::kStateOffset);
  switch (input_.Below(5)) {
    case 0:
      state->state = pool::kStateClean;
      break;
    case 1:
      Set(state, &pool::StateRecord::state);
      break;
    case 2:
      Set(state, &pool::StateRecord::owner_pid);
      break;
    case 3:  // the kernel has all of write-through
      sys::ReadBootId(state->boot);
      break;
    default:
      Set(image_.At<pool::Statistics>(pool::kStatisticsOffset), &pool::Statistics::batches);
      break;
  }
}

void Damage::SetFile() {
  const nvlog::Place place = image_.file_records_[input_.Below(image_.file_records_.size())];
  RecordHeader* header = image_.HeaderAt(place);
  auto* record = image_.At<FileRecord>(image_.OffsetOf(place + 1));
  using F = FileRecord;
  switch (SetOneOf(input_.Below(14), record, &F::device, &F::inode, &F::birth_seconds, &F::mode,
                   &F::uid, &F::gid, &F::file_system, &F::handle_type, &F::handle_size,
                   &F::path_length)) {
    case 0:
      record->flags = static_cast<uint32_t>(input_.Below(4));
      break;
    case 1:
      Set(header, &RecordHeader::link);
      break;
    case 2: {  // as long as it was, or the records behind it would be others
      const std::string& path = image_.paths_[input_.Below(image_.paths_.size())];
      record->path_length = static_cast<uint32_t>(path.size());
      std::memcpy(record->path, path.c_str(), path.size() + 1);
      if (nvlog::UnitsOf(pool::FileRecordSize(record->path_length)) ==
          nvlog::UnitsOf(header->length)) {
        header->length = pool::FileRecordSize(record->path_length);
      }
      break;
    }
    case 3:
      record->path[input_.Below(header->length % pool::kMaxPath + 1)] =
          static_cast<char>(input_.Take(1));
      break;
    default:
      break;
  }
  image_.SealPayload(place);
  image_.Seal(place);
}

void Damage::SetName() {
  if (image_.name_records_.empty()) return;
  const nvlog::Place place = image_.name_records_[input_.Below(image_.name_records_.size())];
  auto* record = image_.At<NameRecord>(image_.OffsetOf(place + 1));
  switch (input_.Below(8)) {
    case 0:
      record->deed = static_cast<pool::Deed>(input_.Below(10));
      break;
    case 1:
      image_.HeaderAt(place)->link = pool::Fingerprint(AnyIdentity());
      break;
    case 2:
      SetNameField(record);
      break;
    case 3:
    case 4:
      SetIdentity(record);
      break;
    case 5:
      CopyName(place);
      break;
    default:
      SetTexts(place);
  }
  image_.SealPayload(place);
  image_.Seal(place);
}

void Damage::SetNameField(NameRecord* record) {
  using N = NameRecord;
  switch (SetOneOf(input_.Below(10), record, &N::device, &N::file_system, &N::uid, &N::gid,
                   &N::change_seconds, &N::access_nanoseconds, &N::name_length)) {
    case 0:
      record->flags = static_cast<uint32_t>(input_.Below(5));
      break;
    case 1:
      record->set = static_cast<uint32_t>(input_.Below(9));
      break;
    case 2: {
      constexpr uint32_t kTypes[] = {S_IFREG, S_IFDIR, S_IFLNK, S_IFCHR, 0};
      record->mode = kTypes[input_.Below(5)] | static_cast<uint32_t>(input_.Take(2) & 07777);
      break;
    }
    default:
      break;
  }
}

void Damage::SetIdentity(NameRecord* record) {
  constexpr pool::Identity NameRecord::*kWhich[] = {&NameRecord::file, &NameRecord::other,
                                                    &NameRecord::folder, &NameRecord::from_folder};
  pool::Identity* identity = &(record->*kWhich[input_.Below(4)]);
  using I = pool::Identity;
  switch (SetOneOf(input_.Below(8), identity, &I::inode, &I::handle_type, &I::handle_size)) {
    case kSet:
      break;
    case 0:
      *identity = {};
      break;
    default:
      *identity = AnyIdentity();
  }
}

// As long as the record was, or those behind it would be others: what is missing is put where
// nothing is asked for.
void Damage::SetTexts(nvlog::Place place) {
  PoolImage::NameTexts texts = image_.name_texts_.at(place);
  const size_t units = nvlog::UnitsOf(PoolImage::NameSize(texts));
  const size_t which = input_.Below(texts.size());
  const std::vector<std::string>& offered = which < 2 ? image_.names_ : image_.folders_;
  texts[which] = offered[input_.Below(offered.size())];
  constexpr size_t kTarget = 2;
  while (nvlog::UnitsOf(PoolImage::NameSize(texts)) < units) texts[kTarget] += '/';
  if (nvlog::UnitsOf(PoolImage::NameSize(texts)) == units) image_.PutTexts(place, texts);
}

// The same once more, or in another order.
void Damage::CopyName(nvlog::Place place) {
  const nvlog::Place other = image_.name_records_[input_.Below(image_.name_records_.size())];
  const PoolImage::NameTexts texts = image_.name_texts_.at(other);
  if (nvlog::UnitsOf(PoolImage::NameSize(texts)) !=
      nvlog::UnitsOf(PoolImage::NameSize(image_.name_texts_.at(place)))) {
    return;
  }
  std::memmove(Byte(image_.OffsetOf(place + 1)), Byte(image_.OffsetOf(other + 1)),
               offsetof(NameRecord, text));
  image_.PutTexts(place, texts);
}

void Damage::SetRecord() {
  nvlog::Place place = AnyRecord();
  RecordHeader* header = image_.HeaderAt(place);
  using R = RecordHeader;
  switch (SetOneOf(input_.Below(15), header, &R::lsn, &R::offset, &R::link, &R::file, &R::length,
                   &R::index, &R::count, &R::payload_crc, &R::commit, &R::life)) {
    case kSet:
      break;
    case 0:
      header->lsn += input_.Below(64) - 32;
      break;
    case 1:
      header->file = static_cast<uint32_t>(input_.Below(16));
      break;
    case 2:
      header->kind = static_cast<Kind>(input_.Below(9));
      break;
    case 3:
      header->length = 1 + input_.Below(2 * pool::kPageSize);
      break;
    default: {  // where none was
      const RecordHeader copy = *header;
      place = std::min(place + input_.Below(256),
                       (image_.bytes_.size() - pool::kSegmentsOffset) / pool::kUnitSize - 1);
      header = image_.HeaderAt(place);
      *header = copy;
    }
  }
  if (input_.Below(4) != 0) header->commit = nvlog::CommitWord(header->lsn, image_.salt_);
  if (input_.Below(16) < 2) header->commit = nvlog::VoidWord(header->lsn, image_.salt_);
  image_.Seal(place);
}

std::string PoolImage::Damaged(Input* input) const {
  PoolImage copy = *this;
  Damage damage(&copy, input);
  for (size_t step = 0; step < kMaxSteps && !input->empty(); ++step) damage.Step();
  copy.bytes_.resize(damage.size());
  return copy.bytes_;
}

}  // namespace nvcache::fuzz
