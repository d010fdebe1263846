// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/net/page_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "mirror/core/error.h"

namespace nvcache::mirror {

namespace {

constexpr int kAcceptedPeers = 32;     // in one turn
constexpr Time kRest = 100000000;      // ns without connections, when the process can have no more
constexpr size_t kThrownAway = 65536;  // bytes behind a request

bool IsLater(ssize_t n) { return n < 0 && (errno == EAGAIN || errno == EINTR); }

// Where its head ends, or npos.
size_t EndOf(std::string_view request) {
  return std::min(request.find("\r\n\r\n"), request.find("\n\n"));
}

// The next word of a line, and the blank behind it, are taken from it.
std::string_view Word(std::string_view* line) {
  const std::string_view word = line->substr(0, line->find(' '));
  line->remove_prefix(std::min(word.size() + 1, line->size()));
  return word;
}

std::string Response(const char* status, const std::string& body) {
  return std::string("HTTP/1.1 ") + status +
         "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body;
}

std::string Excuse(const char* status) { return Response(status, std::string(status) + "\n"); }

}  // namespace

PageServer::PageServer(Loop* loop, std::string path, Page page)
    : PageServer(loop, std::move(path), std::move(page), Limits()) {}

PageServer::PageServer(Loop* loop, std::string path, Page page, Limits limits)
    : loop_(*loop), path_(std::move(path)), page_(std::move(page)), limits_(limits) {}

PageServer::~PageServer() {
  for (const Listener& listener : listeners_) {
    loop_.Unwatch(listener.watch);
    const std::string& path = listener.listening.path;
    if (!path.empty()) unlink(path.c_str());
  }
  while (!peers_.empty()) Drop(peers_.begin()->first);
}

uint16_t PageServer::Listen(const std::string& text) {
  uint16_t port = 0;
  for (const Address& address : Resolve(text)) {
    if (!address.IsLoopback()) {
      throw NetError("address " + text + " can be reached by other machines; give one of this " +
                     "machine, as 127.0.0.1:9100, or a path");
    }
    Listening listening = ListenAt(address);
    const int fd = listening.socket.get();
    if (listening.port != 0) port = listening.port;
    const Loop::Handle watch = loop_.Watch(fd, EPOLLIN, [this, fd](uint32_t) { Accept(fd); });
    listeners_.push_back({std::move(listening), watch});
  }
  return port;
}

void PageServer::Accept(int listener) {
  for (int i = 0; i < kAcceptedPeers; ++i) {
    sys::Descriptor socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.IsOpen()) {
      Add(std::move(socket));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return Rest(listener);
    } else if (errno != ECONNABORTED && errno != EINTR) {
      return;
    }
  }
}

// Those that wait in the kernel would be told of without end.
void PageServer::Rest(int listener) {
  const auto found = std::find_if(
      listeners_.begin(), listeners_.end(),
      [listener](const Listener& each) { return each.listening.socket.get() == listener; });
  loop_.Change(found->watch, 0);
  loop_.After(kRest, [loop = &loop_, watch = found->watch] { loop->Change(watch, EPOLLIN); });
}

void PageServer::Add(sys::Descriptor socket) {
  if (peers_.size() >= limits_.connections) Drop(peers_.begin()->first);
  const Number number = ++last_;
  const Loop::Handle watch =
      loop_.Watch(socket.get(), EPOLLIN, [this, number](uint32_t) { OnReady(number); });
  const Loop::Handle timer = loop_.After(limits_.patience, [this, number] { Drop(number); });
  peers_.emplace(number, Peer{std::move(socket), watch, timer, "", 0, "", false});
}

void PageServer::Drop(Number number) {
  const auto found = peers_.find(number);
  if (found == peers_.end()) return;
  loop_.Unwatch(found->second.watch);
  loop_.Cancel(found->second.timer);
  peers_.erase(found);
}

void PageServer::OnReady(Number number) {
  const auto found = peers_.find(number);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  if (!Read(&peer) || !Send(&peer)) Drop(number);
}

// Bytes that come after the request are thrown away: a socket that is closed with bytes that were
// not read would take back what was sent.
bool PageServer::Read(Peer* peer) {
  std::array<char, 1024> bytes;
  const ssize_t n = recv(peer->socket.get(), bytes.data(), bytes.size(), 0);
  if (IsLater(n)) return true;
  if (n <= 0) return false;
  peer->received += static_cast<size_t>(n);
  if (peer->is_answered) return peer->received <= limits_.request + kThrownAway;
  peer->request.append(bytes.data(), static_cast<size_t>(n));
  const size_t end = EndOf(peer->request);
  if (std::min(end, peer->request.size()) > limits_.request) {
    peer->answer = Excuse("431 Request Header Fields Too Large");
  } else if (end != std::string::npos) {
    peer->answer = Answer(peer->request);
  } else {
    return true;
  }
  peer->request.clear();
  peer->is_answered = true;
  return true;
}

bool PageServer::Send(Peer* peer) {
  if (peer->answer.empty()) return true;
  const ssize_t n =
      send(peer->socket.get(), peer->answer.data(), peer->answer.size(), MSG_NOSIGNAL);
  if (n < 0 && !IsLater(n)) return false;
  peer->answer.erase(0, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  if (!peer->answer.empty()) {
    loop_.Change(peer->watch, EPOLLIN | EPOLLOUT);
  } else {
    loop_.Change(peer->watch, EPOLLIN);
    shutdown(peer->socket.get(), SHUT_WR);
  }
  return true;
}

std::string PageServer::Answer(std::string_view request) const {
  std::string_view line = request.substr(0, request.find_first_of("\r\n"));
  const std::string_view method = Word(&line), target = Word(&line), version = Word(&line);
  if (target.empty() || !line.empty() || version.substr(0, 7) != "HTTP/1.") {
    return Excuse("400 Bad Request");
  }
  if (method != "GET") return Excuse("405 Method Not Allowed");
  if (target.substr(0, target.find('?')) != path_) return Excuse("404 Not Found");
  return Response("200 OK", page_());
}

}  // namespace nvcache::mirror
