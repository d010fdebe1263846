// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/scenarios.h"

namespace nvcache::crash {

std::vector<Scenario> AllScenarios() {
  std::vector<Scenario> all;
  for (const auto of_kind : {LogScenarios, ProgramScenarios, NameScenarios}) {
    for (const Scenario& scenario : of_kind()) all.push_back(scenario);
  }
  return all;
}

}  // namespace nvcache::crash
