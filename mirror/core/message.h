// SPDX-License-Identifier: BSD-3-Clause
//
// The messages between a server and the process that writes to it, or recovers from it. Over one
// connection they arrive in order, once, or not at all. mirror/wire has their bytes.
#ifndef NVCACHE_MIRROR_CORE_MESSAGE_H_
#define NVCACHE_MIRROR_CORE_MESSAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "mirror/core/ids.h"

namespace nvcache::mirror {

enum class Type : uint16_t {
  // To a server.
  // epoch, version, name; the first on a connection. With epoch 0 nothing is promised: it is
  // answered as one is, and changes nothing.
  kPromise = 1,
  kBegin = 2,   // epoch, lineage, pool_size: an empty copy
  kAppend = 3,  // epoch, version, number, position, whole, ranges, bytes
  kMark = 4,    // epoch, version, number, position: the image is of this epoch now
  kFetch = 5,   // epoch, offset: the first bytes that are not zero from there on
  kForget = 6,  // epoch: the image is not wanted any more
  kPing = 7,    // number
  // From a server.
  kPromised =
      32,        // epoch, version, incarnation; of the image: lineage, pool_size, written, position
  kStored = 33,  // epoch, number, position: of kAppend, kMark, kForget
  kPiece = 34,   // epoch, one range, bytes; the range is {pool_size, 0} at the end
  kPong = 35,    // number
  kRefused = 36,  // why, epoch: the promised one; the connection ends
};

enum class Refusal : uint16_t {
  kNone = 0,
  kEpoch = 1,      // a higher one is promised
  kOrder = 2,      // a message that this connection may not send now, or a number with a gap
  kRange = 3,      // bytes outside the image
  kFull = 4,       // no memory for a pool of this size
  kForbidden = 5,  // the key may not use this name
  kMalformed = 6,  // no message at all
  kProtocol = 7,   // another version of the protocol
  kNothing = 8,    // there is no image
};
// One line in English, without a full stop.
const char* Text(Refusal refusal);

// Bytes of a pool. `offset` and `length` are multiples of kRangeUnit.
struct Range {
  uint64_t offset;
  uint32_t length;
  bool operator==(const Range&) const = default;
};
inline constexpr uint32_t kRangeUnit = 8;

// One kAppend or kPiece has no more. The largest group that there is fits, with its headers.
inline constexpr size_t kMaxBytes = size_t{4} << 20;
inline constexpr size_t kMaxRanges = size_t{1} << 16;

struct Message {
  Type type = Type::kPing;
  Refusal why = Refusal::kNone;
  bool whole = false;  // kAppend: with this one, the copy is whole
  Epoch epoch = 0;
  Epoch written = 0;    // in which the image was written
  Version version = 0;  // the record's: the highest that the sender knows
  uint64_t number = 0;  // kAppend and kMark: 1, 2, 3, ... since kPromise
  Position position = 0;
  uint64_t pool_size = 0;
  uint64_t offset = 0;
  Id lineage = {};
  Id incarnation = {};
  std::string name = {};           // kPromise
  std::vector<Range> ranges = {};  // their bytes lie in `bytes`, one behind the other
  std::vector<uint8_t> bytes = {};
  bool operator==(const Message&) const = default;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_CORE_MESSAGE_H_
