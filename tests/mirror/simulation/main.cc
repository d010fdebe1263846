// SPDX-License-Identifier: BSD-3-Clause
//
// mirror_explorer: see README.md.
#include <cstdint>

#include "tests/kit/explore.h"
#include "tests/mirror/simulation/run.h"

namespace {

// A rule that is broken must show within so many runs.
constexpr uint64_t kMostRuns = 3000;

}  // namespace

int main(int argc, char** argv) {
  using nvcache::simulation::kRules;
  nvcache::kit::Explorer<nvcache::simulation::Run> explorer("mirror_explorer", kRules, kMostRuns);
  return explorer.Main(argc, argv, "Explores the mirrored log, in a simulation of its machines.");
}
