// SPDX-License-Identifier: BSD-3-Clause
#include "tests/mirror/simulation/mirror.h"

#include <cstring>
#include <utility>

namespace nvcache::simulation {

namespace {

// Short, so that a run sees many of them.
constexpr mirror::Link::Options kLink = {
    .silence = 60 * kMillisecond, .retry = 10 * kMillisecond, .window = 400};
constexpr Time kPatience = 150 * kMillisecond;
constexpr Time kTick = 4 * kMillisecond;
constexpr Time kLease = 100 * kMillisecond;

// A server that takes nobody's key.
class Guard : public End {
 public:
  explicit Guard(Net* net) : net_(*net) {}
  void Connected(Connection) override {}
  void Arrived(Connection connection, const Message&) override {
    net_.ToClient(connection, {.type = mirror::Type::kRefused, .why = mirror::Refusal::kForbidden});
    net_.CloseServer(connection);
  }
  void Ended(Connection) override {}

 private:
  Net& net_;
};

// No two processes have the same.
std::string NewSelf(World& world) { return "process " + std::to_string(world.random->Next()); }

// An odd number of them, most often all.
std::vector<size_t> ChooseServers(World& world) {
  std::vector<size_t> servers;
  for (size_t i = 0; i < world.servers.size(); ++i) servers.push_back(i);
  while (servers.size() > 1 && world.random->OneIn(4)) {
    for (int i = 0; i < 2; ++i) {
      servers.erase(servers.begin() + static_cast<ptrdiff_t>(world.random->Below(servers.size())));
    }
  }
  return servers;
}

}  // namespace

class Connections::Wire : public mirror::Link::Wire {
 public:
  Wire(Connections* owner, size_t server) : owner_(*owner), server_(server) {}
  ~Wire() override { Wire::Close(); }

  void Connect() override {
    owner_.open_[server_] =
        owner_.world_.net->Connect(owner_.weak_from_this(), owner_.EndOf(server_));
  }
  void Close() override {
    const Connection connection = std::exchange(owner_.open_[server_], 0);
    if (connection != 0) owner_.world_.net->CloseClient(connection);
  }
  void Send(Message message) override {
    owner_.world_.net->ToServer(owner_.open_[server_], std::move(message));
  }

 private:
  Connections& owner_;
  const size_t server_;
};

std::unique_ptr<mirror::Link::Wire> Connections::MakeWire(size_t server) {
  return std::make_unique<Wire>(this, server);
}

size_t Connections::ServerOf(Connection connection) const {
  for (size_t i = 0; i < open_.size(); ++i) {
    if (open_[i] == connection) return i;
  }
  return open_.size();
}

void Connections::Connected(Connection connection) {
  Do([this, connection, self = weak_from_this()] {
    const auto alive = self.lock();
    if (alive == nullptr) return;
    if (ServerOf(connection) < open_.size()) OnConnected(ServerOf(connection));
  });
}

void Connections::Arrived(Connection connection, const Message& message) {
  Do([this, connection, message, self = weak_from_this()] {
    const auto alive = self.lock();
    if (alive == nullptr) return;
    if (ServerOf(connection) < open_.size()) OnMessage(ServerOf(connection), message);
  });
}

void Connections::Ended(Connection connection) {
  Do([this, connection, self = weak_from_this()] {
    const auto alive = self.lock();
    if (alive == nullptr) return;
    const size_t server = ServerOf(connection);
    if (server == open_.size()) return;
    open_[server] = 0;
    OnClosed(server);
  });
}

// ---- The mirror

Mirror::Mirror(World* world, Machine* machine, bool takes_over)
    : Connections(world), machine_(*machine) {
  mirror::Writer::Options options = {.name = "pool",
                                     .self = NewSelf(*world),
                                     .lineage = machine_.lineage(),
                                     .pool_size = kPoolSize,
                                     .takes_over = takes_over,
                                     .patience = kPatience,
                                     .link = kLink};
  options.below =
      static_cast<mirror::Writer::Below>(world->random->OneIn(3) ? world->random->Below(3) : 0);
  server_ = ChooseServers(*world);
  for (const size_t server : server_) options.servers.push_back(AddressOf(server));
  writer_ = std::make_unique<mirror::Writer>(std::move(options), this, machine_.pool_.state,
                                             machine_.pool_.position);
}

void Mirror::Start() { Tick(); }

void Mirror::Tick() {
  if (machine_.has_etcd_ && writer_->failure().empty()) world_.etcd->Hold(now() + kLease);
  writer_->Tick(now());
  world_.schedule->After(kTick, [this, self = weak_from_this()] {
    const auto alive = self.lock();
    if (alive == nullptr) return;
    Do([this, self] {
      if (const auto still = self.lock()) Tick();
    });
  });
}

void Mirror::ReadRecord() {
  if (!machine_.has_etcd_) return;
  world_.etcd->Read([this, self = weak_from_this()](bool reached, std::optional<Record> record,
                                                    uint64_t revision) {
    const auto alive = self.lock();
    if (alive == nullptr) return;
    Do([=, this] {
      const auto still = self.lock();
      if (still == nullptr) return;
      writer_->Found(reached, record, revision, now());
    });
  });
}

void Mirror::WriteRecord(const Record& record, uint64_t revision) {
  if (!machine_.has_etcd_) return;
  world_.etcd->Write(record, revision,
                     [this, self = weak_from_this()](Outcome outcome, uint64_t now_revision) {
                       const auto alive = self.lock();
                       if (alive == nullptr) return;
                       Do([=, this] {
                         const auto still = self.lock();
                         if (still == nullptr) return;
                         writer_->Written(outcome, now_revision, now());
                       });
                     });
}

std::unique_ptr<mirror::Cursor> Mirror::OpenCursor() {
  return simulation::OpenCursor(&machine_.pool_, world_.schedule, world_.random, world_.broken);
}

Position Mirror::Draw() { return machine_.pool_.Draw(); }

void Mirror::Publish(mirror::State state, Position position) {
  machine_.pool_.state = state;
  machine_.pool_.position = position;
}

void Mirror::Drain(Position position) { machine_.Drain(position); }

// ---- A recovery

Recovery::Recovery(World* world, Versions* disk, Door door)
    : Connections(world),
      disk_(*disk),
      door_(door),
      guard_(std::make_shared<Guard>(world->net)),
      holder_(world->servers.size()) {
  recoverer_ = std::make_unique<mirror::Recoverer>(
      mirror::Recoverer::Options{.name = "pool", .self = NewSelf(*world), .link = kLink}, this);
}

void Recovery::Start() { Tick(); }

void Recovery::Tick() {
  recoverer_->Tick(now());
  world_.schedule->After(kTick, [this, self = weak_from_this()] {
    if (const auto alive = self.lock()) Tick();
  });
}

void Recovery::ReadRecord() {
  world_.etcd->Read([this, self = weak_from_this()](bool reached, std::optional<Record> record,
                                                    uint64_t revision) {
    if (const auto alive = self.lock()) recoverer_->Found(reached, record, revision, now());
  });
}

void Recovery::AskForMirror() {
  world_.etcd->FindWriter([this, self = weak_from_this()](bool lives) {
    const auto alive = self.lock();
    if (alive == nullptr) return;
    // Answers overtake each other: an older one may come when the name was taken by a newer one.
    if (recoverer_->phase() == mirror::Recoverer::Phase::kLooking) lives_ = lives;
    recoverer_->HeardOfMirror(lives);
  });
}

std::weak_ptr<End> Recovery::EndOf(size_t server) const {
  if (door_ == Door::kNone) return {};
  return door_ == Door::kForbidden ? std::weak_ptr<End>(guard_) : Connections::EndOf(server);
}

void Recovery::WriteRecord(const Record& record, uint64_t revision) {
  world_.takes(record);
  world_.etcd->Write(record, revision,
                     [this, self = weak_from_this()](Outcome outcome, uint64_t now_revision) {
                       if (const auto alive = self.lock())
                         recoverer_->Written(outcome, now_revision, now());
                     });
}

std::unique_ptr<mirror::Link::Wire> Recovery::MakeWire(size_t holder, const std::string& address) {
  size_t server = 0;
  while (AddressOf(server) != address) ++server;
  holder_[server] = holder;
  return Connections::MakeWire(server);
}

bool Recovery::Prepare(const mirror::Id&, uint64_t pool_size) {
  pool_.assign(pool_size, 0);
  return true;
}

void Recovery::WritePool(const mirror::Range& range, const uint8_t* bytes) {
  if (range.length > 0) std::memcpy(pool_.data() + range.offset, bytes, range.length);
}

std::unique_ptr<mirror::Cursor> Recovery::OpenCursor(Position position) {
  return simulation::OpenCursor(pool_, position);
}

void Recovery::Replay() {
  world_.replays();
  ReplayStep(0, disk_);
}

// One register at a time, so that it can be killed between two.
void Recovery::ReplayStep(size_t step, const Versions& before) {
  world_.schedule->After(world_.schedule->Soon(2 * kMillisecond),
                         [this, step, before, self = weak_from_this()] {
                           const auto alive = self.lock();
                           if (alive == nullptr) return;
                           disk_ = before;
                           if (simulation::Replay(pool_, &disk_, step) > step)
                             return ReplayStep(step + 1, before);
                           recoverer_->Replayed(true);
                         });
}

}  // namespace nvcache::simulation
