// SPDX-License-Identifier: BSD-3-Clause
//
// All that processes tell each other is sequentially consistent: marks are put before others
// are looked for, on both sides. On x86-64 only the stores pay for it.
#include "src/lease/leases.h"

#include <algorithm>

#include "src/lease/asking.h"
#include "src/lease/format.h"
#include "src/lease/tag.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/sharing.h"

namespace nvcache::lease {

namespace {

// So often a holder that has been served a request, and has the file still, has refused.
constexpr int kRefusals = 3;

void Ask(Slot& slot) {
  slot.requests.fetch_add(1);
  Wake(&slot.requests);
}

// Sleeps until the slot's owner may have done what `done` looks for; it has to be called again.
// False: the time is over.
template <typename Condition>
bool SleepUnless(Slot& slot, uint64_t end, Condition done) {
  const uint32_t seen = slot.answers.fetch_or(1) | 1;
  if (done()) return true;
  const uint64_t now = sys::Now(CLOCK_MONOTONIC);
  if (now >= end) return false;
  Sleep(&slot.answers, seen, std::min(end - now, kAliveCheckInterval));
  return true;
}

uint64_t EndOf(uint64_t timeout_ns) {
  const uint64_t now = sys::Now(CLOCK_MONOTONIC);
  return timeout_ns < sys::kForever - now ? now + timeout_ns : sys::kForever;
}

// A tag's bucket of the first page, and the bucket's bit in Slot::touched.
uint32_t FirstBucketOf(uint64_t tag) { return static_cast<uint32_t>(tag >> 32) % kFirstBuckets; }
uint64_t BitOf(uint64_t tag) { return uint64_t{1} << FirstBucketOf(tag); }

// For Slot::publish_file.
uint32_t HashOf(uint64_t tag) { return static_cast<uint32_t>(tag >> 32) | 1; }

bool IsOf(uint32_t cell, uint64_t tag) { return cell >> kTagShift == TagOfCell(tag) >> kTagShift; }
bool IsUsed(uint32_t cell) { return cell != 0; }
bool IsExclusive(uint32_t cell) { return (cell & kExclusives) != 0; }
bool IsEndless(uint32_t cell) { return (cell & kUsers) == kUsers; }
// The process has a file with that cell, and not exclusively.
bool IsShared(uint32_t cell) { return (cell & kExclusives) / kExclusive < (cell & kUsers); }
bool MayDrop(uint32_t cell) { return IsShared(cell) || IsEndless(cell); }

}  // namespace

bool Request::Publish(uint64_t device, uint64_t inode) const {
  return publish_file == kEveryFile || publish_file == HashOf(NumberTagOf(device, inode));
}

bool Leases::Open(const char* folder, const char** why) {
  if (!Slots::Open(folder, why)) return false;
  BeginKeeping();
  return true;
}

bool Leases::AfterForkInChild(const char** why) {
  if (!Slots::AfterForkInChild(why)) return false;
  BeginKeeping();
  return true;
}

void Leases::BeginKeeping() {
  publish_served_ = shared_->slots[slot_].published.load();
  stopping_.store(false);
}

// ------------------------------------------------------------------------------------------ Marks

Bucket& Leases::BucketOf(const Slot& slot, uint32_t level, uint64_t tag) const {
  if (level == 0) return FirstPageOf(slot).buckets[FirstBucketOf(tag)];
  Page* const pages = &shared_->pages[slot.pages[level].load() - uint32_t{1}];
  const uint32_t bucket =
      static_cast<uint32_t>(tag >> (32 - kTagShift)) % (kLevelPages[level] * kBucketsOfPage);
  return pages[bucket / kBucketsOfPage].buckets[bucket % kBucketsOfPage];
}

// The file's: two only where a child that shares our memory has come in between.
Cell* Leases::FindCell(uint64_t tag, bool (*is_right)(uint32_t cell)) const {
  const Slot& slot = shared_->slots[slot_];
  for (uint32_t level = 0; level < slot.levels.load(); ++level) {
    for (Cell& cell : BucketOf(slot, level, tag).cells) {
      const uint32_t now = cell.load(std::memory_order_relaxed);
      if (IsOf(now, tag) && is_right(now)) return &cell;
    }
  }
  return nullptr;
}

// True: the file has a cell, and its user is counted there.
bool Leases::CountUser(uint64_t tag) {
  while (Cell* const cell = FindCell(tag, IsUsed)) {
    uint32_t now = cell->load(std::memory_order_relaxed);
    while (IsOf(now, tag) && IsUsed(now)) {
      if (IsEndless(now) || cell->compare_exchange_weak(now, now + kUser)) return true;
    }
  }
  return false;
}

bool Leases::AddCell(uint64_t tag) {
  const Slot& slot = shared_->slots[slot_];
  do {
    for (uint32_t level = 0; level < slot.levels.load(); ++level) {
      for (Cell& cell : BucketOf(slot, level, tag).cells) {
        uint32_t none = 0;
        if (cell.load(std::memory_order_relaxed) != 0) continue;
        if (cell.compare_exchange_strong(none, TagOfCell(tag) + kUser)) return true;
      }
    }
  } while (AddLevel());
  return false;
}

// A child that shares our memory may have another file under our descriptor's number, and may be
// killed before it has cleared the pages.
bool Leases::AddLevel() {
  Slot& slot = shared_->slots[slot_];
  const uint32_t level = slot.levels.load();
  if (level == kLevels || sys::IsSharing()) return false;
  const uint32_t page = slot.pages[level].load();
  if (page != 0) {
    ClearLines(&shared_->pages[page - 1], kLevelPages[level] * kPage);
  } else if (!GivePages(slot, level, kMaxPages - kMaxProcesses)) {
    return false;
  }
  slot.levels.store(static_cast<uint16_t>(level + 1));
  return true;
}

bool Leases::IsCrowded(uint64_t tag) const {
  const Slot& slot = shared_->slots[slot_];
  if (slot.levels.load() == 0) return true;
  for (uint32_t level = 0; level < slot.levels.load(); ++level) {
    if (BucketOf(slot, level, tag).crowded.load() != 0) return true;
  }
  return false;
}

// The cells of a slot that is lost are somebody else's.
void Leases::AddUser(uint64_t device, uint64_t inode) {
  NVCACHE_CHECK(is_open() && slot_ < kMaxProcesses);
  if (lost()) return;
  const uint64_t tag = NumberTagOf(device, inode);
  Slot& slot = shared_->slots[slot_];
  if ((slot.touched.load(std::memory_order_relaxed) & BitOf(tag)) == 0) {
    slot.touched.fetch_or(BitOf(tag));
  }
  if (slot.levels.load() == 0 || CountUser(tag) || AddCell(tag)) return;
  BucketOf(slot, slot.levels.load() - 1u, tag).crowded.store(1);
  slot.handed_on.fetch_add(1);
}

bool Leases::TryExclusive(uint64_t device, uint64_t inode) {
  if (lost() || !Sound()) return false;
  const uint64_t tag = NumberTagOf(device, inode);
  Cell* const cell = FindCell(tag, IsShared);
  NVCACHE_CHECK(cell != nullptr || lost() || HasMark(shared_->slots[slot_], tag, kUsers));
  if (cell == nullptr) return false;
  shared_->slots[slot_].exclusives.fetch_add(1);
  cell->fetch_add(kExclusive);
  if (!MarkedElsewhere(tag, kAnyUse) && !RemembersHandOn(device, inode)) return true;
  Downgrade(device, inode);
  return false;
}

void Leases::Downgrade(uint64_t device, uint64_t inode) {
  if (lost()) return;
  Cell* const cell = FindCell(NumberTagOf(device, inode), IsExclusive);
  NVCACHE_CHECK(cell != nullptr || lost());
  if (cell == nullptr) return;
  cell->fetch_sub(kExclusive);
  shared_->slots[slot_].exclusives.fetch_sub(1);
  WakeAskers(shared_->slots[slot_]);
}

void Leases::RemoveUser(uint64_t device, uint64_t inode, bool was_exclusive) {
  if (was_exclusive) Downgrade(device, inode);
  if (lost()) return;
  const uint64_t tag = NumberTagOf(device, inode);
  for (;;) {
    Cell* const cell = FindCell(tag, MayDrop);
    NVCACHE_CHECK(cell != nullptr || lost() || IsCrowded(tag));
    if (cell == nullptr) return;
    uint32_t now = cell->load(std::memory_order_relaxed);
    if (!IsOf(now, tag) || !MayDrop(now)) continue;
    if (IsEndless(now)) return;
    const uint32_t next = (now & kUsers) == kUser ? 0 : now - kUser;
    if (!cell->compare_exchange_strong(now, next)) continue;
    if (next == 0 && (now & kHandedOn) != 0) shared_->slots[slot_].handed_on.fetch_sub(1);
    return;
  }
}

bool Leases::HasMark(const Slot& slot, uint64_t tag, uint32_t mask) const {
  constexpr uint32_t kUnknown = kUsers | kHandedOn;  // without a cell
  if (slot.levels.load() == 0) return (mask & kUnknown) != 0;
  for (uint32_t level = 0; level < slot.levels.load(); ++level) {
    const Bucket& bucket = BucketOf(slot, level, tag);
    for (const Cell& cell : bucket.cells) {
      const uint32_t now = cell.load();
      if (IsOf(now, tag) && (now & mask) != 0) return true;
    }
    if ((mask & kUnknown) != 0 && bucket.crowded.load() != 0) return true;
  }
  return false;
}

// The life of the slot if its owner lives and has one of `mask` in the file's cell, else 0.
uint32_t Leases::Marked(uint32_t index, uint64_t tag, uint32_t mask) {
  for (;;) {
    const Slot& slot = shared_->slots[index];
    const uint32_t life = slot.life.load();
    // A bucket that was never touched need not be mapped to be known: a page fault less.
    if (!IsInUse(life) || (slot.touched.load() & BitOf(tag)) == 0) return 0;
    if (!HasMark(slot, tag, mask)) return 0;
    if (!Reap(index)) return life;
  }
}

bool Leases::MarkedElsewhere(uint64_t tag, uint32_t mask) {
  const uint32_t n = mark();
  for (uint32_t i = 0; i < n; ++i) {
    if (i != slot_ && Marked(i, tag, mask) != 0) return true;
  }
  return false;
}

bool Leases::Uses(uint32_t slot, uint64_t tag) {
  return slot == slot_ ? HasMark(shared_->slots[slot], tag, kAnyUse)
                       : Marked(slot, tag, kAnyUse) != 0;
}

bool Leases::IsExclusiveElsewhere(uint64_t device, uint64_t inode) {
  return MarkedElsewhere(NumberTagOf(device, inode), kExclusives);
}

bool Leases::IsUsedElsewhere(uint64_t device, uint64_t inode) {
  return MarkedElsewhere(NumberTagOf(device, inode), kAnyUse);
}

// ----------------------------------------------------------------------- Programs that are started

// If it is the file's. A process that drops it meanwhile has the count pass below zero for a
// moment.
void Leases::Mark(Slot& slot, Cell& cell, uint64_t tag) {
  uint32_t now = cell.load();
  while (IsOf(now, tag) && IsUsed(now) && (now & kHandedOn) == 0) {
    if (!cell.compare_exchange_weak(now, now | kHandedOn)) continue;
    slot.handed_on.fetch_add(1);
    return;
  }
}

void Leases::MarkIn(Slot& slot, uint64_t tag) const {
  for (uint32_t level = 0; level < slot.levels.load(); ++level) {
    for (Cell& cell : BucketOf(slot, level, tag).cells) Mark(slot, cell, tag);
  }
}

// The dead may be marked, too.
void Leases::HandOn(uint64_t device, uint64_t inode) {
  const uint64_t tag = NumberTagOf(device, inode);
  shared_->hand_ons_begun.fetch_add(1);
  for (uint32_t i = 0; i < mark(); ++i) {
    Slot& slot = shared_->slots[i];
    if (InUse(i) && (slot.touched.load() & BitOf(tag)) != 0) MarkIn(slot, tag);
  }
  shared_->hand_ons.fetch_add(1);
}

void Leases::MarkHandedOn(uint64_t device, uint64_t inode) {
  if (!lost()) MarkIn(shared_->slots[slot_], NumberTagOf(device, inode));
}

bool Leases::RemembersHandOn(uint64_t device, uint64_t inode) const {
  return !lost() && HasMark(shared_->slots[slot_], NumberTagOf(device, inode), kHandedOn);
}

bool Leases::IsHandedOn(uint64_t device, uint64_t inode) {
  return RemembersHandOn(device, inode) || MarkedElsewhere(NumberTagOf(device, inode), kHandedOn);
}

bool Leases::RemembersHandOns() const {
  const Slot& slot = shared_->slots[slot_];
  return lost() || slot.levels.load() == 0 || slot.handed_on.load() != 0;
}

std::atomic<uint64_t>* Leases::verdicts() const { return shared_->verdicts; }

uint32_t Leases::hand_ons() const { return shared_->hand_ons.load(); }

// A process at HandOn while that is read has begun, and is not over: then the two differ for good.
// A process that comes later marks the child, or is seen by it.
bool Leases::HandedOnSince(uint32_t hand_ons) const {
  return shared_->hand_ons_begun.load() != hand_ons;
}

// ------------------------------------------------------------------------------ Asking, answering

// Nobody can exclude us any more, so each slot is looked at once. A process in TryExclusive takes
// its mark back by itself.
bool Leases::AwaitRelease(uint64_t device, uint64_t inode, uint64_t timeout_ns) {
  const uint64_t tag = NumberTagOf(device, inode);
  NVCACHE_CHECK(lost() || HasMark(shared_->slots[slot_], tag, kUsers));
  const uint64_t end = EndOf(timeout_ns);
  const uint32_t n = mark();
  for (uint32_t i = 0; i < n; ++i) {
    if (i == slot_) continue;
    Slot& slot = shared_->slots[i];
    int refusals = 0;
    // The next owner of the slot is asked anew.
    while (const uint32_t life = Marked(i, tag, kExclusives)) {
      const uint32_t ticket = slot.release_wanted.fetch_add(1) + 1;
      Ask(slot);
      const auto served = [&] { return static_cast<int32_t>(slot.released.load() - ticket) >= 0; };
      const auto over = [&] { return Marked(i, tag, kExclusives) != life; };
      while (!over() && !served()) {
        if (!SleepUnless(slot, end, [&] { return over() || served(); })) return false;
      }
      // A mark that is held still may be one that TryExclusive is about to take back.
      if (!over() && ++refusals == kRefusals) return false;
    }
  }
  return true;
}

bool Leases::AwaitPublish(uint64_t device, uint64_t inode, uint64_t timeout_ns) {
  const uint64_t end = EndOf(timeout_ns);
  const uint64_t tag = NumberTagOf(device, inode);
  const uint32_t n = mark();
  for (uint32_t i = 0; i < n; ++i) {
    if (i == slot_) continue;
    Slot& slot = shared_->slots[i];
    bool published = false;
    // The next owner of the slot is asked anew.
    while (const uint32_t life = published ? 0 : Marked(i, tag, kExclusives)) {
      // The file before the ticket: the responder reads them the other way round.
      uint32_t none = kNoFile;
      if (!slot.publish_file.compare_exchange_strong(none, HashOf(tag)) && none != HashOf(tag)) {
        slot.publish_file.store(kEveryFile);
      }
      const uint32_t ticket = slot.publish_wanted.fetch_add(1) + 1;
      Ask(slot);
      const auto done = [&] {
        published = static_cast<int32_t>(slot.published.load() - ticket) >= 0;
        return published || Marked(i, tag, kExclusives) != life;
      };
      while (!done()) {
        if (!SleepUnless(slot, end, done)) return false;
      }
    }
  }
  return true;
}

Request Leases::WaitForRequest() {
  Slot& slot = shared_->slots[slot_];
  for (;;) {
    const uint32_t seen = slot.requests.load();
    Request request;
    request.stop = stopping_.load();
    if (request.stop) return request;
    request.release_ticket = slot.release_wanted.load();
    request.publish_ticket = slot.publish_wanted.load();
    request.release = request.release_ticket != slot.released.load();
    if (request.release || request.publish_ticket != publish_served_) {
      request.publish_file = slot.publish_file.exchange(kNoFile);
      return request;
    }
    if (slot.nudged.exchange(0) != 0) {
      request.asked = false;
      return request;
    }
    Sleep(&slot.requests, seen, sys::kForever);
  }
}

void Leases::Answered(const Request& request, bool published) {
  NVCACHE_CHECK(!request.stop);
  Slot& slot = shared_->slots[slot_];
  publish_served_ = request.publish_ticket;
  slot.released.store(request.release_ticket);
  if (published) {
    slot.published.store(request.publish_ticket);
  } else if (request.publish_file != kNoFile) {
    slot.publish_file.store(kEveryFile);  // for the next ticket, which stands for this one as well
  }
  WakeAskers(slot);
}

void Leases::Nudge() {
  shared_->slots[slot_].nudged.store(1);
  Ask(shared_->slots[slot_]);
}

void Leases::NudgeAll() {
  for (uint32_t slot = 0; slot < mark(); ++slot) {
    if (!InUse(slot)) continue;
    shared_->slots[slot].nudged.store(1);
    Ask(shared_->slots[slot]);
  }
}

void Leases::StopWaiting() {
  stopping_.store(true);
  Ask(shared_->slots[slot_]);
}

}  // namespace nvcache::lease
