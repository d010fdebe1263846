// SPDX-License-Identifier: BSD-3-Clause
//
// The records of mirror names in etcd, for one thread with a loop of its own, which nothing here
// holds up.
//
// Requests are made in two threads, one for records and one for the lease. libcurl's interface for
// loops would need none; but a handshake, an answer's JSON and whatever libcurl does with a
// resolver of names that hangs would take the loop's time, and an attempt at each endpoint, a new
// token and the turns of a lease would have to be cut into steps that wait for events. Here each is
// one function, and the loop has one descriptor to watch.
#ifndef NVCACHE_MIRROR_ETCD_CLIENT_H_
#define NVCACHE_MIRROR_ETCD_CLIENT_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "mirror/core/record.h"
#include "mirror/etcd/answers.h"
#include "mirror/etcd/options.h"

namespace nvcache::mirror {

class EtcdClient {
 public:
  // `options` has no Problem, or the constructor throws std::invalid_argument with it.
  explicit EtcdClient(EtcdOptions options);
  // Answers that are outstanding never come. A request may be done all the same. The lease stays
  // until its time is over.
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  // The loop calls Dispatch when fd() is readable, and only Dispatch calls callbacks: each exactly
  // once, but for `lost`. They may ask for more, and may not destroy the client.
  int fd() const;
  void Dispatch();

  // `name` is a mirror name (IsName) everywhere. Answered after at most the timeout, and those of
  // the requests before it; for a lease, three times the timeout. The caller bounds how many
  // requests wait.

  // The answer has what was acknowledged before the request.
  void Read(const std::string& name, std::function<void(const ReadAnswer&)> done);

  // Stores the record if the key still has this revision (0: does not exist). If it is the one that
  // this client has read or written last, the value has to be the same as well: an etcd that was
  // restored from an older copy counts revisions again.
  //
  // After kUnknown the record may be stored at any later time, unless the revision has changed: a
  // kConflict that follows may be due to the earlier attempt, and a Read tells.
  void Write(const std::string& name, const Record& record, Revision revision,
             std::function<void(const WriteAnswer&)> done);

  // Makes the key NAME/writer with `text`, unless it exists, and keeps it for as long as etcd can
  // be reached. `lost`, at most once: the key is gone, or may be. One lease at a time.
  void Hold(const std::string& name, const std::string& text, std::chrono::seconds ttl,
            std::function<void(const HoldAnswer&)> done,
            std::function<void(const std::string& why)> lost);

  // Asks who holds that key.
  void FindWriter(const std::string& name, std::function<void(const WriterAnswer&)> done);

  // `lost` may be called until `done` is. An error: the key goes after its time.
  void Release(std::function<void(const std::string& error)> done);

 private:
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_ETCD_CLIENT_H_
