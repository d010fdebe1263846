// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/preload.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "recovery/tool/commands.h"
#include "recovery/tool/text.h"

namespace nvcache::tool {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kName = "libnvcache.so";
constexpr std::string_view kSeparators = " :";  // LD_PRELOAD's; see ld.so(8)

bool IsLibrary(std::string_view path) {
  return path.substr(path.rfind('/') + 1) == kName;  // npos + 1 is 0
}

std::vector<std::string> Items(std::string_view preload) {
  std::vector<std::string> items;
  while (!preload.empty()) {
    const std::string_view item = preload.substr(0, preload.find_first_of(kSeparators));
    preload.remove_prefix(std::min(item.size() + 1, preload.size()));
    if (!item.empty()) items.emplace_back(item);
  }
  return items;
}

// `items` without our library, in whatever folder it lies.
std::vector<std::string> Others(std::vector<std::string> items) {
  std::erase_if(items, IsLibrary);
  return items;
}

std::string Joined(const std::vector<std::string>& items) {
  return fmt::format("{}", fmt::join(items, ":"));
}

bool IsFile(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// A wrong file or an old library would show in the program only, or not at all.
std::string Checked(const std::string& library) {
  if (library.find_first_of(kSeparators) != std::string::npos) {
    throw Failure{kRunFailed,
                  fmt::format("{}: a path with a space or colon cannot be preloaded; install {} "
                              "elsewhere, or give --library PATH",
                              Printable(library), kName)};
  }
  const std::optional<pool::ElfNoteContent> note = ReadNote(library);
  // The dynamic linker of NVCache's musl knows it by this name, and leaves it out.
  if (!note || !IsLibrary(library)) {
    throw Failure{kRunFailed, fmt::format("{}: is not {}, or not of this version; "
                                          "give the one that came with this nvcache",
                                          Printable(library), kName)};
  }
  if (note->pool_version != pool::kVersion) {
    throw Failure{kRunFailed, fmt::format("{}: is for pools of format version {}, this nvcache for "
                                          "version {}; give the one that came with this nvcache",
                                          Printable(library), note->pool_version, pool::kVersion)};
  }
  return library;
}

std::string FindLibrary(const std::string& wanted) {
  if (!wanted.empty()) {
    if (!IsFile(wanted)) {
      throw Failure{kRunFailed, fmt::format("--library: {} is not there; give the path of {}",
                                            Printable(wanted), kName)};
    }
    return Checked(fs::absolute(wanted).string());
  }
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* folder : {"", "../lib", "../" NVCACHE_LIBDIR}) {
    const fs::path library = (here / folder / kName).lexically_normal();
    if (IsFile(library)) return Checked(library.string());
  }
  throw Failure{kRunFailed,
                fmt::format("{} is not beside {} nor in ../lib of it; give --library PATH", kName,
                            Printable(here.string()))};
}

// Empty when the program does without.
std::string ChooseLibrary(Kind kind, const std::string& wanted) {
  const bool needed = kind == Kind::kGlibc || kind == Kind::kUnknown || !wanted.empty();
  try {
    const std::string library = FindLibrary(wanted);
    return PassesPreload(kind) ? library : std::string();
  } catch (const Failure&) {
    if (needed) throw;
    return {};
  }
}

void SetOrUnset(const char* name, const std::string& value) {
  if (value.empty()) {
    unsetenv(name);
  } else {
    setenv(name, value.c_str(), 1);
  }
}

}  // namespace

void LeaveLibrary(char** argv) {
  const char* preload = getenv("LD_PRELOAD");
  if (preload == nullptr) return;
  const std::vector<std::string> items = Items(preload);
  if (std::none_of(items.begin(), items.end(), IsLibrary)) return;
  SetOrUnset("LD_PRELOAD", Joined(Others(items)));
  execv("/proc/self/exe", argv);
  // Without /proc: stay; the worst is a message that the pool is in use.
}

void SetPreload(const Program& program, const std::string& wanted) {
  const char* const preload = getenv("LD_PRELOAD");
  std::vector<std::string> items = Others(Items(preload != nullptr ? preload : ""));
  const std::string library = ChooseLibrary(program.kind, wanted);
  if (!library.empty()) {
    if (!program.sanitizer.empty()) items.insert(items.begin(), program.sanitizer);
    const auto ours = std::stable_partition(items.begin(), items.end(), WantsToBeFirst);
    items.insert(ours, library);
  }
  SetOrUnset("LD_PRELOAD", Joined(items));
}

}  // namespace nvcache::tool
