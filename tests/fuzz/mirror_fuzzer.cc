// SPDX-License-Identifier: BSD-3-Clause
//
// What connections may send to a memory server, in this process, under libFuzzer and the
// sanitizers: the Decoder, and behind it a Replica over a small store. Whatever comes: no crash, no
// byte outside of an image, nothing decoded that is not as it is encoded, no promise that goes
// down, and nothing to or from a connection that was closed.
//
//   mirror_fuzzer [OPTION...] [FOLDER...]    libFuzzer's options; fuzz.py chooses them
//   mirror_fuzzer FILE                       one input again
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "mirror/core/replica.h"
#include "mirror/core/store.h"
#include "mirror/wire/frame.h"
#include "src/sys/crc32c.h"

namespace nvcache::mirror {
namespace {

constexpr uint64_t kRoom = 1 << 16;
constexpr Connection kConnections = 3;

void Want(bool condition, const char* text) {
  if (condition) return;
  fprintf(stderr, "mirror_fuzzer: %s\n", text);
  abort();
}

class SmallStore : public Store {
 public:
  Id incarnation() const override { return {{7}}; }
  Epoch promised() const override { return promised_; }
  Version version() const override { return version_; }
  const ImageInfo& image() const override { return info_; }
  void SetPromised(Epoch epoch) override {
    Want(epoch > promised_, "the promise goes down");
    promised_ = epoch;
  }
  void SetVersion(Version version) override {
    Want(version > version_, "the version goes down");
    version_ = version;
  }
  bool BeginCopy(const Id& lineage, uint64_t pool_size) override {
    DropCopy();
    if (pool_size == 0 || pool_size > kRoom) return false;
    copy_.assign(pool_size, 0);
    lineage_ = lineage;
    return true;
  }
  bool HasCopy() const override { return !copy_.empty(); }
  uint64_t copy_size() const override { return copy_.size(); }
  void DropCopy() override { copy_.clear(); }
  void WriteCopy(const std::vector<Range>& ranges, const uint8_t* bytes) override {
    Put(&copy_, ranges, bytes);
  }
  void Exchange(Epoch epoch, Position position) override {
    Want(HasCopy(), "no copy takes the image's place");
    image_ = std::move(copy_);
    copy_.clear();
    info_ = {lineage_, image_.size(), epoch, position};
  }
  void Write(const std::vector<Range>& ranges, const uint8_t* bytes, Epoch epoch,
             Position position) override {
    Want(epoch == promised_, "another epoch than the promised one writes");
    Want(position >= info_.position, "the position goes down");
    Put(&image_, ranges, bytes);
    info_.written = epoch;
    info_.position = position;
  }
  void Forget() override {
    image_.clear();
    info_ = {};
  }
  Range Find(uint64_t offset) const override {
    offset = offset / kRangeUnit * kRangeUnit;
    while (offset < image_.size() && image_[offset] == 0) ++offset;
    if (offset >= image_.size()) return {image_.size(), 0};
    offset = offset / kRangeUnit * kRangeUnit;
    return {offset, static_cast<uint32_t>(std::min<uint64_t>(64, image_.size() - offset))};
  }
  void Read(const Range& range, uint8_t* bytes) const override {
    if (range.length != 0) std::memcpy(bytes, &image_.at(range.offset), range.length);
  }

 private:
  static void Put(std::vector<uint8_t>* image, const std::vector<Range>& ranges,
                  const uint8_t* bytes) {
    for (const Range& range : ranges) {
      Want(range.offset <= image->size() && range.length <= image->size() - range.offset,
           "bytes lie outside of the image");
      if (range.length != 0) std::memcpy(image->data() + range.offset, bytes, range.length);
      bytes += range.length;
    }
  }

  Epoch promised_ = 0;
  Version version_ = 0;
  ImageInfo info_;
  Id lineage_;
  std::vector<uint8_t> image_, copy_;
};

// Numbers connections anew when they have been closed, as a server does.
class Server : public Replica::Host {
 public:
  void Take(size_t which, std::span<const uint8_t> bytes) {
    Line* line = &lines_[which];
    while (!bytes.empty() && line->decoder.refusal() == Refusal::kNone) {
      bytes = line->decoder.Feed(bytes);
      if (!line->decoder.HasMessage()) continue;
      const Message message = line->decoder.Take();
      Want(IsSane(message), "a message is decoded that is none");
      std::vector<uint8_t> again;
      Encode(message, &again);
      Decoder decoder;
      decoder.Feed(again);
      Want(decoder.HasMessage() && decoder.Take() == message, "a message does not come back");
      const Connection number = line->number;
      taking_ = line;
      replica_.Take(number, message);
      taking_ = nullptr;
      if (closed_.contains(number)) return Reopen(line);
    }
    if (line->decoder.refusal() == Refusal::kNone) return;
    replica_.Closed(line->number);
    closed_.insert(line->number);
    Reopen(line);
  }
  void End(size_t which) {
    replica_.Closed(lines_[which].number);
    closed_.insert(lines_[which].number);
    Reopen(&lines_[which]);
  }

 private:
  struct Line {
    Connection number;
    Decoder decoder;
  };

  void Close(Connection connection) override {
    Want(closed_.insert(connection).second, "a connection is closed twice");
    for (Line& line : lines_) {
      if (line.number == connection && &line != taking_) Reopen(&line);
    }
  }
  void Send(Connection connection, Message message) override {
    Want(!closed_.contains(connection), "something is sent to a connection that was closed");
    Want(IsSane(message), "an answer is none");
  }
  void Reopen(Line* line) {
    line->number = ++last_;
    line->decoder = Decoder();
  }

  SmallStore store_;
  Replica replica_{&store_, this};
  std::set<Connection> closed_;
  Connection last_ = kConnections;
  const Line* taking_ = nullptr;  // it is opened again when that is done
  Line lines_[kConnections] = {{1, {}}, {2, {}}, {3, {}}};
};

class Input {
 public:
  explicit Input(std::span<const uint8_t> rest) : rest_(rest) {}
  bool IsEmpty() const { return rest_.empty(); }
  uint8_t Byte() { return rest_.empty() ? 0 : Bytes(1)[0]; }
  std::span<const uint8_t> Bytes(size_t n) {
    const auto bytes = rest_.first(std::min(n, rest_.size()));
    rest_ = rest_.subspan(bytes.size());
    return bytes;
  }

 private:
  std::span<const uint8_t> rest_;
};

// Small numbers meet each other.
Message MakeMessage(Input* input) {
  constexpr Type kTypes[] = {Type::kPromise, Type::kPromise, Type::kBegin,  Type::kAppend,
                             Type::kAppend,  Type::kAppend,  Type::kMark,   Type::kFetch,
                             Type::kForget,  Type::kPing,    Type::kStored, Type::kRefused};
  Message message = {.type = kTypes[input->Byte() % 12]};
  message.epoch = input->Byte() % 4;
  message.version = input->Byte() % 4;
  message.number = input->Byte() % 8;
  message.position = input->Byte() % 8;
  message.pool_size = uint64_t{8} << input->Byte() % 16;
  message.offset = input->Byte();
  message.lineage.bytes[0] = input->Byte() % 2;
  if (message.type == Type::kPromise) message.name = "db";
  if (message.type != Type::kAppend) return message;
  message.whole = input->Byte() % 2 != 0;
  for (int count = input->Byte() % 4; count > 0; --count) {
    const uint32_t length = input->Byte() % 64;
    uint64_t offset = input->Byte();
    if (offset == 255) offset = ~uint64_t{0} - input->Byte();
    message.ranges.push_back({offset / 8 * 8, length / 8 * 8});
    message.bytes.resize(message.bytes.size() + length / 8 * 8, input->Byte());
  }
  return message;
}

// A header of any bytes, with the right checksums.
std::vector<uint8_t> MakeFrame(Input* input) {
  const size_t length = input->Byte();
  std::vector<uint8_t> frame;
  Encode(MakeMessage(input), &frame);
  for (int changes = input->Byte() % 4; changes > 0; --changes) {
    const size_t at = 6 + input->Byte() % (kHeaderBytes - 6 - 8);
    frame[at] = input->Byte();
  }
  const auto body = input->Bytes(length);
  frame.insert(frame.end(), body.begin(), body.end());
  const uint32_t crc = sys::Crc32c(frame.data() + kHeaderBytes, frame.size() - kHeaderBytes);
  std::memcpy(frame.data() + 112, &crc, 4);
  const uint32_t header = sys::Crc32c(frame.data(), 116);
  std::memcpy(frame.data() + 116, &header, 4);
  return frame;
}

void Run(std::span<const uint8_t> bytes) {
  Server server;
  for (Input input(bytes); !input.IsEmpty();) {
    const uint8_t what = input.Byte();
    const size_t which = what % kConnections;
    std::vector<uint8_t> frame;
    switch (what / kConnections % 16) {
      case 0:
        server.End(which);
        break;
      case 1: {
        const size_t n = input.Byte();
        server.Take(which, input.Bytes(n));
        break;
      }
      case 2:
        server.Take(which, MakeFrame(&input));
        break;
      default:
        Encode(MakeMessage(&input), &frame);
        server.Take(which, frame);
        break;
    }
  }
}

}  // namespace
}  // namespace nvcache::mirror

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nvcache::mirror::Run({data, size});
  return 0;
}
