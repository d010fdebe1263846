// SPDX-License-Identifier: BSD-3-Clause
//
// The table of states.h: what the fields of a file may be in each state.
#include "src/vfs/engine/states.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>

namespace nvcache::vfs {
namespace {

constexpr std::initializer_list<State> kNotCached = {State::kKernel, State::kLent,
                                                     State::kPassThrough, State::kForeign};

struct Field {
  const char* name;  // is said when it is wrong
  std::function<void(File&)> set;
};

std::unique_ptr<File> Make(State state) {
  auto file = std::make_unique<File>();
  file->state.store(state);
  file->forever = state == State::kLost;
  return file;
}

void Dies(State state, const Field& field) {
  const auto file = Make(state);
  CheckFields(*file);
  field.set(*file);
  EXPECT_EXIT(CheckFields(*file), testing::KilledBySignal(SIGKILL), field.name)
      << static_cast<int>(state);
}

TEST(StatesTest, WhatOnlyACachedFileHas) {
  const Field fields[] = {
      {"erasures",
       [](File& file) {
         file.erasures.Add({1, 0, 4096});
       }},
      {"removed", [](File& file) { file.removed.store(true); }},
      {"may_hand_over", [](File& file) { file.may_hand_over = true; }},
      {"close_stamp", [](File& file) { file.close_stamp = 1; }},
      {"written_stamp", [](File& file) { file.written_stamp = 1; }},
      {"written_outside", [](File& file) { file.written_outside.store(true); }},
  };
  for (const Field& field : fields) {
    for (const State state : kNotCached) Dies(state, field);
    Dies(State::kLost, field);
    const auto cached = Make(State::kCached);
    field.set(*cached);
    CheckFields(*cached);
    cached->erasures.Clear();
    cached->EndCaching();
    cached->state.store(State::kKernel);
    CheckFields(*cached);
  }
}

TEST(StatesTest, WhatALostFileKeeps) {
  const Field fields[] = {
      {"pending", [](File& file) { file.pending.store(1); }},
      {"failing", [](File& file) { file.failing.store(EIO); }},
  };
  for (const Field& field : fields) {
    for (const State state : kNotCached) Dies(state, field);
    const auto lost = Make(State::kLost);
    field.set(*lost);
    CheckFields(*lost);
  }
}

TEST(StatesTest, WhoseDescriptorItIs) {
  Dies(State::kForeign, {"backing_fd", [](File& file) { file.backing_fd.store(3); }});
  Dies(State::kCached, {"forever", [](File& file) { file.forever = true; }});
  Dies(State::kLost, {"forever", [](File& file) { file.forever = false; }});
}

}  // namespace
}  // namespace nvcache::vfs
