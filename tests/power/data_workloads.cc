// SPDX-License-Identifier: BSD-3-Clause
//
// raw: writes of all sizes, at all places, to three files, and appends to a fourth, in one order.
// cut: one file, made shorter and longer, with holes, and written in between. What was cut off must
//      never come back.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/power/workload.h"

namespace nvcache::power_test {
namespace {

constexpr const char* kNames[] = {"a", "b", "c", "log"};
constexpr unsigned kMaxFiles = 4;
constexpr unsigned kAppended = 3;
constexpr uint64_t kMaxAppended = 512u << 10;
constexpr uint64_t kBlock = 4096;  // of the file system

struct Operation {
  enum Kind { kWrite, kWriteVector, kAppend, kTruncate, kReopen, kPunch, kSync } kind;
  unsigned file;
  uint64_t offset;
  uint64_t length;  // kTruncate: the new size is `offset`
};

// The operations, one after the other, and the sizes of the files after them.
class Script {
 public:
  Script(uint64_t seed, bool cuts) : seed_(seed), cuts_(cuts) {}

  Operation Next() {
    Random random(seed_ ^ ++number_);
    const Operation operation = cuts_ ? NextCut(random) : NextRaw(random);
    uint64_t& size = sizes_[operation.file];
    switch (operation.kind) {
      case Operation::kWrite:
      case Operation::kWriteVector:
      case Operation::kAppend:
        size = std::max(size, operation.offset + operation.length);
        break;
      case Operation::kTruncate:
      case Operation::kReopen:
        size = operation.offset;
        break;
      case Operation::kPunch:
      case Operation::kSync:
        break;
    }
    return operation;
  }
  uint64_t number() const { return number_; }
  uint64_t size(unsigned file) const { return sizes_[file]; }
  uint64_t id() const { return seed_ ^ number_ << 20; }  // of the last operation's content
  unsigned files() const { return cuts_ ? 1 : kMaxFiles; }

 private:
  Operation NextRaw(Random& random) {
    constexpr uint64_t kSize = 160u << 10;
    const uint64_t choice = random.Below(100);
    if (choice < 4) return {Operation::kSync, static_cast<unsigned>(random.Below(4)), 0, 0};
    const uint64_t length = random.Length(48u << 10);
    if (choice < 30 && sizes_[kAppended] + length <= kMaxAppended) {
      return {Operation::kAppend, kAppended, sizes_[kAppended], length};
    }
    const uint64_t offset = random.Below(kSize - length + 1);
    const auto kind = choice < 50 ? Operation::kWriteVector : Operation::kWrite;
    return {kind, static_cast<unsigned>(random.Below(3)), offset, length};
  }

  Operation NextCut(Random& random) {
    constexpr uint64_t kSize = 48u << 10;
    const uint64_t choice = random.Below(100);
    if (choice < 5) return {Operation::kTruncate, 0, 0, 0};
    if (choice < 10) return {Operation::kTruncate, 0, random.Below(sizes_[0] + 1), 0};
    if (choice < 14) return {Operation::kTruncate, 0, random.Below(kSize), 0};
    if (choice < 18) return {Operation::kReopen, 0, 0, 0};
    if (choice < 24) {
      // Whole blocks: what is punched into a part of one is zeroed in memory, and not at once on
      // the disk when the rest of the hole is.
      const uint64_t blocks = 1 + random.Below(4);
      return {Operation::kPunch, 0, random.Below(8) * kBlock, blocks * kBlock};
    }
    if (choice < 26) return {Operation::kSync, 0, 0, 0};
    const uint64_t length = random.Length(12u << 10);
    // Most of them at the end, or a little behind it, where cut-off bytes would show.
    uint64_t offset =
        choice < 60 ? sizes_[0] + random.Below(choice < 45 ? 1 : 6000) : random.Below(kSize);
    if (offset + length > kSize) offset = kSize - length;
    return {Operation::kWrite, 0, offset, length};
  }

  const uint64_t seed_;
  const bool cuts_;
  uint64_t number_ = 0;
  uint64_t sizes_[kMaxFiles] = {};
};

// What follows it may hide what was lost before.
bool Hides(const Operation& operation) {
  return operation.kind == Operation::kTruncate || operation.kind == Operation::kReopen;
}

// What ext4 may have made of `before` by a cut that nobody has waited for: in the rest of the last
// block, any sectors are zero on the disk, and the size is as it was.
bool IsHalfCut(const std::vector<uint8_t>& before, uint64_t size,
               const std::vector<uint8_t>& found) {
  if (found.size() != before.size() || size >= found.size()) return false;
  constexpr uint64_t kSector = 512;
  const uint64_t block_end = (size + kBlock - 1) / kBlock * kBlock;
  std::vector<uint8_t> expected = before;
  for (uint64_t at = size; at < std::min<uint64_t>(block_end, found.size());) {
    const uint64_t end = std::min<uint64_t>((at / kSector + 1) * kSector, found.size());
    const auto is_zero = [&](uint64_t from) {
      return std::all_of(&found[from], found.data() + end, [](uint8_t byte) { return byte == 0; });
    };
    if (is_zero(at)) std::fill(&expected[at], expected.data() + end, uint8_t{0});
    at = end;
  }
  return expected == found;
}

void Apply(const Operation& operation, uint64_t id, std::vector<uint8_t>* bytes) {
  switch (operation.kind) {
    case Operation::kWrite:
    case Operation::kWriteVector:
    case Operation::kAppend:
      kit::Put(bytes, operation.offset, Content(id, operation.length).data(), operation.length);
      break;
    case Operation::kTruncate:
    case Operation::kReopen:
      bytes->resize(operation.offset);
      break;
    case Operation::kPunch:
      kit::Erase(bytes, operation.offset, operation.length);
      break;
    case Operation::kSync:
      break;
  }
}

// Whether these bytes are those after the write, or before it, one by one; and the size is between.
bool IsPartOf(const Operation& write, uint64_t id, std::vector<uint8_t> before,
              const std::vector<uint8_t>& found) {
  std::vector<uint8_t> after = before;
  Apply(write, id, &after);
  if (found.size() < before.size() || found.size() > after.size()) return false;
  before.resize(found.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] != before[i] && found[i] != after[i]) return false;
  }
  return true;
}

class DataWorkload : public Workload {
 public:
  DataWorkload(const Settings& settings, bool cuts) : Workload(settings), cuts_(cuts) {}

  void Run(uint64_t done) override;
  Verdict Check(uint64_t acknowledged, uint64_t) override;

 private:
  void Open(unsigned file, int more_flags) {
    const int flags =
        O_RDWR | O_CREAT | O_CLOEXEC | (file == kAppended ? O_APPEND : 0) | more_flags;
    fds_[file] = ::open(Path(kNames[file]).c_str(), flags, 0644);
    if (fds_[file] < 0) Die("open");
  }
  template <typename Write>
  void UntilItIsTaken(size_t length, Write write);
  void Do(const Operation& operation, uint64_t id);
  void CutPart(uint64_t size);
  // A mirrored pool is lost, and the call that was under way may be there in part (docs/mirror.md).
  bool MayBePart(const Operation& operation) const {
    return promise() == Promise::kMirrored && operation.kind <= Operation::kAppend;
  }
  Verdict Explain(uint64_t acknowledged, const std::vector<std::vector<uint8_t>>& found);

  const bool cuts_;
  int fds_[kMaxFiles] = {};
};

// A disk that refuses may refuse a write, too, when the log is full of what it did not take, or
// when the file grows, and ext4 is read-only by then; nothing of it was written.
template <typename Write>
void DataWorkload::UntilItIsTaken(size_t length, Write write) {
  constexpr useconds_t kPause = 100'000;
  for (;;) {
    const ssize_t n = write();
    if (n == static_cast<ssize_t>(length)) return;
    if (n >= 0 || (errno != EIO && errno != EROFS)) Die("write");
    Refused("write");
    ::usleep(kPause);
  }
}

void DataWorkload::Do(const Operation& operation, uint64_t id) {
  const int fd = fds_[operation.file];
  const auto offset = static_cast<off_t>(operation.offset);
  const auto length = static_cast<ssize_t>(operation.length);
  switch (operation.kind) {
    case Operation::kWrite:
    case Operation::kAppend: {
      const std::vector<uint8_t> bytes = Content(id, operation.length);
      UntilItIsTaken(bytes.size(), [&] {
        return operation.kind == Operation::kWrite
                   ? ::pwrite(fd, bytes.data(), bytes.size(), offset)
                   : ::write(fd, bytes.data(), bytes.size());
      });
      break;
    }
    case Operation::kWriteVector: {
      std::vector<uint8_t> bytes = Content(id, operation.length);
      const size_t half = bytes.size() / 2;
      const iovec parts[2] = {{bytes.data(), half}, {bytes.data() + half, bytes.size() - half}};
      UntilItIsTaken(bytes.size(), [&] { return ::pwritev(fd, parts, 2, offset); });
      break;
    }
    case Operation::kTruncate:
      if (::ftruncate(fd, offset) != 0) Die("ftruncate");
      break;
    case Operation::kReopen:
      ::close(fd);
      Open(operation.file, O_TRUNC);
      break;
    case Operation::kPunch:
      if (::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length) != 0) {
        Die("fallocate");
      }
      break;
    case Operation::kSync:
      if (promise() != Promise::kNothing && ::fsync(fd) != 0) Refused("fsync");
      break;
  }
}

// What is there of an append that the loss has met: it comes again, as a whole.
void DataWorkload::CutPart(uint64_t size) {
  const int fd = fds_[kAppended];
  if (::lseek(fd, 0, SEEK_END) <= static_cast<off_t>(size)) return;
  if (::ftruncate(fd, static_cast<off_t>(size)) != 0) Die("ftruncate");
}

void DataWorkload::Run(uint64_t done) {
  Script script(seed(), cuts_);
  Operation last = {Operation::kSync, 0, 0, 0};
  while (script.number() < done) last = script.Next();
  for (unsigned file = 0; file < script.files(); ++file) Open(file, 0);
  if (Hides(last)) Do(last, script.id());  // it may have been done by half
  if (promise() == Promise::kMirrored) CutPart(script.size(kAppended));
  if (promise() == Promise::kFsync) SyncFolder();
  for (;;) {
    const Operation operation = script.Next();
    if (Hides(operation)) Announce(script.number());
    Do(operation, script.id());
    // A file that is closed when it is cut, and a hole of which too many are pending, are as they
    // should be when something has been written after it, or when it was synced.
    bool durable = operation.kind <= Operation::kTruncate || operation.kind == Operation::kSync;
    if (promise() == Promise::kFsync) durable = ::fsync(fds_[operation.file]) == 0;
    if (durable) Acknowledge(script.number());
  }
}

Verdict DataWorkload::Check(uint64_t acknowledged, uint64_t announced) {
  Script script(seed(), cuts_);
  std::vector<std::vector<uint8_t>> found, expected(script.files());
  std::vector<bool> same;
  for (unsigned file = 0; file < script.files(); ++file) {
    bool exists;
    found.push_back(ReadFile(Path(kNames[file]), &exists));
  }
  for (unsigned file = 0; file < script.files(); ++file) same.push_back(found[file].empty());
  const uint64_t end = acknowledged + kUnacknowledged;
  while (script.number() < acknowledged ||
         std::find(same.begin(), same.end(), false) != same.end()) {
    const Operation operation = script.Next();
    const uint64_t number = script.number();
    if (number > end || (Hides(operation) && number > std::max(announced, acknowledged))) {
      return Explain(acknowledged, found);
    }
    const unsigned file = operation.file;
    if (Hides(operation) && number >= acknowledged &&
        IsHalfCut(expected[file], operation.offset, found[file])) {
      return Good(number);
    }
    const bool is_part = number == acknowledged + 1 && MayBePart(operation) &&
                         IsPartOf(operation, script.id(), expected[file], found[file]);
    Apply(operation, script.id(), &expected[file]);
    same[file] = expected[file] == found[file];
    // The next writer does it again.
    if (is_part && !same[file] && std::count(same.begin(), same.end(), false) == 1) {
      return Good(acknowledged);
    }
  }
  return Good(script.number());
}

// Says of the first wrong byte which operation's it should be, and whose it is.
Verdict DataWorkload::Explain(uint64_t acknowledged,
                              const std::vector<std::vector<uint8_t>>& found) {
  Script script(seed(), cuts_);
  std::vector<std::vector<uint8_t>> expected(script.files());
  std::vector<std::vector<uint64_t>> owner(script.files());
  while (script.number() < acknowledged) {
    const Operation operation = script.Next();
    std::vector<uint8_t>& bytes = expected[operation.file];
    std::vector<uint64_t>& owners = owner[operation.file];
    Apply(operation, script.id(), &bytes);
    owners.resize(bytes.size());
    if (operation.kind > Operation::kAppend && operation.kind != Operation::kPunch) continue;
    const uint64_t end = std::min<uint64_t>(operation.offset + operation.length, owners.size());
    for (uint64_t i = operation.offset; i < end; ++i) owners[i] = script.number();
  }
  unsigned file = 0;
  while (file + 1 < found.size() && expected[file] == found[file]) ++file;
  const auto [wanted, got] = std::mismatch(expected[file].begin(), expected[file].end(),
                                           found[file].begin(), found[file].end());
  const auto at = static_cast<uint64_t>(wanted - expected[file].begin());

  // Whose bytes are there?
  Script again(seed(), cuts_);
  uint64_t whose = 0;
  const uint64_t here = std::min<uint64_t>(8, found[file].size() - at);
  while (here > 0 && again.number() < acknowledged + kUnacknowledged) {
    const Operation operation = again.Next();
    if (operation.file != file || operation.kind > Operation::kAppend || operation.offset > at ||
        operation.offset + operation.length < at + here) {
      continue;
    }
    uint8_t bytes[8];
    Fill(again.id(), at - operation.offset, bytes, here);
    if (std::memcmp(bytes, &*got, here) == 0) whose = again.number();
  }
  const uint64_t should = at < owner[file].size() ? owner[file][at] : 0;
  const char* what = whose > acknowledged ? "an unacknowledged write is torn, or out of order"
                     : whose > should     ? "bytes that were cut off are there again"
                                          : "an acknowledged operation is missing";
  return Bad(
      "%s: file %s (%zu bytes, after operation %llu it has %zu): byte %llu should be from "
      "operation %llu, and is from %llu (0: from none)",
      what, kNames[file], found[file].size(), static_cast<unsigned long long>(acknowledged),
      expected[file].size(), static_cast<unsigned long long>(at),
      static_cast<unsigned long long>(should), static_cast<unsigned long long>(whose));
}

}  // namespace

std::unique_ptr<Workload> MakeRaw(const Settings& settings) {
  return std::make_unique<DataWorkload>(settings, false);
}

std::unique_ptr<Workload> MakeCut(const Settings& settings) {
  return std::make_unique<DataWorkload>(settings, true);
}

}  // namespace nvcache::power_test
