// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/name_medium.h"

#include <sys/stat.h>

#include <algorithm>
#include <set>

namespace nvcache::crash {

namespace {

bool Has(const Entries& names, uint32_t file) {
  return std::any_of(names.begin(), names.end(),
                     [file](const auto& entry) { return entry.second == file; });
}

}  // namespace

NameMedium::NameMedium(const Trace& trace) : certain_{trace.names, {}}, now_(trace.names) {
  for (const FileInfo& file : trace.files) Add(file);
}

void NameMedium::Apply(const Event& event, const Trace& trace) {
  const std::pair key{
      event.type == Event::kNamesBegin || event.type == Event::kNamesEnd ? kNobody : event.file,
      event.thread};
  switch (event.type) {
    case Event::kEntry: {
      const Trace::Entry entry = trace.EntryOf(event);
      const uint32_t before = FileOf(now_, entry.folder, entry.name);
      changes_.push_back({entry.folder, entry.name, before, event.file, {}, entry.more});
      SetName(&now_, entry.folder, entry.name, event.file);
      break;
    }
    case Event::kAttributes:
      changes_.push_back({kNobody, "", kNobody, event.file, trace.AttributesOf(event)});
      break;
    case Event::kSyncBegin:
    case Event::kNamesBegin:
      syncs_[key] = forgotten_ + changes_.size();
      break;
    case Event::kSyncEnd:
    case Event::kNamesEnd:
      if (syncs_[key] > forgotten_) Sync(syncs_[key] - forgotten_, key.first);
      Forget();
      break;
    default:
      break;
  }
}

// Those that have a name of the file, or of one of these; and itself.
std::vector<uint32_t> NameMedium::FoldersOf(uint32_t file) const {
  std::vector<uint32_t> found = {file};
  for (size_t i = 0; i < found.size(); ++i) {
    for (const auto& [name, other] : now_) {
      const bool known = std::find(found.begin(), found.end(), name.first) != found.end();
      if (other == found[i] && !known) found.push_back(name.first);
    }
  }
  return found;
}

// Some file has changes on both sides.
bool NameMedium::IsAcross(const std::vector<bool>& inside) const {
  std::set<uint32_t> in, out;
  for (size_t i = 0; i < inside.size(); ++i) {
    for (const uint32_t file : {changes_[i].before, changes_[i].now}) {
      if (file != kNobody) (inside[i] ? in : out).insert(file);
    }
  }
  return std::any_of(in.begin(), in.end(), [&](uint32_t file) { return out.count(file) > 0; });
}

// The first `changes`, by a sync of the file, or of all. As all file systems do it: with the file,
// what came before in its folders is durable; and all that there is, if a file went from one folder
// to another.
void NameMedium::Sync(size_t changes, uint32_t file) {
  const std::vector<uint32_t> folders = FoldersOf(file);
  std::vector<bool> inside;
  for (size_t i = 0; i < changes; ++i) {
    const Change& change = changes_[i];
    const uint32_t of = change.folder == kNobody ? change.now : change.folder;
    const bool own =
        file == kNobody || std::find(folders.begin(), folders.end(), of) != folders.end();
    inside.push_back(change.in_folder || own);
  }
  const bool across = IsAcross(inside);
  for (size_t i = 0; i < changes; ++i) {
    changes_[i].in_journal = true;
    changes_[i].in_folder = inside[i] || across;
  }
}

void NameMedium::Forget() {
  size_t n = 0;
  for (; n < changes_.size() && changes_[n].in_folder; ++n) {
    const Change& change = changes_[n];
    if (change.folder == kNobody) {
      change.set.ApplyTo(&certain_.attributes[change.now]);
    } else {
      SetName(&certain_.names, change.folder, change.name, change.now);
    }
  }
  changes_.erase(changes_.begin(), changes_.begin() + static_cast<std::ptrdiff_t>(n));
  forgotten_ += n;
}

bool NameMedium::IsFolder(const Change& change) const {
  return change.folder != kNobody && change.now != kNobody &&
         S_ISDIR(certain_.attributes[change.now].mode);
}

std::vector<bool> NameMedium::WhichAreThere(const NameChoice& choice) const {
  std::vector<bool> there;
  std::map<uint32_t, uint32_t> seen;  // of each folder
  for (size_t i = 0; i < changes_.size(); ++i) {
    const Change& change = changes_[i];
    const bool by_folder = !choice.folders.empty();
    there.push_back(by_folder ? change.in_folder : change.in_journal || i < choice.all);
    for (const auto& [folder, n] : choice.folders) {
      if (folder == change.folder && seen[folder] < n) there[i] = true;
    }
    ++seen[change.folder];
  }
  for (size_t i = 0; i + 1 < changes_.size(); ++i) {
    const bool whole = changes_[i].more && IsFolder(changes_[i]);
    if (whole) there[i] = there[i + 1] = there[i] && there[i + 1];
  }
  for (size_t i = 0; i < changes_.size(); ++i) {  // attributes go with later names
    if (changes_[i].folder != kNobody) continue;
    for (size_t later = i + 1; later < changes_.size(); ++later) {
      if (changes_[later].now == changes_[i].now && there[later]) there[i] = true;
    }
  }
  return there;
}

NameMedium::Left NameMedium::Build(const NameChoice& choice) const {
  Left left = certain_;
  Entries then = certain_.names;
  std::set<uint32_t> live_on;
  const std::vector<bool> there = WhichAreThere(choice);
  for (size_t i = 0; i < changes_.size(); ++i) {
    const Change& change = changes_[i];
    if (change.folder == kNobody) {
      if (there[i]) change.set.ApplyTo(&left.attributes[change.now]);
      continue;
    }
    SetName(&then, change.folder, change.name, change.now);
    bool is_there = there[i];
    if (is_there) {
      const uint32_t before = FileOf(left.names, change.folder, change.name);
      SetName(&left.names, change.folder, change.name, change.now);
      const bool lives = Has(then, before) || live_on.count(before) > 0;
      if (before != kNobody && !Has(left.names, before) && lives) {
        SetName(&left.names, change.folder, change.name, before);
        is_there = false;
      }
    }
    if (!is_there && !Has(then, change.before)) live_on.insert(change.before);
  }
  return left;
}

void NameMedium::ChooseByFolder(size_t most, std::mt19937_64* random,
                                std::vector<NameChoice>* choices) const {
  std::map<uint32_t, uint32_t> counts;
  size_t all = 1;
  for (const Change& change : changes_) ++counts[change.folder];
  counts.erase(kNobody);
  if (counts.size() < 2) return;  // as a journal does it
  for (const auto& [folder, n] : counts) all = std::min<size_t>(all * (n + 1), most + 1);
  const auto number = [&](auto next) {
    NameChoice choice;
    for (const auto& [folder, n] : counts) choice.folders.emplace_back(folder, next(n + 1));
    choices->push_back(choice);
  };
  for (size_t i = 0; i < std::min(all, most); ++i) {
    size_t rest = i;
    number([&](uint32_t n) {
      const size_t digit = all > most ? (*random)() : std::exchange(rest, rest / n);
      return static_cast<uint32_t>(digit % n);
    });
  }
}

std::vector<NameChoice> NameMedium::Choices(size_t most, std::mt19937_64* random) const {
  std::vector<NameChoice> choices;
  uint32_t first = 0;
  while (first < changes_.size() && changes_[first].in_journal) ++first;
  for (uint32_t n = first; n <= changes_.size(); ++n) choices.push_back({n, {}});
  ChooseByFolder(most, random, &choices);
  return choices;
}

}  // namespace nvcache::crash
