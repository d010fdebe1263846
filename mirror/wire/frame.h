// SPDX-License-Identifier: BSD-3-Clause
//
// The bytes of a message. All numbers are little endian.
//
//   offset  bytes  field
//        0      4  kMagic
//        4      2  kProtocol; of another version, only these six bytes mean the same
//        6      2  type
//        8      2  why
//       10      2  flags: 1 is `whole`
//       12      2  length of the name
//       14      2  zero
//       16      4  number of ranges
//       20      4  number of bytes
//       24     56  epoch, written, version, number, position, pool_size, offset
//       80     32  lineage, incarnation
//      112      4  CRC-32C of what follows the header
//      116      4  CRC-32C of the header up to here
//      120         the name; the ranges, each 8 bytes of offset and 4 of length; the bytes
#ifndef NVCACHE_MIRROR_WIRE_FRAME_H_
#define NVCACHE_MIRROR_WIRE_FRAME_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mirror/core/message.h"

namespace nvcache::mirror {

inline constexpr uint32_t kMagic = 0x6d43564e;  // "NVCm"
inline constexpr uint16_t kProtocol = 1;
inline constexpr size_t kHeaderBytes = 120;
inline constexpr size_t kRangeBytes = 12;
// Bytes of the longest message.
inline constexpr size_t kMaxFrame = kHeaderBytes + kMaxName + kMaxRanges * kRangeBytes + kMaxBytes;

// Appends the message to `out`. It is one that a Decoder accepts, if IsSane() says so.
void Encode(const Message& message, std::vector<uint8_t>* out);

// The fields that its type does not have are zero, and the others within their limits.
bool IsSane(const Message& message);

// Makes messages of a stream that comes in pieces of any length. It allocates nothing for a message
// before the header was checked, and then no more than the header says.
class Decoder {
 public:
  // Takes bytes up to the end of the next message; what is left of `piece` is returned. After a
  // refusal it takes nothing more.
  std::span<const uint8_t> Feed(std::span<const uint8_t> piece);

  // kNone; kMalformed or kProtocol: the stream cannot be understood from here on.
  Refusal refusal() const { return refusal_; }
  bool HasMessage() const { return whole_; }
  // Only if it has one, which is gone then. Before the next Feed().
  Message Take();
  // A message has begun and not ended.
  bool IsInside() const { return !whole_ && header_filled_ != 0; }

 private:
  std::span<const uint8_t> FeedHeader(std::span<const uint8_t> piece);
  Refusal ReadHeader();
  Refusal Finish();

  std::array<uint8_t, kHeaderBytes> header_ = {};
  size_t header_filled_ = 0;
  std::vector<uint8_t> front_;  // the name and the ranges
  size_t front_length_ = 0, bytes_length_ = 0, name_length_ = 0;
  uint32_t body_crc_ = 0;
  Message message_;
  bool whole_ = false;
  Refusal refusal_ = Refusal::kNone;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_WIRE_FRAME_H_
