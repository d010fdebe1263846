// SPDX-License-Identifier: BSD-3-Clause
//
// A model of etcd: one record, changed by transactions that compare its revision. Requests arrive
// late or never, answers as well.
#ifndef NVCACHE_TESTS_MIRROR_SIMULATION_ETCD_H_
#define NVCACHE_TESTS_MIRROR_SIMULATION_ETCD_H_

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "mirror/core/record.h"
#include "tests/mirror/simulation/schedule.h"

namespace nvcache::simulation {

using mirror::Outcome;
using mirror::Record;

class Etcd {
 public:
  using Found = std::function<void(bool reached, std::optional<Record>, uint64_t revision)>;
  using Written = std::function<void(Outcome, uint64_t revision)>;

  Etcd(Schedule* schedule, kit::Random* random) : schedule_(*schedule), random_(*random) {}

  void set_up(bool up) { up_ = up; }
  void set_reliable(bool reliable) { reliable_ = reliable; }
  const std::optional<Record>& record() const { return record_; }
  // A person gives up what the servers should have.
  void GiveUp() {
    record_->mode = mirror::Mode::kReal;
    ++record_->version;
    ++revision_;
  }

  // The mirror's key lives so long, if etcd can be reached.
  void Hold(Time until) {
    if (up_) held_ = until;
  }
  // Whether it does; nothing: etcd has not answered.
  void FindWriter(std::function<void(bool lives)> found) {
    Ask(
        [this, found](std::function<void(std::function<void()>)> answer) {
          answer([found, lives = held_ > schedule_.now()] { found(lives); });
        },
        [] {});
  }

  void Read(Found found) {
    Ask(
        [this, found](std::function<void(std::function<void()>)> answer) {
          answer([found, record = record_, revision = record_ ? revision_ : 0] {
            found(true, record, revision);
          });
        },
        [found] { found(false, std::nullopt, 0); });
  }

  void Write(const Record& record, uint64_t revision, Written written) {
    Ask(
        [this, record, revision, written](std::function<void(std::function<void()>)> answer) {
          const bool same = revision == (record_ ? revision_ : 0);
          if (same) {
            record_ = record;
            ++revision_;
          }
          const Outcome outcome = same ? Outcome::kDone : Outcome::kConflict;
          answer([written, outcome, now = revision_] { written(outcome, now); });
        },
        [written] { written(Outcome::kUnknown, 0); });
  }

 private:
  static constexpr Time kTimeout = 400 * kMillisecond;

  // `what` is done on etcd's side, and answers; or `otherwise` is, when it is too late.
  void Ask(std::function<void(std::function<void(std::function<void()>)>)> what,
           std::function<void()> otherwise) {
    const auto is_over = std::make_shared<bool>(false);
    const bool strange = !reliable_ && random_.OneIn(8);
    schedule_.After(kTimeout, [is_over, otherwise] {
      if (!std::exchange(*is_over, true)) otherwise();
    });
    if (!up_ || (strange && random_.OneIn(3))) return;  // it never arrives
    const Time late = strange ? 2 * kSecond : 3 * kMillisecond;
    const bool unheard = strange && random_.OneIn(2);
    schedule_.After(schedule_.Soon(late), [this, what, is_over, unheard] {
      what([this, is_over, unheard](std::function<void()> answer) {
        if (unheard) return;
        schedule_.After(schedule_.Soon(3 * kMillisecond), [is_over, answer] {
          if (!std::exchange(*is_over, true)) answer();
        });
      });
    });
  }

  Schedule& schedule_;
  kit::Random& random_;
  bool up_ = true, reliable_ = false;
  std::optional<Record> record_;
  uint64_t revision_ = 0;
  Time held_ = 0;
};

}  // namespace nvcache::simulation

#endif  // NVCACHE_TESTS_MIRROR_SIMULATION_ETCD_H_
