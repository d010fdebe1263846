// SPDX-License-Identifier: BSD-3-Clause
//
// Makes sequences out of a seed. Each sequence has a theme: kinds of calls that it uses, and others
// that it leaves out; so files stay cached for long in some, and everything meets everything in
// others.
#ifndef NVCACHE_TESTS_DIFFERENTIAL_GENERATOR_H_
#define NVCACHE_TESTS_DIFFERENTIAL_GENERATOR_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace nvcache::differential {

// Each file of a sequence is cached; or what it syncs more than once is write-through; or, with the
// other one, cached.
inline constexpr const char* kCacheAll = "NVCACHE_WRITE_BACK=always";
inline constexpr const char* kThroughHot = "NVCACHE_WRITE_BACK=auto";
inline constexpr const char* kCacheHot = "NVCACHE_EXCLUSIVE=*";

struct Sequence {
  std::vector<std::string> settings;  // NAME=value
  std::vector<std::string> operations;
};

// How a sequence ends: by itself, or by a kill from outside. What is killed inside an operation
// uses only those that are one system call, and nothing that makes a file pass-through: the kernel
// may leave a part of a write to a file of its own, while one to a cached file is whole or not at
// all.
enum class Ending { kOwn, kKilledBetween, kKilledInside };

Sequence Generate(uint64_t seed, int operations, Ending ending);

}  // namespace nvcache::differential

#endif  // NVCACHE_TESTS_DIFFERENTIAL_GENERATOR_H_
