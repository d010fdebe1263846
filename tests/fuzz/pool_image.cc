// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fuzz/pool_image.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "src/nvlog/entry_crc.h"
#include "src/pool/pool.h"
#include "src/sys/crc32c.h"

namespace nvcache::fuzz {

using nvlog::EntryHeader;
using nvlog::Position;
using pool::FileRecord;
using pool::Superblock;
using pool::TailRecord;

namespace {

constexpr uint64_t kSalt = 0xf00d5a17f00d5a17;
constexpr uint32_t kSlots = 16;
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
  log_offset_ = superblock->log_offset;
  log_units_ = superblock->log_units;
  head_ = 4 * log_units_ - 300;  // so that the entries go over the log's end
  for (uint64_t i : {0u, 1u}) {
    auto* tail = At<TailRecord>(pool::kTailOffset + i * pool::kTailDistance);
    *tail = {head_, 6 + i, 0, 0};
    Seal(tail);
  }
  At<pool::StateRecord>(pool::kStateOffset)->state = pool::kStateInUse;
}

uint64_t PoolImage::UnitOffset(Position position) const {
  return log_offset_ + position % log_units_ * pool::kUnitSize;
}

void PoolImage::Seal(Superblock* superblock) const {
  superblock->crc = sys::Crc32c(superblock, offsetof(Superblock, crc));
}
void PoolImage::Seal(TailRecord* tail) const {
  tail->crc = sys::Crc32c(tail, offsetof(TailRecord, crc), static_cast<uint32_t>(salt_));
}
void PoolImage::Seal(FileRecord* record) const { record->crc = pool::FileRecordCrc(*record); }
void PoolImage::Seal(EntryHeader* header) const {
  header->header_crc = nvlog::HeaderCrc(*header, salt_);
}

void PoolImage::AddFile(uint32_t slot, const std::string& path, bool is_new) {
  auto* record = At<FileRecord>(pool::kFileTableOffset + slot * sizeof(FileRecord));
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || pool::Identify(fd, record) < 0) abort();
  close(fd);
  record->incarnation = 1;
  record->name = is_new ? pool::kNameNew : pool::kNameSettled;
  record->path_length = static_cast<uint32_t>(path.size());
  std::memcpy(record->path, path.c_str(), path.size() + 1);
  Seal(record);
  Offer(path);
}

void PoolImage::AddWrite(uint32_t slot, uint64_t offset, const std::string& bytes,
                         uint64_t commit_word_flip) {
  const size_t pages =
      (offset % pool::kPageSize + bytes.size() + pool::kPageSize - 1) / pool::kPageSize;
  uint32_t index = 0;
  for (size_t done = 0; done < bytes.size(); ++index) {
    const size_t n =
        std::min<size_t>(pool::kPageSize - (offset + done) % pool::kPageSize, bytes.size() - done);
    EntryHeader header = {};
    header.commit = nvlog::CommitWord(head_, salt_) ^ (index == 0 ? commit_word_flip : 0);
    header.position = head_;
    header.offset = offset + done;
    header.previous = nvlog::kNoPosition;
    header.file = slot;
    header.incarnation = 1;
    header.length = static_cast<uint32_t>(n);
    header.group_index = index;
    header.group_count = static_cast<uint32_t>(pages);
    header.payload_crc = sys::Crc32c(bytes.data() + done, n);
    Seal(&header);
    std::memcpy(bytes_.data() + UnitOffset(head_), &header, sizeof(header));
    for (size_t at = 0; at < n; at += pool::kUnitSize) {
      std::memcpy(bytes_.data() + UnitOffset(head_ + 1 + at / pool::kUnitSize),
                  bytes.data() + done + at, std::min<size_t>(pool::kUnitSize, n - at));
    }
    entries_.push_back(head_);
    head_ += nvlog::EntryUnits(n);
    done += n;
  }
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

  void Overwrite();
  void SetSuperblock();
  void SetTail();
  void SetState();
  void SetRecord();
  void SetEntry();

  PoolImage& image_;
  Input& input_;
  size_t size_ = image_.bytes_.size();
};

void Damage::Step() {
  switch (input_.Below(16)) {
    case 0:
      *Byte(std::min(Place(), image_.bytes_.size() - 1)) ^=
          static_cast<uint8_t>(1 << input_.Below(8));
      break;
    case 1:
      Overwrite();
      break;
    case 2:
      SetSuperblock();
      break;
    case 3:
      SetTail();
      break;
    case 4:
      SetState();
      break;
    case 5:
    case 6:
    case 7:
    case 8:
      SetRecord();
      break;
    default:
      SetEntry();
  }
}

// Most of a small pool is empty: rather where something is.
uint64_t Damage::Place() {
  switch (input_.Below(4)) {
    case 0:
      return input_.Below(pool::kFileTableOffset);
    case 1:
      return pool::kFileTableOffset + input_.Below(kSlots) * sizeof(FileRecord) + input_.Below(256);
    case 2:
      return image_.UnitOffset(image_.entries_[input_.Below(image_.entries_.size())]) +
             input_.Below(2 * pool::kUnitSize);
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
    switch (input_.Below(9)) {
      case 0:
        Set(s, &Superblock::version);
        break;
      case 1:
        Set(s, &Superblock::superblock_size);
        break;
      case 2:
        Set(s, &Superblock::pool_size);
        break;
      case 3:
        Set(s, &Superblock::salt);
        break;
      case 4:
        Set(s, &Superblock::log_offset);
        break;
      case 5:
        Set(s, &Superblock::log_units);
        break;
      case 6:
        Set(s, &Superblock::file_slots);
        break;
      case 7:
        Set(s, &Superblock::page_size);
        break;
      default:
        std::memset(s, 0, sizeof(*s));
        return;
    }
    image_.Seal(s);
  }
}

void Damage::SetTail() {
  auto* tail = image_.At<TailRecord>(pool::kTailOffset + input_.Below(2) * pool::kTailDistance);
  switch (input_.Below(4)) {
    case 0:
      Set(tail, &TailRecord::tail);
      break;
    case 1:
      Set(tail, &TailRecord::sequence);
      break;
    case 2:
      tail->tail += input_.Number() % (2 * image_.log_units_) - image_.log_units_;
      break;
    default:
      tail->crc ^= 1;
      return;
  }
  image_.Seal(tail);
}

void Damage::SetState() {
  auto* state = image_.At<pool::StateRecord>(pool::kStateOffset);
  switch (input_.Below(4)) {
    case 0:
      state->state = pool::kStateClean;
      break;
    case 1:
      Set(state, &pool::StateRecord::state);
      break;
    case 2:
      Set(state, &pool::StateRecord::owner_pid);
      break;
    default:
      Set(image_.At<pool::Statistics>(pool::kStatisticsOffset), &pool::Statistics::oldest_pending);
      break;
  }
}

void Damage::SetRecord() {
  auto* record =
      image_.At<FileRecord>(pool::kFileTableOffset + input_.Below(kSlots) * sizeof(FileRecord));
  switch (input_.Below(14)) {
    case 0:
      Set(record, &FileRecord::incarnation);
      break;
    case 1:
      Set(record, &FileRecord::inode);
      break;
    case 2:
      Set(record, &FileRecord::birth_seconds);
      break;
    case 3:
      Set(record, &FileRecord::mode);
      break;
    case 4:
      Set(record, &FileRecord::uid);
      break;
    case 5:
      Set(record, &FileRecord::gid);
      break;
    case 6:
      Set(record, &FileRecord::file_system);
      break;
    case 7:
      Set(record, &FileRecord::handle_type);
      break;
    case 8:
      Set(record, &FileRecord::handle_size);
      break;
    case 9:
      Set(record, &FileRecord::path_length);
      break;
    case 10:
      record->name = pool::kNameNew;
      break;
    case 11:
      Set(record, &FileRecord::successor);
      Set(record, &FileRecord::predecessor);
      Set(record, &FileRecord::cut);
      break;
    case 12: {
      const std::string& path = image_.paths_[input_.Below(image_.paths_.size())];
      record->path_length = static_cast<uint32_t>(path.size());
      std::memcpy(record->path, path.c_str(), path.size() + 1);
      break;
    }
    default:
      record->path[input_.Below(pool::kMaxPath)] = static_cast<char>(input_.Take(1));
  }
  image_.Seal(record);
}

void Damage::SetEntry() {
  const Position position = image_.entries_[input_.Below(image_.entries_.size())];
  auto* header = image_.At<EntryHeader>(image_.UnitOffset(position));
  switch (input_.Below(12)) {
    case 0:
      header->position += input_.Number() % 4 * image_.log_units_;
      break;
    case 1:
      Set(header, &EntryHeader::offset);
      break;
    case 2:
      Set(header, &EntryHeader::previous);
      break;
    case 3:
      header->file = static_cast<uint32_t>(input_.Below(2 * kSlots));
      break;
    case 4:
      Set(header, &EntryHeader::incarnation);
      break;
    case 5:
      Set(header, &EntryHeader::length);
      break;
    case 6:
      Set(header, &EntryHeader::group_index);
      break;
    case 7:
      Set(header, &EntryHeader::group_count);
      break;
    case 8:
      Set(header, &EntryHeader::payload_crc);
      break;
    case 9:
      Set(header, &EntryHeader::commit);
      break;
    case 10:
      header->length = static_cast<uint32_t>(1 + input_.Below(pool::kPageSize));
      break;
    default: {  // where none was
      const Position at = image_.head_ + input_.Below(64);
      const EntryHeader copy = *header;
      header = image_.At<EntryHeader>(image_.UnitOffset(at));
      *header = copy;
      header->position = at;
    }
  }
  const bool word = input_.Below(4) != 0;
  if (word) header->commit = nvlog::CommitWord(header->position, image_.salt_);
  if (input_.Below(8) == 0) header->commit = ~header->commit;
  image_.Seal(header);
}

std::string PoolImage::Damaged(Input* input) const {
  PoolImage copy = *this;
  Damage damage(&copy, input);
  for (size_t step = 0; step < kMaxSteps && !input->empty(); ++step) damage.Step();
  copy.bytes_.resize(damage.size());
  return copy.bytes_;
}

}  // namespace nvcache::fuzz
