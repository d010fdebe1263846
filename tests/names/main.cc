// SPDX-License-Identifier: BSD-3-Clause
//
// names_explorer: see README.md.
#include <cstdint>

#include "tests/names/run.h"
#include "tests/protocol/explore.h"

namespace {

// A rule that is broken must show within so many runs.
constexpr uint64_t kMostRuns = 300000;

}  // namespace

int main(int argc, char** argv) {
  using nvcache::names::kRules;
  using Explorer = nvcache::protocol::Explorer<nvcache::names::Run, nvcache::names::RuleText>;
  return Explorer("names_explorer", kRules, kMostRuns)
      .Main(argc, argv, "Explores what recovery makes of names that the log has, in a model.");
}
