// SPDX-License-Identifier: BSD-3-Clause
//
// A machine that writes: its pool, its kernel and disk, programs, the thread that moves the
// checkpoint, and the mirror's process. It may lose its power, or only seem to.
#ifndef NVCACHE_TESTS_MIRROR_SIMULATION_MACHINE_H_
#define NVCACHE_TESTS_MIRROR_SIMULATION_MACHINE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mirror/core/writer.h"
#include "tests/mirror/simulation/etcd.h"
#include "tests/mirror/simulation/net.h"
#include "tests/mirror/simulation/pool.h"

namespace nvcache::simulation {

// What outlives machines.
struct World {
  Schedule* schedule;
  kit::Random* random;
  Net* net;
  Etcd* etcd;
  Broken broken;
  std::vector<std::shared_ptr<End>> servers;
  std::vector<bool> reached;      // by server
  Versions written = {};          // the highest that any program has begun to write
  Versions acknowledged = {};     // that a sync which has returned covers
  std::function<void()> look;     // called when a sync has returned, and `acknowledged` was raised
  std::function<void()> replays;  // when a recovery begins to change the disk
  std::function<void(const Record&)> takes;  // when one is about to change the record
};

std::string AddressOf(size_t server);

class Mirror;

class Machine : public std::enable_shared_from_this<Machine> {
 public:
  Machine(World* world, const mirror::Id& lineage, const Versions& disk);
  ~Machine();
  void Start(size_t programs);

  // Nothing happens here any more, until it goes on.
  void Stop(bool stopped);
  // Its disk is another machine's now.
  void Detach() { is_detached_ = true; }
  // Nor does it reach etcd, though it reaches servers.
  void LoseEtcd() { has_etcd_ = false; }
  bool IsDetached() const { return is_detached_; }
  void StartMirror(bool takes_over);
  void KillMirror() { mirror_ = nullptr; }
  void EndMirror();
  const Mirror* mirror() const { return mirror_.get(); }
  bool had_mirror() const { return pool_.state != mirror::State::kNone; }

  const Pool& pool() const { return pool_; }
  const std::vector<Group>& history() const { return history_; }
  const mirror::Id& lineage() const { return lineage_; }
  // What is surely on the disk, and what may be.
  const Versions& disk() const { return disk_; }
  Versions LuckyDisk() const;
  uint64_t synced() const { return synced_; }  // syncs that have returned

 private:
  friend class Mirror;
  struct Sync;

  // Here, after some time; not if the machine is gone.
  void After(Time most, std::function<void()> what);
  void Do(std::function<void()> what);

  // Programs.
  void Next(size_t program);
  void Write(size_t program, size_t target);
  void WriteLogged(size_t program, size_t target);
  void Commit(size_t slot, Group group, std::function<void()> then);
  void PassThrough(size_t program, size_t target);
  void RealSync(size_t target, std::function<void()> then);
  void BeginSync(size_t program, size_t target);
  void Acknowledge(std::shared_ptr<Sync> sync);
  void Await(std::shared_ptr<Sync> sync, mirror::State state);
  void AwaitMore(std::shared_ptr<Sync> sync, mirror::State state);
  void EndSync(std::shared_ptr<Sync> sync);
  void Ring();

  // The checkpoint.
  void Clean();
  void Drain(Position position) { drain_ = position; }

  World& world_;
  const mirror::Id lineage_;
  Pool pool_;
  std::vector<Group> history_;          // of groups that were committed
  std::map<size_t, uint64_t> numbers_;  // of groups, by program
  Versions kernel_, disk_;
  Versions done_ = {};                           // of writes that have returned
  std::array<bool, kRegisters> locked_ = {};     // pairs have the lock of register 0
  std::array<bool, kRegisters> is_passed_ = {};  // past the log
  std::array<uint64_t, kRegisters> last_ = {};   // LSN of the newest group
  std::array<uint64_t, kRegisters> settled_ = {};
  Position wanted_ = 0, drain_ = 0;
  bool is_cleaning_ = false, is_stopped_ = false, is_detached_ = false, has_etcd_ = true;
  std::deque<std::function<void()>> later_;
  std::shared_ptr<Mirror> mirror_;
  uint64_t synced_ = 0;
};

}  // namespace nvcache::simulation

#endif  // NVCACHE_TESTS_MIRROR_SIMULATION_MACHINE_H_
