// SPDX-License-Identifier: BSD-3-Clause
//
// Requests to the JSON gateway of etcd's API, v3: one after the other, at the endpoints in turn.
#ifndef NVCACHE_MIRROR_ETCD_GATEWAY_H_
#define NVCACHE_MIRROR_ETCD_GATEWAY_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "mirror/etcd/http.h"
#include "mirror/etcd/options.h"

namespace nvcache::mirror {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

// Whether a request that may have been done may be sent to another endpoint.
enum class Repeat : uint8_t { kAlways, kIfUnsent };

struct Answer {
  bool good = false;     // etcd's: `json` has its header
  bool missing = false;  // etcd says that what the request names is not there
  int64_t revision = 0;  // the store's; from 1 on
  Json json;
  std::string error;  // one line
};

// One thread uses it, but for Stop.
class Gateway {
 public:
  // `options` outlives the gateway.
  explicit Gateway(const EtcdOptions& options) : options_(options), http_(options) {}

  Answer Call(const std::string& path, const Json& request, Repeat repeat,
              Clock::time_point deadline);
  void Stop() { http_.Stop(); }

 private:
  // The outcome of one request to one endpoint.
  struct Attempt {
    Answer answer;
    bool sent = false;
    bool refused = false;  // etcd has answered, and it does not depend on the endpoint
    bool token = false;    // refused, and it may be because of the token
  };
  struct Limits {
    Clock::time_point connect;
    Clock::time_point whole;
  };
  Attempt Send(const std::string& path, const Json& request, const Limits& limits);
  Attempt Try(const std::string& path, const Json& request, const Limits& limits);
  bool Authenticate(Attempt* attempt, Clock::time_point limit);

  const EtcdOptions& options_;
  Http http_;
  size_t endpoint_ = 0;  // that is asked first
  std::string token_;
};

// A value under a key, in an answer or a part of one.
struct Value {
  std::string text;
  int64_t revision = 0;  // its last change's; from 1 on
};
// False: the answer is none to a request for this key. None in `value`: the key does not exist.
bool ReadValue(const Json& answer, std::string_view key, std::optional<Value>* value);

// etcd's whole numbers are strings; 0 for what is none, or negative.
int64_t Positive(const Json& object, const char* name);
// Safe to print, and short.
std::string Readable(std::string_view text);

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_ETCD_GATEWAY_H_
