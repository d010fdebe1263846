// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/core/recoverer.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace nvcache::mirror {

namespace {

// In times that a server is tried again.
constexpr Time kAskAgain = 5;

}  // namespace

Recoverer::Recoverer(Options options, Host* host)
    : options_(std::move(options)), host_(*host), register_(host, options_.link.retry) {}

void Recoverer::Tick(Time now) {
  if (!failure_.empty() || phase_ == Phase::kNothing || phase_ == Phase::kDone) return;
  if (phase_ >= Phase::kLooking && phase_ <= Phase::kSpreading) {
    for (Link& link : links_) {
      link.Tick(now);
      link.Pump(claim_, register_.known()->version, now);
    }
  }
  Update(now);
  AskAgain(now);
  register_.Tick(now);
}

// ---- The epoch

void Recoverer::Found(bool reached, const std::optional<Record>& record, uint64_t revision,
                      Time now) {
  Heard(register_.Found(reached, record, revision), now);
}

void Recoverer::Written(Outcome outcome, uint64_t revision, Time now) {
  Heard(register_.Written(outcome, revision), now);
}

void Recoverer::Heard(Register::News news, Time now) {
  if (news == Register::News::kNothing || !failure_.empty()) return;
  const std::optional<Record>& known = register_.known();
  const bool done = news == Register::News::kDone;
  if (phase_ <= Phase::kTaking && !done) return Look();
  if (!known || known->epoch != (phase_ == Phase::kTaking ? known->epoch : claim_.epoch)) {
    return Fail("another process has taken the mirror name");
  }
  if (phase_ == Phase::kTaking) return Taken(now);
  if (phase_ == Phase::kCondemning) {
    if (news == Register::News::kLost) return Fail("somebody else has changed the record");
    if (done) Replay();
  }
  if (phase_ == Phase::kClosing && done) phase_ = Phase::kDone;
}

// The epoch ends the mirror of a machine that lives. It may be that no server listens to us; and
// where the images count for nothing, so that no server is asked, that the mirror lives.
void Recoverer::Look() {
  const std::optional<Record>& known = register_.known();
  if (!known) return Fail("etcd has no record of this mirror name");
  phase_ = known->mode == Mode::kReal && known->free ? Phase::kNothing : Phase::kLooking;
  if (known->mode != Mode::kReal) MakeLinks(*known);
}

// They are others if the mirror lives, and was given others meanwhile.
void Recoverer::MakeLinks(const Record& record) {
  std::vector<std::string> addresses;
  for (const Holder& holder : record.holders) addresses.push_back(holder.address);
  if (addresses == asked_) return;
  links_.clear();
  claim_.name = options_.name;
  for (size_t i = 0; i < addresses.size(); ++i) {
    links_.emplace_back(options_.link, host_.MakeWire(i, addresses[i]));
  }
  asked_ = std::move(addresses);
}

// Those that are asked may never answer, and not be the record's any more.
void Recoverer::AskAgain(Time now) {
  if (phase_ != Phase::kLooking || now < again_) return;
  again_ = now + kAskAgain * options_.link.retry;
  register_.Ask();
  if (register_.known()->mode == Mode::kReal) host_.AskForMirror();
}

void Recoverer::HeardOfMirror(bool lives) {
  if (phase_ != Phase::kLooking || register_.known()->mode != Mode::kReal) return;
  mirror_lives_ = lives;
  if (!lives) TakeEpoch();
}

void Recoverer::TakeEpoch() {
  const Record& known = *register_.known();
  assert(known.mode == Mode::kReal ? mirror_lives_ == false : CountAnswers() >= known.Majority());
  phase_ = Phase::kTaking;
  Record wanted = known;
  wanted.epoch += 1;
  wanted.writer = options_.self;
  if (known.mode == Mode::kReal) {
    wanted.free = true;
    wanted.lineage = {};
    wanted.pool_size = 0;
  }
  register_.Change(std::move(wanted));
}

void Recoverer::Taken(Time now) {
  const Record& record = *register_.known();
  if (record.mode == Mode::kReal) {
    phase_ = Phase::kNothing;
    return;
  }
  claim_ = {options_.name, record.epoch, record.lineage, record.pool_size};
  phase_ = Phase::kPromising;
  for (Link& link : links_) {
    if (link.stage() == Link::Stage::kCopying) link.AskPromise(claim_, record.version, now);
  }
}

// Until now the mirror of a machine that lives could go on, with a higher epoch. What its pool
// counts on as being on the disk may be older there from now on.
void Recoverer::Condemn() {
  assert(CountFollowing() >= register_.known()->Majority());
  phase_ = Phase::kCondemning;
  Record wanted = *register_.known();
  if (wanted.mode == Mode::kRecovering) return Replay();
  wanted.mode = Mode::kRecovering;
  register_.Change(std::move(wanted));
}

void Recoverer::Replay() {
  assert(register_.known()->mode == Mode::kRecovering && register_.known()->epoch == claim_.epoch);
  phase_ = Phase::kReplaying;
  host_.Replay();
}

// ---- Servers

bool Recoverer::Counts(size_t holder) const {
  const Link& link = links_[holder];
  const Id& known = register_.known()->holders[holder].incarnation;
  const bool promised = claim_.epoch == 0 || link.promised().epoch == claim_.epoch;
  const bool answered = link.stage() >= Link::Stage::kCopying && promised;
  return answered && !known.IsNone() && link.incarnation() == known;
}

size_t Recoverer::CountAnswers() const {
  size_t count = 0;
  for (size_t i = 0; i < links_.size(); ++i) count += Counts(i) ? 1 : 0;
  return count;
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
  if (before == Link::Stage::kPromising && link.stage() == Link::Stage::kCopying &&
      phase_ >= Phase::kPromising) {
    if (message.epoch != claim_.epoch) {  // it was only looked at
      return link.AskPromise(claim_, register_.known()->version, now);
    }
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
  const bool asks_servers = phase_ == Phase::kLooking && register_.known()->mode != Mode::kReal;
  if (asks_servers && CountAnswers() >= register_.known()->Majority()) TakeEpoch();
  if (phase_ == Phase::kFetching && !Counts(chosen_)) phase_ = Phase::kPromising;
  if (phase_ == Phase::kPromising) Choose(now);
  if (phase_ == Phase::kSpreading && CountFollowing() >= register_.known()->Majority()) Condemn();
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
