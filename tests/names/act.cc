// SPDX-License-Identifier: BSD-3-Clause
#include "tests/names/act.h"

#include <cstddef>

namespace nvcache::names {

bool IsPossible(const State& state, const Act& act) {
  const auto at = [&](Name name) { return state[static_cast<size_t>(name)]; };
  const bool there = at(act.name) != kNoFile;
  switch (act.what) {
    case What::kCreate:
      return !there;
    case What::kRename:
      return there && at(act.name) != at(act.to);
    case What::kLink:
      return there && at(act.to) == kNoFile;
    case What::kMoveCheckpoint:
      return true;
    default:
      return there;
  }
}

std::string TextOf(Name name) {
  constexpr const char* kTexts[] = {"A/x", "A/y", "B/z"};
  return name < kProgramNames ? kTexts[name] : "a safe name";
}

std::string TextOf(const Act& act) {
  constexpr const char* kTexts[] = {"create",     "remove", "rename",
                                    "link",       "write",  "write past log",
                                    "write open", "fsync",  "move checkpoint"};
  std::string text = kTexts[static_cast<size_t>(act.what)];
  if (act.what != What::kMoveCheckpoint && act.what != What::kWriteOpen)
    text += " " + TextOf(act.name);
  if (act.what == What::kRename || act.what == What::kLink) text += " " + TextOf(act.to);
  return act.refused ? text + " (refused)" : text;
}

}  // namespace nvcache::names
