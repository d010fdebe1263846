// SPDX-License-Identifier: BSD-3-Clause
//
// protocol_explorer: see README.md.
#include <cstdint>

#include "tests/kit/explore.h"
#include "tests/protocol/protocol.h"

namespace {

// A rule that is broken must show within so many runs. The rarest has needed 1,200,000.
constexpr uint64_t kMostRuns = 10000000;

}  // namespace

int main(int argc, char** argv) {
  using nvcache::protocol::kRules;
  using Explorer = nvcache::kit::Explorer<nvcache::protocol::Run>;
  return Explorer("protocol_explorer", kRules, kMostRuns)
      .Main(argc, argv, "Explores how processes share a file and a log, in a model.");
}
