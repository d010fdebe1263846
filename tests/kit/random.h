// SPDX-License-Identifier: BSD-3-Clause
//
// Numbers that are the same for a seed on every machine, in every libc and in each process.
#ifndef NVCACHE_TESTS_KIT_RANDOM_H_
#define NVCACHE_TESTS_KIT_RANDOM_H_

#include <cstdint>

namespace nvcache::kit {

constexpr uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// Small and fast.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(Mix(seed)) {}
  uint64_t Next() { return Mix(state_++); }
  uint64_t Below(uint64_t n) { return Next() % n; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  // 1 to `most`, every order of magnitude alike.
  uint64_t Length(uint64_t most) {
    const int bits = 64 - __builtin_clzll(most);
    const uint64_t n = 1 + Below(uint64_t{1} << Below(static_cast<uint64_t>(bits) + 1));
    return n < most ? n : most;
  }

 private:
  uint64_t state_;
};

}  // namespace nvcache::kit

#endif  // NVCACHE_TESTS_KIT_RANDOM_H_
