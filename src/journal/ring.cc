// SPDX-License-Identifier: BSD-3-Clause
#include "src/journal/ring.h"

#include <errno.h>

#include <algorithm>
#include <cstring>

#include "src/journal/batch.h"
#include "src/sys/kernel.h"

namespace nvcache::journal {

namespace {

constexpr uint64_t kAll = ~uint64_t{0};

}  // namespace

Ring::Ring(int fd, const Header& header, uint8_t* buffer)
    : fd_(fd),
      pool_size_(header.pool_size),
      half_size_(header.half_size),
      first_(header.first),
      life_(header.life),
      seed_(SeedOf(header.uuid)),
      buffer_(buffer) {}

bool Ring::ReadBlocks(uint64_t place, uint64_t bytes, uint64_t at) {
  for (uint64_t done = 0; done < bytes;) {
    const long n = sys::Pread(fd_, buffer_ + at + done, bytes - done, place + done);
    if (n == -EINTR) continue;
    if (n <= 0) {
      error_ = n == 0 ? -EIO : n;
      return false;
    }
    done += static_cast<uint64_t>(n);
  }
  return true;
}

bool Ring::ReadHeader(uint64_t place, uint64_t end, BatchHeader* header) {
  if (place + kBlock > end || !ReadBlocks(place, kBlock, 0)) return false;
  std::memcpy(header, buffer_, sizeof(*header));
  return IsHeader(*header, seed_) && place + SizeOf(*header) <= end;
}

bool Ring::ReadBatch(uint64_t place, uint64_t end, BatchHeader* header) {
  if (!ReadHeader(place, end, header)) return false;
  const uint64_t size = SizeOf(*header);
  return (size == kBlock || ReadBlocks(place + kBlock, size - kBlock, kBlock)) &&
         IsWhole(buffer_, pool_size_);
}

// Calls function(header, end) for each batch of the half, the first `most` of them at most. What an
// earlier life wrote behind its last round is none, and may have the numbers of this one's.
template <typename Function>
void Ring::Walk(uint32_t half, uint64_t most, Function function) {
  BatchHeader header, before = {};
  uint64_t place = Begin(half);
  for (uint64_t n = 0; n < most && ReadBatch(place, End(half), &header); ++n) {
    const bool follows =
        header.sequence == before.sequence + 1 && header.previous == before.body_crc;
    const bool is_left = header.sequence >= first_ && header.life != life_;
    if (is_left || (n > 0 && !follows)) return;
    place += SizeOf(header);
    function(header, place);
    before = header;
  }
}

// Those with a number below `limit`.
Ring::Half Ring::Look(uint32_t half, uint64_t limit) {
  Half found = {};
  Walk(half, kAll, [&](const BatchHeader& header, uint64_t end) {
    if (header.sequence >= limit) return;
    if (found.batches++ == 0) found.first = header;
    found.begins = true;
    found.last = header;
    found.end = end;
    if ((header.flags & kEndsRound) == 0) return;
    found.rounds = found.batches;
    found.round = header;
    found.round_end = end;
  });
  return found;
}

// A header of a later batch of this life: that one was written when all before it had been. What an
// earlier life had begun, and not ended, may lie there still.
bool Ring::HasLater(uint64_t place, uint64_t end, uint64_t sequence) {
  while (place < end) {
    const uint64_t bytes = std::min(kMaxBatch, end - place);
    if (!ReadBlocks(place, bytes, 0)) return false;
    for (uint64_t at = 0; at < bytes; at += kBlock) {
      BatchHeader header;
      std::memcpy(&header, buffer_ + at, sizeof(header));
      if (IsHeader(header, seed_) && header.life == life_ && header.sequence > sequence)
        return true;
    }
    place += bytes;
  }
  return false;
}

Ring::Result Ring::Damaged(uint64_t place) {
  damaged_at_ = place;
  return error_ != 0 ? Result::kFailed : Result::kDamaged;
}

// That of which the last batch is the newer one. A life that began the other half, and ended no
// round there, has left batches whose numbers the next life has used again.
uint32_t Ring::Newer(const Half (&halves)[2]) {
  if (!halves[0].begins || !halves[1].begins) return halves[0].begins ? 0 : 1;
  const BatchHeader &zero = halves[0].last, &one = halves[1].last;
  if (one.life != zero.life) return one.life > zero.life;
  if (one.sequence != zero.sequence) return one.sequence > zero.sequence;
  return halves[1].first.sequence > halves[0].first.sequence;
}

Ring::Result Ring::Read(uint8_t* base, Position* next, uint64_t* bound) {
  Half halves[2] = {Look(0, kAll), Look(1, kAll)};
  const uint32_t last = Newer(halves), other = 1 - last;
  const Half& newer = halves[last];
  const Half& older = halves[other];
  // A leader may have died when a batch of its was written, and nobody knew: the next one has begun
  // the other half with that number.
  if (newer.begins && older.begins && older.last.sequence >= newer.first.sequence) {
    halves[other] = Look(other, newer.first.sequence);
  }
  if (!newer.begins) {
    const bool any = first_ != 1 || HasLater(Begin(0), End(0), 0) || HasLater(Begin(1), End(1), 0);
    return any || error_ != 0 ? Damaged(Begin(0)) : Result::kNothing;
  }
  // A torn one would be the next to be written: here, or the first of the other half.
  const uint64_t torn = newer.last.sequence + 1;
  if (HasLater(newer.end, End(last), torn)) return Damaged(newer.end);
  if (HasLater(Begin(other), End(other), torn)) return Damaged(Begin(other));
  const bool follows = older.begins && older.last.sequence + 1 == newer.first.sequence &&
                       older.last.body_crc == newer.first.previous;
  const bool is_whole = newer.rounds > 0 && (newer.round.flags & kIsWhole) != 0;
  if (!follows && !is_whole && newer.first.sequence != 1) {
    return Damaged(older.begins ? older.end : Begin(other));
  }
  const bool here = newer.rounds > 0;
  const Half& at = here ? newer : older;
  if (at.rounds == 0 || at.round.sequence + 1 < first_) return Damaged(at.round_end);
  const auto apply = [&](const BatchHeader&, uint64_t) { Apply(buffer_, base); };
  // A leader may have died within a round: the next one's round ends both.
  if (follows) Walk(other, here ? older.batches : older.rounds, apply);
  Walk(last, newer.rounds, apply);
  if (error_ != 0) return Result::kFailed;
  const uint32_t half = here ? last : other, whole = (at.round.flags & kIsWhole) != 0 ? 1 : 0;
  const BatchHeader& round = at.round;
  *next = {round.sequence + 1, at.round_end, End(half), round.body_crc, half, whole, 0, 0};
  *bound = round.bound;
  return Result::kRead;
}

}  // namespace nvcache::journal
