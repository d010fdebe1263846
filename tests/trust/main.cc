// SPDX-License-Identifier: BSD-3-Clause
//
// trust_explorer: see README.md.
#include <cstdint>

#include "tests/kit/explore.h"
#include "tests/trust/run.h"

namespace {

// A rule that is broken must show within so many runs.
constexpr uint64_t kMostRuns = 1000000;

}  // namespace

int main(int argc, char** argv) {
  using nvcache::trust::kRules;
  return nvcache::kit::Explorer<nvcache::trust::Run>("trust_explorer", kRules, kMostRuns)
      .Main(argc, argv, "Explores who may move a checkpoint where disks refuse, in a model.");
}
