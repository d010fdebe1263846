// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/core/lag.h"

#include <algorithm>

namespace nvcache::mirror {

namespace {

constexpr size_t kSamples = 1024;  // enough for kShare and 30 years
constexpr Time kShare = 32;        // of their age, two samples are one part of so many apart
constexpr Time kApart = 100'000;   // ns

}  // namespace

// While the pool stands still there is nothing new, but the time since when it does. The last
// sample is always of now.
void Lag::Note(Time now, Position next, uint64_t taken) {
  if (!samples_.empty() && next < samples_.back().next) samples_.clear();  // another use of it
  const size_t size = samples_.size();
  const bool stands = size >= 2 && samples_[size - 2].next == next;
  const bool replaces =
      size >= 2 && (stands || samples_.back().time - samples_[size - 2].time < kApart);
  if (replaces) samples_.pop_back();
  if (samples_.size() >= kSamples) Thin(now);
  samples_.push_back({now, next, taken});
}

void Lag::Thin(Time now) {
  size_t kept = 1;
  for (size_t i = 1; i < samples_.size(); ++i) {
    const Time apart = samples_[i].time - samples_[kept - 1].time;
    if (apart >= (now - samples_[i].time) / kShare) samples_[kept++] = samples_[i];
  }
  samples_.resize(kept);
}

Lag::Behind Lag::Of(Position position) const {
  if (samples_.empty() || position >= samples_.back().next) return {0, 0};
  const auto above =
      std::upper_bound(samples_.begin(), samples_.end(), position,
                       [](Position wanted, const Sample& sample) { return wanted < sample.next; });
  const Sample& since = above == samples_.begin() ? *above : *(above - 1);
  return {samples_.back().time - since.time, samples_.back().taken - since.taken};
}

}  // namespace nvcache::mirror
