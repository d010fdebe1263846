// SPDX-License-Identifier: BSD-3-Clause
//
// Where etcd is, and how it is spoken to.
#ifndef NVCACHE_MIRROR_ETCD_OPTIONS_H_
#define NVCACHE_MIRROR_ETCD_OPTIONS_H_

#include <chrono>
#include <string>
#include <vector>

namespace nvcache::mirror {

struct EtcdOptions {
  std::vector<std::string> endpoints;  // http://HOST:PORT or https://HOST:PORT; tried in turn
  std::string prefix = "/nvcache/mirror/";
  // Files in PEM. Without `ca` the system's authorities count.
  std::string ca;
  std::string certificate;
  std::string key;
  std::string user;  // empty: no authentication
  std::string password;
  std::chrono::milliseconds timeout{5000};  // for one request, at all endpoints together
};

// Empty if the options can be used; else one line that says what is wrong, and what to do.
std::string Problem(const EtcdOptions& options);

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_ETCD_OPTIONS_H_
