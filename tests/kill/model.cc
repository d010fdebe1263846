// SPDX-License-Identifier: BSD-3-Clause
#include "tests/kill/model.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>

namespace nvcache::kill_test {
namespace {

// A file that does not exist (yet) is empty.
std::vector<uint8_t> Load(const std::string& path) {
  std::vector<uint8_t> bytes;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return bytes;
  uint8_t chunk[1 << 16];
  size_t n;
  while ((n = std::fread(chunk, 1, sizeof chunk, file.get())) > 0) {
    bytes.insert(bytes.end(), chunk, chunk + n);
  }
  return bytes;
}

std::string Hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "%llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

Model::Model(unsigned threads) : race_(kRaceSize / 8) {
  for (uint32_t file = 0; file < kRegionFiles; ++file) {
    plain_[file].bytes.resize((threads + 1) * kRegionSize);
  }
  for (uint32_t t = 0; t < threads; ++t) plain_[kFirstStreamFile + t].bytes.resize(kStreamSize);
  for (uint32_t i = 0; i < kAppendFiles; ++i) appended_[kFirstAppendFile + i];
}

bool Model::Take(const std::vector<Record>& records, std::string* why) {
  std::unordered_map<uint64_t, size_t> open;
  writes_.clear();
  for (size_t place = 0; place < records.size(); ++place) {
    const Record& record = records[place];
    if (record.kind == Record::kBegin) {
      open[record.id] = writes_.size();
      writes_.push_back({record.file, record.id, record.offset, record.length, place});
      continue;
    }
    const auto found = open.find(record.id);
    if (record.kind != Record::kEnd || found == open.end() || record.length == 0 ||
        record.length > writes_[found->second].length) {
      *why = "record " + std::to_string(place) + " makes no sense";
      return false;
    }
    Write& write = writes_[found->second];
    write.end = place;
    write.length = record.length;  // a short write is acknowledged as far as it went
    open.erase(found);
    ++acknowledged_;
  }
  in_flight_ += open.size();
  return true;
}

bool Model::Verify(const std::string& folder, std::string* why) {
  for (const auto& [file, plain] : plain_) {
    if (!VerifyPlain(folder, file, why)) return false;
  }
  for (const auto& [file, records] : appended_) {
    if (!VerifyAppend(folder, file, why)) return false;
  }
  return VerifyRace(folder, why);
}

// In a region or stream file, writes that overlap never overlap in time: the order of the records
// is the order of the bytes, and at most one write per region is in flight.
bool Model::VerifyPlain(const std::string& folder, uint32_t file, std::string* why) {
  Plain& plain = plain_[file];
  kit::Acknowledged model(plain.bytes.data(), &plain.size);
  const std::vector<uint8_t> found = Load(folder + "/" + FileName(file));
  for (const Write& write : writes_) {
    if (write.file == file && write.acknowledged()) {
      model.Take(write.id, write.offset, write.length);
    }
  }
  for (const Write& write : writes_) {
    if (write.file == file && !write.acknowledged()) {
      in_flight_found_ += model.TakeIfWhole(write.id, write.offset, write.length, found);
    }
  }
  if (found.size() != plain.size) {
    *why = FileName(file) + ": " + std::to_string(found.size()) + " bytes instead of " +
           std::to_string(plain.size);
    return false;
  }
  const auto [wrong, unused] = std::mismatch(found.begin(), found.end(), plain.bytes.begin());
  if (wrong == found.end()) return true;

  // Say which write it belongs to.
  const auto offset = static_cast<uint64_t>(wrong - found.begin());
  uint64_t bad = 0;
  for (uint64_t i = offset; i < found.size(); ++i) bad += found[i] != plain.bytes[i];
  *why = FileName(file) + ": wrong byte at " + std::to_string(offset) + " (" + std::to_string(bad) +
         " wrong bytes in all)";
  const Write* last = nullptr;
  for (const Write& write : writes_) {
    if (write.file == file && write.offset <= offset && offset < write.offset + write.length) {
      if (write.acknowledged()) last = &write;
      if (!write.acknowledged()) {
        *why += "; in flight: write " + Hex(write.id) + " at " + std::to_string(write.offset) +
                ", " + std::to_string(write.length) + " bytes: only a part of it is there";
      }
      uint8_t byte;
      Fill(write.id, offset - write.offset, &byte, 1);
      if (byte == found[offset]) {
        *why += "; it may be of write " + Hex(write.id) + " (record " +
                std::to_string(write.begin) + ")";
      }
    }
  }
  if (last != nullptr) {
    *why += "; last acknowledged there: write " + Hex(last->id) + " at " +
            std::to_string(last->offset) + ", " + std::to_string(last->length) + " bytes (record " +
            std::to_string(last->begin) + " of this run)";
  } else {
    *why += "; not written in this run";
  }
  return false;
}

// Writes overlap in place and time. For each word, the write that it names must be one that no
// acknowledged write to the same word follows; and all words together must allow one order.
bool Model::VerifyRace(const std::string& folder, std::string* why) {
  std::vector<uint8_t> bytes = Load(folder + "/" + FileName(kRaceFile));
  if (bytes.size() > kRaceSize || bytes.size() % 8 != 0) {
    *why = "race: " + std::to_string(bytes.size()) + " bytes: part of a write";
    return false;
  }
  const size_t size = bytes.size();
  bytes.resize(kRaceSize);
  std::vector<uint64_t> found(kRaceSize / 8);
  std::memcpy(found.data(), bytes.data(), kRaceSize);

  std::unordered_map<uint64_t, const Write*> by_id;
  for (const Write& write : writes_) {
    if (write.file == kRaceFile) by_id[write.id] = &write;
  }
  std::vector<const Write*> named(found.size());  // null: from before this run
  std::set<const Write*> present;
  for (uint64_t i = 0; i < found.size(); ++i) {
    if (found[i] == race_[i]) continue;
    const auto write = by_id.find(RaceWordId(found[i]));
    if (write == by_id.end() || found[i] != RaceWord(write->first, i) ||
        i * 8 < write->second->offset || i * 8 >= write->second->offset + write->second->length) {
      *why = "race: word " + std::to_string(i) + " is " + Hex(found[i]) +
             ", which nobody wrote there in this run";
      return false;
    }
    named[i] = write->second;
    present.insert(write->second);
  }

  uint64_t expected_size = 0;
  for (uint64_t i = 0; i < race_.size(); ++i) {
    if (race_[i] != 0) expected_size = 8 * (i + 1);
  }
  std::set<std::pair<const Write*, const Write*>> before;  // first must precede second
  for (const auto& [id, write] : by_id) {
    if (!write->acknowledged() && present.count(write) == 0) continue;
    if (!write->acknowledged()) ++in_flight_found_;
    expected_size = std::max(expected_size, write->offset + write->length);
    for (uint64_t i = write->offset / 8; i < (write->offset + write->length) / 8; ++i) {
      const Write* winner = named[i];
      if (winner == write) continue;
      if (winner == nullptr || (winner->acknowledged() && winner->end < write->begin)) {
        *why = "race: word " + std::to_string(i) + " does not have write " + Hex(id) +
               (write->acknowledged() ? ", which was acknowledged" : ", which is there in part") +
               (winner != nullptr ? " after write " + Hex(winner->id) + ", which it has" : "");
        return false;
      }
      if (!write->acknowledged() || write->end > winner->begin) before.insert({write, winner});
    }
  }
  if (size != expected_size) {
    *why = "race: " + std::to_string(size) + " bytes instead of " + std::to_string(expected_size);
    return false;
  }

  // One order of all these writes, in which also whatever had returned comes before whatever was
  // called later: take away writes that nothing must precede until none is left.
  std::set<const Write*> left;
  for (const auto& [first, second] : before) {
    left.insert(first);
    left.insert(second);
  }
  while (!left.empty()) {
    const Write* next = nullptr;
    for (const Write* candidate : left) {
      const bool preceded = std::any_of(left.begin(), left.end(), [&](const Write* other) {
        return other != candidate && ((other->acknowledged() && other->end < candidate->begin) ||
                                      before.count({other, candidate}) != 0);
      });
      if (!preceded) {
        next = candidate;
        break;
      }
    }
    if (next == nullptr) {
      *why = "race: no order of these writes explains the file:";
      for (const Write* write : left) *why += " " + Hex(write->id);
      return false;
    }
    left.erase(next);
  }
  race_ = std::move(found);
  return true;
}

bool Model::VerifyAppend(const std::string& folder, uint32_t file, std::string* why) {
  const std::vector<uint8_t> bytes = Load(folder + "/" + FileName(file));
  std::unordered_map<uint64_t, const Write*> by_id;
  for (const Write& write : writes_) {
    if (write.file == file) by_id[write.id] = &write;
  }
  auto& known = appended_[file];
  std::vector<std::pair<uint64_t, uint64_t>> found;
  uint64_t latest_begin = 0;
  for (uint64_t at = 0; at < bytes.size();) {
    const std::string here = FileName(file) + ": at " + std::to_string(at) + ": ";
    AppendHeader header;
    if (bytes.size() - at < sizeof header) {
      *why = here + "part of a record";
      return false;
    }
    std::memcpy(&header, bytes.data() + at, sizeof header);
    if (header.magic != kAppendMagic || header.check != Mix(header.id ^ header.payload << 40) ||
        header.payload > kMaxAppendPayload || bytes.size() - at - sizeof header < header.payload) {
      *why = here + "not a whole record";
      return false;
    }
    const std::vector<uint8_t> content = Content(header.id, header.payload);
    if (std::memcmp(content.data(), bytes.data() + at + sizeof header, header.payload) != 0) {
      *why = here + "wrong content of write " + Hex(header.id);
      return false;
    }
    if (found.size() < known.size()) {
      if (known[found.size()].first != header.id) {
        *why = here + "write " + Hex(header.id) + " where an earlier run left write " +
               Hex(known[found.size()].first);
        return false;
      }
    } else {
      const auto write = by_id.find(header.id);
      if (write == by_id.end()) {
        *why = here + "write " + Hex(header.id) + " is there twice, or nobody made it";
        return false;
      }
      if (write->second->acknowledged() && write->second->end < latest_begin) {
        *why = here + "write " + Hex(header.id) + " comes after one that was called later";
        return false;
      }
      latest_begin = std::max(latest_begin, write->second->begin);
      in_flight_found_ += !write->second->acknowledged();
      by_id.erase(write);
    }
    found.emplace_back(header.id, header.payload);
    at += sizeof header + header.payload;
  }
  if (found.size() < known.size()) {
    *why = FileName(file) + ": records of an earlier run are missing";
    return false;
  }
  for (const auto& [id, write] : by_id) {
    if (write->acknowledged()) {
      *why = FileName(file) + ": acknowledged write " + Hex(id) + " is missing";
      return false;
    }
  }
  known = std::move(found);
  return true;
}

}  // namespace nvcache::kill_test
