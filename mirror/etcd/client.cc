// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/etcd/client.h"

#include <stdexcept>
#include <utility>

#include "mirror/etcd/base64.h"
#include "mirror/etcd/gateway.h"
#include "mirror/etcd/json.h"
#include "mirror/etcd/lease.h"
#include "mirror/etcd/worker.h"

namespace nvcache::mirror {
namespace {

EtcdOptions Checked(EtcdOptions options) {
  if (std::string problem = Problem(options); !problem.empty()) {
    throw std::invalid_argument(problem);
  }
  return options;
}

// The value that this client last knew of.
struct Known {
  std::string key;
  Value value;
};

ReadAnswer ReadRecord(Gateway* gateway, const std::string& key, Clock::time_point limit,
                      Known* known) {
  const Answer answer =
      gateway->Call("/v3/kv/range", Json::object({{"key", Base64(key)}}), Repeat::kAlways, limit);
  if (!answer.good) return {.error = answer.error};
  std::optional<Value> value;
  if (!ReadValue(answer.json, key, &value)) {
    return {.error = "etcd: an answer that does not belong to the key " + key};
  }
  if (!value) return {.reached = true};
  *known = {.key = key, .value = *value};
  ReadAnswer read = {.reached = true, .revision = value->revision};
  std::string problem;
  read.record = ParseRecord(value->text, &problem);
  if (!read.record) {
    read.error = "the key " + key + " of etcd has no record that can be used: " + Readable(problem);
  }
  return read;
}

WriterAnswer ReadWriter(Gateway* gateway, const std::string& key, Clock::time_point limit) {
  const Answer answer =
      gateway->Call("/v3/kv/range", Json::object({{"key", Base64(key)}}), Repeat::kAlways, limit);
  if (!answer.good) return {.error = answer.error};
  std::optional<Value> value;
  if (!ReadValue(answer.json, key, &value)) {
    return {.error = "etcd: an answer that does not belong to the key " + key};
  }
  if (!value) return {.reached = true};
  return {.reached = true,
          .by = value->text.empty() ? "somebody without a name" : Readable(value->text)};
}

Json Change(const Known& known, const std::string& key, const std::string& text,
            Revision revision) {
  const std::string name = Base64(key);
  Json compare = Json::array();
  if (revision == 0) {
    compare.push_back(
        {{"key", name}, {"target", "CREATE"}, {"result", "EQUAL"}, {"create_revision", "0"}});
  } else {
    compare.push_back({{"key", name},
                       {"target", "MOD"},
                       {"result", "EQUAL"},
                       {"mod_revision", std::to_string(revision)}});
    if (known.key == key && known.value.revision == revision) {
      compare.push_back({{"key", name},
                         {"target", "VALUE"},
                         {"result", "EQUAL"},
                         {"value", Base64(known.value.text)}});
    }
  }
  const Json put = {{"key", name}, {"value", Base64(text)}};
  const Json look = {{"key", name}, {"keys_only", true}};
  return {{"compare", std::move(compare)},
          {"success", Json::array({{{"request_put", put}}})},
          {"failure", Json::array({{{"request_range", look}}})}};
}

WriteAnswer WriteRecord(Gateway* gateway, const std::string& key, const Record& record,
                        Revision revision, Clock::time_point limit, Known* known) {
  if (const std::string problem = Problem(record); !problem.empty()) {
    return {.error = "the record for the key " + key + " cannot be stored: " + Readable(problem)};
  }
  const std::string text = ToText(record);
  const Answer answer =
      gateway->Call("/v3/kv/txn", Change(*known, key, text, revision), Repeat::kIfUnsent, limit);
  if (!answer.good) return {.error = answer.error};
  // Only etcd says what it has done.
  const auto succeeded = answer.json.find("succeeded");
  const bool changed = succeeded != answer.json.end() && *succeeded == true;
  const auto responses = answer.json.find("responses");
  const bool whole = responses != answer.json.end() && responses->is_array() &&
                     responses->size() == 1 && responses->front().is_object();
  if (whole && changed && responses->front().contains("response_put")) {
    *known = {.key = key, .value = {.text = text, .revision = answer.revision}};
    return {.outcome = Outcome::kDone, .revision = answer.revision};
  }
  if (whole && !changed && responses->front().contains("response_range")) {
    return {.outcome = Outcome::kConflict};
  }
  return {.error = "etcd: an answer that does not belong to the transaction of the key " + key};
}

}  // namespace

// The threads end before what they use is gone.
struct EtcdClient::Parts {
  explicit Parts(EtcdOptions checked)
      : options(Checked(std::move(checked))), gateway(options), lease_gateway(options) {}
  ~Parts() {
    gateway.Stop();
    lease_gateway.Stop();
  }

  std::string Key(const std::string& name) const { return options.prefix + name; }
  Clock::time_point Limit() const { return Clock::now() + options.timeout; }

  const EtcdOptions options;
  Inbox inbox;
  Gateway gateway;
  Known known;
  Gateway lease_gateway;
  Lease lease{options, &lease_gateway};
  Worker records{[] { return std::nullopt; }};
  Worker leases{[this] {
    lease.Renew();
    return lease.due();
  }};
};

EtcdClient::EtcdClient(EtcdOptions options) : parts_(new Parts(std::move(options))) {}
EtcdClient::~EtcdClient() = default;

int EtcdClient::fd() const { return parts_->inbox.fd(); }
void EtcdClient::Dispatch() { parts_->inbox.Dispatch(); }

void EtcdClient::Read(const std::string& name, std::function<void(const ReadAnswer&)> done) {
  Parts& parts = *parts_;
  parts.records.Do([&parts, key = parts.Key(name), done = std::move(done)] {
    ReadAnswer answer = ReadRecord(&parts.gateway, key, parts.Limit(), &parts.known);
    parts.inbox.Add([done, answer = std::move(answer)] { done(answer); });
  });
}

void EtcdClient::Write(const std::string& name, const Record& record, Revision revision,
                       std::function<void(const WriteAnswer&)> done) {
  Parts& parts = *parts_;
  parts.records.Do([&parts, key = parts.Key(name), record, revision, done = std::move(done)] {
    WriteAnswer answer =
        WriteRecord(&parts.gateway, key, record, revision, parts.Limit(), &parts.known);
    parts.inbox.Add([done, answer = std::move(answer)] { done(answer); });
  });
}

void EtcdClient::Hold(const std::string& name, const std::string& text, std::chrono::seconds ttl,
                      std::function<void(const HoldAnswer&)> done,
                      std::function<void(const std::string&)> lost) {
  Parts& parts = *parts_;
  const auto when_lost = [&parts, lost = std::move(lost)](const std::string& why) {
    parts.inbox.Add([lost, why] { lost(why); });
  };
  parts.leases.Do(
      [&parts, key = parts.Key(name) + "/writer", text, ttl, done = std::move(done), when_lost] {
        HoldAnswer answer = parts.lease.Hold(key, text, ttl, when_lost);
        parts.inbox.Add([done, answer = std::move(answer)] { done(answer); });
      });
}

void EtcdClient::FindWriter(const std::string& name,
                            std::function<void(const WriterAnswer&)> done) {
  Parts& parts = *parts_;
  parts.records.Do([&parts, key = parts.Key(name) + "/writer", done = std::move(done)] {
    WriterAnswer answer = ReadWriter(&parts.gateway, key, parts.Limit());
    parts.inbox.Add([done, answer = std::move(answer)] { done(answer); });
  });
}

void EtcdClient::Release(std::function<void(const std::string&)> done) {
  Parts& parts = *parts_;
  parts.leases.Do([&parts, done = std::move(done)] {
    std::string error;
    parts.lease.Release(&error);
    parts.inbox.Add([done, error = std::move(error)] { done(error); });
  });
}

}  // namespace nvcache::mirror
