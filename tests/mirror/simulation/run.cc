// SPDX-License-Identifier: BSD-3-Clause
#include "tests/mirror/simulation/run.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <utility>

namespace nvcache::simulation {

using mirror::Mode;
using mirror::State;
using Phase = mirror::Recoverer::Phase;

namespace {

constexpr uint64_t kSteps = 12000;  // with trouble
constexpr size_t kPrograms = 3;
constexpr Time kEnough = 30 * kSecond;  // for everything to be well again

mirror::Id NewId(kit::Random& random) {
  mirror::Id id;
  for (uint8_t& byte : id.bytes) byte = static_cast<uint8_t>(random.Next());
  return id;
}

}  // namespace

Run::Run(uint64_t seed, std::optional<Rule> broken, Notes* notes)
    : random_(seed),
      schedule_(&random_),
      net_(&schedule_, &random_),
      etcd_(&schedule_, &random_),
      world_{.schedule = &schedule_,
             .random = &random_,
             .net = &net_,
             .etcd = &etcd_,
             .broken = Broken(broken),
             .servers = {},
             .reached = {},
             .look = {},
             .replays = {},
             .takes = {}},
      notes_(notes) {
  const size_t count = random_.OneIn(4) ? 5 : random_.OneIn(8) ? 1 : 3;
  for (size_t i = 0; i < count; ++i) {
    servers_.push_back(std::make_shared<Server>(&net_, &random_, world_.broken));
    world_.servers.push_back(servers_.back());
    world_.reached.push_back(true);
  }
  world_.look = [this] { Look(); };
  world_.replays = [this] {
    CheckSpread();
    if (machine_ != nullptr) CondemnMachine();
    if (zombie_ != nullptr && !heals_ && random_.OneIn(2)) KillReplay();
  };
  world_.takes = [this](const Record& wanted) { CheckTaking(wanted); };
}

void Run::Note(const std::string& text) {
  if (notes_ == nullptr) return;
  notes_->push_back(std::to_string(schedule_.now() / kMicrosecond) + " us: " + text);
}

void Run::Fail(const std::string& text) {
  if (failure_.empty()) failure_ = text;
  Note("FAILURE: " + text);
}

void Run::Go(uint64_t steps) {
  for (uint64_t i = 0; i < steps && failure_.empty() && schedule_.Step(); ++i) {
  }
}

// For as long as it may take.
void Run::GoUntil(std::function<bool()> is_done) {
  const Time end = schedule_.now() + kEnough;
  while (failure_.empty() && !is_done() && schedule_.now() < end && schedule_.Step()) {
  }
}

std::string Run::Failure() {
  NewMachine();
  WatchMirror();
  WatchRecovery();
  WatchDisk();
  Trouble();
  Go(kSteps);
  Heal();
  const auto is_well = [this] {
    return machine_ != nullptr && machine_->pool().state == State::kMirrored &&
           machine_->synced() > 0;
  };
  GoUntil(is_well);
  if (!is_well()) Fail("a majority is there, and nothing is mirrored");
  Go(kSteps / 10);
  LosePower();
  GoUntil([this] { return machine_ != nullptr; });
  if (machine_ == nullptr) Fail("the last recovery has not come to its end");
  return failure_;
}

// ---- What goes wrong

void Run::For(Time most, std::function<void()> begin, std::function<void()> end) {
  begin();
  schedule_.After(schedule_.Within(most), std::move(end));
}

void Run::Trouble() {
  schedule_.After(schedule_.Within(150 * kMillisecond), [this] {
    if (heals_) return;
    switch (random_.Below(8)) {
      case 0:
      case 1:
        TroubleMachine();
        break;
      case 2:
      case 3:
        TroubleNet();
        break;
      case 4:
        TroubleRecovery();
        break;
      default:
        TroubleServer();
    }
    Trouble();
  });
}

void Run::TroubleServer() {
  const size_t i = random_.Below(servers_.size());
  const std::string name = AddressOf(i);
  Server& server = *servers_[i];
  switch (random_.Below(5)) {
    case 0: {
      // A majority remembers, as a rule.
      const bool may = etcd_.record() && Remembering() > etcd_.record()->Majority();
      if (!may && !random_.OneIn(40)) return;
      Note(name + " forgets");
      For(
          500 * kMillisecond, [&] { server.Kill(true); },
          [&server] {
            if (!server.IsUp()) server.Start();
          });
      return;
    }
    case 1:
      Note(name + " is killed");
      For(
          500 * kMillisecond, [&] { server.Kill(false); },
          [&server] {
            if (!server.IsUp()) server.Start();
          });
      return;
    case 2:
      Note(name + " is stopped");
      For(
          400 * kMillisecond, [&] { server.Stop(true); }, [&server] { server.Stop(false); });
      return;
    case 3:
      return RestartServers();
    default:
      Note(name + " cannot be reached");
      For(
          400 * kMillisecond, [&] { world_.reached[i] = false; },
          [this, i] { world_.reached[i] = true; });
  }
}

void Run::RestartServers() {
  Note("all servers are killed, and start again");
  for (const auto& server : servers_) server->Kill(false);
  for (const auto& server : servers_) server->Start();
}

void Run::TroubleNet() {
  switch (random_.Below(6)) {
    case 0:
      Note("etcd is down");
      For(
          kSecond, [&] { etcd_.set_up(false); }, [this] { etcd_.set_up(true); });
      return;
    case 1:
      Note("the network is slow");
      For(
          300 * kMillisecond, [&] { net_.set_slow(true); }, [this] { net_.set_slow(false); });
      return;
    default:
      net_.Cut(net_.Any());
  }
}

void Run::TroubleMachine() {
  if (machine_ == nullptr) return;
  switch (random_.Below(8)) {
    case 0:
      return LosePower();
    case 1:
      Isolate(true);
      return StartRecovery();
    case 2:
      Note("the machine is stopped");
      For(
          500 * kMillisecond, [&] { machine_->Stop(true); },
          [machine = std::weak_ptr(machine_)] {
            if (const auto it = machine.lock(); it != nullptr && !it->IsDetached()) it->Stop(false);
          });
      return;
    case 3:
    case 4:
      Note("the mirror ends in order");
      return machine_->EndMirror();
    case 5:
      // Whatever a new mirror has begun is left half done.
      Note("a mirror begins anew, and then all goes wrong");
      machine_->StartMirror(false);
      schedule_.After(schedule_.Within(40 * kMillisecond), [this] {
        if (machine_ == nullptr || heals_) return;
        RestartServers();
        LosePower();
      });
      return;
    default:
      Note("the mirror is killed");
      machine_->KillMirror();
      if (zombie_ != nullptr) zombie_->KillMirror();
  }
}

void Run::TroubleRecovery() {
  if (recovery_ == nullptr) return Mistake();
  Note("the recovery is killed");
  recovery_ = nullptr;
  StartRecovery();
}

// Some files are changed by then, and the isolated machine has time to come back.
void Run::KillReplay() {
  schedule_.After(schedule_.Within(8 * kMillisecond), [this, it = std::weak_ptr(recovery_)] {
    if (recovery_ == nullptr || recovery_ != it.lock()) return;
    Note("the recovery is killed while it changes files");
    recovery_ = nullptr;
    schedule_.After(schedule_.Within(kSecond), [this] { StartRecovery(); });
  });
}

// Somebody begins a recovery while the machine lives, and thinks better of it. If that comes too
// late, the machine is lost.
void Run::Mistake() {
  if (machine_ == nullptr || !etcd_.record()) return;
  Note("a recovery is begun by mistake");
  BeginRecovery(static_cast<Door>(random_.OneIn(2) ? 0 : random_.Below(3)));
  schedule_.After(schedule_.Within(200 * kMillisecond), [this, it = std::weak_ptr(recovery_)] {
    if (machine_ == nullptr || recovery_ == nullptr || recovery_ != it.lock()) return;
    Note("it is taken back");
    recovery_ = nullptr;
  });
}

void Run::Heal() {
  Note("all is well again");
  heals_ = true;
  etcd_.set_up(true);
  etcd_.set_reliable(true);
  net_.set_slow(false);
  for (size_t i = 0; i < servers_.size(); ++i) {
    world_.reached[i] = true;
    servers_[i]->Stop(false);
    if (!servers_[i]->IsUp()) servers_[i]->Start();
  }
  if (machine_ != nullptr) machine_->Stop(false);
  if (zombie_ != nullptr) zombie_->Stop(false);
}

// ---- Machines

void Run::NewMachine() {
  machine_ = std::make_shared<Machine>(&world_, NewId(random_), disk_);
  Note("a machine begins");
  machine_->Start(kPrograms);
}

void Run::LosePower() {
  if (machine_ == nullptr) return;
  Note("the machine loses its power");
  syncs_ += machine_->synced();
  disk_ = random_.OneIn(2) ? machine_->disk() : machine_->LuckyDisk();
  machine_ = nullptr;
  recovery_ = nullptr;  // one that was begun by mistake
  StartRecovery();
}

// It seems to be lost: another one takes its disk, and then it may go on.
void Run::Isolate(bool goes_on) {
  Note("the machine is isolated");
  if (goes_on) recovery_ = nullptr;  // one that was begun by mistake
  syncs_ += machine_->synced();
  disk_ = random_.OneIn(2) ? machine_->disk() : machine_->LuckyDisk();
  zombie_ = std::exchange(machine_, nullptr);
  zombie_->Stop(true);
  zombie_->Detach();
  if (random_.OneIn(2)) zombie_->LoseEtcd();
  // One that has no epoch is no danger, but would get one.
  const bool owns = zombie_->mirror() != nullptr && zombie_->mirror()->writer().epoch() != 0;
  if (!owns) zombie_->KillMirror();
  if (!goes_on) return;
  schedule_.After(schedule_.Soon(2 * kSecond), [this, zombie = std::weak_ptr(zombie_)] {
    const auto it = zombie.lock();
    if (it == nullptr) return;
    Note("the isolated machine goes on");
    it->Stop(false);
  });
}

// A recovery that was begun by mistake is about to change files: nobody can take it back now, and
// the machine is lost. It goes on at once.
void Run::CondemnMachine() {
  Isolate(false);
  zombie_->Stop(false);
}

void Run::StartRecovery() {
  schedule_.After(schedule_.Soon(50 * kMillisecond), [this] {
    if (recovery_ != nullptr || machine_ != nullptr) return;
    if (!etcd_.record()) return Recovered();  // no mirror has ever come
    Note("a recovery begins");
    BeginRecovery(Door::kOpen);
  });
}

void Run::BeginRecovery(Door door) {
  recovery_ = std::make_shared<Recovery>(&world_, &disk_, door);
  recovery_since_ = schedule_.now();
  recovery_->Start();
}

// The isolated machine starts its mirror again as well: when there is none, and now and then when
// it has lost its name.
void Run::WatchZombie() {
  if (zombie_ == nullptr || !zombie_->had_mirror()) return;
  const Mirror* mirror = zombie_->mirror();
  const bool failed = mirror != nullptr && !mirror->writer().failure().empty();
  if (mirror == nullptr || (failed && random_.OneIn(10))) zombie_->StartMirror(false);
}

// Somebody starts the mirror again when there is none.
void Run::WatchMirror() {
  schedule_.After(20 * kMillisecond, [this] {
    WatchMirror();
    WatchZombie();
    if (machine_ == nullptr) return;
    const Mirror* mirror = machine_->mirror();
    if (mirror == nullptr) {
      if (!random_.OneIn(6)) return;
      Note("a mirror begins");
      return machine_->StartMirror(false);
    }
    const std::string& failure = mirror->writer().failure();
    // What a lost machine's mirror has asked for is done only now. A person knows that it is lost.
    if (failure.find("--take-over") != std::string::npos) return machine_->StartMirror(true);
    // A recovery that was begun by mistake has taken the name, and no file was changed by it.
    if (failure.find("begin the mirror anew") != std::string::npos) {
      Note("the mirror begins anew");
      return machine_->StartMirror(false);
    }
    // The isolated machine, which a person took for lost, had become `mirrored` again.
    if (zombie_ != nullptr && failure.find("recover --mirror") != std::string::npos) {
      return LosePower();
    }
    // It can no more be taken back, or has taken the name of a mirror that was not there.
    const bool is_lost = machine_->pool().state == State::kFenced;
    if (!failure.empty() && is_lost) {
      Isolate(true);
      return StartRecovery();
    }
    if (!failure.empty()) return Fail("the mirror: " + failure);
    if (mirror->writer().HasEnded()) machine_->KillMirror();
  });
}

void Run::WatchDisk() {
  schedule_.After(schedule_.Within(10 * kMillisecond), [this] {
    WatchDisk();
    Look();
  });
}

void Run::WatchRecovery() {
  schedule_.After(10 * kMillisecond, [this] {
    WatchRecovery();
    if (recovery_ == nullptr) return;
    const mirror::Recoverer& recoverer = recovery_->recoverer();
    const bool is_over = recoverer.phase() == Phase::kDone || recoverer.phase() == Phase::kNothing;
    // It was begun by mistake.
    if (machine_ != nullptr) {
      if (is_over || !recoverer.failure().empty()) recovery_ = nullptr;
      return;
    }
    // The isolated machine's mirror has come back first: a person begins again.
    if (!recoverer.failure().empty() && zombie_ != nullptr) {
      recovery_ = nullptr;
      return StartRecovery();
    }
    if (!recoverer.failure().empty()) return Fail("the recovery: " + recoverer.failure());
    if (is_over) return Recovered();
    // A person knows that the isolated machine is lost, and has a new mirror take over.
    const bool is_real = etcd_.record()->mode == Mode::kReal;
    if (is_real && recoverer.MirrorLives() && schedule_.now() - recovery_since_ > kSecond) {
      return Recovered();
    }
    const bool is_hopeless =
        etcd_.record()->mode != Mode::kReal && Remembering() < etcd_.record()->Majority();
    if (!is_hopeless || schedule_.now() - recovery_since_ < 3 * kSecond) return;
    // More servers have forgotten than may. A person says that it is over.
    Note("what the servers had is given up");
    etcd_.GiveUp();
    recovery_ = nullptr;
    disk_[1] = disk_[0];
    world_.acknowledged = {};
    StartRecovery();
  });
}

void Run::Recovered() {
  Note("recovered");
  recovery_ = nullptr;
  Check(disk_, "after a recovery");
  if (random_.OneIn(4)) RestartServers();
  NewMachine();
}

// ---- What must hold

const Memory& Run::MemoryAt(const std::string& address) const {
  size_t i = 0;
  while (AddressOf(i) != address) ++i;
  return servers_[i]->memory();
}

size_t Run::Remembering() const {
  const auto remembers = [this](const mirror::Holder& holder) {
    return MemoryAt(holder.address).incarnation() == holder.incarnation;
  };
  const auto& holders = etcd_.record()->holders;
  return static_cast<size_t>(std::count_if(holders.begin(), holders.end(), remembers));
}

// A recovery asks before it changes anything.
void Run::CheckTaking(const Record& wanted) {
  const Record& known = *recovery_->recoverer().record().known();
  if (wanted.mode == Mode::kReal && known.mode == Mode::kReal) {
    if (recovery_->lives()) Fail("a recovery takes the name of a mirror that lives");
    return;
  }
  if (recovery_->answered() >= known.Majority()) return;
  Fail("a recovery changes the record, and no majority has taken its key");
}

// A recovery that comes later finds the same image, whichever majority it asks; and the pool does
// not come back, whether or not a machine that has it lives.
void Run::CheckSpread() {
  if (etcd_.record()->mode != Mode::kRecovering) {
    Fail("a recovery changes the disk, and the record does not say so");
  }
  const Record& record = *recovery_->recoverer().record().known();
  // One that has forgotten since had it, or was not counted.
  const auto has = [this, &record](const mirror::Holder& holder) {
    const Memory& memory = MemoryAt(holder.address);
    return memory.incarnation() != holder.incarnation || memory.image().written >= record.epoch;
  };
  const auto count =
      static_cast<size_t>(std::count_if(record.holders.begin(), record.holders.end(), has));
  if (count < record.Majority()) Fail("a recovery changes the disk, and no majority has its image");
}

// If the machine lost its power now, with any majority.
void Run::Look() {
  if (machine_ == nullptr) return;
  LookAt(machine_->disk());
  LookAt(machine_->LuckyDisk());
}

void Run::LookAt(const Versions& disk) {
  ++looks_;
  const std::optional<Record>& record = etcd_.record();
  if (!record || record->mode == Mode::kReal) return Check(disk, "with the disk alone");
  for (uint32_t chosen = 1; chosen < 1U << record->holders.size(); ++chosen) {
    if (static_cast<size_t>(std::popcount(chosen)) != record->Majority()) continue;
    bool remember = true;
    const Memory* best = nullptr;
    for (size_t i = 0; i < record->holders.size(); ++i) {
      if ((chosen >> i & 1) == 0) continue;
      const Memory& memory = MemoryAt(record->holders[i].address);
      remember = remember && memory.incarnation() == record->holders[i].incarnation;
      if (memory.image().lineage != record->lineage) continue;
      const auto place = [](const Memory& m) {
        return std::pair(m.image().written, m.image().position);
      };
      if (best == nullptr || place(memory) > place(*best)) best = &memory;
    }
    if (!remember) continue;
    if (best == nullptr) return Fail("a majority has no image");
    if (LacksOlder(best->bytes(), machine_->history())) return Fail("a group lacks an older one");
    Versions after = disk;
    Replay(best->bytes(), &after);
    Check(after, "from majority " + std::to_string(chosen) + " at " +
                     std::to_string(best->image().position));
  }
}

void Run::Check(const Versions& disk, const std::string& how) {
  for (size_t i = 0; i < kRegisters; ++i) {
    if (disk[i] >= world_.acknowledged[i]) continue;
    return Fail("register " + std::to_string(i) + " is at " + std::to_string(disk[i]) + ", not " +
                std::to_string(world_.acknowledged[i]) + ", " + how);
  }
  if (disk[0] != disk[1]) Fail("half of a group is there, " + how);
}

}  // namespace nvcache::simulation
