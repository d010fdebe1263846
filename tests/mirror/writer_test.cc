// SPDX-License-Identifier: BSD-3-Clause
//
// A mirror that takes the name from another one, which may live: with the right key, and with one
// that no server takes.
#include "mirror/core/writer.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace nvcache::mirror {
namespace {

constexpr Time kStep = 50'000'000;
constexpr size_t kServers = 3;
constexpr Epoch kOthers = 4;  // epoch, of the mirror that has the name

Id IdWith(uint8_t byte) {
  Id id;
  id.bytes.fill(byte);
  return id;
}

class EmptyPool : public Cursor {
 public:
  bool Read(Batch*) override { return false; }
};

// Etcd answers at once, and has the record of another pool. What servers are sent is kept.
class TakeOverTest : public ::testing::Test, public Writer::Host {
 protected:
  TakeOverTest() {
    for (size_t i = 0; i < kServers; ++i) {
      record_.holders.push_back(
          {"server" + std::to_string(i), IdWith(static_cast<uint8_t>(i + 1))});
    }
    Writer::Host* const host = this;
    writer_ = std::make_unique<Writer>(Writer::Options{.name = "db1",
                                                       .self = "me",
                                                       .servers = {"server0", "server1", "server2"},
                                                       .lineage = IdWith(8),
                                                       .pool_size = 64,
                                                       .takes_over = true},
                                       host, State::kNone, 0);
  }
  void Run(int steps) {
    for (int i = 0; i < steps; ++i) writer_->Tick(now_ += kStep);
  }
  // The server takes the key, and says what it has promised.
  void Answer(size_t server, Epoch epoch) {
    writer_->Take(server,
                  {.type = Type::kPromised,
                   .epoch = epoch,
                   .incarnation = IdWith(static_cast<uint8_t>(server + 1))},
                  now_);
  }
  std::vector<Epoch> AskedOf(size_t server) const {
    std::vector<Epoch> epochs;
    for (const Message& message : sent_[server]) {
      if (message.type == Type::kPromise) epochs.push_back(message.epoch);
    }
    return epochs;
  }

  std::unique_ptr<Link::Wire> MakeWire(size_t server) override {
    class Sending : public Link::Wire {
     public:
      Sending(TakeOverTest* test, size_t server) : test_(*test), server_(server) {}
      void Connect() override { ++test_.connects_[server_]; }
      void Close() override {}
      void Send(Message message) override { test_.sent_[server_].push_back(std::move(message)); }

     private:
      TakeOverTest& test_;
      const size_t server_;
    };
    return std::make_unique<Sending>(this, server);
  }
  std::unique_ptr<Cursor> OpenCursor() override { return std::make_unique<EmptyPool>(); }
  Position Draw() override { return 1; }
  void Publish(State, Position) override {}
  void Drain(Position) override {}
  void ReadRecord() override { writer_->Found(true, record_, revision_, now_); }
  void WriteRecord(const Record& record, uint64_t) override {
    ++changes_;
    record_ = record;
    writer_->Written(Outcome::kDone, ++revision_, now_);
  }

  Record record_ = {7, kOthers, "its mirror", IdWith(9), 64, Mode::kReal, false, {}};
  uint64_t revision_ = 1;
  int changes_ = 0;
  Time now_ = 1;
  int connects_[kServers] = {};
  std::vector<Message> sent_[kServers];
  std::unique_ptr<Writer> writer_;
};

TEST_F(TakeOverTest, AServerThatDoesNotTakeTheKeyIsNotCounted) {
  for (int i = 0; i < 20; ++i) {
    Run(10);
    writer_->Connected(0, now_);
    Answer(0, kOthers);
    writer_->Connected(1, now_);
    writer_->Closed(1, now_);
  }
  EXPECT_GT(connects_[1], 1) << "it is tried again";
  EXPECT_EQ(changes_, 0);
  EXPECT_EQ(record_.epoch, kOthers);
  for (size_t i = 0; i < kServers; ++i) {
    for (const Epoch epoch : AskedOf(i)) EXPECT_EQ(epoch, 0u) << i;
  }
  EXPECT_EQ(writer_->failure(), "");
  EXPECT_FALSE(writer_->HasEnded());
  writer_->End(now_);
  EXPECT_TRUE(writer_->HasEnded());
}

TEST_F(TakeOverTest, WhenAMajorityHasAnsweredTheNameIsTaken) {
  Run(10);
  for (size_t server = 0; server < kServers; ++server) writer_->Connected(server, now_);
  Answer(0, kOthers);
  EXPECT_EQ(changes_, 0);
  Answer(1, kOthers);
  Run(1);
  EXPECT_EQ(record_.epoch, kOthers + 1);
  EXPECT_EQ(record_.lineage, IdWith(8));
  Answer(2, kOthers);  // which was asked before
  for (size_t i = 0; i < kServers; ++i) {
    EXPECT_EQ(AskedOf(i), (std::vector<Epoch>{0, kOthers + 1})) << i;
    EXPECT_EQ(sent_[i].back().type, Type::kPromise) << "no copy begins without a promise";
    Answer(i, kOthers + 1);
    EXPECT_EQ(sent_[i].back().type, Type::kBegin) << i;
  }
}

TEST_F(TakeOverTest, AServerByTwoAddressesIsCountedOnce) {
  Run(10);
  for (size_t server = 0; server < kServers; ++server) writer_->Connected(server, now_);
  const Message answer = {.type = Type::kPromised, .epoch = kOthers, .incarnation = IdWith(1)};
  writer_->Take(0, answer, now_);
  writer_->Take(1, answer, now_);
  EXPECT_EQ(changes_, 0);
  EXPECT_EQ(record_.epoch, kOthers);
  Answer(2, kOthers);
  Run(1);
  EXPECT_EQ(record_.epoch, kOthers + 1);
}

TEST_F(TakeOverTest, AFreeNameIsTakenAtOnce) {
  record_.free = true;
  Run(2);
  EXPECT_EQ(record_.epoch, kOthers + 1);
}

TEST_F(TakeOverTest, ANameThatBecomesFreeMeanwhileIsTakenWithoutAnAnswer) {
  Run(10);
  EXPECT_EQ(record_.epoch, kOthers);
  record_.free = true;
  ++revision_;
  Run(40);
  EXPECT_EQ(record_.epoch, kOthers + 1);
}

}  // namespace
}  // namespace nvcache::mirror
