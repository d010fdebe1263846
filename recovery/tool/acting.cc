// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/acting.h"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <unistd.h>

#include <charconv>
#include <optional>

#include "recovery/tool/commands.h"
#include "recovery/tool/text.h"
#include "src/replay/rights.h"

namespace nvcache::tool {
namespace {

// A user who is in no list of users has no group that anybody gave him.
constexpr uint32_t kNoGroup = 65534;

User Known(const passwd& entry) {
  User user = {entry.pw_uid, entry.pw_name, entry.pw_gid, {}};
  int count = 64;
  for (;;) {
    user.groups.resize(static_cast<size_t>(count));
    const int room = count;
    const bool all = getgrouplist(entry.pw_name, entry.pw_gid, user.groups.data(), &count) >= 0;
    if (all || count <= room) break;
  }
  user.groups.resize(static_cast<size_t>(count));
  return user;
}

User ByNumber(uint32_t id) {
  const passwd* entry = getpwuid(id);
  return entry != nullptr ? Known(*entry) : User{id, fmt::format("{}", id), kNoGroup, {}};
}

std::optional<uint32_t> Number(const std::string& text) {
  uint32_t number = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || at != end || number == ~uint32_t{0}) return std::nullopt;
  return number;
}

}  // namespace

User UserOf(const pool::Pool& pool, const std::string& wanted) {
  const bool root = geteuid() == 0;
  if (!wanted.empty()) {
    const passwd* entry = getpwnam(wanted.c_str());
    const std::optional<uint32_t> number = Number(wanted);
    if (entry == nullptr && !number) {
      throw Failure{kFailed,
                    fmt::format("--user {}: there is no such user; give a name or a number",
                                Printable(wanted))};
    }
    User user = entry != nullptr ? Known(*entry) : ByNumber(*number);
    // A record is not trusted more than the user who could write it; and his pool may have taken
    // the place of the one that was meant.
    if (root && !pool.is_device() && pool.owner() != 0 && pool.owner() != user.id) {
      throw Failure{kFailed,
                    fmt::format("pool {} belongs to the user with the number {}; only root's "
                                "pools and devices can be recovered for another: recover it "
                                "without --user",
                                Printable(pool.path()), pool.owner())};
    }
    if (!root && user.id != geteuid()) {
      throw Failure{kFailed, fmt::format("--user {}: only root may act for others; run as root, or "
                                         "as that user",
                                         Printable(wanted))};
    }
    return user;
  }
  if (!root) return ByNumber(geteuid());
  if (pool.is_device() && pool.owner() == 0 && pool.others_may_write()) {
    throw Failure{kFailed,
                  fmt::format("pool {} is a device that others than root may write to; say with "
                              "--user whose files are in it",
                              Printable(pool.path()))};
  }
  return ByNumber(pool.owner());
}

Acting::Acting(const User& user) {
  if (user.id == geteuid()) return;
  const replay::Rights rights = {user.id, user.group, user.groups.data(), user.groups.size()};
  const long error = replay::ActFor(rights);
  if (error < 0) {
    throw Failure{kFailed, fmt::format("cannot take the rights of user {}: {}; run as that user",
                                       user.name, strerror(static_cast<int>(-error)))};
  }
  acts_ = true;
}

Acting::~Acting() {
  if (acts_) replay::ActForOneself();
}

}  // namespace nvcache::tool
