// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/model.h"

#include <algorithm>

namespace nvcache::crash {

namespace {

// Of names.
bool IsUnlogged(Operation::Kind kind) {
  return kind == Operation::kPast || kind == Operation::kStranger;
}

}  // namespace

Model::Model(const Trace& trace)
    : trace_(trace),
      states_(trace.operations.size(), kNotBegun),
      durable_(trace.operations.size(), false),
      by_file_(trace.files.size()),
      reached_(trace.items.size(), kNothing),
      promised_(trace.items.size(), false),
      names_({trace.names}) {
  for (uint32_t file = 0; file < trace.files.size(); ++file) {
    attributes_[file] = {trace.files[file].identity};
  }
  for (size_t i = 0; i < trace.items.size(); ++i) {
    by_file_[trace.operations[trace.items[i].operation].file].push_back(i);
    if (trace.items[i].kind == Item::kPiece) by_data_[trace.items[i].data] = i;
  }
}

void Model::Apply(const Event& event) {
  ApplyToDisk(event);
  ApplyToAttributes(event);
  ApplyToNames(event);
  if (event.type != Event::kBegin && event.type != Event::kEnd) return;
  const Operation& operation = trace_.operations[event.file];
  states_[event.file] = event.type == Event::kBegin ? kRunning : kReturned;
  closed_ = operation.kind == Operation::kClose && event.type == Event::kEnd;
  ApplySync(event);
}

void Model::ApplyToDisk(const Event& event) {
  if (event.type == Event::kWrite) {
    const auto piece = by_data_.find(event.data);
    if (piece != by_data_.end() && reached_[piece->second] == kNothing) {
      reached_[piece->second] = kKernel;
    }
  } else if (event.type == Event::kSyncBegin) {
    std::vector<size_t>& covered = syncs_[{event.file, event.thread}];
    covered.clear();
    for (const size_t i : by_file_[event.file]) {
      if (reached_[i] == kKernel) covered.push_back(i);
    }
  } else if (event.type == Event::kSyncEnd) {
    for (const size_t i : syncs_[{event.file, event.thread}]) reached_[i] = kDisk;
  }
}

void Model::ApplyToNames(const Event& event) {
  if (event.type == Event::kEntry) {
    Entries next = names_.back();
    const Trace::Entry entry = trace_.EntryOf(event);
    SetName(&next, entry.folder, entry.name, event.file);
    // Half of a call is no state of its own, unless it is one that no recovery puts right.
    if (half_ && !past_) names_.pop_back();
    half_ = entry.more;
    names_.push_back(std::move(next));
  } else if (event.type == Event::kBegin) {
    past_ = IsUnlogged(trace_.operations[event.file].kind);
  } else if (event.type == Event::kEnd) {
    const Operation::Kind kind = trace_.operations[event.file].kind;
    if (kind != Operation::kNames && kind != Operation::kRename && !IsUnlogged(kind)) return;
    names_.erase(names_.begin(), names_.end() - 1);
    for (auto& [file, all] : attributes_) all.erase(all.begin(), all.end() - 1);
  }
}

void Model::ApplyToAttributes(const Event& event) {
  uint32_t touched = kNobody;
  if (event.type == Event::kAttributes) {
    std::vector<Attributes>& all = attributes_[event.file];
    all.push_back(all.back());
    trace_.AttributesOf(event).ApplyTo(&all.back());
  } else if (event.type == Event::kEntry) {
    touched = trace_.EntryOf(event).folder;
  } else if (event.type == Event::kWrite || event.type == Event::kTruncate ||
             event.type == Event::kErase) {
    touched = event.file;
  }
  if (touched == kNobody) return;
  for (Attributes& attributes : attributes_[touched]) attributes.change = kAnyTime;
}

// What a call that syncs promises when it returns.
void Model::ApplySync(const Event& event) {
  const Operation& operation = trace_.operations[event.file];
  const bool all = operation.kind == Operation::kSyncAll;
  if (!all && operation.kind != Operation::kSync && operation.kind != Operation::kRename) return;
  if (event.type == Event::kBegin) {
    for (size_t i = 0; i < trace_.items.size(); ++i) {
      const bool covered =
          all || trace_.operations[trace_.items[i].operation].file == operation.file;
      if (covered && reached_[i] != kNothing) promises_[event.file].push_back(i);
    }
    return;
  }
  for (const size_t i : promises_[event.file]) promised_[i] = true;
  for (size_t i = 0; i < states_.size(); ++i) {
    const bool covered = all || trace_.operations[i].file == operation.file;
    if (covered && states_[i] == kReturned) durable_[i] = true;
  }
}

Expected Model::Now(bool killed) const {
  Expected expected;
  for (uint32_t file = 0; file < trace_.files.size(); ++file) {
    expected.files.push_back(FileNow(file, killed));
    expected.files.back().attributes = attributes_.at(file);
    if (killed) expected.files.back().attributes = {attributes_.at(file).back()};
  }
  if (trace_.root != kNobody) expected.names = names_;
  if (killed && trace_.root != kNobody) expected.names = {names_.back()};
  expected.clean = closed_;
  for (size_t i = 0; i < states_.size(); ++i) {
    const Operation::Kind kind = trace_.operations[i].kind;
    // The fsync of a write-through file says in the log that all of it is settled. That a file is
    // handed over, the log says, too.
    const bool appends = kind == Operation::kWrite || kind == Operation::kThrough ||
                         kind == Operation::kTruncate || kind == Operation::kErase ||
                         kind == Operation::kSync || kind == Operation::kHandOver ||
                         kind == Operation::kNames || kind == Operation::kRename;
    if (appends && states_[i] == kRunning) ++expected.running;
  }
  return expected;
}

std::vector<std::string> Model::History(uint32_t file) const {
  std::vector<std::string> all = {trace_.files[file].content};
  for (const size_t i : by_file_[file]) {
    std::string next = all.back();
    Do(trace_.items[i], &next);
    all.push_back(std::move(next));
  }
  return all;
}

bool Model::IsCertain(size_t number, bool killed) const {
  const Item& item = trace_.items[number];
  const bool has_returned = states_[item.operation] == kReturned;
  if (item.kind != Item::kPiece) return item.logged ? has_returned : durable_[item.operation];
  if (killed || promised_[number]) return true;
  return has_returned && (item.logged || reached_[number] == kDisk);
}

bool Model::IsLoose(size_t number, bool killed) const {
  const Item& item = trace_.items[number];
  return item.kind == Item::kPiece && !killed && !promised_[number] &&
         states_[item.operation] == kRunning;
}

Expected::File Model::FileNow(uint32_t file, bool killed) const {
  Expected::File expected;
  std::vector<bool> taken(trace_.items.size(), false);
  Items items = {file, {}, {}, {}};
  for (const size_t i : by_file_[file]) {
    const Item& item = trace_.items[i];
    const State state = states_[item.operation];
    if (state == kNotBegun || (item.kind == Item::kPiece && reached_[i] == kNothing)) continue;
    items.all.push_back(i);
    if (IsCertain(i, killed)) {
      taken[i] = true;
    } else {
      items.open.push_back(i);
    }
    if (IsLoose(i, killed)) items.loose[GroupOf(item)].push_back(i);
  }
  expected.absent = !trace_.files[file].exists &&
                    std::none_of(items.all.begin(), items.all.end(),
                                 [&](size_t i) { return taken[i] && trace_.items[i].logged; });
  Try(items, 0, &taken, &expected);
  return expected;
}

void Model::Try(const Items& items, size_t next, std::vector<bool>* taken,
                Expected::File* expected) const {
  if (next < items.open.size()) {
    for (const bool take : {true, false}) {
      (*taken)[items.open[next]] = take;
      Try(items, next + 1, taken, expected);
    }
    return;
  }
  Places places;
  if (Consistent(items.all, *taken)) TryPlaces(items, *taken, &places, expected);
}

void Model::TryPlaces(const Items& items, const std::vector<bool>& taken, Places* places,
                      Expected::File* expected) const {
  for (const auto& [group, loose] : items.loose) {
    if (places->count(group) > 0) continue;
    for (const size_t place : PlacesOf(items, loose)) {
      (*places)[group] = place;
      TryPlaces(items, taken, places, expected);
    }
    places->erase(group);
    return;
  }
  std::string content = Content(items, taken, *places);
  if (std::find(expected->contents.begin(), expected->contents.end(), content) ==
      expected->contents.end()) {
    expected->contents.push_back(std::move(content));
  }
}

// Where they belong, and in front of each group that they overlap.
std::vector<size_t> Model::PlacesOf(const Items& items, const std::vector<size_t>& loose) const {
  std::vector<size_t> places = {loose[0]};
  for (const size_t i : items.all) {
    if (i == loose[0]) break;
    const Item& older = trace_.items[i];
    const bool overlaps = std::any_of(loose.begin(), loose.end(), [&](size_t other) {
      const Item& piece = trace_.items[other];
      return piece.offset < older.offset + older.length &&
             older.offset < piece.offset + piece.length;
    });
    if (overlaps && older.logged) places.push_back(i);
  }
  return places;
}

// A call's groups are there in their order, and what was cut off or erased does not come back under
// what was written later. Of what goes past the log, the disk may have anything.
bool Model::Consistent(const std::vector<size_t>& items, const std::vector<bool>& taken) const {
  for (size_t a = 0; a < items.size(); ++a) {
    if (taken[items[a]]) continue;
    const Item& missing = trace_.items[items[a]];
    for (size_t b = a + 1; b < items.size(); ++b) {
      if (!taken[items[b]]) continue;
      const Item& later = trace_.items[items[b]];
      if (missing.kind == Item::kPiece || (later.kind == Item::kPiece && !later.logged)) continue;
      if (missing.kind != Item::kData || later.operation == missing.operation) return false;
    }
  }
  return true;
}

std::string Model::Content(const Items& items, const std::vector<bool>& taken,
                           const Places& places) const {
  std::string content = trace_.files[items.file].content;
  for (const size_t i : items.all) {
    for (const auto& [group, place] : places) {
      if (place != i) continue;
      for (const size_t piece : items.loose.at(group)) {
        if (taken[piece]) Do(trace_.items[piece], &content);
      }
    }
    if (taken[i] && places.count(GroupOf(trace_.items[i])) == 0) Do(trace_.items[i], &content);
  }
  return content;
}

void Model::Do(const Item& item, std::string* content) const {
  const Operation& operation = trace_.operations[item.operation];
  const Event::Type type = item.kind == Item::kTruncate ? Event::kTruncate
                           : item.kind == Item::kErase  ? Event::kErase
                                                        : Event::kWrite;
  const auto length = static_cast<uint32_t>(item.length);
  const uint32_t data = operation.data + static_cast<uint32_t>(item.offset - operation.offset);
  trace_.Do({type, {}, 0, 0, item.offset, length, data}, content);
}

}  // namespace nvcache::crash
