// SPDX-License-Identifier: BSD-3-Clause
#include "tests/names/all.h"

#include "tests/names/run.h"

namespace nvcache::names {

namespace {

File& At(State& state, Name name) { return state[static_cast<size_t>(name)]; }

State After(State state, const Act& act, File* newest) {
  if (act.refused) return state;
  switch (act.what) {
    case What::kCreate:
      At(state, act.name) = ++*newest;
      break;
    case What::kLink:
      At(state, act.to) = At(state, act.name);
      break;
    case What::kRename:
      At(state, act.to) = At(state, act.name);
      At(state, act.name) = kNoFile;
      break;
    case What::kRemove:
      At(state, act.name) = kNoFile;
      break;
    default:
      break;
  }
  return state;
}

bool Syncs(const Act& act) { return act.what == What::kFsync || act.what == What::kMoveCheckpoint; }

}  // namespace

std::vector<Act> AllSequences::ActsOf(Of of) {
  std::vector<Act> acts;
  for (Name name = 0; name < kProgramNames; ++name) {
    for (const What what : {What::kCreate, What::kRemove, What::kWrite})
      acts.push_back({what, name});
    for (Name to = 0; to < kProgramNames; ++to) {
      if (to == name) continue;
      for (const What what : {What::kLink, What::kRename}) acts.push_back({what, name, to});
    }
  }
  if (of == kChanges) return acts;
  for (Name name = 0; name < kProgramNames; ++name) {
    for (const What what : {What::kWritePast, What::kFsync}) acts.push_back({what, name});
    acts.push_back({What::kRemove, name, 0, true});
    for (Name to = 0; to < kProgramNames; ++to) {
      if (to != name) acts.push_back({What::kRename, name, to, true});
    }
  }
  acts.push_back({What::kMoveCheckpoint});
  return acts;
}

std::string AllSequences::Failure() {
  for (const Loss loss : kLosses) {
    for (const bool linked : {false, true}) {
      loss_ = loss;
      linked_ = linked;
      std::string failure = Extend({1, linked ? 2 : kNoFile, 2}, 2);
      if (!failure.empty()) return failure;
    }
  }
  return "";
}

std::string AllSequences::Extend(const State& state, File newest) {
  if (script_.size() == calls_) return "";
  for (const Act& act : acts_) {
    if (!IsPossible(state, act) || (script_.empty() && Syncs(act))) continue;
    script_.push_back(act);
    std::string failure = Try();
    File then = newest;
    const State next = After(state, act, &then);
    if (failure.empty()) failure = Extend(next, then);
    if (!failure.empty()) return failure;
    script_.pop_back();
  }
  return "";
}

std::string AllSequences::Try() {
  ++sequences_;
  Run run(script_, linked_, loss_);
  std::string failure = run.Failure();
  images_ += run.images();
  if (failure.empty()) return "";
  std::string text;
  for (const Act& act : script_) text += TextOf(act) + ", ";
  return text + failure;
}

}  // namespace nvcache::names
