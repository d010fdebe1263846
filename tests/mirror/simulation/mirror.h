// SPDX-License-Identifier: BSD-3-Clause
//
// The processes that use mirror/core: the mirror of a machine, and a recovery.
#ifndef NVCACHE_TESTS_MIRROR_SIMULATION_MIRROR_H_
#define NVCACHE_TESTS_MIRROR_SIMULATION_MIRROR_H_

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "mirror/core/recoverer.h"
#include "mirror/core/writer.h"
#include "tests/mirror/simulation/machine.h"

namespace nvcache::simulation {

// The connections of a process: one for each server.
class Connections : public End, public std::enable_shared_from_this<Connections> {
 public:
  explicit Connections(World* world) : world_(*world), open_(world->servers.size()) {}
  std::unique_ptr<mirror::Link::Wire> MakeWire(size_t server);

  void Connected(Connection connection) override;
  void Arrived(Connection connection, const Message& message) override;
  void Ended(Connection connection) override;

 protected:
  virtual void Do(std::function<void()> what) { what(); }
  virtual void OnConnected(size_t server) = 0;
  virtual void OnMessage(size_t server, const Message& message) = 0;
  virtual void OnClosed(size_t server) = 0;
  virtual std::weak_ptr<End> EndOf(size_t server) const {
    return world_.reached[server] ? std::weak_ptr<End>(world_.servers[server])
                                  : std::weak_ptr<End>();
  }
  Time now() const { return world_.schedule->now(); }

  World& world_;

 private:
  class Wire;
  // The server whose connection it is now.
  size_t ServerOf(Connection connection) const;
  std::vector<Connection> open_;
};

class Mirror : public Connections, public mirror::Writer::Host {
 public:
  Mirror(World* world, Machine* machine, bool takes_over);
  void Start();

  void Wake(Position wanted) { writer_->Wake(wanted, now()); }
  void Drained(Position position) { writer_->Drained(position); }
  void End() { writer_->End(now()); }
  const mirror::Writer& writer() const { return *writer_; }

  void ReadRecord() override;
  void WriteRecord(const Record& record, uint64_t revision) override;
  std::unique_ptr<mirror::Link::Wire> MakeWire(size_t i) override {
    return Connections::MakeWire(server_[i]);
  }
  std::unique_ptr<mirror::Cursor> OpenCursor() override;
  Position Draw() override;
  void Publish(mirror::State state, Position position) override;
  void Drain(Position position) override;

 protected:
  void Do(std::function<void()> what) override { machine_.Do(std::move(what)); }
  void OnConnected(size_t server) override { writer_->Connected(PlaceOf(server), now()); }
  void OnMessage(size_t server, const Message& message) override {
    writer_->Take(PlaceOf(server), message, now());
  }
  void OnClosed(size_t server) override { writer_->Closed(PlaceOf(server), now()); }

 private:
  void Tick();
  // Among those that it was given.
  size_t PlaceOf(size_t server) const {
    return static_cast<size_t>(std::find(server_.begin(), server_.end(), server) - server_.begin());
  }

  Machine& machine_;
  std::vector<size_t> server_;
  std::unique_ptr<mirror::Writer> writer_;
};

// What servers make of a recovery: they take its key, do not, or are never reached from there.
enum class Door { kOpen, kForbidden, kNone };

class Recovery : public Connections, public mirror::Recoverer::Host {
 public:
  // It changes `disk`.
  Recovery(World* world, Versions* disk, Door door);
  void Start();
  const mirror::Recoverer& recoverer() const { return *recoverer_; }
  // What it was told: by so many servers that it has a right to come, and that the mirror lives.
  size_t answered() const { return answered_.size(); }
  bool lives() const { return lives_; }

  void ReadRecord() override;
  void WriteRecord(const Record& record, uint64_t revision) override;
  std::unique_ptr<mirror::Link::Wire> MakeWire(size_t holder, const std::string& address) override;
  void AskForMirror() override;
  bool Prepare(const mirror::Id& lineage, uint64_t pool_size) override;
  void WritePool(const mirror::Range& range, const uint8_t* bytes) override;
  std::unique_ptr<mirror::Cursor> OpenCursor(Position position) override;
  void Replay() override;

 protected:
  void OnConnected(size_t server) override { recoverer_->Connected(holder_[server], now()); }
  void OnMessage(size_t server, const Message& m) override {
    if (m.type == mirror::Type::kPromised) answered_.insert(server);
    recoverer_->Take(holder_[server], m, now());
  }
  void OnClosed(size_t server) override { recoverer_->Closed(holder_[server], now()); }
  std::weak_ptr<End> EndOf(size_t server) const override;

 private:
  void Tick();
  void ReplayStep(size_t step, const Versions& before);

  Versions& disk_;
  Bytes pool_;
  const Door door_;
  std::shared_ptr<End> guard_;  // in the place of each server, if it takes no key
  std::vector<size_t> holder_;  // by server
  std::set<size_t> answered_;
  bool lives_ = false;
  std::unique_ptr<mirror::Recoverer> recoverer_;
};

}  // namespace nvcache::simulation

#endif  // NVCACHE_TESTS_MIRROR_SIMULATION_MIRROR_H_
