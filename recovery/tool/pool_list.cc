// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/pool_list.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <fstream>
#include <string_view>

#include "recovery/tool/commands.h"
#include "recovery/tool/text.h"

namespace nvcache::tool {
namespace {

constexpr std::string_view kBlanks = " \t\r";

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// `line` is neither empty nor a comment. A path may hold blanks, a user's name does not.
ListedPool Parse(std::string_view line) {
  ListedPool pool;
  if (line[0] != '/' && line[0] != '-') {
    const size_t end = line.find_first_of(kBlanks);
    pool.user = line.substr(0, end);
    line = end == std::string_view::npos ? std::string_view() : Trimmed(line.substr(end));
  }
  if (!line.empty() && line[0] == '-') {
    pool.may_be_missing = true;
    line.remove_prefix(1);
  }
  pool.path = line;
  if (line.empty() || line[0] != '/') {
    pool.mistake = "is not a pool's absolute path; write [USER] [-]/PATH";
  }
  return pool;
}

}  // namespace

std::vector<ListedPool> ReadPoolList(const std::string& name) {
  const bool may_be_missing = !name.empty() && name[0] == '-';
  const std::string file = may_be_missing ? name.substr(1) : name;
  if (may_be_missing && access(file.c_str(), F_OK) != 0 && errno == ENOENT) return {};
  std::ifstream in(file);
  std::vector<ListedPool> pools;
  std::string text;
  for (size_t number = 1; std::getline(in, text); ++number) {
    const std::string_view line = Trimmed(text);
    if (line.empty() || line[0] == '#') continue;
    pools.push_back(Parse(line));
    if (!pools.back().mistake.empty()) {
      pools.back().mistake = fmt::format("{}:{}: '{}' {}", Printable(file), number, Printable(line),
                                         pools.back().mistake);
    }
  }
  if (!in.is_open() || in.bad()) {
    throw Failure{kFailed, fmt::format("--list {}: cannot be read: {}; give a file with one pool a "
                                       "line",
                                       Printable(file), strerror(errno))};
  }
  return pools;
}

}  // namespace nvcache::tool
