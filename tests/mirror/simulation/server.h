// SPDX-License-Identifier: BSD-3-Clause
//
// A memory server: the real Replica over a model of memory that outlives its process.
#ifndef NVCACHE_TESTS_MIRROR_SIMULATION_SERVER_H_
#define NVCACHE_TESTS_MIRROR_SIMULATION_SERVER_H_

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "mirror/core/replica.h"
#include "mirror/core/store.h"
#include "tests/mirror/simulation/net.h"
#include "tests/mirror/simulation/pool.h"

namespace nvcache::simulation {

class Memory : public mirror::Store {
 public:
  Memory(kit::Random* random, Broken broken);

  // The process has died, perhaps in its last write.
  void Restart();
  // So has the kernel.
  void Lose();
  const Bytes& bytes() const { return bytes_; }

  mirror::Id incarnation() const override { return incarnation_; }
  mirror::Epoch promised() const override { return promised_; }
  mirror::Version version() const override { return version_; }
  const mirror::ImageInfo& image() const override { return image_; }
  void SetPromised(mirror::Epoch epoch) override { promised_ = epoch; }
  void SetVersion(mirror::Version version) override { version_ = version; }
  bool BeginCopy(const mirror::Id& lineage, uint64_t pool_size) override;
  bool HasCopy() const override { return has_copy_; }
  uint64_t copy_size() const override { return copy_.size(); }
  void DropCopy() override;
  void WriteCopy(const std::vector<mirror::Range>& ranges, const uint8_t* bytes) override;
  void Exchange(mirror::Epoch epoch, Position position) override;
  void Write(const std::vector<mirror::Range>& ranges, const uint8_t* bytes, mirror::Epoch epoch,
             Position position) override;
  void Forget() override;
  mirror::Range Find(uint64_t offset) const override;
  void Read(const mirror::Range& range, uint8_t* bytes) const override;

 private:
  void Put(const std::vector<mirror::Range>& ranges, const uint8_t* bytes, Bytes* into);

  kit::Random& random_;
  const Broken broken_;
  mirror::Id incarnation_;
  mirror::Epoch promised_ = 0;
  mirror::Version version_ = 0;
  mirror::ImageInfo image_;
  Bytes bytes_, before_;  // before the last write
  bool has_copy_ = false;
  mirror::Id copy_lineage_;
  Bytes copy_;
};

class Server : public End, public mirror::Replica::Host {
 public:
  Server(Net* net, kit::Random* random, Broken broken) : net_(*net), memory_(random, broken) {
    Start();
  }

  bool IsUp() const { return replica_ != nullptr; }
  const Memory& memory() const { return memory_; }
  void Start() { replica_ = std::make_unique<mirror::Replica>(&memory_, this); }
  void Kill(bool forgets);
  void Stop(bool stopped);

  void Connected(Connection connection) override;
  void Arrived(Connection connection, const Message& message) override;
  void Ended(Connection connection) override;
  void Close(Connection connection) override;
  void Send(Connection connection, Message message) override;

 private:
  Net& net_;
  Memory memory_;
  std::unique_ptr<mirror::Replica> replica_;
  std::vector<Connection> open_;
  bool stopped_ = false;
  std::deque<std::function<void()>> later_;
};

}  // namespace nvcache::simulation

#endif  // NVCACHE_TESTS_MIRROR_SIMULATION_SERVER_H_
