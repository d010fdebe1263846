// SPDX-License-Identifier: BSD-3-Clause
//
// names_explorer: see README.md.
#include <cstdint>
#include <cstdio>
#include <string>

#include "tests/kit/explore.h"
#include "tests/names/all.h"
#include "tests/names/run.h"

namespace {

using nvcache::names::AllSequences;

// A rule that is broken must show within so many runs.
constexpr uint64_t kMostRuns = 300000;

int ExploreAll(AllSequences::Of of, uint64_t calls) {
  AllSequences all(of, calls);
  const std::string failure = all.Failure();
  std::printf("%llu sequences of up to %llu calls, %llu images: %s\n",
              nvcache::kit::Wide(all.sequences()), nvcache::kit::Wide(calls),
              nvcache::kit::Wide(all.images()),
              failure.empty() ? "nothing wrong" : failure.c_str());
  return failure.empty() && all.images() > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  using nvcache::names::kRules;
  using Explorer = nvcache::kit::Explorer<nvcache::names::Run>;
  Explorer explorer("names_explorer", kRules, kMostRuns);
  explorer.Add("--all", "each sequence of up to so many calls of one process",
               [](uint64_t calls) { return ExploreAll(AllSequences::kAll, calls); });
  explorer.Add("--all-changes", "the same of changes of names and logged writes alone",
               [](uint64_t calls) { return ExploreAll(AllSequences::kChanges, calls); });
  return explorer.Main(argc, argv,
                       "Explores what recovery makes of names that the log has, in a model.");
}
