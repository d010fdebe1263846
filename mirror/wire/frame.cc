// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/wire/frame.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "src/sys/crc32c.h"

namespace nvcache::mirror {

namespace {

constexpr size_t kProtocolEnd = 6;  // every version has so much
constexpr size_t kHeaderCrc = 116;
constexpr uint16_t kWhole = 1;

class Writer {
 public:
  explicit Writer(uint8_t* at) : at_(at) {}
  template <typename Integer>
  void Put(std::type_identity_t<Integer> value) {
    for (size_t i = 0; i < sizeof(Integer); ++i) *at_++ = static_cast<uint8_t>(value >> (8 * i));
  }
  void Put(const void* bytes, size_t n) {
    if (n != 0) std::memcpy(at_, bytes, n);
    at_ += n;
  }

 private:
  uint8_t* at_;
};

class Reader {
 public:
  explicit Reader(const uint8_t* at) : at_(at) {}
  template <typename Integer>
  Integer Get() {
    Integer value = 0;
    for (size_t i = 0; i < sizeof(Integer); ++i) {
      value = static_cast<Integer>(value | static_cast<Integer>(*at_++) << (8 * i));
    }
    return value;
  }
  Id GetId() {
    Id id;
    std::memcpy(id.bytes.data(), at_, id.bytes.size());
    at_ += id.bytes.size();
    return id;
  }

 private:
  const uint8_t* at_;
};

void PutHeader(const Message& message, uint32_t body_crc, uint8_t* header) {
  Writer writer(header);
  writer.Put<uint32_t>(kMagic);
  writer.Put<uint16_t>(kProtocol);
  writer.Put<uint16_t>(static_cast<uint16_t>(message.type));
  writer.Put<uint16_t>(static_cast<uint16_t>(message.why));
  writer.Put<uint16_t>(message.whole ? kWhole : 0);
  writer.Put<uint16_t>(static_cast<uint16_t>(message.name.size()));
  writer.Put<uint16_t>(0);
  writer.Put<uint32_t>(static_cast<uint32_t>(message.ranges.size()));
  writer.Put<uint32_t>(static_cast<uint32_t>(message.bytes.size()));
  for (const uint64_t field : {message.epoch, message.written, message.version, message.number,
                               message.position, message.pool_size, message.offset}) {
    writer.Put<uint64_t>(field);
  }
  writer.Put(message.lineage.bytes.data(), message.lineage.bytes.size());
  writer.Put(message.incarnation.bytes.data(), message.incarnation.bytes.size());
  writer.Put<uint32_t>(body_crc);
  writer.Put<uint32_t>(sys::Crc32c(header, kHeaderCrc));
}

bool IsKnown(Type type) {
  switch (type) {
    case Type::kPromise:
    case Type::kBegin:
    case Type::kAppend:
    case Type::kMark:
    case Type::kFetch:
    case Type::kForget:
    case Type::kPing:
    case Type::kPromised:
    case Type::kStored:
    case Type::kPiece:
    case Type::kPong:
    case Type::kRefused:
      return true;
  }
  return false;
}

bool HasBytes(Type type) { return type == Type::kAppend || type == Type::kPiece; }

// A message may have these lengths, whatever the rest of it is.
bool AreSane(Type type, size_t name, size_t ranges, size_t bytes) {
  if ((type == Type::kPromise) != (name != 0) || name > kMaxName) return false;
  if (!HasBytes(type)) return ranges == 0 && bytes == 0;
  if (type == Type::kPiece && ranges != 1) return false;
  return ranges <= kMaxRanges && bytes <= kMaxBytes && (ranges != 0 || bytes == 0);
}

bool IsBodySane(const Message& message) {
  if (message.type == Type::kPromise && !IsName(message.name)) return false;
  uint64_t sum = 0;
  for (const Range& range : message.ranges) sum += range.length;
  return sum == message.bytes.size();
}

bool IsHeadSane(const Message& message) {
  if (!IsKnown(message.type)) return false;
  if (message.whole && message.type != Type::kAppend) return false;
  return message.type == Type::kRefused || message.why == Refusal::kNone;
}

}  // namespace

bool IsSane(const Message& message) {
  return IsHeadSane(message) &&
         AreSane(message.type, message.name.size(), message.ranges.size(), message.bytes.size()) &&
         IsBodySane(message);
}

void Encode(const Message& message, std::vector<uint8_t>* out) {
  const size_t begin = out->size();
  const size_t body = message.name.size() + message.ranges.size() * kRangeBytes;
  out->resize(begin + kHeaderBytes + body + message.bytes.size());
  uint8_t* const header = out->data() + begin;
  Writer writer(header + kHeaderBytes);
  writer.Put(message.name.data(), message.name.size());
  for (const Range& range : message.ranges) {
    writer.Put<uint64_t>(range.offset);
    writer.Put<uint32_t>(range.length);
  }
  writer.Put(message.bytes.data(), message.bytes.size());
  PutHeader(message, sys::Crc32c(header + kHeaderBytes, body + message.bytes.size()), header);
}

std::span<const uint8_t> Decoder::Feed(std::span<const uint8_t> piece) {
  if (refusal_ != Refusal::kNone || whole_) return piece;
  if (header_filled_ < kHeaderBytes) {
    piece = FeedHeader(piece);
    if (refusal_ != Refusal::kNone || header_filled_ < kHeaderBytes) return piece;
  }
  size_t n = std::min(front_length_ - front_.size(), piece.size());
  front_.insert(front_.end(), piece.begin(), piece.begin() + static_cast<ptrdiff_t>(n));
  piece = piece.subspan(n);
  std::vector<uint8_t>& bytes = message_.bytes;
  n = std::min(bytes_length_ - bytes.size(), piece.size());
  bytes.insert(bytes.end(), piece.begin(), piece.begin() + static_cast<ptrdiff_t>(n));
  piece = piece.subspan(n);
  if (front_.size() == front_length_ && bytes.size() == bytes_length_) {
    refusal_ = Finish();
    whole_ = refusal_ == Refusal::kNone;
  }
  return piece;
}

std::span<const uint8_t> Decoder::FeedHeader(std::span<const uint8_t> piece) {
  const size_t n = std::min(kHeaderBytes - header_filled_, piece.size());
  if (n != 0) std::memcpy(header_.data() + header_filled_, piece.data(), n);
  header_filled_ += n;
  // A stranger is told so at once, and not when 120 bytes have come.
  if (header_filled_ >= kProtocolEnd) {
    Reader reader(header_.data());
    if (reader.Get<uint32_t>() != kMagic) {
      refusal_ = Refusal::kMalformed;
    } else if (reader.Get<uint16_t>() != kProtocol) {
      refusal_ = Refusal::kProtocol;
    } else if (header_filled_ == kHeaderBytes) {
      refusal_ = ReadHeader();
    }
  }
  return piece.subspan(n);
}

Refusal Decoder::ReadHeader() {
  if (Reader(header_.data() + kHeaderCrc).Get<uint32_t>() !=
      sys::Crc32c(header_.data(), kHeaderCrc)) {
    return Refusal::kMalformed;
  }
  Reader reader(header_.data() + kProtocolEnd);
  message_ = {};
  message_.type = static_cast<Type>(reader.Get<uint16_t>());
  message_.why = static_cast<Refusal>(reader.Get<uint16_t>());
  const auto flags = reader.Get<uint16_t>();
  message_.whole = flags == kWhole;
  name_length_ = reader.Get<uint16_t>();
  const auto zero = reader.Get<uint16_t>();
  const size_t ranges = reader.Get<uint32_t>();
  bytes_length_ = reader.Get<uint32_t>();
  for (uint64_t* field : {&message_.epoch, &message_.written, &message_.version, &message_.number,
                          &message_.position, &message_.pool_size, &message_.offset}) {
    *field = reader.Get<uint64_t>();
  }
  message_.lineage = reader.GetId();
  message_.incarnation = reader.GetId();
  body_crc_ = reader.Get<uint32_t>();
  if (flags > kWhole || zero != 0 || !IsHeadSane(message_) ||
      !AreSane(message_.type, name_length_, ranges, bytes_length_)) {
    return Refusal::kMalformed;
  }
  front_length_ = name_length_ + ranges * kRangeBytes;
  front_.clear();
  front_.reserve(front_length_);
  message_.ranges.reserve(ranges);
  message_.bytes.reserve(bytes_length_);
  return Refusal::kNone;
}

Refusal Decoder::Finish() {
  const uint32_t crc = sys::Crc32c(front_.data(), front_.size());
  if (sys::Crc32c(message_.bytes.data(), message_.bytes.size(), crc) != body_crc_) {
    return Refusal::kMalformed;
  }
  message_.name.assign(front_.begin(), front_.begin() + static_cast<ptrdiff_t>(name_length_));
  for (size_t at = name_length_; at < front_.size(); at += kRangeBytes) {
    Reader reader(front_.data() + at);
    const auto offset = reader.Get<uint64_t>();
    message_.ranges.push_back({offset, reader.Get<uint32_t>()});
  }
  return IsBodySane(message_) ? Refusal::kNone : Refusal::kMalformed;
}

Message Decoder::Take() {
  whole_ = false;
  header_filled_ = 0;
  return std::exchange(message_, {});
}

}  // namespace nvcache::mirror
