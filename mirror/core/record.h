// SPDX-License-Identifier: BSD-3-Clause
//
// The record of a mirror name in etcd (docs/mirror.md: The record). mirror/etcd has its JSON.
#ifndef NVCACHE_MIRROR_CORE_RECORD_H_
#define NVCACHE_MIRROR_CORE_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "mirror/core/ids.h"

namespace nvcache::mirror {

enum class Mode : uint8_t {
  kReal,      // images count for nothing: all that was acknowledged is on the disk
  kMirrored,  // a majority of the images has all that was acknowledged
  // The same; and a recovery may have changed files. The pool must not be used any more: what it
  // counts on as being on the disk may be older there by now.
  kRecovering,
};

struct Holder {
  std::string address;  // HOST:PORT, as the user gave it; no two are the same
  Id incarnation;       // none: it was never filled
  bool operator==(const Holder&) const = default;
};

inline constexpr size_t kMaxHolders = 9;

struct Record {
  Version version = 0;
  Epoch epoch = 0;
  std::string writer;  // for people
  Id lineage;          // none: the last one was recovered
  uint64_t pool_size = 0;
  Mode mode = Mode::kReal;
  // Its writer has ended in order, or what it had was recovered: a pool of another lineage may
  // come.
  bool free = false;
  std::vector<Holder> holders;  // 1 to kMaxHolders, an odd number
  bool operator==(const Record&) const = default;

  size_t Majority() const { return holders.size() / 2 + 1; }
};

// How an attempt to change the record has ended.
enum class Outcome : uint8_t {
  kDone,
  kConflict,  // it was changed meanwhile, and not by this attempt
  kUnknown,   // no answer: it may have been changed, or be changed later
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_CORE_RECORD_H_
