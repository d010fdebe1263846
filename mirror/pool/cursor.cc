// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/pool/cursor.h"

#include <algorithm>
#include <cstring>

#include "mirror/pool/faults.h"
#include "mirror/pool/source.h"

namespace nvcache::mirror {

namespace {

constexpr size_t kHeaderBytes = 2 * sizeof(pool::SegmentHeader);

}  // namespace

Id PoolSource::lineage() const {
  Id id;
  std::memcpy(id.bytes.data(), pool_.view().superblock->uuid, sizeof(id.bytes));
  return id;
}

std::unique_ptr<Cursor> PoolSource::NewCursor() const {
  return std::make_unique<PoolCursor>(pool_);
}

bool PoolCursor::Read(Batch* batch) {
  for (;;) {
    *batch = {};
    if (!open_) {
      const Begun begun = Begin();
      if (begun == Begun::kNothing) return false;
      if (begun == Begun::kAgain) {
        GiveUp();
        continue;
      }
    }
    if (Fill(batch)) return true;
    GiveUp();
  }
}

// Batches that were handed out stay, and so does how far it has come; the rest is looked at anew.
void PoolCursor::GiveUp() {
  for (const Saved& saved : touched_) lives_[saved.number] = saved.life;
  touched_.clear();
  open_ = false;
  again_ = true;
}

// ---------------------------------------------------------------------------------------------
// The beginning of a round.

PoolCursor::Begun PoolCursor::Begin() {
  bool is_new = again_;
  if (!Look(&is_new)) return Begun::kAgain;
  if (heap_.empty() && !is_new) return Begun::kNothing;
  again_ = false;
  open_ = true;
  stage_ = kStart;
  kept_at_ = kept_fresh_at_ = change_at_ = gone_at_ = 0;
  changes_ = marks_.Changes();
  for (std::vector<uint32_t>* list : {&kept_, &kept_fresh_}) list->clear();
  for (const uint32_t number : lives_.kept()) {
    (lives_[number].copied == 0 ? kept_fresh_ : kept_).push_back(number);
  }
  return Begun::kRound;
}

// False: something was lost while it looked.
bool PoolCursor::Look(bool* is_new) {
  const auto read_next = [this] {
    bound_ = std::max<Lsn>(seats_.next_lsn().load(std::memory_order_acquire), 1);
  };
  const Lsn before = position_;
  read_next();
  Pass(Point::kNext);
  const uint64_t taken = seats_.taken();
  if (again_ || (taken != taken_ && !Is(Mutant::kTakenOnce))) {
    *is_new = true;
    lives_.Scan();
    taken_ = taken;
  }
  Pass(Point::kScanned);
  if (!Is(Mutant::kCheckpointsLast) && checkpoints_.Look()) *is_new = true;
  Pass(Point::kCheckpoints);
  // A kept segment that a checkpoint relies on was counted before that was stored.
  if (bound_ > before || seats_.taken() != taken_) *is_new = true;
  if (*is_new && (seats_.taken() != taken_ || marks_.HasAny()) && !marks_.Look(bound_, taken_)) {
    return false;
  }
  if (Is(Mutant::kCheckpointsLast) && checkpoints_.Look()) *is_new = true;
  if (!PushAll()) return false;
  if (Is(Mutant::kNextLast)) {
    Pass(Point::kNext);
    read_next();
    if (bound_ > before) *is_new = true;
  }
  return true;
}

bool PoolCursor::IsLater(const Head& a, const Head& b) {
  return Is(Mutant::kAnyOrder) ? a.number > b.number : a.lsn > b.lsn;
}

bool PoolCursor::PushAll() {
  heap_.clear();
  for (const uint32_t number : lives_.growing()) {
    if (!lives_[number].closed && !Push(number)) return false;
  }
  return true;
}

bool PoolCursor::Push(uint32_t number) {
  bool lost = false;
  const Lsn lsn = lives_.Peek(number, bound_, &lost);
  if (lost) return false;
  if (lsn == 0) return true;
  heap_.push_back({lsn, number});
  std::push_heap(heap_.begin(), heap_.end(), IsLater);
  return true;
}

// ---------------------------------------------------------------------------------------------
// A batch.

bool PoolCursor::Fill(Batch* batch) {
  Pieces pieces(batch);
  first_change_ = change_at_;
  if (!AddBefore(&pieces)) return false;
  if (stage_ == kGroups && !AddGroups(&pieces)) return false;
  Commit(batch);
  return true;
}

// The copies are in a batch that is about to be handed out.
void PoolCursor::Commit(Batch* batch) {
  for (const Saved& saved : touched_) {
    Life& life = lives_[saved.number];
    marks_.Sent(saved.number, saved.life.copied, life.copied);
    life.touched = false;
  }
  touched_.clear();
  started_ = true;
  for (size_t i = first_change_; i < change_at_; ++i) marks_.Sent(changes_[i]);
  if (stage_ == kGroups) {
    checkpoints_.Sent();
    lives_.ClearGone();
    open_ = !heap_.empty();
    position_ = std::max(position_, open_ ? heap_.front().lsn : bound_);
  }
  batch->whole = stage_ == kGroups && !open_;
  batch->position = position_;
}

void PoolCursor::Touch(uint32_t number) {
  Life& life = lives_[number];
  if (life.touched) return;
  touched_.push_back({number, life});
  life.touched = true;
}

// Up to the groups of logs, or until the batch is full. False: something was lost.
bool PoolCursor::AddBefore(Pieces* pieces) {
  if (stage_ == kStart) {
    if (!started_) AddStart(pieces);
    stage_ = kKept;
  }
  if (stage_ == kKept) {
    if (!AddKept(kept_, &kept_at_, false, pieces)) return false;
    if (kept_at_ < kept_.size()) return true;
    stage_ = kAtOnce;
  }
  return stage_ != kAtOnce || AddAtOnce(pieces);
}

// Adds what goes with the checkpoints, not before and not after them: kept segments that are new,
// whose headers say checkpoints, and which may be written over groups that these have passed; the
// words of kept groups; kept segments that are gone. If it is too much for a batch, it comes in
// this order.
bool PoolCursor::AddAtOnce(Pieces* pieces) {
  size_t bytes = checkpoints_.bytes() + lives_.gone().size() * 2 * sizeof(uint64_t);
  for (size_t i = kept_fresh_at_; i < kept_fresh_.size(); ++i) {
    bytes += lives_[kept_fresh_[i]].unit * pool::kUnitSize + sizeof(pool::SegmentHeader);
  }
  const size_t changes = changes_.size() - change_at_;
  bytes += changes * sizeof(uint64_t);
  const bool fits = bytes <= kMaxBytes && changes + 2 * lives_.gone().size() <= kSoftRanges;
  if (fits && pieces->bytes() > 0 && pieces->bytes() + bytes > kMaxBytes) return true;
  if (!AddKept(kept_fresh_, &kept_fresh_at_, fits, pieces)) return false;
  if (kept_fresh_at_ < kept_fresh_.size() || !AddChanges(fits, pieces) || !AddGone(fits, pieces)) {
    return true;
  }
  checkpoints_.Add(pieces);
  stage_ = kGroups;
  return true;
}

// A pool that is in use, of a kernel that nobody knows: all has to be applied. Checkpoints come at
// once: while an image is empty, nothing has to come before them.
void PoolCursor::AddStart(Pieces* pieces) const {
  uint8_t superblock[sizeof(pool::Superblock)];
  static_assert(sizeof(superblock) % kRangeUnit == 0);
  std::memcpy(superblock, view_.superblock, sizeof(superblock));
  pieces->Add(0, superblock, sizeof(superblock));
  pool::StateRecord state = {};
  state.state = pool::kStateInUse;
  state.handed_over = 1;
  pieces->Add(pool::kStateOffset, &state, sizeof(state));
  pieces->Add(pool::kSuperblockCopyOffset, superblock, sizeof(superblock));
  checkpoints_.Add(pieces);
}

// `list` from `*at` on, until the batch is full, unless `all`.
bool PoolCursor::AddKept(const std::vector<uint32_t>& list, size_t* at, bool all, Pieces* pieces) {
  for (; *at < list.size(); ++*at) {
    const uint32_t number = list[*at];
    Life& life = lives_[number];
    while (life.unit > nvlog::kFirstUnit && life.copied < life.unit) {
      if (pieces->IsFull() && !all) return true;
      Touch(number);
      const uint32_t from = std::max(life.copied, static_cast<uint32_t>(nvlog::kFirstUnit));
      const uint64_t room = all ? life.unit : (SoftBytes() - pieces->bytes()) / pool::kUnitSize;
      const uint32_t end = marks_.CutAt(number, from, life.unit, room);
      uint8_t* bytes = lives_.Copy(number, end, pieces);
      Pass(Point::kCopied);
      if (bytes == nullptr || (!lives_.Has(number) && !Is(Mutant::kAnyGeneration))) return false;
      marks_.SetWords(number, from, end, bytes);
      life.copied = end;
      // An image may have there a part of a log of another seat, whose LSNs are higher: that would
      // look damaged.
      constexpr uint64_t kNone = nvlog::kNotCommitted;
      if (end < lives_.units_end()) {
        pieces->Add(lives_.OffsetOf(number, end), &kNone, sizeof(kNone));
      }
    }
  }
  return true;
}

// False: the batch is full, and not for `all`.
bool PoolCursor::AddChanges(bool all, Pieces* pieces) {
  for (; change_at_ < changes_.size(); ++change_at_) {
    if (pieces->IsFull() && !all) return false;
    const Marks::Change& change = changes_[change_at_];
    const uint64_t word = nvlog::VoidWord(change.lsn, view_.salt());
    pieces->Add(lives_.OffsetOf(change.number, change.unit), &word, sizeof(word));
  }
  return true;
}

// The rest of the header stays: a segment with two such words is free, whatever lies in it.
bool PoolCursor::AddGone(bool all, Pieces* pieces) {
  constexpr uint64_t kNone = 0;
  for (; gone_at_ < lives_.gone().size(); ++gone_at_) {
    if (pieces->IsFull() && !all) return false;
    const uint32_t number = lives_.gone()[gone_at_];
    if (lives_[number].kept && lives_[number].copied != 0) continue;  // it has another header
    pieces->Add(lives_.OffsetOf(number, 0), &kNone, sizeof(kNone));
    pieces->Add(lives_.OffsetOf(number, lives_.units() - 1), &kNone, sizeof(kNone));
  }
  return true;
}

bool PoolCursor::AddGroups(Pieces* pieces) {
  size_t bytes = pieces->bytes();
  bool is_first = bytes < SoftBytes();
  while (!heap_.empty() && touched_.size() < kSoftRanges) {
    const Taken taken = Take(&bytes, is_first);
    if (taken == Taken::kLost) return false;
    if (taken == Taken::kFull) break;
    is_first = false;
  }
  return CopyTouched(pieces);
}

// The next group. Its bytes are copied when the batch has all of its groups: so what lies together
// in a segment is one range.
PoolCursor::Taken PoolCursor::Take(size_t* bytes, bool is_first) {
  const Head head = heap_.front();
  const bool whole = lives_.Walk(head.number, &moves_);
  size_t size = 0;
  for (const Lives::Move& move : moves_) {
    const Life& life = lives_[move.number];
    size += (move.unit - life.unit) * pool::kUnitSize + (life.copied == 0 ? kHeaderBytes : 0);
  }
  if (whole && !is_first && *bytes + size > SoftBytes()) return Taken::kFull;
  std::pop_heap(heap_.begin(), heap_.end(), IsLater);
  heap_.pop_back();
  if (!whole) return Miss(head);
  for (const Lives::Move& move : moves_) Touch(move.number);
  lives_.Go(moves_, head.lsn);
  *bytes += size;
  Pass(Point::kHeader);
  return Push(moves_.back().number) ? Taken::kDone : Taken::kLost;
}

// A part of the group is not there. If the checkpoint has passed it, its segment may be gone.
PoolCursor::Taken PoolCursor::Miss(const Head& head) {
  Life& life = lives_[head.number];
  if (!lives_.Has(head.number)) return Taken::kLost;
  if (head.lsn < checkpoints_.Of(life.log)) {
    life.last = head.lsn;
    life.closed = true;
  } else if (head.lsn < checkpoints_.Now(life.log)) {
    return Taken::kLost;
  } else {
    life.stuck = true;
  }
  return Taken::kDone;
}

bool PoolCursor::CopyTouched(Pieces* pieces) {
  for (const Saved& saved : touched_) {
    Life& life = lives_[saved.number];
    if (life.kept || life.copied == life.unit) continue;
    const uint32_t from = std::max(life.copied, static_cast<uint32_t>(nvlog::kFirstUnit));
    uint8_t* bytes = lives_.Copy(saved.number, life.unit, pieces);
    Pass(Point::kCopied);
    if (bytes == nullptr || (!lives_.Has(saved.number) && !Is(Mutant::kAnyGeneration))) {
      return false;
    }
    marks_.SetWords(saved.number, from, life.unit, bytes);
    life.copied = life.unit;
  }
  return true;
}

}  // namespace nvcache::mirror
