// SPDX-License-Identifier: BSD-3-Clause
//
// The writer's key: it exists for as long as the process that made it keeps a lease of etcd's
// alive. For people, and against two mirrors that take the epoch from each other in turn. What a
// server obeys is the epoch alone.
#ifndef NVCACHE_MIRROR_ETCD_LEASE_H_
#define NVCACHE_MIRROR_ETCD_LEASE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "mirror/etcd/answers.h"
#include "mirror/etcd/gateway.h"
#include "mirror/etcd/options.h"

namespace nvcache::mirror {

// One thread uses it.
class Lease {
 public:
  using Lost = std::function<void(const std::string& why)>;

  // `options` and `gateway` outlive the lease.
  Lease(const EtcdOptions& options, Gateway* gateway) : options_(options), gateway_(*gateway) {}

  // With `lost` called at most once, from Renew, if it is held.
  HoldAnswer Hold(const std::string& key, const std::string& text, std::chrono::seconds ttl,
                  Lost lost);
  // False: etcd has not confirmed it. The key goes when its time is over.
  bool Release(std::string* error);
  // Does what is due.
  void Renew();
  // None: nothing will be due.
  std::optional<Clock::time_point> due() const;

 private:
  bool Revoke(int64_t id, std::string* error);
  void Lose(const std::string& why);
  Clock::time_point Limit() const { return Clock::now() + options_.timeout; }

  const EtcdOptions& options_;
  Gateway& gateway_;
  int64_t id_ = 0;  // 0: nothing is held
  Lost lost_;
  std::chrono::seconds ttl_{0};  // etcd has granted so much
  Clock::time_point renewed_;    // the last request to renew it that was answered, when it was sent
  Clock::time_point due_;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_ETCD_LEASE_H_
