// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/etcd/lease.h"

#include <algorithm>
#include <utility>

#include "mirror/etcd/base64.h"

namespace nvcache::mirror {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Puts the key with the lease if it does not exist; else answers with it.
Json Claim(const std::string& key, const std::string& text, int64_t lease) {
  const std::string name = Base64(key);
  const Json compare = {
      {"key", name}, {"target", "CREATE"}, {"result", "EQUAL"}, {"create_revision", "0"}};
  const Json put = {{"key", name}, {"value", Base64(text)}, {"lease", std::to_string(lease)}};
  return {{"compare", Json::array({compare})},
          {"success", Json::array({{{"request_put", put}}})},
          {"failure", Json::array({{{"request_range", {{"key", name}}}}})}};
}

// None: the answer is none to Claim.
std::optional<HoldAnswer> ClaimAnswer(const Json& json, const std::string& key) {
  const auto responses = json.find("responses");
  if (responses == json.end() || !responses->is_array() || responses->size() != 1 ||
      !responses->front().is_object()) {
    return std::nullopt;
  }
  const Json& response = responses->front();
  if (const auto succeeded = json.find("succeeded");
      succeeded != json.end() && *succeeded == true) {
    if (!response.contains("response_put")) return std::nullopt;
    return HoldAnswer{.held = true};
  }
  const auto range = response.find("response_range");
  std::optional<Value> value;
  if (range == response.end() || !ReadValue(*range, key, &value) || !value) return std::nullopt;
  return HoldAnswer{.by = value->text.empty() ? "somebody without a name" : Readable(value->text)};
}

}  // namespace

HoldAnswer Lease::Hold(const std::string& key, const std::string& text, seconds ttl, Lost lost) {
  if (id_ != 0) return {.error = "this process holds a lease already"};
  const Clock::time_point granted = Clock::now();
  Answer answer =
      gateway_.Call("/v3/lease/grant", {{"TTL", std::to_string(ttl.count())}, {"ID", "0"}},
                    Repeat::kAlways, Limit());
  if (!answer.good) return {.error = answer.error};
  const int64_t id = Positive(answer.json, "ID");
  const int64_t time = Positive(answer.json, "TTL");
  if (id == 0 || time == 0) {
    return {.error = "etcd: a lease without an id or a time"};
  }
  answer = gateway_.Call("/v3/kv/txn", Claim(key, text, id), Repeat::kIfUnsent, Limit());
  std::optional<HoldAnswer> found;
  if (answer.good) {
    found = ClaimAnswer(answer.json, key);
    if (!found) answer.error = "etcd: an answer that does not belong to the transaction";
  }
  if (!found || !found->held) {
    // The key goes with it, should it be there.
    std::string ignored;
    Revoke(id, &ignored);
    return found ? *found : HoldAnswer{.error = answer.error};
  }
  id_ = id;
  ttl_ = seconds{std::min<int64_t>(time, 86400)};
  renewed_ = granted;
  due_ = granted + milliseconds(ttl_) / 3;
  lost_ = std::move(lost);
  return *found;
}

bool Lease::Revoke(int64_t id, std::string* error) {
  const Answer answer = gateway_.Call(
      "/v3/lease/revoke", Json::object({{"ID", std::to_string(id)}}), Repeat::kAlways, Limit());
  *error = answer.good || answer.missing ? "" : answer.error;
  return error->empty();
}

bool Lease::Release(std::string* error) {
  const int64_t id = std::exchange(id_, 0);
  lost_ = nullptr;
  if (id != 0) return Revoke(id, error);
  error->clear();
  return true;
}

std::optional<Clock::time_point> Lease::due() const {
  return id_ != 0 ? std::optional(due_) : std::nullopt;
}

void Lease::Lose(const std::string& why) {
  id_ = 0;
  if (const Lost lost = std::exchange(lost_, nullptr)) lost(why);
}

void Lease::Renew() {
  const Clock::time_point now = Clock::now();
  if (id_ == 0 || now < due_) return;
  const Clock::time_point end = renewed_ + ttl_;
  if (now >= end) return Lose("it was not renewed in time");
  const Answer answer =
      gateway_.Call("/v3/lease/keepalive", Json::object({{"ID", std::to_string(id_)}}),
                    Repeat::kAlways, std::min(end, Limit()));
  if (answer.good) {
    // The time of a lease that is gone is 0, which is left out.
    if (Positive(answer.json, "TTL") == 0) return Lose("it has expired, or was revoked");
    renewed_ = now;
    due_ = now + milliseconds(ttl_) / 3;
    return;
  }
  if (answer.missing) return Lose("it has expired, or was revoked");
  if (Clock::now() >= end) return Lose(answer.error);
  due_ = std::min(end, Clock::now() + std::min(milliseconds(ttl_) / 12, milliseconds{1000}));
}

}  // namespace nvcache::mirror
