// SPDX-License-Identifier: BSD-3-Clause
#include "src/journal/batch.h"

#include <bit>
#include <cstring>

#include "src/sys/check.h"
#include "src/sys/crc32c.h"
#include "src/sys/words.h"

namespace nvcache::journal {

namespace {

constexpr size_t kSeeds = offsetof(BatchHeader, body_crc);  // the body's checksum begins with these
constexpr size_t kChecked = offsetof(BatchHeader, crc);

uint32_t BodyCrc(const BatchHeader& header, const uint8_t* body) {
  const uint64_t bytes = BatchBytes(header.lines, header.pieces) - sizeof(header);
  return sys::Crc32c(body, bytes, sys::Crc32c(&header, kSeeds));
}

// As somebody stores it who begins with the first word, may make that 0 first, and stores it last
// (nvlog::StoreHeader): the copy has that word only with all the rest. A line that is stored to
// meanwhile is marked again.
void CopyLine(uint8_t* to, const uint8_t* from) {
  uint64_t first, again;
  do {
    sys::CopyWords(&first, from, sizeof(first));
    sys::CopyWords(to, from, kLine);
    sys::CopyWords(&again, from, sizeof(again));
  } while (std::memcmp(to, &first, sizeof(first)) != 0 || again != first);
}

}  // namespace

uint32_t SeedOf(const uint8_t (&uuid)[16]) { return sys::Crc32c(uuid, sizeof(uuid)); }

void BatchMaker::Add(const uint8_t* base, uint64_t line, uint64_t count) {
  NVCACHE_CHECK(HasRoom(count));
  uint8_t* to = bytes_ + BatchBytes(lines_, 0);
  for (uint64_t i = 0; i < count; ++i) CopyLine(to + i * kLine, base + (line + i) * kLine);
  lines_ += static_cast<uint32_t>(count);
  Piece* const last = piece_count_ > 0 ? &pieces_[piece_count_ - 1] : nullptr;
  if (last != nullptr && uint64_t{last->line} + last->count == line) {
    last->count += static_cast<uint32_t>(count);
  } else {
    pieces_[piece_count_++] = {static_cast<uint32_t>(line), static_cast<uint32_t>(count)};
  }
}

void BatchMaker::AddMarked(const uint8_t* base, uint64_t first, uint64_t bits) {
  while (bits != 0) {
    const auto skipped = static_cast<unsigned>(std::countr_zero(bits));
    const auto count = static_cast<unsigned>(std::countr_one(bits >> skipped));
    Add(base, first + skipped, count);
    const unsigned end = skipped + count;
    bits = end < 64 ? bits >> end << end : 0;
  }
}

void BatchMaker::CutTo(const Extent& end) {
  NVCACHE_CHECK(end.lines <= lines_ && end.pieces <= piece_count_);
  NVCACHE_CHECK((end.lines == lines_) == (end.pieces == piece_count_));
  lines_ = end.lines;
  piece_count_ = end.pieces;
}

void BatchMaker::End(uint32_t seed, BatchHeader* header) {
  std::memcpy(header->magic, kBatchMagic, sizeof(kBatchMagic));
  header->lines = lines_;
  header->pieces = piece_count_;
  const uint64_t used = BatchBytes(lines_, piece_count_);
  std::memcpy(bytes_ + BatchBytes(lines_, 0), pieces_, piece_count_ * sizeof(Piece));
  std::memset(bytes_ + used, 0, ToBlocks(used) - used);
  header->body_crc = BodyCrc(*header, bytes_ + sizeof(*header));
  header->crc = sys::Crc32c(header, kChecked, seed);
  std::memcpy(bytes_, header, sizeof(*header));
}

bool IsHeader(const BatchHeader& header, uint32_t seed) {
  return std::memcmp(header.magic, kBatchMagic, sizeof(kBatchMagic)) == 0 &&
         header.crc == sys::Crc32c(&header, kChecked, seed) && header.sequence != 0 &&
         header.lines <= kMaxBatch / kLine && header.pieces <= header.lines &&
         BatchBytes(header.lines, header.pieces) <= kMaxBatch;
}

bool IsWhole(const uint8_t* bytes, uint64_t pool_size) {
  BatchHeader header;
  std::memcpy(&header, bytes, sizeof(header));
  if (header.body_crc != BodyCrc(header, bytes + sizeof(header))) return false;
  const uint8_t* pieces = bytes + BatchBytes(header.lines, 0);
  uint64_t lines = 0;
  for (uint32_t i = 0; i < header.pieces; ++i) {
    Piece piece;
    std::memcpy(&piece, pieces + i * sizeof(piece), sizeof(piece));
    lines += piece.count;
    if ((uint64_t{piece.line} + piece.count) * kLine > pool_size) return false;
  }
  return lines == header.lines;
}

void Apply(const uint8_t* bytes, uint8_t* base) {
  BatchHeader header;
  std::memcpy(&header, bytes, sizeof(header));
  const uint8_t* pieces = bytes + BatchBytes(header.lines, 0);
  const uint8_t* from = bytes + sizeof(header);
  for (uint32_t i = 0; i < header.pieces; ++i) {
    Piece piece;
    std::memcpy(&piece, pieces + i * sizeof(piece), sizeof(piece));
    std::memcpy(base + uint64_t{piece.line} * kLine, from, piece.count * kLine);
    from += piece.count * kLine;
  }
}

}  // namespace nvcache::journal
