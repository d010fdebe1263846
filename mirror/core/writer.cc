// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/core/writer.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace nvcache::mirror {

namespace {

// In times that a server is tried again.
constexpr Time kLookAgain = 5;

}  // namespace

Writer::Writer(Options options, Host* host, State before, Position published)
    : options_(std::move(options)),
      host_(*host),
      register_(host, options_.link.retry),
      state_(before),
      published_(published) {
  claim_.name = options_.name;
  for (size_t i = 0; i < options_.servers.size(); ++i) {
    links_.emplace_back(options_.link, host_.MakeWire(i));
  }
}

// ---- The epoch

void Writer::Found(bool reached, const std::optional<Record>& record, uint64_t revision, Time now) {
  Heard(register_.Found(reached, record, revision), now);
}

void Writer::Written(Outcome outcome, uint64_t revision, Time now) {
  Heard(register_.Written(outcome, revision), now);
}

void Writer::Heard(Register::News news, Time now) {
  if (!failure_.empty() || news == Register::News::kNothing) return;
  if (!IsOwner()) {
    if (news == Register::News::kDone) {
      BecomeOwner(now);
    } else {
      TakeEpoch();
    }
    return;
  }
  const std::optional<Record>& known = register_.known();
  if (!known || known->epoch != claim_.epoch) {
    if (known && known->epoch > claim_.epoch) {
      // No file was changed by it: a mirror that begins anew goes on.
      const bool may_return = known->mode == Mode::kMirrored && known->lineage == options_.lineage;
      return Fail(
          State::kFenced,
          "another writer has taken the mirror name: " + known->writer +
              (may_return ? "; if that was a mistake, end it, and begin the mirror anew" : ""));
    }
    return Fail(state_, "the record in etcd is an older one: restore it");
  }
  changes_mode_ = false;
  Update(now);
}

void Writer::TakeEpoch() {
  const std::optional<Record>& known = register_.known();
  Record wanted = known.value_or(Record{});
  if (!known) {
    for (const std::string& address : options_.servers) wanted.holders.push_back({address, {}});
  }
  if (known && known->mode == Mode::kRecovering) {
    return Fail(state_ == State::kNone ? state_ : State::kFenced,
                "its pool is being recovered by " + known->writer +
                    ": end the programs that use it, and let that come to its end");
  }
  if (known && known->lineage != options_.lineage) {
    if (known->mode == Mode::kMirrored) {
      return Fail(state_,
                  "the servers have what another pool of this name has acknowledged: run "
                  "'nvcache recover --mirror' first");
    }
    // Its programs have written since, and their disk may be another machine's by now.
    if (state_ != State::kNone && !options_.takes_over) {
      return Fail(State::kFenced,
                  "another pool has had this name since, or this one was recovered elsewhere: end "
                  "the programs that use it, and make a new pool");
    }
    if (!known->free && !options_.takes_over) {
      return Fail(state_, "another pool has this name, and its mirror has not ended: " +
                              known->writer + "; if it never comes back, say --take-over");
    }
  }
  const bool fences = known && known->lineage != options_.lineage && !known->free;
  looks_ = fences && !IsHeard();
  if (looks_) return;
  wanted.epoch += 1;
  wanted.writer = options_.self;
  wanted.lineage = options_.lineage;
  wanted.pool_size = options_.pool_size;
  wanted.free = false;
  register_.Change(std::move(wanted));
}

// A record that says `real` may be older than what programs were told: so all that is in the pool
// goes to the disk first.
void Writer::BecomeOwner(Time now) {
  const Record& record = *register_.known();
  claim_ = {options_.name, record.epoch, options_.lineage, options_.pool_size};
  for (Link& link : links_) {
    if (link.stage() == Link::Stage::kCopying) link.AskPromise(claim_, record.version, now);
  }
  moved_ = now;
  Enter(record.mode == Mode::kMirrored ? State::kMirrored : State::kLeaving, now);
}

bool Writer::IsHeard() const {
  const auto answers = std::count_if(links_.begin(), links_.end(), [](const Link& link) {
    return link.stage() >= Link::Stage::kCopying;
  });
  return static_cast<size_t>(answers) > links_.size() / 2;
}

void Writer::Fail(State state, std::string why) {
  failure_ = std::move(why);
  state_ = state;
  host_.Publish(state_, published_);
}

// ---- Servers

void Writer::Connected(size_t server, Time now) {
  links_[server].Connected(claim_, version(), now);
}

void Writer::Closed(size_t server, Time now) {
  links_[server].Closed(now);
  Update(now);
}

void Writer::Take(size_t server, const Message& message, Time now) {
  Link& link = links_[server];
  if (message.type == Type::kRefused && message.why == Refusal::kEpoch) register_.Ask();
  const Link::Stage before = link.stage();
  if (!link.Take(message, now)) return;
  if (before == Link::Stage::kPromising && link.stage() == Link::Stage::kCopying) {
    Promised(server, now);
  }
  if (link.stage() >= Link::Stage::kCopying) link.Pump(claim_, version(), now);
  Update(now);
}

void Writer::Promised(size_t server, Time now) {
  Link& link = links_[server];
  // One server by two addresses would be counted twice.
  for (size_t i = 0; i < links_.size(); ++i) {
    const bool same =
        links_[i].stage() >= Link::Stage::kCopying && links_[i].incarnation() == link.incarnation();
    if (i != server && same) {
      return link.Leave("it is the server at " + options_.servers[i] + " as well", now);
    }
  }
  if (looks_ && IsHeard()) TakeEpoch();
  if (!IsOwner()) return;
  const Message& promised = link.promised();
  if (promised.epoch != claim_.epoch) return link.AskPromise(claim_, version(), now);
  if (promised.version > version()) {
    register_.Ask();
    return link.Leave("the server knows of a newer record than etcd has: restore etcd", now);
  }
  if (promised.lineage == claim_.lineage && promised.position > host_.Draw()) {
    return link.Leave("the server has more of this pool than the pool itself", now);
  }
  link.Begin(claim_, host_.OpenCursor());
}

void Writer::Wake(Position wanted, Time now) {
  if (wanted_ < published_) moved_ = now;
  wanted_ = std::max(wanted_, wanted);
  if (!IsOwner() || !failure_.empty()) return;
  for (Link& link : links_) link.Pump(claim_, version(), now);
}

void Writer::Tick(Time now) {
  if (!failure_.empty()) return;
  // It may be free by now.
  if (looks_ && now >= look_at_) {
    look_at_ = now + kLookAgain * options_.link.retry;
    register_.Ask();
  }
  if (IsOwner() || looks_) {
    for (Link& link : links_) {
      link.Tick(now);
      link.Pump(claim_, version(), now);
    }
  }
  Update(now);
  register_.Tick(now);
}

void Writer::Drained(Position position) {
  if (state_ == State::kLeaving && position >= bar_) drained_ = true;
}

bool Writer::HasEnded() const {
  if (looks_) return ending_;
  return ending_ && state_ == State::kReal && !register_.wanted() && register_.known()->free;
}

void Writer::End(Time now) {
  ending_ = true;
  Update(now);
}

// ---- Positions

Position Writer::Majority(const Record& record) const {
  std::vector<Position> positions;
  for (const Holder& holder : record.holders) {
    Position position = 0;
    for (size_t i = 0; i < links_.size(); ++i) {
      const bool same =
          options_.servers[i] == holder.address && links_[i].incarnation() == holder.incarnation;
      if (same && !holder.incarnation.IsNone()) position = links_[i].position();
    }
    positions.push_back(position);
  }
  std::sort(positions.begin(), positions.end(), std::greater<>());
  return positions.empty() ? 0 : positions[record.Majority() - 1];
}

// M2.
Position Writer::Acknowledged() const {
  Position position = Majority(*register_.known());
  if (register_.wanted()) position = std::min(position, Majority(*register_.wanted()));
  return position;
}

// The incarnation of each server that was asked for: the one that follows, else the one that the
// record has.
std::vector<Holder> Writer::WantedHolders() const {
  std::vector<Holder> holders;
  for (size_t i = 0; i < links_.size(); ++i) {
    Holder holder = {options_.servers[i], {}};
    for (const Holder& known : register_.known()->holders) {
      if (known.address == holder.address) holder.incarnation = known.incarnation;
    }
    if (links_[i].IsFollowing()) holder.incarnation = links_[i].incarnation();
    // A server that has moved is no longer where it was.
    for (Holder& other : holders) {
      if (other.incarnation != holder.incarnation) continue;
      (links_[i].IsFollowing() ? other : holder).incarnation = {};
    }
    holders.push_back(std::move(holder));
  }
  return holders;
}

void Writer::Update(Time now) {
  if (!IsOwner() || !failure_.empty()) return;
  UpdatePosition(now);
  UpdateHolders();
  UpdateState(now);
}

void Writer::UpdatePosition(Time now) {
  if (state_ != State::kJoining && state_ != State::kMirrored) return;
  const Position position = Acknowledged();
  if (position <= published_) return;
  published_ = position;
  moved_ = now;
  host_.Publish(state_, published_);
}

void Writer::UpdateHolders() {
  if (register_.wanted()) return;
  Record wanted = *register_.known();
  wanted.holders = WantedHolders();
  if (wanted.holders == register_.known()->holders) return;
  // A majority of the new holders must have what was acknowledged before they may count.
  if (wanted.mode == Mode::kMirrored && Majority(wanted) < published_) return;
  register_.Change(std::move(wanted));
}

// ---- What a sync has to do

void Writer::Enter(State state, Time now) {
  state_ = state;
  drained_ = false;
  moved_ = now;
  host_.Publish(state_, published_);
  bar_ = host_.Draw();
  if (state_ == State::kLeaving) host_.Drain(bar_);
}

void Writer::Change(Mode mode, bool free) {
  Record wanted = *register_.known();
  wanted.mode = mode;
  wanted.free = free;
  changes_mode_ = true;
  register_.Change(std::move(wanted));
}

bool Writer::IsStarved(Time now) const {
  return wanted_ != 0 && wanted_ >= published_ && now - moved_ > options_.patience;
}

void Writer::UpdateState(Time now) {
  switch (state_) {
    case State::kReal:
      return UpdateReal(now);
    case State::kJoining:
      return UpdateJoining(now);
    case State::kMirrored:
      return UpdateMirrored(now);
    case State::kLeaving:
      return UpdateLeaving(now);
    case State::kFailing:
      if (ending_) return Enter(State::kLeaving, now);
      if (Acknowledged() > bar_) Enter(State::kMirrored, now);
      return;
    default:
      return;
  }
}

void Writer::UpdateReal(Time now) {
  if (register_.wanted()) return;
  if (ending_) {
    if (!register_.known()->free) Change(Mode::kReal, true);
  } else if (Acknowledged() > 0) {
    Enter(State::kJoining, now);
  }
}

void Writer::UpdateJoining(Time now) {
  if (register_.known()->mode == Mode::kMirrored) return Enter(State::kMirrored, now);
  if (changes_mode_) return;
  if (ending_ || Acknowledged() == 0 || IsStarved(now)) return Enter(State::kReal, now);
  if (!register_.wanted() && Acknowledged() > bar_) Change(Mode::kMirrored, false);
}

void Writer::UpdateMirrored(Time now) {
  if (ending_) return Enter(State::kLeaving, now);
  if (!IsStarved(now)) return;
  if (options_.below == Below::kReal) Enter(State::kLeaving, now);
  if (options_.below == Below::kError) Enter(State::kFailing, now);
}

void Writer::UpdateLeaving(Time now) {
  if (register_.wanted()) return;
  const bool is_mirrored = register_.known()->mode == Mode::kMirrored;
  if (is_mirrored && !ending_ && Acknowledged() > bar_) return Enter(State::kMirrored, now);
  if (!drained_) return;
  if (!is_mirrored) return Enter(State::kReal, now);
  Change(Mode::kReal, ending_);
}

}  // namespace nvcache::mirror
