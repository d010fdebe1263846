// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/core/link.h"

#include <utility>

namespace nvcache::mirror {

void Link::Tick(Time now) {
  if (stage_ == Stage::kClosed) {
    if (now < retry_at_) return;
    stage_ = Stage::kConnecting;
    heard_ = now;
    Owe(now);
    wire_->Connect();
    return;
  }
  if (owed_since_ != 0 && now - owed_since_ > options_.silence) {
    return Leave("the server does not answer", now);
  }
  if (stage_ == Stage::kFollowing && owed_since_ == 0 && now - heard_ > options_.silence / 2) {
    wire_->Send({.type = Type::kPing});
    pinged_ = true;
    Owe(now);
  }
}

void Link::Connected(const Claim& claim, Version version, Time now) {
  if (stage_ != Stage::kConnecting) return;
  ++counters_.connections;
  AskPromise(claim, version, now);
}

void Link::AskPromise(const Claim& claim, Version version, Time now) {
  stage_ = Stage::kPromising;
  heard_ = now;
  owed_since_ = now;
  wire_->Send(
      {.type = Type::kPromise, .epoch = claim.epoch, .version = version, .name = claim.name});
}

void Link::Closed(Time now) {
  if (stage_ == Stage::kConnecting) problem_ = "the server cannot be reached";
  if (stage_ > Stage::kConnecting) problem_ = "the connection has ended";
  Reset(now);
}

void Link::Leave(std::string problem, Time now) {
  problem_ = std::move(problem);
  if (stage_ != Stage::kClosed) wire_->Close();
  Reset(now);
}

void Link::Reset(Time now) {
  stage_ = Stage::kClosed;
  retry_at_ = now + options_.retry;
  owed_since_ = 0;
  pinged_ = fetches_ = false;
  position_ = 0;
  cursor_ = nullptr;
  number_ = 0;
  whole_sent_ = false;
  sent_.clear();
  in_flight_ = 0;
}

void Link::Begin(const Claim& claim, std::unique_ptr<Cursor> cursor) {
  cursor_ = std::move(cursor);
  wire_->Send({.type = Type::kBegin,
               .epoch = claim.epoch,
               .pool_size = claim.pool_size,
               .lineage = claim.lineage});
}

void Link::Mark(const Claim& claim, Version version, Time now) {
  ++number_;
  sent_.push_back({number_, 0, true});
  wire_->Send({.type = Type::kMark,
               .epoch = claim.epoch,
               .version = version,
               .number = number_,
               .position = promised_.position});
  Owe(now);
}

void Link::Fetch(const Claim& claim, uint64_t offset, Time now) {
  fetches_ = true;
  wire_->Send({.type = Type::kFetch, .epoch = claim.epoch, .offset = offset});
  Owe(now);
}

void Link::Pump(const Claim& claim, Version version, Time now) {
  if (stage_ < Stage::kCopying || cursor_ == nullptr) return;
  Batch batch;
  while (in_flight_ < options_.window && cursor_->Read(&batch)) {
    const bool whole = batch.whole && !whole_sent_;
    whole_sent_ = whole_sent_ || whole;
    ++number_;
    sent_.push_back({number_, batch.bytes.size(), whole});
    in_flight_ += batch.bytes.size();
    ++counters_.batches;
    counters_.bytes += batch.bytes.size();
    wire_->Send({.type = Type::kAppend,
                 .whole = whole,
                 .epoch = claim.epoch,
                 .version = version,
                 .number = number_,
                 .position = batch.position,
                 .ranges = std::move(batch.ranges),
                 .bytes = std::move(batch.bytes)});
    Owe(now);
    batch = {};
  }
}

bool Link::Take(const Message& message, Time now) {
  heard_ = now;
  switch (message.type) {
    case Type::kPromised:
      if (stage_ != Stage::kPromising) break;
      stage_ = Stage::kCopying;
      promised_ = message;
      incarnation_ = message.incarnation;
      owed_since_ = 0;
      return true;
    case Type::kStored:
      if (TakeStored(message, now)) return true;
      break;
    case Type::kPiece:
      if (!std::exchange(fetches_, false) || message.ranges.size() != 1) break;
      owed_since_ = 0;
      return true;
    case Type::kPong:
      pinged_ = false;
      if (sent_.empty()) owed_since_ = 0;
      return true;
    case Type::kRefused:
      Leave(Text(message.why), now);
      return true;
    default:
      break;
  }
  Leave("the server has sent a message that nobody asked for", now);
  return false;
}

bool Link::TakeStored(const Message& message, Time now) {
  if (sent_.empty() || message.number != sent_.front().number) return false;
  const Sent sent = sent_.front();
  sent_.pop_front();
  in_flight_ -= sent.bytes;
  if (sent.whole) {
    stage_ = Stage::kFollowing;
    ++counters_.copies;
    problem_.clear();
  }
  // Before the copy is whole, the answer is of the image that it will replace.
  if (stage_ == Stage::kFollowing) position_ = message.position;
  owed_since_ = sent_.empty() && !pinged_ ? 0 : now;
  return true;
}

void Link::Owe(Time now) {
  if (owed_since_ == 0) owed_since_ = now;
}

}  // namespace nvcache::mirror
