// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/core/register.h"

#include <utility>

namespace nvcache::mirror {

void Register::Change(Record wanted) {
  wanted.version = (known_ ? known_->version : 0) + 1;
  wanted_ = std::move(wanted);
}

void Register::Tick(Time now) {
  if (waits_ || (!asks_ && !wanted_) || now < again_) return;
  again_ = now + retry_;
  waits_ = true;
  if (asks_) {
    keeper_.ReadRecord();
  } else {
    keeper_.WriteRecord(*wanted_, revision_);
  }
}

Register::News Register::Found(bool reached, const std::optional<Record>& record,
                               uint64_t revision) {
  waits_ = false;
  reached_ = reached;
  if (!reached) return News::kNothing;
  asks_ = false;
  again_ = 0;
  const bool changed = revision != revision_;
  known_ = record;
  revision_ = revision;
  if (!wanted_) return News::kKnown;
  if (known_ == wanted_) {
    wanted_.reset();
    return News::kDone;
  }
  // Not yet: the same attempt is made again.
  if (!changed) return News::kNothing;
  wanted_.reset();
  return News::kLost;
}

Register::News Register::Written(Outcome outcome, uint64_t revision) {
  waits_ = false;
  reached_ = outcome != Outcome::kUnknown;
  if (outcome != Outcome::kDone) {
    asks_ = true;
    if (reached_) again_ = 0;
    return News::kNothing;
  }
  again_ = 0;
  revision_ = revision;
  known_ = std::exchange(wanted_, std::nullopt);
  return News::kDone;
}

}  // namespace nvcache::mirror
