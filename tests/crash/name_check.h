// SPDX-License-Identifier: BSD-3-Clause
//
// Whether the names that recovery has left are what they have to be.
#ifndef NVCACHE_TESTS_CRASH_NAME_CHECK_H_
#define NVCACHE_TESTS_CRASH_NAME_CHECK_H_

#include <string>

#include "tests/crash/model.h"
#include "tests/crash/name_machine.h"

namespace nvcache::crash {

// All of them are as in one of `expected.names`, with one of the contents and modes that each file
// may have. A file may have been made again: then another one stands for it, at all of its names.
// What is wrong, or "".
std::string CompareNames(NameMachine& machine, uint32_t root, const Expected& expected);

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_NAME_CHECK_H_
