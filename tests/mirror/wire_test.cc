// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "mirror/wire/frame.h"
#include "src/sys/crc32c.h"

namespace nvcache::mirror {
namespace {

using Bytes = std::vector<uint8_t>;

Id IdOf(uint8_t first) {
  Id id;
  for (uint8_t& byte : id.bytes) byte = first++;
  return id;
}

Bytes Encoded(const Message& message) {
  Bytes bytes;
  Encode(message, &bytes);
  return bytes;
}

// All of the stream's messages; what it was refused for is in *why.
std::vector<Message> Decoded(const Bytes& stream, size_t step, Refusal* why) {
  std::vector<Message> messages;
  Decoder decoder;
  for (size_t at = 0; at < stream.size();) {
    std::span<const uint8_t> piece(stream.data() + at, std::min(step, stream.size() - at));
    at += piece.size();
    while (!piece.empty() && decoder.refusal() == Refusal::kNone) {
      piece = decoder.Feed(piece);
      if (decoder.HasMessage()) messages.push_back(decoder.Take());
    }
  }
  *why = decoder.refusal();
  return messages;
}

Refusal WhyOf(const Bytes& stream) {
  Refusal why;
  const auto messages = Decoded(stream, stream.size(), &why);
  EXPECT_TRUE(messages.empty());
  return why;
}

// One of each type, with all fields that a type may have.
std::vector<Message> All() {
  std::vector<Message> all;
  for (const Type type :
       {Type::kPromise, Type::kBegin, Type::kAppend, Type::kMark, Type::kFetch, Type::kForget,
        Type::kPing, Type::kPromised, Type::kStored, Type::kPiece, Type::kPong, Type::kRefused}) {
    Message message = {.type = type,
                       .epoch = 1,
                       .written = 2,
                       .version = ~uint64_t{0},
                       .number = 4,
                       .position = uint64_t{1} << 63,
                       .pool_size = 6,
                       .offset = 7,
                       .lineage = IdOf(1),
                       .incarnation = IdOf(100)};
    if (type == Type::kPromise) message.name = "db-1";
    if (type == Type::kRefused) message.why = Refusal::kNothing;
    if (type == Type::kPiece) message.ranges = {{4096, 8}};
    if (type == Type::kAppend) {
      message.whole = true;
      message.ranges = {{0, 0}, {~uint64_t{0} - 7, 16}, {8, 8}};
    }
    size_t sum = 0;
    for (const Range& range : message.ranges) sum += range.length;
    for (size_t i = 0; i < sum; ++i) message.bytes.push_back(static_cast<uint8_t>(i * 7));
    all.push_back(message);
  }
  return all;
}

Message Append() { return All()[2]; }

// The frame with some bytes of its header changed, and its checksum made right again.
template <typename Integer>
Bytes With(Bytes frame, size_t offset, Integer value) {
  std::memcpy(frame.data() + offset, &value, sizeof(value));
  const uint32_t crc = sys::Crc32c(frame.data(), 116);
  std::memcpy(frame.data() + 116, &crc, sizeof(crc));
  return frame;
}

TEST(WireTest, EachTypeComesBack) {
  for (const Message& message : All()) {
    EXPECT_TRUE(IsSane(message));
    Refusal why;
    EXPECT_EQ(Decoded(Encoded(message), 1 << 20, &why), std::vector<Message>{message});
    EXPECT_EQ(why, Refusal::kNone);
  }
}

TEST(WireTest, PiecesOfAnyLength) {
  Bytes stream;
  for (const Message& message : All()) Encode(message, &stream);
  for (const size_t step : std::vector<size_t>{1, 2, 3, 5, 7, 119, 120, 121, 1000}) {
    Refusal why;
    EXPECT_EQ(Decoded(stream, step, &why), All()) << step;
    EXPECT_EQ(why, Refusal::kNone);
  }
}

TEST(WireTest, TheLongestOne) {
  Message message = {.type = Type::kAppend};
  for (size_t i = 0; i < kMaxRanges; ++i) message.ranges.push_back({64 * i, 64});
  message.bytes.assign(kMaxBytes, 0x5a);
  const Bytes frame = Encoded(message);
  EXPECT_EQ(frame.size(), kMaxFrame - kMaxName);
  Refusal why;
  EXPECT_EQ(Decoded(frame, 65536, &why), std::vector<Message>{message});

  message = {.type = Type::kPromise, .epoch = 1, .name = std::string(kMaxName, 'n')};
  EXPECT_EQ(Decoded(Encoded(message), 64, &why), std::vector<Message>{message});
}

TEST(WireTest, NothingBeforeItsEnd) {
  for (const Message& message : All()) {
    const Bytes frame = Encoded(message);
    for (size_t length = 0; length < frame.size(); ++length) {
      Decoder decoder;
      EXPECT_TRUE(decoder.Feed({frame.data(), length}).empty());
      EXPECT_FALSE(decoder.HasMessage());
      EXPECT_EQ(decoder.refusal(), Refusal::kNone);
      EXPECT_EQ(decoder.IsInside(), length != 0);
    }
  }
}

TEST(WireTest, EveryBitCounts) {
  for (const Message& message : All()) {
    const Bytes frame = Encoded(message);
    for (size_t bit = 0; bit < 8 * frame.size(); ++bit) {
      Bytes damaged = frame;
      damaged[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      const Refusal expected =
          bit / 8 == 4 || bit / 8 == 5 ? Refusal::kProtocol : Refusal::kMalformed;
      ASSERT_EQ(WhyOf(damaged), expected) << bit;
    }
  }
}

TEST(WireTest, StrangersAreToldEarly) {
  Decoder decoder;
  const std::string hello = "GET / ";
  decoder.Feed({reinterpret_cast<const uint8_t*>(hello.data()), hello.size()});
  EXPECT_EQ(decoder.refusal(), Refusal::kMalformed);
  const Bytes frame = With<uint16_t>(Encoded(Append()), 4, 2);
  EXPECT_EQ(WhyOf(Bytes(frame.begin(), frame.begin() + 6)), Refusal::kProtocol);
}

TEST(WireTest, FieldsOutOfBounds) {
  const Bytes append = Encoded(Append());
  const Bytes ping = Encoded({.type = Type::kPing});
  const Bytes promise = Encoded({.type = Type::kPromise, .epoch = 1, .name = "db"});
  const Bytes piece = Encoded({.type = Type::kPiece, .ranges = {{8, 0}}});
  for (const int type : {0, 8, 31, 37, 65535}) {
    EXPECT_EQ(WhyOf(With<uint16_t>(ping, 6, static_cast<uint16_t>(type))), Refusal::kMalformed)
        << type;
  }
  const std::vector<Bytes> wrong = {
      With<uint16_t>(ping, 8, 1),                                        // a refusal
      With<uint16_t>(ping, 10, 1),                                       // `whole`
      With<uint16_t>(append, 10, 2),                                     // an unknown flag
      With<uint16_t>(append, 10, 3),                                     //
      With<uint16_t>(append, 14, 1),                                     // what is zero
      With<uint16_t>(ping, 12, 1),                                       // a name
      With<uint16_t>(promise, 12, 0),                                    // none
      With<uint16_t>(promise, 12, kMaxName + 1),                         //
      With<uint16_t>(promise, 12, 65535),                                //
      With<uint32_t>(ping, 16, 1),                                       // ranges
      With<uint32_t>(ping, 20, 8),                                       // bytes
      With<uint32_t>(append, 16, kMaxRanges + 1),                        //
      With<uint32_t>(append, 16, ~0U),                                   //
      With<uint32_t>(append, 16, 0),                                     // bytes without a range
      With<uint32_t>(append, 20, static_cast<uint32_t>(kMaxBytes + 1)),  //
      With<uint32_t>(append, 20, ~0U),                                   //
      With<uint32_t>(piece, 16, 2),                                      //
      With<uint32_t>(piece, 16, 0),                                      //
  };
  for (size_t i = 0; i < wrong.size(); ++i) {
    // Nothing but the header: the refusal waits for nothing more.
    EXPECT_EQ(WhyOf(Bytes(wrong[i].begin(), wrong[i].begin() + kHeaderBytes)), Refusal::kMalformed)
        << i;
  }
}

TEST(WireTest, BodiesOutOfBounds) {
  Message append = Append();
  append.ranges[0].length += 8;
  EXPECT_FALSE(IsSane(append));
  EXPECT_EQ(WhyOf(Encoded(append)), Refusal::kMalformed);
  append = {.type = Type::kAppend};
  append.ranges.assign(kMaxRanges, {0, ~0U});  // their sum is more than 32 bits
  EXPECT_EQ(WhyOf(Encoded(append)), Refusal::kMalformed);
  for (const char* name : {"a/b", "..", "-a", "a b", "a\n"}) {
    EXPECT_EQ(WhyOf(Encoded({.type = Type::kPromise, .epoch = 1, .name = name})),
              Refusal::kMalformed)
        << name;
  }
}

TEST(WireTest, NothingAfterARefusal) {
  Bytes stream(6, 0);
  Encode({.type = Type::kPing}, &stream);
  EXPECT_EQ(WhyOf(stream), Refusal::kMalformed);
}

TEST(WireTest, AnyBytesAtAll) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20000; ++round) {
    Bytes frame = Encoded(All()[random() % 12]);
    const size_t changes = random() % 4;
    for (size_t i = 0; i < changes; ++i) {
      frame = With<uint8_t>(frame, 6 + random() % 106, static_cast<uint8_t>(random()));
    }
    if (random() % 2 != 0) frame.resize(random() % (frame.size() + 1));
    Refusal why;
    for (const Message& message : Decoded(frame, 1 + random() % 200, &why)) {
      EXPECT_TRUE(IsSane(message));
    }
  }
}

}  // namespace
}  // namespace nvcache::mirror
