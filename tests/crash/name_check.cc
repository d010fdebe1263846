// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/name_check.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>

namespace nvcache::crash {

namespace {

using Folder = std::map<std::string, uint32_t>;

Folder FolderOf(const Entries& names, uint32_t folder) {
  Folder found;
  for (const auto& [name, file] : names) {
    if (name.first == folder) found[name.second] = file;
  }
  return found;
}

bool Matches(const Attributes& allowed, const Attributes& found) {
  const auto is = [](int64_t time, int64_t there) { return time == kAnyTime || time == there; };
  return allowed.mode == found.mode && allowed.uid == found.uid && allowed.gid == found.gid &&
         is(allowed.access, found.access) && is(allowed.change, found.change);
}

std::string TextOf(const Attributes& attributes) {
  const auto& [mode, uid, gid, access, change] = attributes;
  return "mode " + std::to_string(mode) + ", owner " + std::to_string(uid) + ":" +
         std::to_string(gid) + ", times " + std::to_string(access) + " and " +
         std::to_string(change);
}

// One state, against what there is.
class Comparison {
 public:
  Comparison(NameMachine& machine, const Expected& expected, const Entries& names)
      : machine_(machine), expected_(expected), names_(names) {}

  std::string Folders(uint32_t wanted, uint32_t there, const std::string& path) {
    const Folder left = FolderOf(machine_.names(), there);
    const Folder right = FolderOf(names_, wanted);
    for (const auto& [name, file] : left) {
      if (right.count(name) == 0) return path + name + " should not be there";
    }
    for (const auto& [name, file] : right) {
      const auto found = left.find(name);
      if (found == left.end()) return path + name + " is missing";
      std::string wrong = Files(file, found->second, path + name);
      if (!wrong.empty()) return wrong;
    }
    return "";
  }

 private:
  std::string Files(uint32_t wanted, uint32_t there, const std::string& path) {
    const auto [known, is_new] = stands_for_.try_emplace(there, wanted);
    const auto [same, is_first] = found_.try_emplace(wanted, there);
    if (known->second != wanted || same->second != there) return path + " leads to another file";
    const Machine::File& file = machine_.files()[there];
    const Expected::File& expected = expected_.files[wanted];
    const auto is = [&](const Attributes& allowed) { return Matches(allowed, file.identity); };
    if (std::none_of(expected.attributes.begin(), expected.attributes.end(), is)) {
      return path + " has " + TextOf(file.identity) + ", not " + TextOf(expected.attributes.back());
    }
    if (S_ISDIR(file.identity.mode)) return Folders(wanted, there, path + "/");
    const auto& contents = expected.contents;
    if (std::find(contents.begin(), contents.end(), file.content) != contents.end()) return "";
    return path + " has other bytes than it should, " + std::to_string(file.content.size()) +
           " of them";
  }

  NameMachine& machine_;
  const Expected& expected_;
  const Entries& names_;
  std::map<uint32_t, uint32_t> stands_for_, found_;
};

}  // namespace

std::string CompareNames(NameMachine& machine, uint32_t root, const Expected& expected) {
  std::string wrong;
  for (const Entries& names : expected.names) {
    wrong = Comparison(machine, expected, names).Folders(root, root, "");
    if (wrong.empty()) return "";
  }
  return wrong + " (as in the last of " + std::to_string(expected.names.size()) + " states)";
}

}  // namespace nvcache::crash
