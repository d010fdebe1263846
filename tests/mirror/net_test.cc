// SPDX-License-Identifier: BSD-3-Clause
//
// Clients, servers and their loop within one process. serve_test.cc has the server as it is run.
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "mirror/core/error.h"
#include "mirror/net/client.h"
#include "mirror/net/server.h"

namespace nvcache::mirror {
namespace {

constexpr Time kMillisecond = 1000000;

TEST(LoopTest, TimersInTheirOrder) {
  Loop loop;
  std::string seen;
  loop.After(2 * kMillisecond, [&] { seen += "c"; });
  loop.After(kMillisecond, [&] { seen += "b"; });
  const auto never = loop.After(kMillisecond, [&] { seen += "x"; });
  loop.Later([&] {
    seen += "a";
    loop.Cancel(never);
    loop.Later([&] { seen += "a"; });
  });
  loop.After(20 * kMillisecond, [&] { loop.Stop(); });
  loop.Run();
  EXPECT_EQ(seen, "aabc");
  loop.Cancel(never);
  loop.Cancel(0);
}

TEST(LoopTest, OneThatAlwaysComesAgainHoldsUpNobody) {
  Loop loop;
  int turns = 0;
  std::function<void()> again = [&] {
    ++turns;
    loop.Later(again);
  };
  loop.Later(again);
  loop.RunOnce(0);
  EXPECT_EQ(turns, 1);
}

TEST(LoopTest, WhatACallbackEndsIsNotCalled) {
  Loop loop;
  const sys::Descriptor a(eventfd(1, EFD_CLOEXEC)), b(eventfd(1, EFD_CLOEXEC));
  Loop::Handle first = 0, second = 0;
  int calls = 0;
  const auto end_both = [&](uint32_t) {
    ++calls;
    loop.Unwatch(first);
    loop.Unwatch(second);
  };
  first = loop.Watch(a.get(), EPOLLIN, end_both);
  second = loop.Watch(b.get(), EPOLLIN, end_both);
  loop.RunOnce(0);
  loop.RunOnce(0);
  EXPECT_EQ(calls, 1);
}

// The loop may wait for a long time just then.
TEST(LoopTest, AnotherThreadTakesTurns) {
  constexpr int kTurns = 2000;
  Loop loop;
  int inside = 0, later = 0, timers = 0;  // of whoever has the turn
  bool wrong = false;
  const auto visit = [&] {
    wrong |= ++inside != 1;
    --inside;
  };
  const std::function<void()> again = [&] {
    visit();
    loop.After(kMillisecond / 10, again);
  };
  again();
  std::thread other([&] {
    for (int i = 0; i < kTurns; ++i) {
      const Loop::Turn turn(&loop);
      visit();
      loop.Later([&] { ++later; });
      loop.After(kMillisecond, [&] {
        visit();
        ++timers;
      });
    }
    const Loop::Turn turn(&loop);
    loop.After(5 * kMillisecond, [&] { loop.Stop(); });
  });
  loop.Run();
  other.join();
  EXPECT_FALSE(wrong);
  EXPECT_EQ(later, kTurns);
  EXPECT_EQ(timers, kTurns);
}

TEST(LoopTest, ATurnEndsALongWait) {
  Loop loop;
  std::thread other([&] {
    usleep(20'000);
    const Loop::Turn turn(&loop);
    loop.After(kMillisecond, [&] { loop.Stop(); });
  });
  const Time begin = Loop::Now();
  loop.Run();
  other.join();
  EXPECT_LT(Loop::Now() - begin, 30000 * kMillisecond) << "it waits for a minute";
}

TEST(AddressTest, Texts) {
  EXPECT_EQ(Resolve("127.0.0.1:7070").at(0).Text(), "127.0.0.1:7070");
  EXPECT_EQ(Resolve("[::1]:7070").at(0).Text(), "[::1]:7070");
  EXPECT_EQ(Resolve("/run/x").at(0).Text(), "/run/x");
  for (const char* text : {"127.0.0.1:1", "127.255.0.1:1", "[::1]:1", "/x"}) {
    EXPECT_TRUE(Resolve(text).at(0).IsLoopback()) << text;
  }
  for (const char* text :
       {"128.0.0.1:1", "0.0.0.0:1", "[::]:1", "[::2]:1", "[::ffff:127.0.0.1]:1"}) {
    EXPECT_FALSE(Resolve(text).at(0).IsLoopback()) << text;
  }
  for (const char* text :
       {"", ":", "a", "a:", ":1", "a:b", "a:65536", "a:-1", "a:999999", "::1:1", "[]:1", "*:1"}) {
    EXPECT_THROW(CheckAddress(text), NetError) << text;
  }
  EXPECT_THROW(CheckAddress("/" + std::string(200, 'x')), NetError);
}

// Answers each message with it, and notes what happens.
class Echo : public Server::Handler {
 public:
  void OnMessage(Connection connection, const Message& message) override {
    ++messages;
    if (server != nullptr) server->Send(connection, message);
  }
  void OnClosed(Connection /*connection*/) override { ++closed; }
  void OnRefused(const std::string& line) override { refused = line; }

  Server* server = nullptr;
  int messages = 0, closed = 0;
  std::string refused;
};

class NetTest : public testing::Test, public Client::Listener {
 protected:
  std::unique_ptr<Client> Make(const std::string& address, Client::Limits limits = {}) {
    return std::make_unique<Client>(&loop_, address, &identity_, this, limits);
  }
  bool Until(const std::function<bool()>& done) {
    const Time end = Loop::Now() + 20000 * kMillisecond;
    while (!done() && Loop::Now() < end) loop_.RunOnce(10 * kMillisecond);
    return done();
  }
  std::string Listen(Server* server) {
    return "127.0.0.1:" + std::to_string(server->Listen("127.0.0.1:0"));
  }

  void OnConnected(Client* client) override {
    ++connected_;
    if (on_connected_) on_connected_(client);
  }
  void OnMessage(Client* client, const Message& message) override {
    messages_.push_back(message);
    if (on_message_) on_message_(client);
  }
  void OnClosed(Client* client, const std::string& why) override {
    ++closed_;
    why_ = why;
    if (on_closed_) on_closed_(client);
  }

  Loop loop_;
  Identity identity_;
  int connected_ = 0, closed_ = 0;
  std::string why_;
  std::vector<Message> messages_;
  std::function<void(Client*)> on_connected_, on_message_, on_closed_;
};

TEST_F(NetTest, ThereAndBack) {
  Echo echo;
  Server server(&loop_, &echo, {});
  echo.server = &server;
  const auto client = Make(Listen(&server));
  on_connected_ = [](Client* each) { each->Send({.type = Type::kPing, .number = 1}); };
  client->Connect();
  EXPECT_FALSE(client->IsConnected());
  ASSERT_TRUE(Until([&] { return messages_.size() == 1; })) << why_;
  EXPECT_TRUE(client->IsConnected());
  EXPECT_EQ(server.connections(), 1U);
  client->Close();
  EXPECT_FALSE(client->IsConnected());
  ASSERT_TRUE(Until([&] { return echo.closed == 1; }));
  EXPECT_EQ(server.connections(), 0U);
  EXPECT_EQ(closed_, 0);  // it has closed it itself
}

TEST_F(NetTest, NoServer) {
  Echo echo;
  std::string address;
  {
    Server server(&loop_, &echo, {});
    address = Listen(&server);
  }
  const auto refused = Make(address);
  refused->Connect();
  EXPECT_EQ(closed_, 0);
  ASSERT_TRUE(Until([&] { return closed_ == 1; }));
  EXPECT_EQ(why_, "Connection refused");
  const auto unknown = Make("nobody.invalid:1");
  unknown->Connect();
  ASSERT_TRUE(Until([&] { return closed_ == 2; }));
  EXPECT_NE(why_, "");
  const auto far = Make("192.0.2.1:1");  // without a key
  far->Connect();
  ASSERT_TRUE(Until([&] { return closed_ == 3; }));
  EXPECT_NE(why_.find("only this machine"), std::string::npos);
  const auto none = Make("no address");
  none->Connect();
  ASSERT_TRUE(Until([&] { return closed_ == 4; }));
}

TEST_F(NetTest, AServerThatSaysNothing) {
  const sys::Descriptor silent(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Address here = Resolve("127.0.0.1:0").at(0);
  ASSERT_EQ(bind(silent.get(), here.get(), here.length), 0);
  ASSERT_EQ(listen(silent.get(), 1), 0);
  Address bound;
  bound.length = sizeof(bound.storage);
  getsockname(silent.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.length);
  const Key key = {.identity = "db", .secret = std::vector<uint8_t>(32, 1), .names = {}};
  const Identity identity(key);
  Client client(&loop_, bound.Text(), &identity, this, {.connecting = 100 * kMillisecond});
  client.Connect();
  ASSERT_TRUE(Until([&] { return closed_ == 1; }));
  EXPECT_EQ(why_, "it does not answer");
  EXPECT_EQ(connected_, 0);
}

TEST_F(NetTest, EndedInItsCallbacks) {
  Echo echo;
  Server server(&loop_, &echo, {});
  echo.server = &server;
  const std::string address = Listen(&server);
  auto client = Make(address);
  on_connected_ = [](Client* each) { each->Close(); };
  client->Connect();
  ASSERT_TRUE(Until([&] { return connected_ == 1; }));
  on_connected_ = [](Client* each) {
    for (int i = 0; i < 3; ++i) each->Send({.type = Type::kPing});
  };
  on_message_ = [&](Client*) { client.reset(); };
  client->Connect();
  ASSERT_TRUE(Until([&] { return !client; }));
  ASSERT_TRUE(Until([&] { return server.connections() == 0; }));
  EXPECT_EQ(messages_.size(), 1U);
  EXPECT_EQ(closed_, 0);
  // While a name is looked up.
  client = Make("nobody.invalid:1");
  client->Connect();
  client.reset();
  client = Make(address);
  client->Connect();
  client->Close();
  for (int i = 0; i < 20; ++i) loop_.RunOnce(10 * kMillisecond);
  EXPECT_EQ(closed_, 0);
}

TEST_F(NetTest, ConnectsAgainWhenItHasEnded) {
  Echo echo;
  Server server(&loop_, &echo, {});
  echo.server = &server;
  const auto client = Make(Listen(&server));
  on_connected_ = [](Client* each) { each->Send({.type = Type::kPing}); };
  on_message_ = [&](Client*) { server.Close(static_cast<Connection>(connected_)); };
  on_closed_ = [](Client* each) { each->Connect(); };
  client->Connect();
  ASSERT_TRUE(Until([&] { return connected_ == 4; })) << why_;
  EXPECT_EQ(closed_, 3);
  EXPECT_EQ(echo.closed, 0);  // the server has closed them itself
}

TEST_F(NetTest, WhatIsNotTakenIsBounded) {
  Echo echo;  // answers nothing, and is told nothing while the loop does not run
  Server server(&loop_, &echo, {});
  Client::Limits limits;
  limits.backlog = 16 << 20;
  const auto client = Make(Listen(&server), limits);
  on_connected_ = [](Client* each) {
    Message append = {.type = Type::kAppend, .ranges = {{0, kMaxBytes}}};
    append.bytes.resize(kMaxBytes);
    for (int i = 0; i < 100; ++i) each->Send(append);
    EXPECT_LE(each->backlog(), 32U << 20);
  };
  client->Connect();
  ASSERT_TRUE(Until([&] { return closed_ == 1; }));
  EXPECT_EQ(why_, "the other side does not take what is sent");
}

TEST_F(NetTest, ARefusalArrivesBeforeTheEnd) {
  class Refuser : public Echo {
   public:
    void OnMessage(Connection connection, const Message& /*message*/) override {
      server->Send(connection, {.type = Type::kRefused, .why = Refusal::kEpoch});
      server->Close(connection);
    }
  } refuser;
  Server refusing(&loop_, &refuser, {});
  refuser.server = &refusing;
  const auto client = Make(Listen(&refusing));
  on_connected_ = [](Client* each) {  // more than is read
    Message append = {.type = Type::kAppend, .ranges = {{0, kMaxBytes}}};
    append.bytes.resize(kMaxBytes);
    for (int i = 0; i < 4; ++i) each->Send(append);
  };
  client->Connect();
  ASSERT_TRUE(Until([&] { return closed_ == 1; }));
  ASSERT_EQ(messages_.size(), 1U);
  EXPECT_EQ(messages_[0].why, Refusal::kEpoch);
}

}  // namespace
}  // namespace nvcache::mirror
