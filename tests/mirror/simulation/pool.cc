// SPDX-License-Identifier: BSD-3-Clause
#include "tests/mirror/simulation/pool.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace nvcache::simulation {

using mirror::Batch;

namespace {

constexpr size_t kMostGroups = 3;  // of a batch

template <typename T>
T Load(const Bytes& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

template <typename T>
void Store(Bytes* bytes, size_t at, const T& value) {
  std::memcpy(bytes->data() + at, &value, sizeof(value));
}

size_t PlaceOf(size_t slot) { return kSlotsAt + slot * sizeof(Group); }

template <typename T>
void Add(Batch* batch, size_t at, const T& value) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
  batch->ranges.push_back({at, sizeof(value)});
  batch->bytes.insert(batch->bytes.end(), bytes, bytes + sizeof(value));
}

// A round takes time: it looks at some slots, and perhaps at the others only when it is asked
// again.
class LiveCursor : public mirror::Cursor {
 public:
  LiveCursor(const Pool* pool, Schedule* schedule, kit::Random* random, Broken broken)
      : pool_(*pool), schedule_(*schedule), random_(*random), broken_(broken) {}

  bool Read(Batch* batch) override {
    if (!ready_ && !Look()) return false;
    if (std::exchange(tells_checkpoint_, false)) Add(batch, kCheckpointAt, checkpoint_);
    const size_t count = std::min(found_.size(), kMostGroups);
    for (size_t i = 0; i < count; ++i) Add(batch, PlaceOf(found_[i].slot), found_[i].group);
    found_.erase(found_.begin(), found_.begin() + static_cast<ptrdiff_t>(count));
    batch->whole = found_.empty();
    batch->position = batch->whole ? end_ : found_.front().group.lsn;
    ready_ = !batch->whole;
    return true;
  }

 private:
  struct Found {
    Group group;
    size_t slot;
  };

  // True: a round has come to its end, and there is something new.
  bool Look() {
    if (!begun_) {
      if (pool_.next == end_ && pool_.checkpoint() == checkpoint_) return false;
      Begin();
      goes_on_ = schedule_.now() + (random_.OneIn(8) ? schedule_.Within(100 * kMillisecond) : 0);
    }
    if (schedule_.now() < goes_on_ || random_.OneIn(2)) return false;
    if (broken_.Is(RuleNamed("lsn-first"))) end_ = pool_.next;
    for (size_t slot = first_; slot < kSlots; ++slot) {
      // Taken again meanwhile: nobody knows what was there, but the checkpoint has passed it.
      const bool again = pool_.At(slot).lsn != seen_[slot] && seen_[slot] != 0;
      if (again && !broken_.Is(RuleNamed("begins-again"))) {
        Begin();
        slot = 0;
      }
      LookAt(slot);
    }
    std::sort(found_.begin(), found_.end(),
              [](const Found& a, const Found& b) { return a.group.lsn < b.group.lsn; });
    if (broken_.Is(RuleNamed("lsn-order"))) std::reverse(found_.begin(), found_.end());
    begun_ = false;
    ready_ = true;
    return true;
  }

  void Begin() {
    begun_ = true;
    for (const Found& found : found_) sent_[found.slot] = 0;
    found_.clear();
    end_ = pool_.next;
    const bool keeps = checkpoint_ > 0 && broken_.Is(RuleNamed("checkpoint-goes-along"));
    tells_checkpoint_ = tells_checkpoint_ || (pool_.checkpoint() != checkpoint_ && !keeps);
    checkpoint_ = pool_.checkpoint();
    for (size_t slot = 0; slot < kSlots; ++slot) seen_[slot] = pool_.At(slot).lsn;
    first_ = random_.Below(kSlots);
    for (size_t slot = 0; slot < first_; ++slot) LookAt(slot);
  }

  void LookAt(size_t slot) {
    const Group group = pool_.At(slot);
    const uint64_t bound = broken_.Is(RuleNamed("only-below-lsn")) ? UINT64_MAX : end_;
    if (group.lsn == 0 || group.lsn < checkpoint_ || group.lsn >= bound) return;
    if (std::exchange(sent_[slot], group.lsn) != group.lsn) found_.push_back({group, slot});
  }

  const Pool& pool_;
  const Schedule& schedule_;
  kit::Random& random_;
  const Broken broken_;
  bool begun_ = false, ready_ = false, tells_checkpoint_ = false;
  uint64_t end_ = 0, checkpoint_ = 0;
  Time goes_on_ = 0;
  size_t first_ = 0;
  std::array<uint64_t, kSlots> seen_ = {}, sent_ = {};
  std::vector<Found> found_;
};

class StillCursor : public mirror::Cursor {
 public:
  StillCursor(Bytes pool, Position position) : pool_(std::move(pool)), position_(position) {}

  bool Read(Batch* batch) override {
    if (at_ == pool_.size()) return false;
    const size_t length = std::min<size_t>(pool_.size() - at_, 160);
    batch->ranges.push_back({at_, static_cast<uint32_t>(length)});
    const auto from = pool_.begin() + static_cast<ptrdiff_t>(at_);
    batch->bytes.assign(from, from + static_cast<ptrdiff_t>(length));
    at_ += length;
    batch->whole = at_ == pool_.size();
    batch->position = position_;
    return true;
  }

 private:
  const Bytes pool_;
  const Position position_;
  size_t at_ = 0;
};

}  // namespace

Pool::Pool() : bytes(kPoolSize) {}

uint64_t Pool::checkpoint() const { return Load<uint64_t>(bytes, kCheckpointAt); }
void Pool::SetCheckpoint(uint64_t lsn) { Store(&bytes, kCheckpointAt, lsn); }
Group Pool::At(size_t slot) const { return Load<Group>(bytes, PlaceOf(slot)); }
void Pool::Put(size_t slot, const Group& group) { Store(&bytes, PlaceOf(slot), group); }

size_t Pool::TakeSlot(bool settles) {
  std::vector<size_t> free;
  for (size_t slot = 0; slot < kSlots; ++slot) {
    const uint64_t lsn = At(slot).lsn;
    if (!taken[slot] && (lsn == 0 || lsn < checkpoint())) free.push_back(slot);
  }
  if (free.size() <= (settles ? 0 : kReserved)) return kSlots;
  taken[free.front()] = true;
  return free.front();
}

size_t Replay(const Bytes& pool, Versions* disk, size_t steps) {
  std::vector<Group> groups;
  Versions settled = {};
  const auto checkpoint = Load<uint64_t>(pool, kCheckpointAt);
  for (size_t slot = 0; slot < kSlots; ++slot) {
    const auto group = Load<Group>(pool, PlaceOf(slot));
    if (group.lsn == 0 || group.lsn < checkpoint) continue;
    if (group.settled > 0) {
      settled[group.target] = std::max(settled[group.target], group.settled);
    } else {
      groups.push_back(group);
    }
  }
  std::sort(groups.begin(), groups.end(),
            [](const Group& a, const Group& b) { return a.lsn < b.lsn; });
  size_t done = 0;
  const auto write = [&](size_t target, uint64_t version) {
    if (done++ < steps) (*disk)[target] = version;
  };
  for (const Group& group : groups) {
    if (group.lsn < settled[group.target]) continue;
    write(group.target, group.version);
    if (group.target < kPair) write(1 - group.target, group.version);
  }
  return done;
}

bool LacksOlder(const Bytes& pool, const std::vector<Group>& history) {
  const auto checkpoint = Load<uint64_t>(pool, kCheckpointAt);
  std::set<uint64_t> there;
  std::map<uint64_t, uint64_t> newest;  // number, by program
  for (size_t slot = 0; slot < kSlots; ++slot) {
    const auto group = Load<Group>(pool, PlaceOf(slot));
    if (group.lsn == 0 || group.lsn < checkpoint) continue;
    there.insert(group.lsn);
    newest[group.program] = std::max(newest[group.program], group.number);
  }
  return std::any_of(history.begin(), history.end(), [&](const Group& group) {
    return group.lsn >= checkpoint && group.number < newest[group.program] &&
           !there.contains(group.lsn);
  });
}

std::unique_ptr<mirror::Cursor> OpenCursor(const Pool* pool, Schedule* schedule,
                                           kit::Random* random, Broken broken) {
  return std::make_unique<LiveCursor>(pool, schedule, random, broken);
}

std::unique_ptr<mirror::Cursor> OpenCursor(Bytes pool, Position position) {
  return std::make_unique<StillCursor>(std::move(pool), position);
}

}  // namespace nvcache::simulation
