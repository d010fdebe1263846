// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/etcd/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace nvcache::mirror {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kLayout = 1;
constexpr const char* kReal = "real";
constexpr const char* kMirrored = "mirrored";
constexpr const char* kRecovering = "recovering";

const char* TextOf(Mode mode) {
  if (mode == Mode::kReal) return kReal;
  return mode == Mode::kMirrored ? kMirrored : kRecovering;
}

// Ends the parsing: one line.
struct Wrong {
  std::string text;
};

// The letters, digits and signs of names, IPv4 and bracketed IPv6 addresses, and a port.
bool IsAddress(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || address.size() > kMaxAddress) return false;
  const std::string_view port = address.substr(colon + 1);
  if (port.empty() || port.size() > 5 || port[0] == '0' ||
      port.find_first_not_of("0123456789") != std::string_view::npos ||
      std::stoi(std::string(port)) > 65535) {
    return false;
  }
  return std::all_of(address.begin(), address.end(), [](char c) { return c > ' ' && c <= '~'; });
}

std::string HoldersProblem(const std::vector<Holder>& holders) {
  if (holders.empty()) return "it has no holder";
  if (holders.size() > kMaxHolders) {
    return "it has " + std::to_string(holders.size()) + " holders, and there are at most " +
           std::to_string(kMaxHolders);
  }
  if (holders.size() % 2 == 0) {
    return "it has " + std::to_string(holders.size()) + " holders, and the number has to be odd";
  }
  std::set<std::string_view> addresses;
  std::set<Id> incarnations;
  for (size_t i = 0; i < holders.size(); ++i) {
    const Holder& holder = holders[i];
    if (!IsAddress(holder.address)) {
      return "the address of holder " + std::to_string(i) + " is not HOST:PORT";
    }
    if (!addresses.insert(holder.address).second) {
      return "two holders have the address " + holder.address;
    }
    if (!holder.incarnation.IsNone() && !incarnations.insert(holder.incarnation).second) {
      return "two holders have the incarnation " + holder.incarnation.Text() +
             ", so they are one server";
    }
  }
  return "";
}

// Every field is there, and no other.
void CheckFields(const Json& object, const std::string& what,
                 std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (!object.contains(name)) throw Wrong{what + " lacks the field " + name};
  }
  if (object.size() != names.size()) throw Wrong{what + " has a field that this layout has not"};
}

uint64_t Number(const Json& object, const char* name) {
  const Json& value = object.at(name);
  if (!value.is_number_unsigned()) {
    throw Wrong{std::string("the field ") + name + " is not a whole number from 0 to 2^64 - 1"};
  }
  return value.get<uint64_t>();
}

std::string String(const Json& object, const char* name) {
  const Json& value = object.at(name);
  if (!value.is_string()) throw Wrong{std::string("the field ") + name + " is not a string"};
  return value.get<std::string>();
}

Id Identity(const Json& object, const char* name) {
  const std::optional<Id> id = Id::Parse(String(object, name));
  if (!id) {
    throw Wrong{std::string("the field ") + name + " is not 32 hexadecimal digits in lower case"};
  }
  return *id;
}

std::vector<Holder> Holders(const Json& list) {
  if (!list.is_array()) throw Wrong{"the field holders is not a list"};
  std::vector<Holder> holders;
  for (const Json& item : list) {
    const std::string what = "holder " + std::to_string(holders.size());
    if (!item.is_object()) throw Wrong{what + " is not an object"};
    CheckFields(item, what, {"address", "incarnation"});
    holders.push_back(
        {.address = String(item, "address"), .incarnation = Identity(item, "incarnation")});
  }
  return holders;
}

// The last of two equal keys would count.
Json Unambiguous(std::string_view text) {
  std::vector<std::set<std::string>> keys;
  bool twice = false;
  const auto look = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      twice = !keys.back().insert(parsed.get<std::string>()).second || twice;
    }
    return true;
  };
  Json json = Json::parse(text, look, false);
  if (json.is_discarded()) throw Wrong{"it is not JSON"};
  if (twice) throw Wrong{"a field is there twice"};
  return json;
}

Record Parse(std::string_view text) {
  if (text.size() > kMaxRecord) {
    throw Wrong{"it is longer than " + std::to_string(kMaxRecord) + " bytes"};
  }
  const Json json = Unambiguous(text);
  if (!json.is_object()) throw Wrong{"it is not a JSON object"};
  if (!json.contains("layout")) throw Wrong{"it lacks the field layout"};
  if (const uint64_t layout = Number(json, "layout"); layout != kLayout) {
    throw Wrong{"its layout is " + std::to_string(layout) + ", and this program knows " +
                std::to_string(kLayout) + ": use the version of nvcache that wrote it"};
  }
  CheckFields(
      json, "it",
      {"layout", "version", "epoch", "writer", "lineage", "pool_size", "mode", "free", "holders"});
  Record record = {.version = Number(json, "version"),
                   .epoch = Number(json, "epoch"),
                   .writer = String(json, "writer"),
                   .lineage = Identity(json, "lineage"),
                   .pool_size = Number(json, "pool_size"),
                   .holders = Holders(json["holders"])};
  const std::string mode = String(json, "mode");
  if (mode != kReal && mode != kMirrored && mode != kRecovering) {
    throw Wrong{"the field mode is none of real, mirrored and recovering"};
  }
  record.mode = mode == kReal       ? Mode::kReal
                : mode == kMirrored ? Mode::kMirrored
                                    : Mode::kRecovering;
  if (!json["free"].is_boolean()) throw Wrong{"the field free is neither true nor false"};
  record.free = json["free"].get<bool>();
  if (std::string problem = Problem(record); !problem.empty()) throw Wrong{std::move(problem)};
  return record;
}

}  // namespace

std::string Problem(const Record& record) {
  if (record.version == 0) return "its version is 0";
  if (record.epoch == 0) return "its epoch is 0";
  if (record.writer.size() > kMaxWriter) {
    return "the field writer is longer than " + std::to_string(kMaxWriter) + " bytes";
  }
  if (record.mode != Mode::kReal && record.lineage.IsNone()) {
    return "it is mirrored and has no lineage";
  }
  if (record.mode != Mode::kReal && record.free) return "it is mirrored and free";
  if (record.mode != Mode::kReal && record.pool_size == 0) {
    return "it is mirrored and its pool has no size";
  }
  return HoldersProblem(record.holders);
}

std::string ToText(const Record& record) {
  Json holders = Json::array();
  for (const Holder& holder : record.holders) {
    holders.push_back({{"address", holder.address}, {"incarnation", holder.incarnation.Text()}});
  }
  const Json json = {{"layout", kLayout},
                     {"version", record.version},
                     {"epoch", record.epoch},
                     {"writer", record.writer},
                     {"lineage", record.lineage.Text()},
                     {"pool_size", record.pool_size},
                     {"mode", TextOf(record.mode)},
                     {"free", record.free},
                     {"holders", std::move(holders)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Record> ParseRecord(std::string_view text, std::string* problem) {
  try {
    return Parse(text);
  } catch (Wrong& wrong) {
    *problem = std::move(wrong.text);
    return std::nullopt;
  }
}

}  // namespace nvcache::mirror
