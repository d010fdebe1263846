// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/store/keeper.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace nvcache::mirror {

namespace {

constexpr int kFirstKept = 3;

std::string Variable(const char* name) {
  const char* value = getenv(name);
  return value != nullptr ? value : "";
}

bool Send(const std::string& state, int fd) {
  const std::string path = Variable("NOTIFY_SOCKET");
  sockaddr_un address = {};
  if (path.empty() || path.size() >= sizeof(address.sun_path)) return false;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (path[0] == '@') address.sun_path[0] = '\0';

  iovec bytes = {const_cast<char*>(state.data()), state.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_name = &address;
  message.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  }
  const sys::Descriptor socket_file(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return socket_file.IsOpen() &&
         sendmsg(socket_file.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(state.size());
}

}  // namespace

std::vector<std::pair<std::string, sys::Descriptor>> TakeKept() {
  std::vector<std::pair<std::string, sys::Descriptor>> kept;
  if (Variable("LISTEN_PID") == std::to_string(getpid())) {
    const int count = std::max(0, atoi(Variable("LISTEN_FDS").c_str()));
    std::istringstream names(Variable("LISTEN_FDNAMES"));
    for (int fd = kFirstKept; fd < kFirstKept + count; ++fd) {
      std::string name;
      std::getline(names, name, ':');
      fcntl(fd, F_SETFD, FD_CLOEXEC);
      kept.emplace_back(name, sys::Descriptor(fd));
    }
  }
  for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) unsetenv(name);
  return kept;
}

bool HasKeeper() { return !Variable("NOTIFY_SOCKET").empty(); }

bool Notify(const std::string& state) { return Send(state, -1); }

bool Keep(const std::string& name, int fd) {
  return Send("FDSTORE=1\nFDPOLL=0\nFDNAME=" + name, fd);
}

}  // namespace nvcache::mirror
