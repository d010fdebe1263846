// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/default_pool.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "recovery/tool/commands.h"

namespace nvcache::tool {
namespace {

// A relative path is no path here, as the XDG Base Directory Specification has it.
std::string PathIn(const char* variable) {
  const char* const value = getenv(variable);
  return value != nullptr && value[0] == '/' ? value : "";
}

std::string StateFolder() {
  if (geteuid() == 0) return "/var/lib";
  if (std::string state = PathIn("XDG_STATE_HOME"); !state.empty()) return state;
  const std::string home = PathIn("HOME");
  return home.empty() ? home : home + "/.local/state";
}

}  // namespace

std::string DefaultPool() {
  const std::string folder = StateFolder();
  return folder.empty() ? folder : folder + "/nvcache/pool";
}

std::string NamedPool(const char* command) {
  const char* const named = getenv("NVCACHE_POOL");
  std::string path = named != nullptr && *named != '\0' ? named : DefaultPool();
  if (!path.empty()) return path;
  throw Failure{kUsage,
                std::string(command) + ": no pool is named; give its path, or set NVCACHE_POOL"};
}

void MakeDefaultFolder() {
  const std::string path = DefaultPool();
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
    mkdir(path.substr(0, end).c_str(), 0700);
  }
}

}  // namespace nvcache::tool
