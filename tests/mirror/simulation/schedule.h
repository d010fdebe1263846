// SPDX-License-Identifier: BSD-3-Clause
//
// Virtual time: what happens when, one thing at a time.
#ifndef NVCACHE_TESTS_MIRROR_SIMULATION_SCHEDULE_H_
#define NVCACHE_TESTS_MIRROR_SIMULATION_SCHEDULE_H_

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "mirror/core/ids.h"
#include "tests/kit/random.h"

namespace nvcache::simulation {

using mirror::Time;
inline constexpr Time kMicrosecond = 1000, kMillisecond = 1'000'000, kSecond = 1'000'000'000;

class Schedule {
 public:
  explicit Schedule(kit::Random* random) : random_(*random) {}

  Time now() const { return now_; }
  uint64_t steps() const { return steps_; }

  void At(Time time, std::function<void()> what) {
    events_.push({time, ++number_, std::move(what)});
  }
  void After(Time delay, std::function<void()> what) { At(now_ + delay, std::move(what)); }
  // Up to so long; every order of magnitude is as likely as another.
  Time Soon(Time most) { return random_.Length(most); }
  // Any time is as likely.
  Time Within(Time most) const { return random_.Below(most); }

  bool Step() {
    if (events_.empty()) return false;
    Event event = events_.top();
    events_.pop();
    now_ = event.time;
    ++steps_;
    event.what();
    return true;
  }

 private:
  struct Event {
    Time time;
    uint64_t number;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return std::pair(time, number) > std::pair(other.time, other.number);
    }
  };

  kit::Random& random_;
  Time now_ = 1;
  uint64_t number_ = 0, steps_ = 0;
  std::priority_queue<Event> events_;
};

}  // namespace nvcache::simulation

#endif  // NVCACHE_TESTS_MIRROR_SIMULATION_SCHEDULE_H_
