// SPDX-License-Identifier: BSD-3-Clause
//
// `nvcache serve` as it is run: writers, their successors, deaths, strangers.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "mirror/wire/frame.h"
#include "src/sys/descriptor.h"
#include "tests/mirror/serving.h"

namespace nvcache::mirror {
namespace {

constexpr uint64_t kSize = 1 << 20;
constexpr const char* kHere = "127.0.0.1:0";

class ServeTest : public testing::Test {
 protected:
  void SetUp() override {
    WriteKeys(keys_, "# who may come\n\ndb:" + HexOf(1) + "\nother:" + HexOf(2) +
                         ":x*,y?\nall:" + HexOf(3) + ":*\n");
  }
  Words With(Words more) const {
    Words options = {"--listen", kHere, "--keys", keys_, "--limit", "64M"};
    options.insert(options.end(), more.begin(), more.end());
    return options;
  }
  Words InMemory() const { return With({"--memory", memory_.path()}); }
  static Words Insecure(Words more = {}) {
    Words options = {"--listen", kHere, "--insecure", "--limit", "64M"};
    options.insert(options.end(), more.begin(), more.end());
    return options;
  }
  // It serves a client as if nothing had been.
  static void ExpectWell(Serving* serving, const std::optional<Key>& key) {
    Caller caller(serving->address(), key);
    const auto promised = caller.Promise("db", 1000);
    ASSERT_TRUE(promised.has_value()) << caller.why() << serving->said();
    EXPECT_EQ(promised->type, Type::kPromised);
    EXPECT_TRUE(caller.Fill(1000, kSize, 0xee, 9));
  }
  // What it says when it cannot begin.
  static std::string Refused(const Words& options, int status = 1) {
    Serving serving(options);
    EXPECT_EQ(serving.Wait(), status);
    std::string said = serving.said();
    EXPECT_EQ(said.find('\n'), said.size() - 1) << said;
    return said;
  }

  Folder folder_{"/tmp"}, memory_{"/dev/shm"};
  const std::string keys_ = folder_ / "keys";
  const Key key_ = KeyOf("db", 1);
};

// A socket without anything of ours.
class Raw {
 public:
  explicit Raw(const std::string& address) : file_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(file_.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)) != 0) abort();
  }
  void Send(const void* bytes, size_t n) {
    EXPECT_EQ(send(file_.get(), bytes, n, MSG_NOSIGNAL), static_cast<ssize_t>(n));
  }
  void Send(const std::vector<uint8_t>& bytes) { Send(bytes.data(), bytes.size()); }
  // All that comes until the other side ends it; *closed: it has, within so many seconds.
  std::vector<uint8_t> Rest(bool* closed, int seconds = 20) {
    std::vector<uint8_t> all;
    pollfd waits = {file_.get(), POLLIN, 0};
    uint8_t buffer[4096];
    ssize_t n = 1;
    while (n > 0 && poll(&waits, 1, seconds * 1000) == 1) {
      n = recv(file_.get(), buffer, sizeof(buffer), 0);
      if (n > 0) all.insert(all.end(), buffer, buffer + n);
    }
    *closed = n <= 0;
    return all;
  }
  int get() const { return file_.get(); }

 private:
  sys::Descriptor file_;
};

// The one message of a stream that has no other.
Message Only(const std::vector<uint8_t>& stream) {
  Decoder decoder;
  EXPECT_TRUE(decoder.Feed(stream).empty());
  EXPECT_TRUE(decoder.HasMessage());
  return decoder.Take();
}

TEST_F(ServeTest, AnImageIsWrittenAndFetched) {
  Serving serving(With({}));
  Caller caller(serving.address(), key_);
  const auto promised = caller.Promise("db", 1);
  ASSERT_TRUE(promised.has_value()) << caller.why() << serving.said();
  EXPECT_EQ(promised->type, Type::kPromised);
  EXPECT_FALSE(promised->incarnation.IsNone());
  EXPECT_TRUE(promised->lineage.IsNone());
  ASSERT_TRUE(caller.Fill(1, kSize, 0xaa, 10));
  Message append = {.type = Type::kAppend, .epoch = 1, .number = 2, .position = 20};
  append.ranges = {{kSize - 8, 8}, {16, 8}};
  append.bytes = std::vector<uint8_t>(16, 0xbb);
  const auto stored = caller.Ask(append);
  ASSERT_TRUE(stored && stored->type == Type::kStored);
  std::vector<uint8_t> expected(kSize);
  std::fill_n(expected.begin(), 4096, 0xaa);
  std::fill_n(expected.begin() + 16, 8, 0xbb);
  std::fill_n(expected.end() - 8, 8, 0xbb);
  EXPECT_EQ(caller.Fetch(1, kSize), expected);
  EXPECT_EQ(serving.Kill(SIGTERM), 0);
  EXPECT_TRUE(caller.IsClosed());
}

TEST_F(ServeTest, TheLongestMessages) {
  Serving serving(With({}));
  Caller caller(serving.address(), key_);
  ASSERT_TRUE(caller.Promise("db", 1));
  constexpr uint64_t kPool = 24 << 20;
  ASSERT_TRUE(caller.Fill(1, kPool, 0xaa, 10));
  for (uint64_t i = 0; i < 5; ++i) {  // they are in one window, and answered in order
    Message append = {.type = Type::kAppend, .epoch = 1, .number = i + 2, .position = i + 20};
    append.ranges = {{(i + 1) * kMaxBytes, kMaxBytes}};
    append.bytes.assign(kMaxBytes, static_cast<uint8_t>(i + 1));
    caller.Send(append);
  }
  for (uint64_t i = 0; i < 5; ++i) {
    const auto stored = caller.Next();
    ASSERT_TRUE(stored && stored->type == Type::kStored) << caller.why();
    EXPECT_EQ(stored->number, i + 2);
  }
  const auto image = caller.Fetch(1, kPool);
  ASSERT_EQ(image.size(), kPool);
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(image[(i + 1) * kMaxBytes], i + 1);
    EXPECT_EQ(image[(i + 2) * kMaxBytes - 1], i + 1);
  }
}

TEST_F(ServeTest, AHigherEpochThrowsTheWriterOut) {
  Serving serving(With({}));
  Caller first(serving.address(), key_), second(serving.address(), KeyOf("all", 3));
  ASSERT_TRUE(first.Promise("db", 1));
  ASSERT_TRUE(first.Fill(1, kSize, 0xaa, 10));
  const auto promised = second.Promise("db", 2);
  ASSERT_TRUE(promised.has_value());
  EXPECT_EQ(promised->epoch, 2U);
  EXPECT_EQ(promised->written, 1U);
  EXPECT_EQ(promised->position, 10U);
  EXPECT_TRUE(first.IsClosed());
  const auto refused = first.Promise("db", 1);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->type, Type::kRefused);
  EXPECT_EQ(refused->why, Refusal::kEpoch);
  EXPECT_EQ(refused->epoch, 2U);
  EXPECT_TRUE(first.IsClosed());
  EXPECT_TRUE(second.Fill(2, kSize, 0xbb, 11));
}

TEST_F(ServeTest, KilledItRemembersWhatItsFolderHas) {
  Id incarnation;
  {
    Serving serving(InMemory());
    Caller caller(serving.address(), key_);
    const auto promised = caller.Promise("db", 5);
    ASSERT_TRUE(promised.has_value());
    incarnation = promised->incarnation;
    ASSERT_TRUE(caller.Fill(5, kSize, 0xaa, 10));
    EXPECT_EQ(serving.Kill(SIGKILL), -1);
    EXPECT_TRUE(caller.IsClosed());
  }
  {
    Serving serving(InMemory());
    Caller caller(serving.address(), key_);
    EXPECT_EQ(caller.Promise("db", 4)->why, Refusal::kEpoch);
    EXPECT_TRUE(caller.IsClosed());
    const auto promised = caller.Promise("db", 5);
    ASSERT_TRUE(promised.has_value());
    EXPECT_EQ(promised->incarnation, incarnation);
    EXPECT_EQ(promised->position, 10U);
    EXPECT_EQ(caller.Fetch(5, kSize)[4095], 0xaa);
    EXPECT_NE(serving.said().find("remembers 1 mirror with 1 image"), std::string::npos);
    EXPECT_NE(Refused(InMemory()).find("in use by another server"), std::string::npos);
  }
  // The machine was started anew: as far as the server can see.
  if (getuid() != 0) GTEST_SKIP() << "needs root";
  const std::string boot = folder_ / "boot";
  std::ofstream(boot) << "01234567-89ab-cdef-0123-456789abcdef\n";
  Serving serving(
      InMemory(), nullptr,
      {"unshare", "-m", "sh", "-c",
       "mount --bind " + boot + " /proc/sys/kernel/random/boot_id && exec \"$@\"", "sh"});
  Caller caller(serving.address(), key_);
  const auto promised = caller.Promise("db", 1);
  ASSERT_TRUE(promised.has_value());
  EXPECT_EQ(promised->type, Type::kPromised);
  EXPECT_NE(promised->incarnation, incarnation);
  EXPECT_TRUE(promised->lineage.IsNone());
}

TEST_F(ServeTest, KilledItForgetsWithoutAFolder) {
  Id incarnation;
  for (int i = 0; i < 2; ++i) {
    Serving serving(With({}));
    Caller caller(serving.address(), key_);
    const auto promised = caller.Promise("db", 5);
    ASSERT_TRUE(promised.has_value());
    EXPECT_NE(promised->incarnation, incarnation);
    EXPECT_EQ(promised->position, 0U);
    incarnation = promised->incarnation;
    ASSERT_TRUE(caller.Fill(5, kSize, 0xaa, 10));
    serving.Kill(SIGKILL);
  }
}

TEST_F(ServeTest, ASpillComesBackOnce) {
  for (const int signal : {SIGTERM, SIGUSR1, SIGPWR}) {
    const std::string spill = folder_ / "spill";
    Id incarnation;
    {
      Serving serving(With({"--spill", spill}));
      Caller caller(serving.address(), key_);
      incarnation = caller.Promise("db", 5)->incarnation;
      ASSERT_TRUE(caller.Fill(5, kSize, 0xaa, 10));
      EXPECT_EQ(serving.Kill(signal), 0);
      EXPECT_TRUE(std::filesystem::exists(spill));
    }
    for (int i = 0; i < 2; ++i) {
      Serving serving(With({"--spill", spill}));
      Caller caller(serving.address(), key_);
      const auto promised = caller.Promise("db", 6);
      ASSERT_TRUE(promised.has_value());
      EXPECT_EQ(promised->incarnation == incarnation, i == 0);
      EXPECT_EQ(promised->position, i == 0 ? 10U : 0U);
      EXPECT_FALSE(std::filesystem::exists(spill));
      serving.Kill(SIGKILL);
    }
  }
}

TEST_F(ServeTest, WithoutASpillItGoesOnWhenPowerIsLost) {
  Serving serving(With({}));
  const std::string address = serving.address();
  kill(serving.pid(), SIGPWR);
  ExpectWell(&serving, key_);
  EXPECT_NE(serving.said().find("there is no --spill"), std::string::npos);
}

TEST_F(ServeTest, SystemdKeepsItsMemory) {
  const std::string path = folder_ / "notify";
  const sys::Descriptor manager(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = {}};
  std::memcpy(name.sun_path, path.data(), path.size());
  ASSERT_EQ(bind(manager.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  sys::Descriptor kept;
  Id incarnation;
  {
    Serving serving(With({}), [&] { setenv("NOTIFY_SOCKET", path.c_str(), 1); });
    Caller caller(serving.address(), key_);
    incarnation = caller.Promise("db", 5)->incarnation;
    ASSERT_TRUE(caller.Fill(5, kSize, 0xaa, 10));
    serving.Kill(SIGKILL);
  }
  std::string said;
  for (;;) {
    char text[100] = {};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    iovec bytes = {text, sizeof(text) - 1};
    msghdr message = {};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (recvmsg(manager.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0) break;
    said += std::string(text) + "|";
    if (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
      kept = sys::Descriptor(fd);
    }
  }
  EXPECT_EQ(said, "READY=1|FDSTORE=1\nFDPOLL=0\nFDNAME=db|");
  ASSERT_TRUE(kept.IsOpen());
  Serving serving(With({}), [&] {
    dup2(kept.get(), 3);
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_FDNAMES", "db", 1);
    setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
  });
  Caller caller(serving.address(), key_);
  const auto promised = caller.Promise("db", 5);
  ASSERT_TRUE(promised.has_value());
  EXPECT_EQ(promised->incarnation, incarnation);
  EXPECT_EQ(promised->position, 10U);
}

TEST_F(ServeTest, OnlyThoseWithAKey) {
  Serving serving(With({}));
  const std::string address = serving.address();
  for (const auto& key : {KeyOf("db", 2), KeyOf("nobody", 1)}) {
    Caller caller(address, key);
    // The client may be done with its half of the handshake before the server has refused it.
    EXPECT_FALSE(caller.Promise("db", 1).has_value());
    EXPECT_TRUE(caller.IsClosed());
  }
  Caller plain(address, std::nullopt);
  EXPECT_FALSE(plain.Promise("db", 1).has_value());
  ExpectWell(&serving, key_);
  EXPECT_NE(serving.said().find("was refused: no handshake"), std::string::npos);
}

TEST_F(ServeTest, AClientWantsAServerWithTheKey) {
  Serving plain(Insecure());
  Caller caller(plain.address(), key_);
  EXPECT_FALSE(caller.Connect());
  WriteKeys(folder_ / "others", "db:" + HexOf(9) + "\n");
  Serving other({"--listen", kHere, "--keys", folder_ / "others"});
  Caller second(other.address(), key_);
  EXPECT_FALSE(second.Connect());
}

TEST_F(ServeTest, NamesThatAKeyMayUse) {
  Serving serving(With({}));
  const std::string address = serving.address();
  const auto may = [&](const Key& key, const std::string& name) {
    Caller caller(address, key);
    const auto answer = caller.Promise(name, 1);
    EXPECT_TRUE(answer.has_value()) << caller.why();
    if (answer && answer->type == Type::kRefused) {
      EXPECT_EQ(answer->why, Refusal::kForbidden);
    }
    return answer && answer->type == Type::kPromised;
  };
  EXPECT_TRUE(may(KeyOf("db", 1), "db"));
  EXPECT_FALSE(may(KeyOf("db", 1), "db2"));
  EXPECT_FALSE(may(KeyOf("other", 2), "other"));
  EXPECT_TRUE(may(KeyOf("other", 2), "x-1"));
  EXPECT_TRUE(may(KeyOf("other", 2), "y1"));
  EXPECT_FALSE(may(KeyOf("other", 2), "y12"));
  EXPECT_TRUE(may(KeyOf("all", 3), "anything"));
  Caller caller(address, KeyOf("all", 3));
  ASSERT_TRUE(caller.Promise("one", 1));
  EXPECT_EQ(caller.Ask({.type = Type::kPromise, .epoch = 1, .name = "two"})->why, Refusal::kOrder);
  EXPECT_TRUE(caller.IsClosed());
}

TEST_F(ServeTest, WhatIsNoMessage) {
  Serving serving(Insecure());
  const std::string address = serving.address();
  std::vector<uint8_t> ping;
  Encode({.type = Type::kPing, .number = 7}, &ping);
  std::vector<uint8_t> newer = ping, damaged = ping;
  newer[4] = 2;
  damaged[50] = 1;
  std::vector<uint8_t> twice = ping;
  twice.insert(twice.end(), 100, 0);
  const std::string http = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::vector<std::pair<std::vector<uint8_t>, Refusal>> wrong = {
      {newer, Refusal::kProtocol},
      {damaged, Refusal::kMalformed},
      {std::vector<uint8_t>(100000, 0xff), Refusal::kMalformed},
      {{http.begin(), http.end()}, Refusal::kMalformed}};
  for (const auto& [bytes, why] : wrong) {
    Raw raw(address);
    raw.Send(bytes);
    bool closed;
    const Message refused = Only(raw.Rest(&closed));
    EXPECT_TRUE(closed);
    EXPECT_EQ(refused.type, Type::kRefused);
    EXPECT_EQ(refused.why, why);
  }
  for (size_t cut = 1; cut < ping.size(); cut += 20) {  // ends in the middle
    Raw raw(address);
    raw.Send(ping.data(), cut);
    shutdown(raw.get(), SHUT_WR);
    bool closed;
    EXPECT_TRUE(raw.Rest(&closed).empty());
    EXPECT_TRUE(closed);
  }
  Raw slow(address);  // comes byte by byte
  for (const uint8_t byte : ping) slow.Send(&byte, 1);
  ExpectWell(&serving, std::nullopt);
}

TEST_F(ServeTest, OutOfTurn) {
  Serving serving(Insecure());
  const std::string address = serving.address();
  for (const Type type : {Type::kBegin, Type::kAppend, Type::kMark, Type::kFetch, Type::kForget,
                          Type::kPong, Type::kStored, Type::kPromised, Type::kRefused}) {
    Caller caller(address, std::nullopt);
    ASSERT_TRUE(caller.Connect());
    EXPECT_EQ(caller.Ask({.type = type, .epoch = 1})->why, Refusal::kOrder);
    EXPECT_TRUE(caller.IsClosed());
  }
  Caller caller(address, std::nullopt);
  ASSERT_TRUE(caller.Connect());
  EXPECT_EQ(caller.Ask({.type = Type::kPing, .number = 3})->number, 3U);
  Caller writer(address, std::nullopt);
  ASSERT_TRUE(writer.Promise("db", 2));
  ASSERT_TRUE(writer.Fill(2, kSize, 1, 1));
  Message outside = {.type = Type::kAppend, .epoch = 2, .number = 2, .position = 2};
  outside.ranges = {{kSize, 8}};
  outside.bytes.resize(8);
  EXPECT_EQ(writer.Ask(outside)->why, Refusal::kRange);
  EXPECT_TRUE(writer.IsClosed());
}

TEST_F(ServeTest, Full) {
  Serving serving(With({}));
  Caller caller(serving.address(), KeyOf("all", 3));
  ASSERT_TRUE(caller.Promise("db", 1));
  EXPECT_EQ(
      caller.Ask({.type = Type::kBegin, .epoch = 1, .pool_size = 64 << 20, .lineage = {{1}}})->why,
      Refusal::kFull);
  EXPECT_TRUE(caller.IsClosed());
  // Names take memory as well.
  Refusal why = Refusal::kNone;
  for (int i = 0; i < 20 && why == Refusal::kNone; ++i) {
    Caller one(serving.address(), KeyOf("all", 3));
    why = one.Promise("n" + std::to_string(i), 1)->why;
  }
  EXPECT_EQ(why, Refusal::kFull);
  ExpectWell(&serving, key_);
}

// Those that say nothing neither stay nor keep others out.
TEST_F(ServeTest, ManyThatSayNothing) {
  Serving serving(With({}));
  const std::string address = serving.address();
  std::vector<std::unique_ptr<Raw>> silent;
  for (int i = 0; i < 400; ++i) silent.push_back(std::make_unique<Raw>(address));
  ExpectWell(&serving, key_);
  for (const auto& raw : silent) {
    bool closed;
    EXPECT_TRUE(raw->Rest(&closed).empty());
    EXPECT_TRUE(closed);
  }
}

// What waits to be sent to a client that takes nothing is bounded.
TEST_F(ServeTest, AClientThatDoesNotListen) {
  Serving serving(Insecure());
  {
    Caller writer(serving.address(), std::nullopt);
    ASSERT_TRUE(writer.Promise("db", 1));
    Message append = {.type = Type::kAppend, .whole = true, .epoch = 1, .number = 1};
    append.position = 1;
    append.ranges = {{0, kMaxBytes}};
    append.bytes.assign(kMaxBytes, 1);
    writer.Send({.type = Type::kBegin, .epoch = 1, .pool_size = kMaxBytes, .lineage = {{1}}});
    ASSERT_EQ(writer.Ask(append)->type, Type::kStored);
  }
  constexpr size_t kFetches = 100;
  Raw raw(serving.address());
  std::vector<uint8_t> bytes;
  Encode({.type = Type::kPromise, .epoch = 1, .name = "db"}, &bytes);
  for (size_t i = 0; i < kFetches; ++i) Encode({.type = Type::kFetch, .epoch = 1}, &bytes);
  raw.Send(bytes);
  usleep(500000);
  std::ifstream status("/proc/" + std::to_string(serving.pid()) + "/status");
  uint64_t kib = 0;
  for (std::string word; status >> word;) {
    if (word == "RssAnon:") status >> kib;
  }
  EXPECT_GT(kib, 0U);
  EXPECT_LT(kib, 64U << 10);
  size_t pieces = 0;
  Decoder decoder;
  std::vector<uint8_t> buffer(1 << 20);
  for (pollfd waits = {raw.get(), POLLIN, 0}; pieces < kFetches && poll(&waits, 1, 10000) == 1;) {
    const ssize_t n = recv(raw.get(), buffer.data(), buffer.size(), 0);
    if (n <= 0) break;
    std::span<const uint8_t> piece(buffer.data(), static_cast<size_t>(n));
    while (!piece.empty() && decoder.refusal() == Refusal::kNone) {
      piece = decoder.Feed(piece);
      if (decoder.HasMessage()) pieces += decoder.Take().type == Type::kPiece ? 1 : 0;
    }
  }
  EXPECT_EQ(pieces, kFetches);
}

TEST_F(ServeTest, AUnixSocket) {
  const std::string path = folder_ / "socket";
  for (int i = 0; i < 2; ++i) {  // the second one finds the first one's socket
    Serving serving({"--listen", path, "--insecure", "--limit", "64M"});
    EXPECT_EQ(serving.address(), path);
    ExpectWell(&serving, std::nullopt);
    serving.Kill(SIGKILL);
  }
}

TEST_F(ServeTest, WhatItCannotBeginWith) {
  const auto says = [](const std::string& said, const std::string& words) {
    EXPECT_NE(said.find(words), std::string::npos) << said;
  };
  says(Refused({}, 2), "--listen");
  says(Refused({"--listen", kHere}, 2), "give --keys FILE");
  says(Refused({"--listen", kHere, "--keys", keys_, "--insecure"}, 2), "give --keys FILE");
  says(Refused({"--listen", "0.0.0.0:0", "--insecure"}), "so it takes keys");
  for (const char* address :
       {":7070", "*:7070", "7070", "127.0.0.1", "::1:7070", "a:b", "a:99999"}) {
    says(Refused({"--listen", address, "--keys", keys_}), "is none; give HOST:PORT");
  }
  says(Refused(With({"--limit", "much"}), 2), "--limit");
  says(Refused(With({"--memory", folder_.path()})), "is not in memory");
  says(Refused({"--listen", kHere, "--keys", folder_ / "none"}), "cannot be read");
  chmod(keys_.c_str(), 0644);
  says(Refused(With({})), "chmod o=");
  chmod(keys_.c_str(), 0600);
  for (const std::string& line :
       Words{"db", "db:" + HexOf(1).substr(1), "db:0011", "db:" + std::string(32, 'g'),
             "d b:" + HexOf(1), "db:" + HexOf(1) + ":", "x:" + HexOf(1) + "\nx:" + HexOf(2)}) {
    WriteKeys(folder_ / "bad", line + "\n");
    const std::string said = Refused({"--listen", kHere, "--keys", folder_ / "bad"});
    says(said, ": line ");
    EXPECT_EQ(said.find(HexOf(1).substr(0, 8)), std::string::npos) << said;
  }
  Serving serving(With({}));
  says(Refused({"--listen", serving.address(), "--keys", keys_}), "cannot be listened to");
}

}  // namespace
}  // namespace nvcache::mirror
