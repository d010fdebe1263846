// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/core/replica.h"

#include <utility>

namespace nvcache::mirror {

const char* Text(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      return "nothing is wrong";
    case Refusal::kEpoch:
      return "a higher epoch is promised to another writer";
    case Refusal::kOrder:
      return "the message comes out of turn";
    case Refusal::kRange:
      return "bytes lie outside the image";
    case Refusal::kFull:
      return "the server has no room for a pool of this size";
    case Refusal::kForbidden:
      return "the key may not use this mirror name";
    case Refusal::kMalformed:
      return "the message is malformed";
    case Refusal::kProtocol:
      return "the server speaks another version of the protocol";
    case Refusal::kNothing:
      return "the server has no image";
  }
  return "the server has a reason that this program does not know";
}

void Replica::Take(Connection connection, const Message& message) {
  if (message.type == Type::kPromise) {
    Promise(connection, message);
    return;
  }
  if (message.type == Type::kPing) {
    host_.Send(connection, {.type = Type::kPong, .number = message.number});
    return;
  }
  if (connection != writer_) return Refuse(connection, Refusal::kOrder);
  if (message.epoch != store_.promised()) return Refuse(connection, Refusal::kEpoch);
  if (message.version > store_.version()) store_.SetVersion(message.version);
  const Refusal why = Write(message);
  if (why != Refusal::kNone) Refuse(connection, why);
}

// M5: first the others are gone, then the promise is stored, then it is answered.
void Replica::Promise(Connection connection, const Message& message) {
  if (message.epoch == 0) return SayPromised(connection);
  if (message.epoch < store_.promised()) return Refuse(connection, Refusal::kEpoch);
  const Connection before = std::exchange(writer_, connection);
  if (before != 0 && before != connection) host_.Close(before);
  store_.DropCopy();
  number_ = 0;
  following_ = false;
  if (message.epoch > store_.promised()) store_.SetPromised(message.epoch);
  if (message.version > store_.version()) store_.SetVersion(message.version);
  SayPromised(connection);
}

void Replica::SayPromised(Connection connection) {
  const ImageInfo& image = store_.image();
  host_.Send(connection, {.type = Type::kPromised,
                          .epoch = store_.promised(),
                          .written = image.written,
                          .version = store_.version(),
                          .position = image.position,
                          .pool_size = image.pool_size,
                          .lineage = image.lineage,
                          .incarnation = store_.incarnation()});
}

Refusal Replica::Write(const Message& message) {
  const bool answered = message.type != Type::kBegin && message.type != Type::kFetch;
  if (answered && message.number != number_ + 1) return Refusal::kOrder;
  switch (message.type) {
    case Type::kBegin:
      if (number_ != 0) return Refusal::kOrder;
      return store_.BeginCopy(message.lineage, message.pool_size) ? Refusal::kNone : Refusal::kFull;
    case Type::kAppend:
      if (const Refusal why = Append(message); why != Refusal::kNone) return why;
      break;
    case Type::kMark:
      if (store_.HasCopy()) return Refusal::kOrder;
      if (store_.image().lineage.IsNone()) return Refusal::kNothing;
      if (message.position != store_.image().position) return Refusal::kOrder;
      store_.Write({}, nullptr, message.epoch, message.position);
      break;
    case Type::kFetch:
      if (store_.image().lineage.IsNone()) return Refusal::kNothing;
      SendPiece(message.offset);
      return Refusal::kNone;
    case Type::kForget:
      store_.DropCopy();
      store_.Forget();
      following_ = false;
      break;
    default:
      return Refusal::kMalformed;
  }
  number_ = message.number;
  host_.Send(writer_, {.type = Type::kStored,
                       .epoch = message.epoch,
                       .number = message.number,
                       .position = store_.image().position});
  return Refusal::kNone;
}

Refusal Replica::Append(const Message& message) {
  if (store_.HasCopy()) {
    if (!AreInside(message.ranges, message.bytes.size(), store_.copy_size()))
      return Refusal::kRange;
    store_.WriteCopy(message.ranges, message.bytes.data());
    if (message.whole) {
      store_.Exchange(message.epoch, message.position);
      following_ = true;
    }
    return Refusal::kNone;
  }
  // Only the copy of this very connection goes on as the image (M4).
  if (!following_ || message.position < store_.image().position) return Refusal::kOrder;
  if (!AreInside(message.ranges, message.bytes.size(), store_.image().pool_size)) {
    return Refusal::kRange;
  }
  store_.Write(message.ranges, message.bytes.data(), message.epoch, message.position);
  return Refusal::kNone;
}

bool Replica::AreInside(const std::vector<Range>& ranges, size_t bytes, uint64_t size) const {
  size_t sum = 0;
  for (const Range& range : ranges) {
    if (range.offset % kRangeUnit != 0 || range.length % kRangeUnit != 0) return false;
    if (range.offset > size || range.length > size - range.offset) return false;
    sum += range.length;
  }
  return sum == bytes;
}

void Replica::SendPiece(uint64_t offset) {
  Message piece = {.type = Type::kPiece, .epoch = store_.promised()};
  const Range range = store_.Find(offset);
  piece.ranges.push_back(range);
  piece.bytes.resize(range.length);
  store_.Read(range, piece.bytes.data());
  host_.Send(writer_, std::move(piece));
}

void Replica::Refuse(Connection connection, Refusal why) {
  host_.Send(connection, {.type = Type::kRefused, .why = why, .epoch = store_.promised()});
  host_.Close(connection);
  Closed(connection);
}

void Replica::Closed(Connection connection) {
  if (connection != writer_) return;
  writer_ = 0;
  store_.DropCopy();
}

}  // namespace nvcache::mirror
