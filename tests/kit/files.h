// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_TESTS_KIT_FILES_H_
#define NVCACHE_TESTS_KIT_FILES_H_

#include <fstream>
#include <iterator>
#include <string>

namespace nvcache::kit {

// A whole file; empty if it cannot be read.
inline std::string Slurp(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace nvcache::kit

#endif  // NVCACHE_TESTS_KIT_FILES_H_
