// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/etcd/gateway.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "mirror/etcd/base64.h"

namespace nvcache::mirror {
namespace {

using std::chrono::milliseconds;

// gRPC's.
constexpr int kInvalidArgument = 3;
constexpr int kNotFound = 5;
constexpr int kUnauthenticated = 16;

constexpr long kOk = 200;

bool IsVisible(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

bool IsEndpoint(std::string_view url) {
  const size_t scheme = url.starts_with("http://")    ? 7
                        : url.starts_with("https://") ? 8
                                                      : std::string_view::npos;
  if (scheme == std::string_view::npos) return false;
  url.remove_prefix(scheme);
  return IsVisible(url) && url.find_first_of("/?#@\\") == std::string_view::npos;
}

// It becomes a part of a line of the request.
bool IsToken(std::string_view text) { return IsVisible(text) && text.size() <= 4096; }

// At least 1 ms: for libcurl, 0 is no limit.
milliseconds Until(Clock::time_point limit) {
  return std::max(std::chrono::duration_cast<milliseconds>(limit - Clock::now()), milliseconds{1});
}

// The code of an error; 0 when it has none.
int CodeOf(const Json& json) {
  const auto found = json.find("code");
  return found != json.end() && found->is_number_integer() ? found->get<int>() : 0;
}

// The message of an error. A stream's error is an object.
std::string MessageOf(const Json& json) {
  const auto error = json.find("error");
  const Json& inner = error != json.end() && error->is_object() ? *error : json;
  for (const char* name : {"message", "error"}) {
    const auto found = inner.find(name);
    if (found != inner.end() && found->is_string()) {
      return Readable(found->get_ref<const std::string&>());
    }
  }
  return "";
}

}  // namespace

std::string Problem(const EtcdOptions& options) {
  if (options.endpoints.empty()) return "no endpoint of etcd is given: give http://HOST:PORT";
  for (const std::string& endpoint : options.endpoints) {
    if (!IsEndpoint(endpoint)) {
      return Readable(endpoint) + " is no endpoint of etcd: give http://HOST:PORT, or https";
    }
  }
  if (!IsVisible(options.prefix) || !options.prefix.ends_with('/')) {
    return "the prefix of etcd's keys, " + Readable(options.prefix) +
           ", does not end with '/', or has characters other than visible ASCII";
  }
  if (options.timeout < milliseconds{1} || options.timeout > std::chrono::hours{1}) {
    return "the timeout for etcd is not from 1 ms to 1 hour";
  }
  if (options.certificate.empty() != options.key.empty()) {
    return "of the certificate for etcd and its key, one is given without the other: give both";
  }
  return "";
}

std::string Readable(std::string_view text) {
  constexpr size_t kLongest = 200;  // bytes
  std::string readable(text.substr(0, kLongest));
  std::replace_if(
      readable.begin(), readable.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.size() > kLongest ? readable + "..." : readable;
}

int64_t Positive(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return 0;
  const auto& text = found->get_ref<const std::string&>();
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::max<int64_t>(number, 0)
                                                                  : 0;
}

bool ReadValue(const Json& answer, std::string_view key, std::optional<Value>* value) {
  value->reset();
  if (!answer.is_object()) return false;
  const auto list = answer.find("kvs");
  if (list == answer.end()) return Positive(answer, "count") == 0;
  if (!list->is_array() || list->size() != 1 || !list->front().is_object()) return false;
  const Json& found = list->front();
  const auto name = found.find("key");
  if (name == found.end() || *name != Base64(key)) return false;
  Value read;
  read.revision = Positive(found, "mod_revision");
  // An empty value is left out.
  if (const auto text = found.find("value"); text != found.end()) {
    if (!text->is_string()) return false;
    std::optional<std::string> bytes = FromBase64(text->get_ref<const std::string&>());
    if (!bytes) return false;
    read.text = *std::move(bytes);
  }
  if (read.revision == 0) return false;
  *value = std::move(read);
  return true;
}

Gateway::Attempt Gateway::Send(const std::string& path, const Json& request, const Limits& limits) {
  const std::string& endpoint = options_.endpoints[endpoint_];
  Reply reply = http_.Post({.url = endpoint + path,
                            .body = request.dump(-1, ' ', false, Json::error_handler_t::replace),
                            .token = token_,
                            .connect = Until(limits.connect),
                            .whole = Until(limits.whole)});
  Attempt attempt;
  attempt.sent = reply.sent;
  const std::string where = "etcd at " + endpoint + ": ";
  if (reply.status == 0) {
    attempt.answer.error = where + Readable(reply.error);
    return attempt;
  }
  Json json = Json::parse(reply.body, nullptr, false);
  if (!json.is_object()) {
    attempt.answer.error = where + "an answer that is none of etcd's, with the HTTP status " +
                           std::to_string(reply.status);
    return attempt;
  }
  // The answer is a stream, as that of a keepalive is.
  if (const auto result = json.find("result"); result != json.end() && result->is_object()) {
    // Not a copy, which would take a frame of the stack for each level.
    Json inner = std::move(*result);
    json = std::move(inner);
  }
  const auto header = json.find("header");
  const bool headed = header != json.end() && header->is_object() && header->contains("cluster_id");
  const int64_t revision = headed ? Positive(*header, "revision") : 0;
  if (reply.status == kOk && revision != 0) {
    attempt.answer.good = true;
    attempt.answer.revision = revision;
    attempt.answer.json = std::move(json);
    return attempt;
  }
  const std::string said = MessageOf(json);
  attempt.answer.error =
      where + (said.empty() ? "an answer that is none of etcd's" : said) +
      (reply.status == kOk ? "" : ", with the HTTP status " + std::to_string(reply.status));
  const int code = CodeOf(json);
  attempt.refused = reply.status >= 400 && reply.status < 500 && code != 0;
  attempt.token = attempt.refused && (code == kUnauthenticated || code == kInvalidArgument);
  attempt.answer.missing = attempt.refused && code == kNotFound;
  return attempt;
}

// False: `attempt` is what there is to say.
bool Gateway::Authenticate(Attempt* attempt, Clock::time_point limit) {
  token_.clear();
  Attempt found =
      Send("/v3/auth/authenticate", {{"name", options_.user}, {"password", options_.password}},
           {.connect = limit, .whole = limit});
  const auto token =
      found.answer.json.is_object() ? found.answer.json.find("token") : found.answer.json.end();
  if (found.answer.good && token != found.answer.json.end() && token->is_string()) {
    const auto& text = token->get_ref<const std::string&>();
    if (IsToken(text)) {
      token_ = text;
      return true;
    }
  }
  if (found.answer.good) {
    found.answer.good = false;
    found.answer.error =
        "etcd at " + options_.endpoints[endpoint_] + ": no token for the user " + options_.user;
  }
  // The request that was to follow was not sent.
  found.sent = false;
  *attempt = std::move(found);
  return false;
}

// With a token, if there is a user. A token lives for minutes.
Gateway::Attempt Gateway::Try(const std::string& path, const Json& request, const Limits& limits) {
  Attempt attempt;
  const bool fresh = token_.empty();
  if (!options_.user.empty() && fresh && !Authenticate(&attempt, limits.connect)) return attempt;
  attempt = Send(path, request, limits);
  if (options_.user.empty() || fresh || !attempt.token) return attempt;
  if (!Authenticate(&attempt, limits.connect)) return attempt;
  return Send(path, request, limits);
}

Answer Gateway::Call(const std::string& path, const Json& request, Repeat repeat,
                     Clock::time_point deadline) {
  Attempt attempt;
  attempt.answer.error = "etcd: no time was left for a request";
  for (size_t left = options_.endpoints.size(); left > 0; --left) {
    const Clock::time_point now = Clock::now();
    if (now >= deadline) break;
    const Clock::time_point share = now + (deadline - now) / static_cast<int>(left);
    attempt = Try(path, request,
                  {.connect = share, .whole = repeat == Repeat::kAlways ? share : deadline});
    if (attempt.answer.good || attempt.refused) break;
    endpoint_ = (endpoint_ + 1) % options_.endpoints.size();
    if (attempt.sent && repeat == Repeat::kIfUnsent) break;
  }
  return std::move(attempt.answer);
}

}  // namespace nvcache::mirror
