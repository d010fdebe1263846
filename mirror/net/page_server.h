// SPDX-License-Identifier: BSD-3-Clause
//
// One page for people and programs of this machine, by HTTP: metrics. Each connection is for one
// request, and takes little memory and little time, whatever it sends or does not.
//
//   reading ──whole head──▶ answering ──all is sent──▶ ending ──the other side closes──▶ gone
//      └──── patience, the other side closes, others have come since ──▶ gone (from each)
#ifndef NVCACHE_MIRROR_NET_PAGE_SERVER_H_
#define NVCACHE_MIRROR_NET_PAGE_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mirror/net/loop.h"
#include "mirror/net/socket.h"
#include "src/sys/descriptor.h"

namespace nvcache::mirror {

class PageServer {
 public:
  // The page as it is now; called for each request.
  using Page = std::function<std::string()>;
  struct Limits {
    size_t connections = 16;     // then the oldest one goes
    size_t request = 4096;       // bytes of its head
    Time patience = 5000000000;  // ns for a connection from its beginning to its end
  };

  // It answers GET `path`, which is "/metrics", say.
  PageServer(Loop* loop, std::string path, Page page);
  PageServer(Loop* loop, std::string path, Page page, Limits limits);
  ~PageServer();

  // A NetError: it cannot, or others than this machine could reach it. Its port; 0: a UNIX socket.
  uint16_t Listen(const std::string& address);
  size_t connections() const { return peers_.size(); }

 private:
  using Number = uint64_t;  // connections', in the order of their beginnings
  struct Listener {
    Listening listening;
    Loop::Handle watch;
  };
  struct Peer {
    sys::Descriptor socket;
    Loop::Handle watch, timer;
    std::string request;
    size_t received;     // bytes, all in all
    std::string answer;  // the part that is not sent yet
    bool is_answered;    // `answer` has been made
  };

  void Accept(int listener);
  void Rest(int listener);
  void Add(sys::Descriptor socket);
  void Drop(Number number);
  void OnReady(Number number);
  // False: the connection is to end.
  bool Read(Peer* peer);
  bool Send(Peer* peer);
  std::string Answer(std::string_view request) const;

  Loop& loop_;
  const std::string path_;
  const Page page_;
  const Limits limits_;
  Number last_ = 0;
  std::vector<Listener> listeners_;
  std::map<Number, Peer> peers_;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_NET_PAGE_SERVER_H_
