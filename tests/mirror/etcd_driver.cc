// SPDX-License-Identifier: BSD-3-Clause
//
// A client of etcd with a loop, told what to do by lines of words; answers with lines. Its
// arguments are the endpoints, and options of the form NAME=VALUE. "slowest" is the longest time,
// in ms, for which a function of the client has held up the loop.
//
//   read NAME                        write NAME VERSION WRITER REVISION
//   hold NAME TEXT SECONDS           release
//   slowest                          end
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <sstream>
#include <string>

#include "mirror/etcd/client.h"

namespace {

using nvcache::mirror::EtcdClient;
using nvcache::mirror::EtcdOptions;
using nvcache::mirror::Outcome;
using nvcache::mirror::Record;

std::chrono::steady_clock::duration slowest{0};

void Timed(const std::function<void()>& function) {
  const auto before = std::chrono::steady_clock::now();
  function();
  slowest = std::max(slowest, std::chrono::steady_clock::now() - before);
}

template <typename... Words>
void Say(const Words&... words) {
  std::ostringstream line;
  ((line << words << ' '), ...);
  puts(line.str().c_str());
  fflush(stdout);
}

EtcdOptions Options(int argc, char** argv) {
  EtcdOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equal = word.find('=');
    const std::string name = word.substr(0, equal);
    const std::string value = equal == std::string::npos ? "" : word.substr(equal + 1);
    if (equal == std::string::npos) {
      options.endpoints.push_back(word);
    } else if (name == "timeout") {
      options.timeout = std::chrono::milliseconds(std::stoi(value));
    } else if (name == "ca") {
      options.ca = value;
    } else if (name == "certificate") {
      options.certificate = value;
    } else if (name == "key") {
      options.key = value;
    } else if (name == "user") {
      options.user = value;
    } else if (name == "password") {
      options.password = value;
    }
  }
  return options;
}

Record Make(uint64_t version, const std::string& writer) {
  Record record;
  record.version = version;
  record.epoch = 1;
  record.writer = writer;
  record.holders = {{.address = "a:1", .incarnation = {}}};
  return record;
}

void Write(EtcdClient& client, std::istringstream& words) {
  std::string name;
  std::string writer;
  uint64_t version = 0;
  int64_t revision = 0;
  words >> name >> version >> writer >> revision;
  client.Write(name, Make(version, writer), revision, [](const auto& answer) {
    Say("write",
        answer.outcome == Outcome::kDone       ? "done"
        : answer.outcome == Outcome::kConflict ? "conflict"
                                               : "unknown",
        answer.revision, answer.error);
  });
}

// False: this was the last one.
bool Obey(EtcdClient& client, const std::string& line) {
  std::istringstream words(line);
  std::string what;
  std::string name;
  words >> what;
  if (what == "read") {
    words >> name;
    client.Read(name, [](const auto& answer) {
      Say("read", answer.reached ? "reached" : "unreached", answer.revision,
          answer.record ? answer.record->version : 0, answer.record ? answer.record->writer : "-",
          answer.error);
    });
  } else if (what == "write") {
    Write(client, words);
  } else if (what == "hold") {
    std::string text;
    int ttl = 0;
    words >> name >> text >> ttl;
    client.Hold(
        name, text, std::chrono::seconds(ttl),
        [](const auto& answer) {
          Say("hold",
              answer.held         ? "held"
              : answer.by.empty() ? "unknown"
                                  : answer.by,
              answer.error);
        },
        [](const std::string& why) { Say("lost", why); });
  } else if (what == "release") {
    client.Release(
        [](const std::string& error) { Say("release", error.empty() ? "done" : error); });
  } else if (what == "slowest") {
    Say("slowest", std::chrono::duration_cast<std::chrono::milliseconds>(slowest).count());
  }
  return what != "end";
}

int Loop(EtcdClient& client) {
  std::string rest;
  for (;;) {
    pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                     {.fd = client.fd(), .events = POLLIN, .revents = 0}};
    if (poll(fds, 2, -1) < 0) return 1;
    if (fds[1].revents != 0) Timed([&client] { client.Dispatch(); });
    if (fds[0].revents == 0) continue;
    char bytes[4096];
    const ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (n <= 0) return 0;
    rest.append(bytes, static_cast<size_t>(n));
    for (size_t end = rest.find('\n'); end != std::string::npos; end = rest.find('\n')) {
      const std::string line = rest.substr(0, end);
      rest.erase(0, end + 1);
      bool more = true;
      Timed([&] { more = Obey(client, line); });
      if (!more) return 0;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    EtcdClient client(Options(argc, argv));
    Say("ready");
    return Loop(client);
  } catch (const std::exception& problem) {
    Say("problem", problem.what());
    return 2;
  }
}
