// SPDX-License-Identifier: BSD-3-Clause
#include "tests/mirror/simulation/machine.h"

#include <algorithm>
#include <utility>

#include "tests/mirror/simulation/mirror.h"

namespace nvcache::simulation {

using mirror::State;

std::string AddressOf(size_t server) { return "server" + std::to_string(server) + ":1"; }

struct Machine::Sync {
  size_t program, target;
  uint64_t version;  // it covers
  bool is_real;      // the file is passed through
  uint64_t lsn = 0;  // that it has drawn
};

Machine::Machine(World* world, const mirror::Id& lineage, const Versions& disk)
    : world_(*world), lineage_(lineage), kernel_(disk), disk_(disk), done_(disk) {}

Machine::~Machine() = default;

// The kernel may have written back all that it has, and the cache may have given it all.
Versions Machine::LuckyDisk() const {
  Versions disk = kernel_;
  disk[0] = disk[1] = done_[0];
  return disk;
}

void Machine::Start(size_t programs) {
  for (size_t i = 0; i < programs; ++i) Next(i);
  Clean();
}

void Machine::After(Time most, std::function<void()> what) {
  Schedule& schedule = *world_.schedule;
  schedule.After(world_.random->OneIn(2) ? schedule.Soon(most) : schedule.Within(most),
                 [self = weak_from_this(), what = std::move(what)] {
                   if (const auto machine = self.lock()) machine->Do(what);
                 });
}

void Machine::Do(std::function<void()> what) {
  if (is_stopped_) {
    later_.push_back(std::move(what));
  } else {
    what();
  }
}

void Machine::Stop(bool stopped) {
  is_stopped_ = stopped;
  while (!is_stopped_ && !later_.empty()) {
    const auto what = std::move(later_.front());
    later_.pop_front();
    what();
  }
}

void Machine::StartMirror(bool takes_over) {
  mirror_ = std::make_shared<Mirror>(&world_, this, takes_over);
  mirror_->Start();
}

void Machine::EndMirror() {
  if (mirror_ != nullptr) mirror_->End();
}

// ---- Programs

void Machine::Next(size_t program) {
  After(8 * kMillisecond, [this, program] {
    const size_t target = world_.random->Below(kRegisters);
    switch (world_.random->Below(8)) {
      case 0:
        if (target >= kPair) return PassThrough(program, target);
        [[fallthrough]];
      case 1:
      case 2:
      case 3:
        return Write(program, target < kPair ? 0 : target);
      default:
        return BeginSync(program, target);
    }
  });
}

// What went past the log is on the disk before the log says anything.
void Machine::Write(size_t program, size_t target) {
  if (std::exchange(locked_[target], true)) return Next(program);
  if (!is_passed_[target]) return WriteLogged(program, target);
  RealSync(target, [this, program, target] {
    is_passed_[target] = false;
    WriteLogged(program, target);
  });
}

void Machine::WriteLogged(size_t program, size_t target) {
  const size_t slot = pool_.TakeSlot(false);
  if (slot == kSlots) {
    locked_[target] = false;
    return Next(program);
  }
  const uint64_t version = ++world_.written[target];
  if (target < kPair) {
    world_.written[1] = version;
  } else {
    kernel_[target] = version;
  }
  Commit(slot, {.target = target, .version = version, .program = program},
         [this, program, target, version] {
           done_[target] = version;
           if (target < kPair) done_[1] = version;
           locked_[target] = false;
           Next(program);
         });
}

void Machine::Commit(size_t slot, Group group, std::function<void()> then) {
  After(kMillisecond, [this, slot, group, then]() mutable {
    group.lsn = pool_.Draw();
    pool_.drawn.insert(group.lsn);
    group.number = ++numbers_[group.program];
    After(kMillisecond, [this, slot, group, then] {
      pool_.Put(slot, group);
      history_.push_back(group);
      pool_.taken[slot] = false;
      pool_.drawn.erase(group.lsn);
      last_[group.target] = group.lsn;
      then();
    });
  });
}

void Machine::PassThrough(size_t program, size_t target) {
  if (std::exchange(locked_[target], true)) return Next(program);
  const auto pass = [this, program, target] {
    is_passed_[target] = true;
    kernel_[target] = ++world_.written[target];
    After(kMillisecond, [this, program, target, version = kernel_[target]] {
      done_[target] = version;
      locked_[target] = false;
      Next(program);
    });
  };
  const bool is_pending =
      last_[target] >= std::max(pool_.checkpoint(), settled_[target]) && last_[target] != 0;
  if (!is_pending || world_.broken.Is(RuleNamed("settles-first"))) return pass();
  const uint64_t bound = pool_.Draw();
  RealSync(target, [this, program, target, bound, pass] {
    const size_t slot = pool_.TakeSlot(true);
    if (slot == kSlots) {
      locked_[target] = false;
      return Next(program);
    }
    settled_[target] = bound;
    Commit(slot, {.settled = bound, .target = target, .program = program}, pass);
  });
}

void Machine::RealSync(size_t target, std::function<void()> then) {
  After(3 * kMillisecond, [this, target, then] {
    if (is_detached_) return;  // it never comes to an end
    if (target < kPair) {
      kernel_[0] = kernel_[1] = done_[0];
      disk_[1 - target] = kernel_[1 - target];
    }
    disk_[target] = kernel_[target];
    then();
  });
}

void Machine::BeginSync(size_t program, size_t target) {
  const auto sync =
      std::make_shared<Sync>(Sync{program, target, done_[target], is_passed_[target]});
  if (!sync->is_real) return Acknowledge(sync);
  RealSync(target, [this, sync] {
    // As if it were the call of a program without NVCache.
    if (world_.broken.Is(RuleNamed("real-one-waits"))) return EndSync(sync);
    Acknowledge(sync);
  });
}

void Machine::Acknowledge(std::shared_ptr<Sync> sync) {
  switch (pool_.state) {
    case State::kReal:
      return RealSync(sync->target, [this, sync] { EndSync(sync); });
    case State::kJoining:
      if (world_.broken.Is(RuleNamed("joining-is-real"))) return Await(sync, State::kJoining);
      return RealSync(sync->target, [this, sync] {
        if (world_.broken.Is(RuleNamed("joining-waits"))) return EndSync(sync);
        Await(sync, State::kJoining);
      });
    case State::kMirrored:
      return Await(sync, State::kMirrored);
    case State::kFailing:
    case State::kFenced:
      return Next(sync->program);
    case State::kLeaving:
      if (world_.broken.Is(RuleNamed("leaving-waits"))) {
        return RealSync(sync->target, [this, sync] { EndSync(sync); });
      }
      [[fallthrough]];
    default:
      After(3 * kMillisecond, [this, sync] { Acknowledge(sync); });
  }
}

// It waits for a position above an LSN that it has drawn, as long as the state has it wait.
void Machine::Await(std::shared_ptr<Sync> sync, State state) {
  sync->lsn = world_.broken.Is(RuleNamed("waits-after-draw")) ? last_[sync->target] : pool_.Draw();
  AwaitMore(sync, state);
}

void Machine::AwaitMore(std::shared_ptr<Sync> sync, State state) {
  if (pool_.position > sync->lsn) return EndSync(sync);
  const bool goes_on = state == State::kJoining && pool_.state == State::kMirrored;
  if (pool_.state != state && !goes_on) return Acknowledge(sync);
  wanted_ = std::max(wanted_, sync->lsn);
  Ring();
  After(2 * kMillisecond, [this, sync, state] { AwaitMore(sync, state); });
}

void Machine::EndSync(std::shared_ptr<Sync> sync) {
  uint64_t& acknowledged = world_.acknowledged[sync->target];
  acknowledged = std::max(acknowledged, sync->version);
  ++synced_;
  world_.look();
  Next(sync->program);
}

void Machine::Ring() {
  if (mirror_ != nullptr) mirror_->Wake(wanted_);
}

// ---- The checkpoint

void Machine::Clean() {
  After(40 * kMillisecond, [this] {
    const uint64_t bound = pool_.Bound();
    const uint64_t pair = done_[0];
    After(10 * kMillisecond, [this, bound, pair] {
      if (is_detached_) return;
      kernel_[0] = kernel_[1] = std::max(kernel_[0], pair);
      disk_ = kernel_;
      After(kMillisecond, [this, bound] {
        pool_.SetCheckpoint(bound);
        if (mirror_ != nullptr && drain_ != 0 && bound >= drain_) mirror_->Drained(bound);
        Clean();
      });
    });
  });
}

}  // namespace nvcache::simulation
