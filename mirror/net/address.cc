// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/net/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "mirror/core/error.h"

namespace nvcache::mirror {

namespace {

struct Parts {
  std::string host, port;
};

bool IsPath(const std::string& text) { return text.find('/') != std::string::npos; }

Parts Split(const std::string& text) {
  const size_t colon = text.rfind(':');
  Parts parts;
  if (colon != std::string::npos) {
    parts = {text.substr(0, colon), text.substr(colon + 1)};
    std::string& host = parts.host;
    const bool quoted = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (quoted) {
      host = host.substr(1, host.size() - 2);
    } else if (host.find_first_of(":[]") != std::string::npos) {
      host.clear();
    }
  }
  const bool number = !parts.port.empty() && parts.port.size() <= 5 &&
                      parts.port.find_first_not_of("0123456789") == std::string::npos;
  if (parts.host.empty() || parts.host == "*" || !number || std::stoi(parts.port) > 65535) {
    throw NetError("address '" + text + "' is none; give HOST:PORT, as 192.0.2.1:7070 or " +
                   "[2001:db8::1]:7070");
  }
  return parts;
}

Address OfPath(const std::string& path) {
  Address address;
  sockaddr_un name = {};
  if (path.size() >= sizeof(name.sun_path)) {
    throw NetError("address '" + path + "' is too long for a UNIX socket; name a shorter one");
  }
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.data(), path.size());
  std::memcpy(&address.storage, &name, sizeof(name));
  address.length = sizeof(name);
  return address;
}

// `flags` of getaddrinfo(3). *error is its result.
std::vector<Address> LookUp(const Parts& parts, int flags, int* error) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  *error = getaddrinfo(parts.host.c_str(), parts.port.c_str(), &hints, &list);
  std::vector<Address> found;
  if (*error != 0) return found;
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
    Address address;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.length = each->ai_addrlen;
    found.push_back(address);
  }
  freeaddrinfo(list);
  return found;
}

std::string Unknown(const std::string& text, int error) {
  return "address " + text + " cannot be found: " + gai_strerror(error);
}

// The thread and the loop share this.
struct Lookup {
  sys::Descriptor done{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex;
  std::vector<Address> found;
  int error = 0;
};

}  // namespace

bool Address::IsLoopback() const {
  if (IsUnix()) return true;
  if (storage.ss_family == AF_INET) {
    const auto& name = reinterpret_cast<const sockaddr_in&>(storage);
    return ntohl(name.sin_addr.s_addr) >> 24 == 127;
  }
  const auto& name = reinterpret_cast<const sockaddr_in6&>(storage);
  return storage.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&name.sin6_addr);
}

std::string Address::Text() const {
  if (IsUnix()) {
    const char* path = reinterpret_cast<const sockaddr_un&>(storage).sun_path;
    return path[0] != '\0' ? path : "a process of this machine";
  }
  char host[NI_MAXHOST] = {}, port[NI_MAXSERV] = {};
  if (getnameinfo(get(), length, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "?";
  }
  const std::string text = host;
  return (text.find(':') != std::string::npos ? "[" + text + "]" : text) + ":" + port;
}

std::vector<Address> Resolve(const std::string& text) {
  if (IsPath(text)) return {OfPath(text)};
  int error;
  auto found = LookUp(Split(text), 0, &error);
  if (found.empty()) throw NetError(Unknown(text, error));
  return found;
}

void CheckAddress(const std::string& text) {
  if (IsPath(text)) {
    OfPath(text);
  } else {
    Split(text);
  }
}

std::string WithPort(const std::string& text, uint16_t port) {
  return port == 0 ? text : text.substr(0, text.rfind(':')) + ":" + std::to_string(port);
}

void ResolveLater(Loop* loop, const std::string& text, Resolved done) {
  try {
    int error;
    auto found = IsPath(text) ? std::vector<Address>{OfPath(text)}
                              : LookUp(Split(text), AI_NUMERICHOST, &error);
    if (!found.empty()) return loop->Later([found, done] { done(found, ""); });
    const auto lookup = std::make_shared<Lookup>();
    std::thread([lookup, parts = Split(text)] {
      int wrong;
      auto addresses = LookUp(parts, 0, &wrong);
      {
        const std::lock_guard<std::mutex> lock(lookup->mutex);
        lookup->found = std::move(addresses);
        lookup->error = wrong;
      }
      eventfd_write(lookup->done.get(), 1);
    }).detach();
    const auto watch = std::make_shared<Loop::Handle>();
    *watch = loop->Watch(lookup->done.get(), EPOLLIN, [loop, lookup, watch, done, text](uint32_t) {
      loop->Unwatch(*watch);
      const std::lock_guard<std::mutex> lock(lookup->mutex);
      done(lookup->found, lookup->found.empty() ? Unknown(text, lookup->error) : "");
    });
  } catch (const std::exception& error) {  // a NetError; no thread to be had
    loop->Later([done, why = std::string(error.what())] { done({}, why); });
  }
}

}  // namespace nvcache::mirror
