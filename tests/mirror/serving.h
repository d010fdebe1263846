// SPDX-License-Identifier: BSD-3-Clause
//
// A real `nvcache serve`, and clients that wait for its answers.
#ifndef NVCACHE_TESTS_MIRROR_SERVING_H_
#define NVCACHE_TESTS_MIRROR_SERVING_H_

#include <sys/types.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mirror/core/message.h"
#include "mirror/net/client.h"

namespace nvcache::mirror {

using Words = std::vector<std::string>;

class Folder {
 public:
  explicit Folder(const std::string& parent);
  ~Folder();
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A file of keys with the right mode.
void WriteKeys(const std::string& path, const std::string& text);
std::string HexOf(uint8_t byte);  // a key of 32 such bytes
Key KeyOf(const std::string& identity, uint8_t byte);

// `nvcache serve` with these options; its stderr goes to a file. Killed with its object.
class Serving {
 public:
  // `before`: in the child, before it becomes the command. `wrapper`: words before the command.
  explicit Serving(Words options, const std::function<void()>& before = nullptr,
                   const Words& wrapper = {});
  ~Serving();

  // Of the last address that it listens to; empty: it has ended.
  std::string address();
  std::string said() const;
  pid_t pid() const { return pid_; }
  // Its exit status; -1: a signal has ended it.
  int Kill(int signal);
  int Wait();

 private:
  Folder folder_;
  pid_t pid_ = -1;
};

// One client on a loop of its own.
class Caller : private Client::Listener {
 public:
  Caller(std::string address, const std::optional<Key>& key);

  // True: it is connected.
  bool Connect();
  void Send(const Message& message) { client_.Send(message); }
  // The next message; none: the connection has ended, and why() says how.
  std::optional<Message> Next();
  std::optional<Message> Ask(const Message& message);
  // The server ends the connection, at the latest after so many seconds.
  bool IsClosed(int seconds = 10);
  const std::string& why() const { return why_; }

  // What a writer does first. The answer.
  std::optional<Message> Promise(const std::string& name, Epoch epoch);
  // An image of `size` bytes, of which the first 4096 have this value.
  bool Fill(Epoch epoch, uint64_t size, uint8_t value, Position position);
  // All bytes of the image, as fetched.
  std::vector<uint8_t> Fetch(Epoch epoch, uint64_t size);

 private:
  bool RunUntil(const std::function<bool()>& done, int seconds);
  void OnConnected(Client* client) override;
  void OnMessage(Client* client, const Message& message) override;
  void OnClosed(Client* client, const std::string& why) override;

  Loop loop_;
  Identity identity_;
  Client client_;
  bool connected_ = false, closed_ = false;
  std::string why_;
  std::deque<Message> messages_;
  uint64_t number_ = 0;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_TESTS_MIRROR_SERVING_H_
