// SPDX-License-Identifier: BSD-3-Clause
//
// A pool as bytes, and damage to it: what the fuzzer's input says, step by step. Plain damage dies
// at a checksum; so most steps change a field and make the checksum right again, as a person would
// who wants to mislead recovery.
#ifndef NVCACHE_TESTS_FUZZ_POOL_IMAGE_H_
#define NVCACHE_TESTS_FUZZ_POOL_IMAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/nvlog/record.h"
#include "src/pool/format.h"
#include "src/pool/name_record.h"

namespace nvcache::fuzz {

// The fuzzer's input, read from its beginning; zeros behind its end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  bool empty() const { return at_ == end_; }
  uint64_t Take(size_t bytes);
  uint64_t Below(uint64_t bound);  // bound > 0
  // Small, large, near a power of two, or any.
  uint64_t Number();

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

class PoolImage {
 public:
  // A new pool's bytes, with the same salt each time.
  explicit PoolImage(const std::string& new_pool);

  // What `number` names from now on: an existing file, as it is.
  void AddFile(uint32_t number, const std::string& path);
  // One call, after the last one of its log. `word_flip` says whether its word is that of a group
  // that counts (0), or of one that does not.
  void AddWrite(uint32_t log, uint32_t number, uint64_t offset, const std::string& bytes,
                uint64_t word_flip);
  void AddMark(uint32_t log, uint32_t number, nvlog::Kind kind, uint64_t offset, uint64_t length);
  // `texts` are those of the record, in their order, which it has no need to have yet.
  using NameTexts = std::array<std::string, pool::kNameTexts>;
  void AddName(uint32_t log, const pool::NameRecord& record, const NameTexts& texts);
  // A kept copy of a group of less than a page, older than the checkpoint.
  void Keep(uint32_t number, uint64_t offset, const std::string& bytes);

  // Other paths that a damaged record may name.
  void Offer(const std::string& path) { paths_.push_back(path); }
  // What a damaged name record may say.
  void OfferName(const std::string& name) { names_.push_back(name); }
  void OfferFolder(const std::string& path) { folders_.push_back(path); }
  void OfferIdentity(const pool::Identity& identity) { identities_.push_back(identity); }

  const std::string& bytes() const { return bytes_; }
  // A copy with everything that `input` says done to it.
  std::string Damaged(Input* input) const;

 private:
  friend class Damage;

  struct Log {
    bool open = false;
    uint32_t segment = 0;
    uint64_t unit = 0;  // behind its last record
    nvlog::Lsn generation = 0;
    nvlog::Lsn last = 0;
    std::map<uint32_t, bool> declared;
  };

  template <typename T>
  T* At(uint64_t offset) {
    return reinterpret_cast<T*>(bytes_.data() + offset);
  }
  uint64_t OffsetOf(nvlog::Place place) const {
    return pool::kSegmentsOffset + place * pool::kUnitSize;
  }
  nvlog::RecordHeader* HeaderAt(nvlog::Place place) {
    return At<nvlog::RecordHeader>(OffsetOf(place));
  }
  uint64_t Left(const Log& log) const { return units_ - nvlog::kLastUnits - log.unit; }
  void Take(Log* log, uint32_t id, pool::SegmentKind kind);
  nvlog::Place Place(Log* log, uint64_t units);
  void PutFile(Log* log, uint32_t number);
  void PutData(Log* log, uint32_t number, uint64_t offset, const std::string& bytes);
  void PutMark(Log* log, uint32_t number, nvlog::Kind kind, uint64_t offset, uint64_t length);
  static size_t NameSize(const NameTexts& texts);
  void PutTexts(nvlog::Place place, const NameTexts& texts);
  void Commit(Log* log, nvlog::Lsn lsn, uint64_t word_flip);
  void Seal(pool::Superblock* superblock) const;
  void Seal(pool::CheckpointRecord* record) const;
  void Seal(pool::SegmentHeader* header) const;
  void SealPayload(nvlog::Place place);
  nvlog::Lsn GenerationAt(nvlog::Place place);
  void Seal(nvlog::Place place);

  std::string bytes_;
  uint64_t salt_ = 0;
  uint64_t units_ = 0;  // of a segment
  uint32_t segments_taken_ = 0;
  nvlog::Lsn next_ = 0;
  nvlog::Lsn kept_next_ = 0;
  std::map<uint32_t, Log> logs_;
  Log kept_;
  std::map<uint32_t, pool::FileRecord> files_;
  std::vector<nvlog::Place> group_;  // records of the one that is being put together
  std::vector<nvlog::Place> records_;
  std::vector<nvlog::Place> file_records_;
  std::vector<std::string> paths_;
  std::vector<nvlog::Place> name_records_;
  std::map<nvlog::Place, NameTexts> name_texts_;
  std::vector<std::string> names_;
  std::vector<std::string> folders_;
  std::vector<pool::Identity> identities_;
};

}  // namespace nvcache::fuzz

#endif  // NVCACHE_TESTS_FUZZ_POOL_IMAGE_H_
