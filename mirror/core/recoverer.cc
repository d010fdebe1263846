// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/core/recoverer.h"

#include <algorithm>
#include <utility>

namespace nvcache::mirror {

Recoverer::Recoverer(Options options, Host* host)
    : options_(std::move(options)), host_(*host), register_(host, options_.link.retry) {}

void Recoverer::Tick(Time now) {
  if (!failure_.empty() || phase_ == Phase::kNothing || phase_ == Phase::kDone) return;
  if (phase_ >= Phase::kPromising && phase_ <= Phase::kSpreading) {
    for (Link& link : links_) {
      link.Tick(now);
      link.Pump(claim_, register_.known()->version, now);
    }
  }
  Update(now);
  register_.Tick(now);
}

// ---- The epoch

void Recoverer::Found(bool reached, const std::optional<Record>& record, uint64_t revision, Time) {
  Heard(register_.Found(reached, record, revision));
}

void Recoverer::Written(Outcome outcome, uint64_t revision, Time) {
  Heard(register_.Written(outcome, revision));
}

void Recoverer::Heard(Register::News news) {
  if (news == Register::News::kNothing || !failure_.empty()) return;
  const std::optional<Record>& known = register_.known();
  if (phase_ == Phase::kReading || (phase_ == Phase::kTaking && news != Register::News::kDone)) {
    return TakeEpoch();
  }
  if (!known || known->epoch != (phase_ == Phase::kTaking ? known->epoch : claim_.epoch)) {
    return Fail("another process has taken the mirror name");
  }
  if (phase_ == Phase::kTaking && known->mode == Mode::kReal) {
    phase_ = Phase::kNothing;
  } else if (phase_ == Phase::kTaking) {
    claim_ = {options_.name, known->epoch, known->lineage, known->pool_size};
    for (size_t i = 0; i < known->holders.size(); ++i) {
      links_.emplace_back(options_.link, host_.MakeWire(i, known->holders[i].address));
    }
    phase_ = Phase::kPromising;
  } else if (phase_ == Phase::kClosing && news == Register::News::kDone) {
    phase_ = Phase::kDone;
  }
}

void Recoverer::TakeEpoch() {
  const std::optional<Record>& known = register_.known();
  if (!known) return Fail("etcd has no record of this mirror name");
  phase_ = Phase::kTaking;
  Record wanted = *known;
  wanted.epoch += 1;
  wanted.writer = options_.self;
  wanted.mode = Mode::kRecovering;
  if (known->mode == Mode::kReal) {
    wanted.mode = Mode::kReal;
    if (known->free) {
      phase_ = Phase::kNothing;
      return;
    }
    wanted.free = true;
    wanted.lineage = {};
    wanted.pool_size = 0;
  }
  register_.Change(std::move(wanted));
}

// ---- Servers

bool Recoverer::Counts(size_t holder) const {
  const Link& link = links_[holder];
  const Id& known = register_.known()->holders[holder].incarnation;
  return link.stage() >= Link::Stage::kCopying && !known.IsNone() && link.incarnation() == known;
}

void Recoverer::Connected(size_t holder, Time now) {
  links_[holder].Connected(claim_, register_.known()->version, now);
}

void Recoverer::Closed(size_t holder, Time now) {
  links_[holder].Closed(now);
  Update(now);
}

void Recoverer::Take(size_t holder, const Message& message, Time now) {
  Link& link = links_[holder];
  const Link::Stage before = link.stage();
  if (message.type == Type::kRefused && message.why == Refusal::kEpoch) register_.Ask();
  if (!link.Take(message, now)) return Update(now);
  if (before == Link::Stage::kPromising && link.stage() == Link::Stage::kCopying) {
    if (message.version > register_.known()->version) {
      return Fail("a server knows of a newer record than etcd has: restore etcd");
    }
    if (phase_ == Phase::kSpreading) Spread(holder, now);
  }
  if (message.type == Type::kPiece && phase_ == Phase::kFetching && holder == chosen_) {
    TakePiece(message, now);
  }
  if (phase_ == Phase::kSpreading) link.Pump(claim_, register_.known()->version, now);
  Update(now);
}

void Recoverer::Update(Time now) {
  if (!failure_.empty()) return;
  if (phase_ == Phase::kFetching && !Counts(chosen_)) phase_ = Phase::kPromising;
  if (phase_ == Phase::kPromising) Choose(now);
  if (phase_ == Phase::kSpreading && CountFollowing() >= register_.known()->Majority()) {
    phase_ = Phase::kReplaying;
    host_.Replay();
  }
}

void Recoverer::Choose(Time now) {
  size_t count = 0;
  const Message* best = nullptr;
  for (size_t i = 0; i < links_.size(); ++i) {
    if (!Counts(i)) continue;
    ++count;
    const Message& promised = links_[i].promised();
    if (promised.lineage != claim_.lineage || promised.pool_size != claim_.pool_size) continue;
    if (best == nullptr ||
        std::pair(promised.written, promised.position) > std::pair(best->written, best->position)) {
      best = &promised;
      chosen_ = i;
    }
  }
  if (count < register_.known()->Majority()) return;
  if (best == nullptr) return Fail("the servers remember, and have no image of this pool");
  if (!host_.Prepare(claim_.lineage, claim_.pool_size)) {
    return Fail("there is no room for the pool here");
  }
  phase_ = Phase::kFetching;
  position_ = best->position;
  fetched_ = 0;
  links_[chosen_].Fetch(claim_, 0, now);
}

void Recoverer::TakePiece(const Message& message, Time now) {
  const Range& range = message.ranges[0];
  const uint64_t size = claim_.pool_size;
  const bool is_inside = range.offset >= fetched_ && range.offset <= size &&
                         range.length <= size - range.offset &&
                         message.bytes.size() == range.length;
  if (!is_inside) return links_[chosen_].Leave("the server has sent bytes outside the pool", now);
  host_.WritePool(range, message.bytes.data());
  fetched_ = range.offset + range.length;
  if (range.length > 0 && fetched_ < size) return links_[chosen_].Fetch(claim_, fetched_, now);
  fetched_ = size;
  phase_ = Phase::kSpreading;
  for (size_t i = 0; i < links_.size(); ++i) Spread(i, now);
}

void Recoverer::Spread(size_t holder, Time now) {
  if (!Counts(holder)) return;
  Link& link = links_[holder];
  const Message& promised = link.promised();
  const bool has_it = holder == chosen_ && promised.lineage == claim_.lineage;
  if (has_it && promised.position == position_) {
    return link.Mark(claim_, register_.known()->version, now);
  }
  link.Begin(claim_, host_.OpenCursor(position_));
  link.Pump(claim_, register_.known()->version, now);
}

size_t Recoverer::CountFollowing() const {
  size_t count = 0;
  for (size_t i = 0; i < links_.size(); ++i) {
    count += Counts(i) && links_[i].IsFollowing() ? 1 : 0;
  }
  return count;
}

// ---- The end

void Recoverer::Replayed(bool done) {
  if (phase_ != Phase::kReplaying || !failure_.empty()) return;
  if (!done) return Fail("not all of the pool could be brought to the files");
  phase_ = Phase::kClosing;
  Record wanted = *register_.known();
  wanted.mode = Mode::kReal;
  wanted.free = true;
  wanted.lineage = {};
  wanted.pool_size = 0;
  register_.Change(std::move(wanted));
}

}  // namespace nvcache::mirror
