// SPDX-License-Identifier: BSD-3-Clause
//
// nvcache status --mirror: how a mirror that runs and its servers are, by what its --metrics says.
#include <errno.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mirror/core/error.h"
#include "mirror/net/address.h"
#include "mirror/tool/commands.h"
#include "mirror/tool/metrics.h"
#include "recovery/tool/commands.h"
#include "recovery/tool/text.h"
#include "src/sys/descriptor.h"

namespace nvcache::tool {
namespace {

constexpr timeval kPatience = {.tv_sec = 5, .tv_usec = 0};  // for each call
constexpr size_t kMaxPage = size_t{1} << 20;
constexpr std::string_view kRequest = "GET /metrics HTTP/1.1\r\nHost: mirror\r\n\r\n";
constexpr std::string_view kGood = "HTTP/1.1 200 ";

struct StatusArguments {
  std::string mirror;
};

[[noreturn]] void FailAt(const std::string& address, const std::string& why) {
  throw Failure{kFailed, fmt::format("{}: no mirror answers there: {}", address, why)};
}

sys::Descriptor Connect(const std::string& text) {
  int error = 0;
  for (const mirror::Address& address : mirror::Resolve(text)) {
    sys::Descriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
    setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
    if (connect(socket.get(), address.get(), address.length) == 0) return socket;
    error = errno;
  }
  FailAt(text, mirror::Why(error));
}

std::string ReadPage(const std::string& text) {
  const sys::Descriptor socket = Connect(text);
  if (send(socket.get(), kRequest.data(), kRequest.size(), MSG_NOSIGNAL) < 0) {
    FailAt(text, mirror::Why(errno));
  }
  std::string page;
  std::array<char, 4096> bytes;
  ssize_t n;
  while ((n = recv(socket.get(), bytes.data(), bytes.size(), 0)) > 0 && page.size() < kMaxPage) {
    page.append(bytes.data(), static_cast<size_t>(n));
  }
  if (n < 0) FailAt(text, mirror::Why(errno));
  const size_t body = page.find("\r\n\r\n");
  if (!page.starts_with(kGood) || body == std::string::npos) FailAt(text, "it says something else");
  return page.substr(body + 4);
}

// A server's numbers go by the names of metrics, without "nvcache_mirror_".
struct Server {
  std::string stage = "?";
  std::string incarnation;
  bool counts = false;
  std::map<std::string, double> numbers;

  std::string Number(const char* name) const {
    const auto found = numbers.find(name);
    return found == numbers.end() ? "-" : fmt::format("{:.0f}", found->second);
  }
};

struct Found {
  std::string state = "?", mode = "none yet";
  std::map<std::string, double> numbers;
  std::vector<std::pair<std::string, Server>> servers;  // in the order of the command line

  Server& Of(const std::string& address) {
    for (auto& [name, server] : servers) {
      if (name == address) return server;
    }
    return servers.emplace_back(address, Server()).second;
  }
};

void PutServer(const std::string& name, const MetricLine& line, Server* server) {
  if (name == "server_stage") {
    if (line.value != 0) server->stage = line.Label("stage");
  } else if (name == "server_incarnation") {
    server->incarnation = line.Label("incarnation");
    server->counts = line.value != 0;
  } else {
    server->numbers[name] = line.value;
  }
}

Found Read(std::string_view page) {
  constexpr std::string_view kPrefix = "nvcache_mirror_";
  Found found;
  for (const MetricLine& line : ParseMetrics(page)) {
    if (!line.name.starts_with(kPrefix)) continue;
    const std::string name = line.name.substr(kPrefix.size());
    const std::string server = line.Label("server");
    if (!server.empty()) {
      PutServer(name, line, &found.Of(server));
    } else if (name == "state" && line.value != 0) {
      found.state = line.Label("state");
    } else if (name == "mode" && line.value != 0) {
      found.mode = line.Label("mode");
    } else if (line.labels.empty()) {
      found.numbers[name] = line.value;
    }
  }
  return found;
}

std::string LagBytes(const Server& server) {
  const auto found = server.numbers.find("server_lag_bytes");
  return found == server.numbers.end() ? "-" : Size(static_cast<uint64_t>(found->second));
}

std::string LagMicroseconds(const Server& server) {
  const auto found = server.numbers.find("server_lag_seconds");
  return found == server.numbers.end() ? "-" : fmt::format("{:.0f}", found->second * 1e6);
}

void Print(Found found) {
  const auto line = [](const char* name, const std::string& value) {
    fmt::print("{:<12}{}\n", name, value);
  };
  line("state",
       fmt::format("{}; the record says {}", Printable(found.state), Printable(found.mode)));
  line("epoch", fmt::format("{:.0f}", found.numbers["epoch"]));
  line("position",
       fmt::format("{:.0f} of {:.0f}", found.numbers["position"], found.numbers["next_lsn"]));
  line("no majority",
       fmt::format("for {:.1f} s in all", found.numbers["below_quorum_seconds_total"]));
  line("sent", fmt::format("{:.0f} batches, {}", found.numbers["batches_total"],
                           Size(static_cast<uint64_t>(found.numbers["sent_bytes_total"]))));
  constexpr const char* kRow = "{:<28} {:<10} {:>6} {:<6} {:>10} {:>12} {:>7} {:>10}  {}\n";
  fmt::print("\n");
  fmt::print(kRow, "SERVER", "STATE", "EPOCH", "COUNTS", "LAG BYTES", "LAG us", "COPIES",
             "RECONNECTS", "INCARNATION");
  for (const auto& [address, server] : found.servers) {
    fmt::print(kRow, Printable(address), Printable(server.stage), server.Number("server_epoch"),
               server.counts ? "yes" : "no", LagBytes(server), LagMicroseconds(server),
               server.Number("server_copies_total"), server.Number("server_reconnects_total"),
               server.incarnation.empty() ? "-" : Printable(server.incarnation));
  }
}

int RunStatus(const StatusArguments& arguments) {
  try {
    Print(Read(ReadPage(arguments.mirror)));
  } catch (const mirror::NetError& error) {
    throw Failure{kFailed, error.what()};
  }
  FinishOutput();
  return kOk;
}

}  // namespace

void AddMirrorStatus(CLI::App& app, int* status) {
  auto arguments = std::make_shared<StatusArguments>();
  CLI::App* command = app.add_subcommand("status", "Tell how a mirror and its servers are.");
  command
      ->add_option("--mirror", arguments->mirror,
                   "ADDRESS:PORT or path that 'nvcache mirror --metrics' has")
      ->required();
  command->footer(
      "Example:\n"
      "  nvcache status --mirror /run/nvcache-mirror-db1/metrics\n");
  command->callback([arguments, status] { *status = RunStatus(*arguments); });
}

}  // namespace nvcache::tool
