// SPDX-License-Identifier: BSD-3-Clause
//
// One POST over HTTP/1.1, each on a connection of its own: libcurl sends a request again by itself
// when a connection that it had kept turns out to be dead, and etcd may have done it already.
#ifndef NVCACHE_MIRROR_ETCD_HTTP_H_
#define NVCACHE_MIRROR_ETCD_HTTP_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>

#include "mirror/etcd/options.h"

namespace nvcache::mirror {

inline constexpr size_t kMaxAnswer = size_t{64} << 10;  // bytes of a body

struct Request {
  std::string url;
  std::string body;
  std::string token;  // empty: none
  std::chrono::milliseconds connect;
  std::chrono::milliseconds whole;  // with `connect`
};

struct Reply {
  bool sent = false;  // false: certainly nothing of the request has left
  long status = 0;    // 0: there is no whole answer, and `error` says why
  std::string body;
  std::string error;
};

// Follows no redirection, and takes no proxy or password from the environment. One thread uses it,
// but for Stop.
class Http {
 public:
  explicit Http(const EtcdOptions& options);
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  Reply Post(const Request& request);
  // From any thread, and for good: a Post ends at once.
  void Stop();

 private:
  void Configure(void* easy, const Request& request) const;
  // The CURLcode with which it ended.
  int Run(void* easy);

  const EtcdOptions& options_;
  void* multi_;
  std::atomic<bool> stopped_ = false;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_ETCD_HTTP_H_
