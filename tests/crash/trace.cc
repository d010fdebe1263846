// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/trace.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "src/nvlog/record.h"
#include "src/pool/name_record.h"
#include "src/pool/pool.h"
#include "tests/kit/acknowledged.h"

namespace nvcache::crash {

namespace {

constexpr char kHeading[] = "NVCache crash trace 7\n";

class Writer {
 public:
  template <typename T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void Put(const std::string& text) {
    Put(text.size());
    out_ += text;
  }
  template <typename T>
  void Put(const std::vector<T>& values) {
    Put(values.size());
    for (const T& value : values) Put(value);
  }
  std::string out_;
};

class Parser {
 public:
  explicit Parser(const std::string& in) : in_(in) {}
  template <typename T>
  void Get(T* value) {
    std::memcpy(static_cast<void*>(value), Take(sizeof(*value)), sizeof(*value));
  }
  void Get(std::string* text) {
    size_t n = 0;
    Get(&n);
    text->assign(Take(n), n);
  }
  template <typename T>
  void Get(std::vector<T>* values) {
    size_t n = 0;
    Get(&n);
    if (n > in_.size()) throw std::runtime_error("the trace is damaged");
    values->resize(n);
    for (T& value : *values) Get(&value);
  }

 private:
  const char* Take(size_t n) {
    if (n > in_.size() - at_) throw std::runtime_error("the trace is cut off");
    at_ += n;
    return in_.data() + at_ - n;
  }
  const std::string& in_;
  size_t at_ = 0;
};

// Both directions by one list of fields.
template <typename Io, typename T>
void Fields(Io io, T& trace) {
  io(trace.scenario), io(trace.seed), io(trace.creation), io(trace.pool);
  io(trace.operations), io(trace.events), io(trace.items), io(trace.bytes), io(trace.root);
}
template <typename Io, typename T>
void FileFields(Io io, T& file) {
  auto& id = file.identity;
  io(id.device), io(id.inode), io(id.birth_seconds), io(id.birth_nanoseconds), io(id.mode);
  io(id.uid), io(id.gid), io(id.access), io(id.change);
  io(id.file_system), io(id.handle_type), io(id.handle), io(id.path);
  io(file.exists), io(file.content), io(file.away);
}

}  // namespace

void AttributeChange::ApplyTo(Attributes* attributes) const {
  if ((set & pool::kSetMode) != 0) {
    attributes->mode = (attributes->mode & S_IFMT) | (now.mode & ~uint32_t{S_IFMT});
  }
  if ((set & pool::kSetOwner) != 0) attributes->uid = now.uid, attributes->gid = now.gid;
  if ((set & pool::kSetTimes) != 0) {
    attributes->access = now.access, attributes->change = now.change;
  }
}

uint32_t FileOf(const Entries& names, uint32_t folder, const std::string& name) {
  const auto found = names.find({folder, name});
  return found == names.end() ? kNobody : found->second;
}

void SetName(Entries* names, uint32_t folder, const std::string& name, uint32_t file) {
  if (file == kNobody) {
    names->erase({folder, name});
  } else {
    (*names)[{folder, name}] = file;
  }
}

void Trace::Do(const Event& event, std::string* content) const {
  if (event.type == Event::kTruncate) content->resize(event.at);
  if (event.type == Event::kErase) kit::Erase(content, event.at, event.length);
  if (event.type == Event::kWrite) kit::Put(content, event.at, Data(event.data), event.length);
}

std::string Trace::ToBytes() const {
  Writer writer;
  writer.out_ = kHeading;
  const auto put = [&](const auto& value) { writer.Put(value); };
  Fields(put, *this);
  writer.Put(files.size());
  for (const FileInfo& file : files) FileFields(put, file);
  writer.Put(names.size());
  for (const auto& [name, file] : names) put(name.first), put(name.second), put(file);
  return writer.out_;
}

Trace Trace::FromBytes(const std::string& bytes) {
  constexpr size_t kLength = sizeof(kHeading) - 1;
  if (bytes.compare(0, kLength, kHeading) != 0) throw std::runtime_error("this is no trace");
  const std::string rest = bytes.substr(kLength);
  Parser parser(rest);
  Trace trace;
  const auto get = [&](auto& value) { parser.Get(&value); };
  Fields(get, trace);
  size_t n = 0;
  parser.Get(&n);
  for (size_t i = 0; i < n; ++i) FileFields(get, trace.files.emplace_back());
  parser.Get(&n);
  for (; n > 0; --n) {
    Entries::key_type name;
    get(name.first), get(name.second), get(trace.names[name]);
  }
  return trace;
}

namespace {

using nvlog::Kind;
using nvlog::RecordHeader;

RecordHeader HeaderAt(const std::string& memory, uint64_t at) {
  RecordHeader header;
  std::memcpy(&header, &memory[at], sizeof(header));
  return header;
}

// The segment that holds the byte at `at` is a kept one.
bool IsKept(const std::string& memory, uint64_t at) {
  pool::Superblock superblock;
  std::memcpy(&superblock, memory.data(), sizeof(superblock));
  const uint64_t size = superblock.segment_size;
  const uint64_t begin = pool::kSegmentsOffset + (at - pool::kSegmentsOffset) / size * size;
  pool::SegmentHeader header;
  std::memcpy(&header, &memory[begin], sizeof(header));
  return header.kind == pool::SegmentKind::kKept;
}

// What the group of these headers does to its file.
Item ItemOf(const std::vector<RecordHeader>& group, uint32_t operation) {
  Item item = {Item::kData, true, operation, group[0].lsn * 2, ~uint64_t{0}, 0, 0};
  uint64_t end = 0;
  for (const RecordHeader& header : group) {
    if (header.kind == Kind::kFile) continue;
    if (header.kind == Kind::kTruncate) item.kind = Item::kTruncate;
    if (header.kind == Kind::kErase) item.kind = Item::kErase;
    item.offset = std::min(item.offset, header.offset);
    end = std::max(end, header.offset + header.length);
  }
  item.length = end - item.offset;
  return item;
}

// The kernel has had the pieces of this group, and now the log has it, too.
void NoteLogged(const Item& group, std::vector<Item>* items) {
  for (Item& item : *items) {
    if (item.operation != group.operation || item.offset < group.offset ||
        item.offset >= group.offset + group.length) {
      continue;
    }
    item.logged = true;
    item.order = group.order;
  }
}

}  // namespace

void Trace::FindItems() {
  std::string memory = pool;
  std::map<uint16_t, uint32_t> running;                   // operation of each thread
  std::map<uint16_t, std::vector<RecordHeader>> members;  // that each thread has written
  std::map<uint32_t, uint64_t> returned;  // newest order of the operations on a file by now
  std::vector<uint64_t> before(operations.size(), 0);  // the same, when the operation began
  uint64_t newest = 0;
  const auto add = [&](const Item& item) {
    const Operation& operation = operations[item.operation];
    if (item.order <= before[item.operation]) {
      throw std::runtime_error("the logs have two calls in the wrong order");
    }
    if (operation.kind == Operation::kThrough) {
      NoteLogged(item, &items);
      return;
    }
    // What was expected of the kernel alone is in the log.
    for (Item& known : items) {
      if (known.operation == item.operation && !known.logged && known.kind == item.kind &&
          item.offset == operation.offset) {
        known = item;
        return;
      }
    }
    items.push_back(item);
  };
  for (const Event& event : events) {
    if (event.type == Event::kStore) {
      std::memcpy(&memory[event.at], Data(event.data), event.length);
    } else if (event.type == Event::kBegin) {
      running[event.thread] = event.file;
      const Operation& operation = operations[event.file];
      before[event.file] = returned[operation.file];
      if (operation.kind != Operation::kTruncate && operation.kind != Operation::kErase) continue;
      items.push_back({operation.kind == Operation::kErase ? Item::kErase : Item::kTruncate, false,
                       event.file, newest * 2 + 1, operation.offset, operation.length, 0});
    } else if (event.type == Event::kWrite) {
      const auto found = running.find(event.thread);
      if (found == running.end() || operations[found->second].kind != Operation::kThrough) continue;
      items.push_back(
          {Item::kPiece, false, found->second, newest * 2 + 1, event.at, event.length, event.data});
    } else if (event.type == Event::kEnd) {
      uint64_t& order = returned[operations[event.file].file];
      for (const Item& item : items) {
        if (item.operation == event.file) order = std::max(order, item.order);
      }
      running.erase(event.thread);
    } else if (event.type == Event::kPwb && event.step == Step::kGroupHeaders) {
      members[event.thread].push_back(HeaderAt(memory, event.at));
    } else if (event.type == Event::kPwb && event.step == Step::kCommit) {
      std::vector<RecordHeader> group = std::exchange(members[event.thread], {});
      group.insert(group.begin(), HeaderAt(memory, event.at));
      std::erase_if(group, [&](const RecordHeader& h) { return h.lsn != group[0].lsn; });
      if (IsKept(memory, event.at)) continue;  // a copy
      newest = std::max(newest, group[0].lsn);
      const auto changes = [](const RecordHeader& h) { return nvlog::IsChange(h.kind); };
      if (std::none_of(group.begin(), group.end(), changes)) continue;
      add(ItemOf(group, running.at(event.thread)));
    }
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.order < b.order; });
}

const char* NameOf(Step step) {
  static constexpr std::array kNames = {
      "payload",
      "group headers",
      "commit",
      "committed",
      "segment copy",
      "segment",
      "segment taken",
      "void",
      "void durable",
      "checkpoint",
      "checkpoint durable",
      "in use",
      "in use durable",
      "hands over",
      "hands over durable",
      "clean",
      "clean durable",
      "seen group",
      "seen content",
      "seen group durable",
      "successor",
      "successor durable",
      "applied",
      "applied durable",
      "recovered checkpoint",
      "recovered checkpoint durable",
      "seen",
      "seen durable",
      "create zeros",
      "create checkpoint",
      "create state",
      "superblock",
      "superblock fence",
      "magic",
      "magic durable",
  };
  static_assert(kNames.size() == static_cast<size_t>(Step::kCount));
  return step < Step::kCount ? kNames[static_cast<size_t>(step)] : "?";
}

}  // namespace nvcache::crash
