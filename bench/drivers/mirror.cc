// SPDX-License-Identifier: BSD-3-Clause
//
// For suites/mirror.py. Times are printed in ns, one a line.
//
//   nvcache_mirror_bench write --file F --count N --size S
//                                     pwrite and fdatasync, one behind the other
//   nvcache_mirror_bench trips --port A --port B --port C --count N --size S
//                                     S bytes to each at once; until two have answered with 16
//   nvcache_mirror_bench echo --listen P --size S
//                                     answers each S bytes with 16
//   nvcache_mirror_bench relay --listen P --port T --delay NS
//                                     each byte, so much later, both ways
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace nvcache::bench {
namespace {

constexpr size_t kAnswer = 16;
constexpr size_t kNeeded = 2;

struct Options {
  std::string file;
  std::vector<uint16_t> ports;
  uint16_t listen = 0;
  int64_t count = 1000;
  size_t size = 512;
  int64_t delay = 0;
};

int64_t Now() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

int Check(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

sockaddr_in Address(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int Socket() {
  const int fd = Check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  const int on = 1;
  Check(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), "TCP_NODELAY");
  return fd;
}

int Connect(uint16_t port) {
  const int fd = Socket();
  const sockaddr_in address = Address(port);
  Check(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), "connect");
  return fd;
}

// Each connection in a thread of its own.
template <typename Serve>
[[noreturn]] void Listen(uint16_t port, Serve serve) {
  const int fd = Socket();
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const sockaddr_in address = Address(port);
  Check(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), "bind");
  Check(listen(fd, 16), "listen");
  for (;;) {
    const int connection = Check(accept4(fd, nullptr, nullptr, SOCK_CLOEXEC), "accept");
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    std::thread([=] {
      serve(connection);
      close(connection);
    }).detach();
  }
}

bool SendAll(int fd, const char* bytes, size_t size) {
  for (size_t sent = 0; sent < size;) {
    const ssize_t n = send(fd, bytes + sent, size - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

void Write(const Options& options) {
  const int fd = Check(open(options.file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600), "open");
  const std::string bytes(options.size, 'x');
  std::vector<int64_t> times;
  for (int64_t i = 0; i < options.count; ++i) {
    const int64_t begin = Now();
    if (pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(i) * 512) !=
        static_cast<ssize_t>(bytes.size())) {
      throw std::runtime_error("pwrite");
    }
    Check(fdatasync(fd), "fdatasync");
    times.push_back(Now() - begin);
  }
  for (const int64_t time : times) std::printf("%lld\n", static_cast<long long>(time));
}

void Trips(const Options& options) {
  std::vector<pollfd> servers;
  for (const uint16_t port : options.ports) servers.push_back({Connect(port), POLLIN, 0});
  const std::string bytes(options.size, 'x');
  std::vector<size_t> owed(servers.size());  // bytes of answers
  std::vector<int64_t> times;
  for (int64_t i = 0; i < options.count; ++i) {
    const int64_t begin = Now();
    for (size_t s = 0; s < servers.size(); ++s) {
      if (!SendAll(servers[s].fd, bytes.data(), bytes.size())) throw std::runtime_error("send");
      owed[s] += kAnswer;
    }
    const auto behind = [&] {
      return static_cast<size_t>(std::ranges::count_if(owed, [](size_t n) { return n > 0; }));
    };
    while (servers.size() - behind() < std::min(kNeeded, servers.size())) {
      Check(poll(servers.data(), servers.size(), -1), "poll");
      for (size_t s = 0; s < servers.size(); ++s) {
        std::array<char, 4096> answer;
        if ((servers[s].revents & POLLIN) == 0) continue;
        const ssize_t n = recv(servers[s].fd, answer.data(), answer.size(), 0);
        if (n <= 0) throw std::runtime_error("a server has gone");
        owed[s] -= static_cast<size_t>(n);
      }
    }
    times.push_back(Now() - begin);
  }
  for (const int64_t time : times) std::printf("%lld\n", static_cast<long long>(time));
}

void Echo(int fd, size_t size) {
  std::string bytes(1 << 16, '\0');
  const std::array<char, kAnswer> answer = {};
  for (size_t got = 0;;) {
    const ssize_t n = recv(fd, bytes.data(), bytes.size(), 0);
    if (n <= 0) return;
    for (got += static_cast<size_t>(n); got >= size; got -= size) {
      if (!SendAll(fd, answer.data(), answer.size())) return;
    }
  }
}

// One way: a thread sleeps until the bytes are due. The kernel may not let it sleep longer.
void Forward(int from, int to, int64_t delay) {
  prctl(PR_SET_TIMERSLACK, 1);
  struct Late {
    int64_t due;
    std::string bytes;
  };
  std::deque<Late> late;
  std::string buffer(1 << 16, '\0');
  for (bool open = true; open || !late.empty();) {
    const int64_t wait = late.empty() ? -1 : std::max<int64_t>(late.front().due - Now(), 0);
    pollfd ready = {from, static_cast<short>(open ? POLLIN : 0), 0};
    const timespec timeout = {wait / 1000000000, wait % 1000000000};
    const int n = ppoll(&ready, open ? 1 : 0, wait < 0 ? nullptr : &timeout, nullptr);
    if (n > 0) {
      const ssize_t got = recv(from, buffer.data(), buffer.size(), 0);
      open = got > 0;
      if (open) late.push_back({Now() + delay, buffer.substr(0, static_cast<size_t>(got))});
    }
    while (!late.empty() && late.front().due <= Now()) {
      if (!SendAll(to, late.front().bytes.data(), late.front().bytes.size())) return;
      late.pop_front();
    }
  }
  shutdown(to, SHUT_WR);
}

void Relay(int fd, const Options& options) {
  const int target = Connect(options.ports.at(0));
  std::thread back([=] { Forward(target, fd, options.delay); });
  Forward(fd, target, options.delay);
  shutdown(target, SHUT_RDWR);
  back.join();
  close(target);
}

int Run(int argc, char** argv) {
  CLI::App app("Measures a mirrored log");
  Options options;
  app.require_subcommand(1);
  CLI::App* const write = app.add_subcommand("write");
  write->add_option("--file", options.file)->required();
  CLI::App* const trips = app.add_subcommand("trips");
  CLI::App* const echo = app.add_subcommand("echo");
  CLI::App* const relay = app.add_subcommand("relay");
  for (CLI::App* each : {write, trips, echo}) each->add_option("--size", options.size);
  for (CLI::App* each : {write, trips}) each->add_option("--count", options.count);
  for (CLI::App* each : {trips, relay}) each->add_option("--port", options.ports)->required();
  for (CLI::App* each : {echo, relay}) each->add_option("--listen", options.listen)->required();
  relay->add_option("--delay", options.delay);
  CLI11_PARSE(app, argc, argv);
  if (*write) Write(options);
  if (*trips) Trips(options);
  if (*echo) Listen(options.listen, [&](int fd) { Echo(fd, options.size); });
  if (*relay) Listen(options.listen, [&](int fd) { Relay(fd, options); });
  return 0;
}

}  // namespace
}  // namespace nvcache::bench

int main(int argc, char** argv) {
  try {
    return nvcache::bench::Run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nvcache_mirror_bench: %s\n", error.what());
    return 1;
  }
}
