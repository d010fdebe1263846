// SPDX-License-Identifier: BSD-3-Clause
//
// The page of metrics, and those who ask for it well, badly, or not at all.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "mirror/core/error.h"
#include "mirror/net/page_server.h"

namespace nvcache::mirror {
namespace {

constexpr Time kMillisecond = 1000000;
const std::string kGet = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

class PageTest : public testing::Test {
 protected:
  static constexpr PageServer::Limits kLimits = {
      .connections = 4, .request = 256, .patience = 60000 * kMillisecond};

  void Serve(PageServer::Limits limits = kLimits) {
    const auto page = [this] {
      ++pages_;
      return text_;
    };
    server_ = std::make_unique<PageServer>(&loop_, "/metrics", page, limits);
    address_ = WithPort("127.0.0.1:0", server_->Listen("127.0.0.1:0"));
  }
  sys::Descriptor Connect() const {
    const Address address = Resolve(address_).at(0);
    sys::Descriptor socket = MakeSocket(address);
    const int result = connect(socket.get(), address.get(), address.length);
    EXPECT_TRUE(result == 0 || errno == EINPROGRESS);
    return socket;
  }
  static bool Send(const sys::Descriptor& socket, const std::string& text) {
    const ssize_t n = send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    return n == static_cast<ssize_t>(text.size());
  }
  // All that comes until the server ends the connection; "reset" if it ends otherwise.
  std::string ReadAll(const sys::Descriptor& socket) {
    std::string all;
    const Time end = Loop::Now() + 20000 * kMillisecond;
    while (Loop::Now() < end) {
      loop_.RunOnce(kMillisecond);
      char bytes[4096];
      const ssize_t n = recv(socket.get(), bytes, sizeof(bytes), 0);
      if (n == 0) return all;
      if (n > 0) all.append(bytes, static_cast<size_t>(n));
      if (n < 0 && errno != EAGAIN) return "reset";
    }
    return "no end";
  }
  std::string Ask(const std::string& request) {
    const sys::Descriptor socket = Connect();
    EXPECT_TRUE(Send(socket, request));
    return ReadAll(socket);
  }
  void RunFor(Time time) {
    for (const Time end = Loop::Now() + time; Loop::Now() < end;) loop_.RunOnce(kMillisecond);
  }
  bool UntilConnections(size_t count) {
    const Time end = Loop::Now() + 20000 * kMillisecond;
    while (server_->connections() != count && Loop::Now() < end) loop_.RunOnce(kMillisecond);
    return server_->connections() == count;
  }

  Loop loop_;
  std::string text_ = "a 1\n", address_;
  int pages_ = 0;
  std::unique_ptr<PageServer> server_;
};

TEST_F(PageTest, APageAndTheEnd) {
  Serve();
  for (const std::string& request : {kGet, std::string("GET /metrics?x=1 HTTP/1.0\n\n"),
                                     "GET /metrics HTTP/1.1\r\n\r\n" + std::string(10000, 'x')}) {
    EXPECT_EQ(Ask(request),
              "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
              "Content-Length: 4\r\nConnection: close\r\n\r\na 1\n");
  }
  EXPECT_EQ(pages_, 3);
  EXPECT_TRUE(UntilConnections(0));
}

TEST_F(PageTest, ARequestInPieces) {
  Serve();
  const sys::Descriptor socket = Connect();
  for (const char c : kGet) {
    EXPECT_TRUE(Send(socket, std::string(1, c)));
    loop_.RunOnce(kMillisecond);
  }
  EXPECT_TRUE(ReadAll(socket).ends_with("\r\n\r\na 1\n"));
}

// More than the kernel takes at once.
TEST_F(PageTest, ALongPage) {
  text_ = std::string(size_t{4} << 20, 'y');
  Serve();
  EXPECT_TRUE(Ask(kGet).ends_with("\r\n\r\n" + text_));
}

TEST_F(PageTest, WhatIsNoRequest) {
  Serve();
  const struct {
    std::string request, status;
  } cases[] = {{"\r\n\r\n", "400"},
               {"GET\r\n\r\n", "400"},
               {"GET /metrics\r\n\r\n", "400"},
               {"GET /metrics SSH-2.0\r\n\r\n", "400"},
               {"GET /metrics HTTP/1.1 x\r\n\r\n", "400"},
               {"GET  /metrics HTTP/1.1\r\n\r\n", "400"},
               {std::string("\0\xff\x16\x03\x01 \r\n\r\n", 10), "400"},
               {"POST /metrics HTTP/1.1\r\n\r\n", "405"},
               {"get /metrics HTTP/1.1\r\n\r\n", "405"},
               {"GET / HTTP/1.1\r\n\r\n", "404"},
               {"GET /metrics/ HTTP/1.1\r\n\r\n", "404"},
               {"GET /../metrics HTTP/1.1\r\n\r\n", "404"},
               {"GET /metrics HTTP/1.1\r\nX: " + std::string(256, 'x'), "431"},
               {std::string(257, '\0'), "431"}};
  for (const auto& [request, status] : cases) {
    EXPECT_TRUE(Ask(request).starts_with("HTTP/1.1 " + status + " ")) << request;
  }
  EXPECT_EQ(pages_, 0);
  EXPECT_TRUE(UntilConnections(0));
}

TEST_F(PageTest, WhoSaysNothingMoreIsLeft) {
  Serve({.connections = 4, .request = 256, .patience = 500 * kMillisecond});
  const sys::Descriptor silent = Connect(), half = Connect(), stays = Connect();
  EXPECT_TRUE(Send(half, "GET /metrics HT"));
  EXPECT_TRUE(Send(stays, kGet));
  EXPECT_TRUE(UntilConnections(3));
  EXPECT_EQ(ReadAll(silent), "");
  EXPECT_EQ(ReadAll(half), "");
  EXPECT_TRUE(ReadAll(stays).ends_with("a 1\n"));
  EXPECT_TRUE(UntilConnections(0)) << "also the one that does not close its end";
}

TEST_F(PageTest, WhoGoesAwayIsForgotten) {
  Serve();
  {
    const sys::Descriptor socket = Connect();
    EXPECT_TRUE(Send(socket, "GET"));
    EXPECT_TRUE(UntilConnections(1));
  }
  EXPECT_TRUE(UntilConnections(0));
}

TEST_F(PageTest, WhoGoesOnTalkingIsLeft) {
  Serve();
  const sys::Descriptor socket = Connect();
  EXPECT_TRUE(Send(socket, kGet));
  EXPECT_TRUE(UntilConnections(1));
  const Time end = Loop::Now() + 20000 * kMillisecond;
  while (server_->connections() != 0 && Loop::Now() < end) {
    Send(socket, std::string(4096, 'x'));
    loop_.RunOnce(kMillisecond);
  }
  EXPECT_EQ(server_->connections(), 0U);
}

// The oldest one goes; whoever asks gets an answer.
TEST_F(PageTest, ManyConnections) {
  Serve();
  std::vector<sys::Descriptor> sockets;
  for (int i = 0; i < 100; ++i) {
    sockets.push_back(Connect());
    RunFor(0);
    EXPECT_LE(server_->connections(), 4U);
  }
  EXPECT_TRUE(UntilConnections(4));
  EXPECT_TRUE(Ask(kGet).ends_with("a 1\n"));
  EXPECT_EQ(ReadAll(sockets.front()), "");
  EXPECT_TRUE(Send(sockets.back(), kGet));
  EXPECT_TRUE(ReadAll(sockets.back()).ends_with("a 1\n"));
}

TEST_F(PageTest, OnlyThisMachine) {
  PageServer server(&loop_, "/metrics", [] { return std::string(); });
  for (const char* address : {"0.0.0.0:0", "[::]:0", "192.0.2.1:0", "127.0.0.1", "x"}) {
    EXPECT_THROW(server.Listen(address), NetError) << address;
  }
}

TEST_F(PageTest, AUnixSocket) {
  std::string folder = "/dev/shm/nvcache-test-page-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  address_ = folder + "/metrics";
  {
    // As one that was killed leaves it.
    const Listening dead = ListenAt(Resolve(address_).at(0));
    EXPECT_EQ(dead.path, address_);
  }
  {
    PageServer server(&loop_, "/metrics", [this] { return text_; });
    EXPECT_EQ(server.Listen(address_), 0);
    EXPECT_TRUE(Ask(kGet).ends_with("a 1\n"));
    PageServer other(&loop_, "/metrics", [this] { return text_; });
    EXPECT_THROW(other.Listen(address_), NetError) << "somebody listens there";
    EXPECT_TRUE(Ask(kGet).ends_with("a 1\n"));
  }
  EXPECT_FALSE(std::filesystem::exists(address_));
  std::filesystem::remove(folder);
}

}  // namespace
}  // namespace nvcache::mirror
