// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/medium.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace nvcache::crash {

// ---------------------------------------------------------------------------------------------
// Memory

void Memory::Apply(const Event& event, const Trace& trace) {
  const auto line = static_cast<uint32_t>(event.at / kLine);
  switch (event.type) {
    case Event::kStore: {
      auto [place, is_new] = uncertain_.try_emplace(line);
      if (is_new) place->second.first = counts_[line];
      place->second.stores.push_back(
          {static_cast<uint8_t>(event.at % kLine), static_cast<uint8_t>(event.length), event.data});
      break;
    }
    case Event::kPwb:
      if (const auto found = uncertain_.find(line); found != uncertain_.end()) {
        const Line& l = found->second;
        written_back_[event.thread].push_back({line, l.first + l.stores.size()});
      }
      break;
    case Event::kFence:
      Fence(event.thread, trace);
      break;
    default:
      break;
  }
}

void Memory::Fence(uint16_t thread, const Trace& trace) {
  for (const WrittenBack& done : written_back_[thread]) {
    const auto found = uncertain_.find(done.line);
    if (found == uncertain_.end() || found->second.first >= done.stores) continue;
    Line& line = found->second;
    const auto n = static_cast<uint32_t>(done.stores - line.first);
    Build({done.line, n, 0}, trace, reinterpret_cast<uint8_t*>(&certain_[done.line * kLine]));
    changed_.push_back(done.line);
    line.stores.erase(line.stores.begin(), line.stores.begin() + n);
    line.first = done.stores;
    if (!line.stores.empty()) continue;
    counts_[done.line] = line.first;
    uncertain_.erase(found);
  }
  written_back_[thread].clear();
}

void Memory::Build(const LineChoice& choice, const Trace& trace, uint8_t* line) const {
  std::memmove(line, certain_.data() + choice.line * kLine, kLine);
  const auto found = uncertain_.find(choice.line);
  if (found == uncertain_.end()) return;
  const std::vector<Store>& stores = found->second.stores;
  for (uint32_t i = 0; i < choice.stores && i < stores.size(); ++i) {
    std::memcpy(line + stores[i].at, trace.Data(stores[i].data), stores[i].length);
  }
  if (choice.torn == 0 || choice.stores >= stores.size()) return;
  const Store& torn = stores[choice.stores];
  for (uint32_t i = 0; i < torn.length; ++i) {
    const uint32_t word = (torn.at + i) / 8;
    if ((choice.torn >> word & 1) != 0) line[torn.at + i] = trace.Data(torn.data)[i];
  }
}

// ---------------------------------------------------------------------------------------------
// Files

Disk::Disk(const std::vector<FileInfo>& files) {
  for (const FileInfo& file : files) Add(file);
}

void Disk::Add(const FileInfo& file) {
  files_.push_back({file.exists, file.exists, file.content, 0, {}});
}

void Disk::Apply(const Event& event, const Trace& trace) {
  const std::pair key{event.file, event.thread};
  switch (event.type) {
    case Event::kWrite:
    case Event::kTruncate:
    case Event::kErase:
      files_[event.file].calls.push_back({event});
      break;
    case Event::kSyncBegin: {
      const File& file = files_[event.file];
      syncs_[key] = file.first + file.calls.size();
      break;
    }
    case Event::kSyncEnd: {
      File& file = files_[event.file];
      file.name_durable = file.named;
      const uint64_t calls = syncs_[key];
      for (uint64_t i = file.first; i < calls; ++i) {
        Call& call = file.calls[i - file.first];
        call.certain = !call.dropped;
      }
      for (; !file.calls.empty() && file.calls.front().certain; ++file.first) {
        trace.Do(file.calls.front().event, &file.content);
        file.calls.erase(file.calls.begin());
      }
      break;
    }
    case Event::kSyncFailed: {
      File& file = files_[event.file];
      for (Call& call : file.calls) call.dropped = !call.certain;
      break;
    }
    case Event::kNamed:
      files_[event.file].named = true;
      break;
    default:
      break;
  }
}

bool Disk::Build(const FileChoice& choice, const Trace& trace, std::string* content) const {
  const File& file = files_[choice.file];
  if (choice.removed || !file.named || (!file.name_durable && !choice.exists)) return false;
  *content = file.content;
  for (size_t i = 0; i < file.calls.size(); ++i) {
    if (choice.reached[i] || file.calls[i].certain) trace.Do(file.calls[i].event, content);
  }
  return true;
}

// ---------------------------------------------------------------------------------------------
// Choices

namespace {

using Random = std::mt19937_64;
using Lines = std::vector<std::pair<uint32_t, const Memory::Line*>>;

// All of the files' choices at once: how many, and the one with a number.
class FileChoices {
 public:
  explicit FileChoices(const Disk& disk) : disk_(disk) {
    for (const Disk::File& file : disk.files()) {
      bits_ += static_cast<size_t>(std::count_if(file.calls.begin(), file.calls.end(),
                                                 [](const auto& call) { return !call.certain; }));
      bits_ += file.named && !file.name_durable ? 1 : 0;
    }
  }
  size_t bits() const { return bits_; }

  template <typename Bit>
  std::vector<FileChoice> Make(Bit bit) const {
    std::vector<FileChoice> choices;
    for (uint32_t i = 0; i < disk_.files().size(); ++i) {
      const Disk::File& file = disk_.files()[i];
      FileChoice choice = {i, file.named, false, {}};
      if (file.named && !file.name_durable) choice.exists = bit();
      for (const Disk::Call& call : file.calls) choice.reached.push_back(call.certain || bit());
      choices.push_back(choice);
    }
    return choices;
  }
  std::vector<FileChoice> Number(uint64_t number) const {
    return Make([&] {
      const bool bit = (number & 1) != 0;
      number >>= 1;
      return bit;
    });
  }
  std::vector<FileChoice> All() const {
    return Make([] { return true; });
  }
  std::vector<FileChoice> Any(Random* random) const {
    // Often all or nothing.
    const auto how = (*random)() % 4;
    return Make([&] { return how == 0 ? false : how == 1 ? true : (*random)() % 2 == 0; });
  }

 private:
  const Disk& disk_;
  size_t bits_ = 0;
};

uint32_t WordsOf(const Memory::Store& store) {
  uint32_t words = 0;
  for (uint32_t w = store.at / 8u; w <= (store.at + store.length - 1u) / 8u; ++w) words |= 1u << w;
  return words;
}
bool CanTear(const Memory::Store& store) {
  const uint32_t words = WordsOf(store);
  return (words & (words - 1)) != 0;
}

std::vector<LineChoice> AnyLines(const Lines& lines, Random* random) {
  std::vector<LineChoice> choices;
  const auto how = (*random)() % 8;
  for (const auto& [number, line] : lines) {
    const auto n = static_cast<uint32_t>(line->stores.size());
    LineChoice choice = {number, static_cast<uint32_t>((*random)() % (n + 1)), 0};
    if (how < 2) choice.stores = (*random)() % (how == 0 ? 8 : 2) == 0 ? 0 : n;
    if (how == 2) choice.stores = (*random)() % 8 == 0 ? n : 0;
    if (choice.stores < n && how > 3 && CanTear(line->stores[choice.stores])) {
      choice.torn = WordsOf(line->stores[choice.stores]) & static_cast<uint32_t>((*random)());
    }
    choices.push_back(choice);
  }
  return choices;
}

std::vector<LineChoice> AllLines(const Lines& lines) {
  std::vector<LineChoice> choices;
  for (const auto& [number, line] : lines) {
    choices.push_back({number, static_cast<uint32_t>(line->stores.size()), 0});
  }
  return choices;
}

// What may be left of the names; of none, if there are none to lose.
class NameChoices {
 public:
  NameChoices(const NameMedium* names, Random* random) {
    constexpr size_t kMost = 64;
    if (names != nullptr) all_ = names->Choices(kMost, random);
    if (names != nullptr) everything_ = names->Everything();
  }
  size_t count() const { return all_.size(); }
  const std::vector<NameChoice>& all() const { return all_; }
  const NameChoice& everything() const { return everything_; }
  const NameChoice& Any(Random* random) const {
    return all_.size() == 1 ? all_[0] : all_[(*random)() % all_.size()];
  }

 private:
  std::vector<NameChoice> all_ = {{}};
  NameChoice everything_;
};

// Every prefix of every line with everything that may have happened to the files and names.
void Exhaustive(const Lines& lines, const FileChoices& files, const NameChoices& names,
                std::vector<Choice>* choices) {
  std::vector<uint32_t> stores(lines.size(), 0);
  for (;;) {
    std::vector<LineChoice> chosen;
    for (size_t i = 0; i < lines.size(); ++i) chosen.push_back({lines[i].first, stores[i], 0});
    for (uint64_t n = 0; n < uint64_t{1} << files.bits(); ++n) {
      for (const NameChoice& name : names.all()) {
        choices->push_back({chosen, files.Number(n), name});
      }
    }
    size_t i = 0;
    while (i < lines.size() && stores[i] == lines[i].second->stores.size()) stores[i++] = 0;
    if (i == lines.size()) return;
    ++stores[i];
  }
}

// None, all, each alone and all but each.
void Sampled(const Lines& lines, const FileChoices& files, const NameChoices& names,
             const Limits& limits, Random* random, std::vector<Choice>* choices) {
  const std::vector<LineChoice> all = AllLines(lines);
  for (const NameChoice& name : names.all()) {
    choices->push_back({{}, files.Number(0), name});
    choices->push_back({all, files.All(), name});
    choices->push_back({all, files.Number(0), name});
  }
  std::vector<size_t> order(lines.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), *random);
  if (order.size() > limits.alone) order.resize(limits.alone);
  for (const size_t i : order) {
    choices->push_back({{all[i]}, files.Any(random), names.Any(random)});
    std::vector<LineChoice> rest = all;
    rest[i].stores = 0;
    choices->push_back({rest, files.Any(random), names.Any(random)});
  }
}

// The last store of more than one word of every line, torn: every second word of it is there.
void AllTorn(const Lines& lines, const FileChoices& files, const NameChoices& names,
             std::vector<Choice>* choices) {
  constexpr uint32_t kEven = 0x55, kOdd = 0xaa;
  for (const uint32_t words : {kEven, kOdd}) {
    std::vector<LineChoice> chosen = AllLines(lines);
    bool any = false;
    for (size_t i = 0; i < lines.size(); ++i) {
      const auto& stores = lines[i].second->stores;
      for (uint32_t at = static_cast<uint32_t>(stores.size()); at-- > 0;) {
        if (!CanTear(stores[at])) continue;
        chosen[i] = {lines[i].first, at, WordsOf(stores[at]) & words};
        any = true;
        break;
      }
    }
    if (any) choices->push_back({chosen, files.All(), names.everything()});
  }
}

// The stores of more than one word, torn: in one line at a time.
void Torn(const Lines& lines, const FileChoices& files, const NameChoices& names,
          const Limits& limits, Random* random, std::vector<Choice>* choices) {
  const std::vector<LineChoice> all = AllLines(lines);
  for (uint32_t tries = 0; tries < limits.random / 2 && !lines.empty(); ++tries) {
    const size_t i = (*random)() % lines.size();
    const auto& stores = lines[i].second->stores;
    const auto at = static_cast<uint32_t>((*random)() % stores.size());
    if (!CanTear(stores[at])) continue;
    std::vector<LineChoice> chosen = (*random)() % 2 == 0 ? all : AnyLines(lines, random);
    chosen[i] = {lines[i].first, at, WordsOf(stores[at]) & static_cast<uint32_t>((*random)())};
    choices->push_back({chosen, files.Any(random), names.Any(random)});
  }
}

// Where there are few choices, each file is removed in turn: an image that tells something may be
// one of a kind.
void RemoveSome(std::vector<Choice>* choices, Random* random) {
  constexpr size_t kFew = 16;
  const size_t n = choices->size();
  for (size_t i = 0; i < n; i += n <= kFew ? 1 : 1 + (*random)() % 4) {
    const size_t files = (*choices)[i].files.size();
    if (files == 0) continue;
    const size_t any = (*random)() % files;
    for (size_t file = 0; file < files; ++file) {
      if (n > kFew && file != any) continue;
      Choice choice = (*choices)[i];
      choice.files[file].removed = true;
      choices->push_back(choice);
    }
  }
}

}  // namespace

std::vector<Choice> Choose(const Memory& memory, const Disk& disk, const Limits& limits,
                           Random* random, bool* complete, const NameMedium* name_medium) {
  Lines lines;
  for (const auto& [number, line] : memory.uncertain()) lines.emplace_back(number, &line);
  const FileChoices files(disk);
  const NameChoices names(name_medium, random);
  double combinations = files.bits() < 30 ? static_cast<double>(uint64_t{1} << files.bits()) : 1e9;
  for (const auto& [number, line] : lines) {
    combinations *= static_cast<double>(line->stores.size() + 1);
  }
  combinations *= static_cast<double>(names.count());
  const bool all = combinations <= static_cast<double>(limits.exhaustive);
  if (complete != nullptr) *complete = all;
  std::vector<Choice> choices;
  if (all) {
    Exhaustive(lines, files, names, &choices);
  } else {
    Sampled(lines, files, names, limits, random, &choices);
    for (uint32_t i = 0; i < limits.random; ++i) {
      std::vector<LineChoice> any = AnyLines(lines, random);
      choices.push_back({std::move(any), files.Any(random), names.Any(random)});
    }
  }
  AllTorn(lines, files, names, &choices);
  Torn(lines, files, names, limits, random, &choices);
  if (limits.removals) RemoveSome(&choices, random);
  return choices;
}

}  // namespace nvcache::crash
