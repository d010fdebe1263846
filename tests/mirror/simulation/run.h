// SPDX-License-Identifier: BSD-3-Clause
//
// One run: a machine that writes, servers, etcd, what goes wrong with all of them, and recoveries.
// What programs were told is on the disk must be there after a recovery, from whichever majority,
// at each moment.
#ifndef NVCACHE_TESTS_MIRROR_SIMULATION_RUN_H_
#define NVCACHE_TESTS_MIRROR_SIMULATION_RUN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/mirror/simulation/machine.h"
#include "tests/mirror/simulation/mirror.h"
#include "tests/mirror/simulation/server.h"

namespace nvcache::simulation {

class Run {
 public:
  using Notes = std::vector<std::string>;

  Run(uint64_t seed, std::optional<Rule> broken, Notes* notes = nullptr);

  // What was wrong; empty: nothing.
  std::string Failure();
  uint64_t steps() const { return schedule_.steps(); }
  uint64_t images() const { return looks_; }  // recoveries that were tried out
  uint64_t acknowledged() const { return syncs_; }

 private:
  void Note(const std::string& text);
  void Fail(const std::string& text);
  void Go(uint64_t steps);
  void GoUntil(std::function<bool()> is_done);

  // What goes wrong.
  void Trouble();
  void TroubleServer();
  void RestartServers();
  void TroubleNet();
  void TroubleMachine();
  void TroubleRecovery();
  void KillReplay();
  void Mistake();
  void Heal();
  void For(Time most, std::function<void()> begin, std::function<void()> end);

  // A machine is lost, and another one takes over.
  void NewMachine();
  void LosePower();
  void Isolate(bool goes_on);
  void StartRecovery();
  void BeginRecovery(Door door);
  void CondemnMachine();
  void WatchMirror();
  void WatchZombie();
  void WatchRecovery();
  void WatchDisk();
  void Recovered();

  // Recoveries that could begin now.
  const Memory& MemoryAt(const std::string& address) const;
  size_t Remembering() const;
  void CheckTaking(const Record& wanted);
  void CheckSpread();
  void Look();
  void LookAt(const Versions& disk);
  void Check(const Versions& disk, const std::string& how);

  kit::Random random_;
  Schedule schedule_;
  Net net_;
  Etcd etcd_;
  World world_;
  std::vector<std::shared_ptr<Server>> servers_;
  std::shared_ptr<Machine> machine_, zombie_;
  Versions disk_ = {};  // while no machine has it
  std::shared_ptr<Recovery> recovery_;
  Time recovery_since_ = 0;
  bool heals_ = false;
  Notes* notes_;
  uint64_t looks_ = 0, syncs_ = 0;
  std::string failure_;
};

}  // namespace nvcache::simulation

#endif  // NVCACHE_TESTS_MIRROR_SIMULATION_RUN_H_
