// SPDX-License-Identifier: BSD-3-Clause
#include "tests/mirror/simulation/server.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace nvcache::simulation {

using mirror::Range;

Memory::Memory(kit::Random* random, Broken broken) : random_(*random), broken_(broken) { Lose(); }

void Memory::Restart() {
  DropCopy();
  if (broken_.Is(RuleNamed("write-is-whole")) && !before_.empty()) bytes_ = before_;
}

void Memory::Lose() {
  const bool keeps = broken_.Is(RuleNamed("forgets-as-another")) && !incarnation_.IsNone();
  if (!keeps) {
    for (uint8_t& byte : incarnation_.bytes) byte = static_cast<uint8_t>(random_.Next());
  }
  promised_ = 0;
  version_ = 0;
  image_ = {};
  bytes_.clear();
  before_.clear();
  has_copy_ = false;
}

bool Memory::BeginCopy(const mirror::Id& lineage, uint64_t pool_size) {
  if (pool_size != kPoolSize) return false;
  has_copy_ = true;
  copy_lineage_ = lineage;
  copy_.assign(pool_size, 0);
  return true;
}

void Memory::DropCopy() {
  if (has_copy_ && broken_.Is(RuleNamed("image-outlives-copy")) && !bytes_.empty()) bytes_ = copy_;
  has_copy_ = false;
}

void Memory::Put(const std::vector<Range>& ranges, const uint8_t* bytes, Bytes* into) {
  for (const Range& range : ranges) {
    std::memcpy(into->data() + range.offset, bytes, range.length);
    bytes += range.length;
  }
}

void Memory::WriteCopy(const std::vector<Range>& ranges, const uint8_t* bytes) {
  Put(ranges, bytes, &copy_);
}

void Memory::Exchange(mirror::Epoch epoch, Position position) {
  image_ = {copy_lineage_, copy_.size(), epoch, position};
  bytes_ = std::move(copy_);
  before_.clear();
  has_copy_ = false;
}

void Memory::Write(const std::vector<Range>& ranges, const uint8_t* bytes, mirror::Epoch epoch,
                   Position position) {
  before_ = bytes_;
  Put(ranges, bytes, &bytes_);
  image_.written = epoch;
  image_.position = position;
}

void Memory::Forget() {
  image_ = {};
  bytes_.clear();
  before_.clear();
}

Range Memory::Find(uint64_t offset) const {
  while (offset < bytes_.size() && bytes_[offset] == 0) ++offset;
  offset -= offset % mirror::kRangeUnit;
  if (offset >= bytes_.size()) return {bytes_.size(), 0};
  return {offset, static_cast<uint32_t>(std::min<size_t>(bytes_.size() - offset, 200))};
}

void Memory::Read(const Range& range, uint8_t* bytes) const {
  if (range.length > 0) std::memcpy(bytes, bytes_.data() + range.offset, range.length);
}

void Server::Kill(bool forgets) {
  stopped_ = false;
  replica_ = nullptr;
  memory_.Restart();
  if (forgets) memory_.Lose();
  later_.clear();
  for (const Connection connection : std::exchange(open_, {})) net_.CloseServer(connection);
}

void Server::Stop(bool stopped) {
  stopped_ = stopped;
  while (!stopped_ && !later_.empty()) {
    const auto what = std::move(later_.front());
    later_.pop_front();
    what();
  }
}

void Server::Connected(Connection connection) { open_.push_back(connection); }

void Server::Arrived(Connection connection, const Message& message) {
  if (stopped_) {
    later_.push_back([this, connection, message] { Arrived(connection, message); });
    return;
  }
  const bool is_open = std::find(open_.begin(), open_.end(), connection) != open_.end();
  if (replica_ != nullptr && is_open) replica_->Take(connection, message);
}

void Server::Ended(Connection connection) {
  if (stopped_) {
    later_.push_back([this, connection] { Ended(connection); });
    return;
  }
  std::erase(open_, connection);
  if (replica_ != nullptr) replica_->Closed(connection);
}

void Server::Close(Connection connection) {
  std::erase(open_, connection);
  net_.CloseServer(connection);
}

void Server::Send(Connection connection, Message message) {
  net_.ToClient(connection, std::move(message));
}

}  // namespace nvcache::simulation
