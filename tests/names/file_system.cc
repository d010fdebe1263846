// SPDX-License-Identifier: BSD-3-Clause
#include "tests/names/file_system.h"

#include <algorithm>
#include <cstddef>
#include <set>

namespace nvcache::names {

namespace {

File& In(Names& names, Name name) { return names[static_cast<size_t>(name)]; }

bool Has(const Names& names, File file) {
  return std::find(names.begin(), names.end(), file) != names.end();
}

// None and all are what bugs are about.
size_t Some(Random* random, size_t most) {
  const uint64_t way = (*random)() % 4;
  if (way == 0) return 0;
  return way == 1 ? most : (*random)() % (most + 1);
}

}  // namespace

bool FileSystem::Exists(File file) const { return file != kNoFile && Has(names_, file); }

std::vector<Name> FileSystem::NamesOf(File file) const {
  std::vector<Name> found;
  for (Name name = 0; name < kNames; ++name) {
    if (At(name) == file) found.push_back(name);
  }
  return found;
}

void FileSystem::Set(Name name, File file, bool ends_call) {
  changes_.push_back({name, At(name), file, ends_call});
  In(names_, name) = file;
}

File FileSystem::Create(Name name) {
  if (At(name) != kNoFile || newest_ + 1 >= kMostFiles) return kNoFile;
  Set(name, ++newest_);
  versions_.push_back({0});
  return newest_;
}

bool FileSystem::Link(File file, Name name) {
  if (!Exists(file) || At(name) != kNoFile) return false;
  Set(name, file);
  return true;
}

bool FileSystem::Rename(Name from, Name to) {
  const File file = At(from);
  if (file == kNoFile) return false;
  if (At(to) == file) return true;  // two names of one file: the kernel does nothing
  Set(to, file, false);
  Set(from, kNoFile);
  return true;
}

bool FileSystem::Remove(Name name) {
  if (At(name) == kNoFile) return false;
  Set(name, kNoFile);
  return true;
}

void FileSystem::Write(File file, int version) {
  versions_[static_cast<size_t>(file)].push_back(version);
}

void FileSystem::Sync() {
  synced_ = names_;
  changes_.clear();
  for (auto& versions : versions_) versions.erase(versions.begin(), versions.end() - 1);
}

// As all file systems do it: also whatever came before in these folders; and all there is, if a
// file went from one folder to another.
void FileSystem::SyncFile(File file) {
  auto& versions = versions_[static_cast<size_t>(file)];
  versions.erase(versions.begin(), versions.end() - 1);
  bool folders[kFolders] = {};
  for (const Name name : NamesOf(file)) folders[FolderOf(name)] = true;
  std::set<File> inside, outside;
  for (Change& change : changes_) {
    change.synced |= folders[FolderOf(change.name)];
    (change.synced ? inside : outside).insert({change.before, change.now});
  }
  inside.erase(kNoFile);
  const bool moved = std::any_of(inside.begin(), inside.end(),
                                 [&](File other) { return outside.contains(other); });
  if (!moved && loss_ == Loss::kEachFolder) return;
  for (Change& change : changes_) change.synced = true;
}

// Of each folder so many of all changes, and those that are synced. No file system loses a file
// because one of its names was taken away, if it had another one, and has not lost that one on the
// disk: the name stays, and what the change would have destroyed is not destroyed by it.
Names FileSystem::LeftBy(const Ends& ends) const {
  Names left = synced_, then = synced_;
  std::set<File> live_on;
  for (size_t i = 0; i < changes_.size(); ++i) {
    const Change& change = changes_[i];
    In(then, change.name) = change.now;
    bool is_there = i < ends[static_cast<size_t>(FolderOf(change.name))] || change.synced;
    if (is_there) {
      const File before = In(left, change.name);
      In(left, change.name) = change.now;
      const bool lives = Has(then, before) || live_on.contains(before);
      if (before != kNoFile && !Has(left, before) && lives) {
        In(left, change.name) = before;
        is_there = false;
      }
    }
    if (!is_there && !Has(then, change.before)) live_on.insert(change.before);
  }
  return left;
}

// A journal has whole calls.
bool FileSystem::MayEnd(size_t end) const {
  return loss_ != Loss::kPrefix || end == 0 || changes_[end - 1].ends_call;
}

Names FileSystem::Left(Random* random) const {
  Ends ends;
  ends.fill(Some(random, changes_.size()));
  if (loss_ == Loss::kEachFolder) {
    for (size_t& end : ends) end = Some(random, changes_.size());
  }
  while (!MayEnd(ends[0])) {
    for (size_t& end : ends) --end;
  }
  return LeftBy(ends);
}

std::set<Names> FileSystem::AllNamesLeft() const {
  static_assert(kFolders == 2);
  std::set<Names> all;
  for (size_t a = 0; a <= changes_.size(); ++a) {
    if (!MayEnd(a)) continue;
    for (size_t b = 0; b <= changes_.size(); ++b) {
      if (b == a || loss_ == Loss::kEachFolder) all.insert(LeftBy({a, b}));
    }
  }
  return all;
}

FileSystem FileSystem::With(const Names& names, const std::vector<size_t>& versions) const {
  FileSystem left(loss_);
  left.names_ = left.synced_ = names;
  left.newest_ = newest_;
  left.versions_.clear();
  for (size_t file = 0; file < versions.size(); ++file) {
    left.versions_.push_back({versions_[file][versions[file]]});
  }
  return left;
}

std::vector<FileSystem> FileSystem::AllLeft() const {
  std::vector<FileSystem> all;
  for (const Names& names : AllNamesLeft()) {
    std::vector<size_t> versions(versions_.size(), 0);
    for (size_t file = 0; file < versions.size();) {
      if (file == 0) all.push_back(With(names, versions));
      if (++versions[file] < versions_[file].size()) {
        file = 0;
      } else {
        versions[file++] = 0;
      }
    }
  }
  return all;
}

void FileSystem::LosePower(Random* random) {
  names_ = synced_ = Left(random);
  changes_.clear();
  for (auto& versions : versions_) versions = {versions[Some(random, versions.size() - 1)]};
}

}  // namespace nvcache::names
