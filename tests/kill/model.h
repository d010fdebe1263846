// SPDX-License-Identifier: BSD-3-Clause
//
// What the files must hold, as far as the writer's records tell.
#ifndef NVCACHE_TESTS_KILL_MODEL_H_
#define NVCACHE_TESTS_KILL_MODEL_H_

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/kill/protocol.h"

namespace nvcache::kill_test {

class Model {
 public:
  explicit Model(unsigned threads);

  // The records of one run of the writer, in the order in which they came. False: they contradict
  // themselves (*why says how).
  bool Take(const std::vector<Record>& records, std::string* why);

  // Compares with the files in `folder`: every acknowledged write is there, those in flight are
  // there whole or not at all, overlapping ones in their order. If so, what was found becomes the
  // start of the next run.
  bool Verify(const std::string& folder, std::string* why);

  uint64_t acknowledged() const { return acknowledged_; }
  uint64_t in_flight() const { return in_flight_; }              // when the writer died
  uint64_t in_flight_found() const { return in_flight_found_; }  // ... and whole in the files

 private:
  static constexpr uint64_t kNever = ~uint64_t{0};
  struct Write {
    uint32_t file;
    uint64_t id;
    uint64_t offset;
    uint64_t length;
    uint64_t begin;         // place among the records
    uint64_t end = kNever;  // kNever: in flight when the writer died
    bool acknowledged() const { return end != kNever; }
  };
  struct Plain {
    std::vector<uint8_t> bytes;
    uint64_t size = 0;
  };

  bool VerifyPlain(const std::string& folder, uint32_t file, std::string* why);
  bool VerifyRace(const std::string& folder, std::string* why);
  bool VerifyAppend(const std::string& folder, uint32_t file, std::string* why);

  std::map<uint32_t, Plain> plain_;
  std::vector<uint64_t> race_;                                               // as last verified
  std::map<uint32_t, std::vector<std::pair<uint64_t, uint64_t>>> appended_;  // id, payload
  std::vector<Write> writes_;  // of the run being verified
  uint64_t acknowledged_ = 0;
  uint64_t in_flight_ = 0;
  uint64_t in_flight_found_ = 0;
};

}  // namespace nvcache::kill_test

#endif  // NVCACHE_TESTS_KILL_MODEL_H_
