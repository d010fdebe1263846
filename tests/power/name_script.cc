// SPDX-License-Identifier: BSD-3-Clause
#include "tests/power/name_script.h"

#include <algorithm>
#include <cstdio>

namespace nvcache::power_test {
namespace {

constexpr uint64_t kMaxSize = 64u << 10;
constexpr mode_t kFileModes[] = {0644, 0600, 0640, 0666, 0755};
constexpr mode_t kFolderModes[] = {0755, 0700};
constexpr int64_t kSomeTime = 1'000'000'000;

template <typename T>
const T& Pick(Random& random, const std::vector<T>& from) {
  return from[random.Below(from.size())];
}

template <size_t n>
mode_t Pick(Random& random, const mode_t (&from)[n]) {
  return from[random.Below(n)];
}

bool IsFile(const Node& node) { return node.kind == Node::kFile; }
bool IsFolder(const Node& node) { return node.kind == Node::kFolder; }
bool IsNoFolder(const Node& node) { return node.kind != Node::kFolder; }
bool IsNoSymlink(const Node& node) { return node.kind != Node::kSymlink; }

}  // namespace

std::string NameOperation::Text() const {
  constexpr const char* kTexts[] = {"create", "write",  "append", "ftruncate", "truncate",
                                    "creat",  "rename", "link",   "symlink",   "unlink",
                                    "mkdir",  "rmdir",  "chmod",  "chown",     "utimens"};
  std::string text = std::string(kTexts[kind]) + " " + path;
  if (!other.empty()) text += " " + other;
  char numbers[64] = "";
  if (kind >= kWrite && kind <= kFtruncate) {
    std::snprintf(numbers, sizeof(numbers), " %llu+%llu", static_cast<unsigned long long>(offset),
                  static_cast<unsigned long long>(length));
  } else if (mode != 0) {
    std::snprintf(numbers, sizeof(numbers), " %o", mode);
  }
  return text + numbers;
}

NameOperation NameScript::Next() {
  Random random(seed_ ^ ++number_);
  NameOperation operation;
  do {
    operation = {};
    operation.id = seed_ ^ number_ << 20;
  } while (!Draw(random, &operation));
  Apply(operation);
  return operation;
}

bool NameScript::Draw(Random& random, NameOperation* operation) const {
  const uint64_t choice = random.Below(100);
  if (choice < 22) return DrawNew(random, operation);
  if (choice < 56) return DrawName(random, operation);
  if (choice < 64) return DrawFolder(random, operation);
  return DrawFile(random, operation);
}

bool NameScript::DrawNew(Random& random, NameOperation* operation) const {
  operation->path = AnyName(random);
  if (names_.contains(operation->path)) return false;
  operation->kind = random.OneIn(5) ? Kind::kSymlink : Kind::kCreate;
  if (operation->kind == Kind::kCreate) {
    operation->mode = Pick(random, kFileModes);
  } else {
    operation->other = "target" + std::to_string(number_);
  }
  return true;
}

bool NameScript::DrawName(Random& random, NameOperation* operation) const {
  const std::vector<std::string> old = Having(IsNoFolder);
  if (old.empty()) return false;
  operation->path = Pick(random, old);
  const uint64_t choice = random.Below(10);
  operation->kind = choice < 5 ? Kind::kRename : choice < 7 ? Kind::kLink : Kind::kUnlink;
  if (operation->kind == Kind::kUnlink) return true;
  operation->other = AnyName(random);
  if (operation->other == operation->path) return false;
  return operation->kind == Kind::kRename ||
         (IsFile(*names_.at(operation->path)) && !names_.contains(operation->other));
}

bool NameScript::DrawFolder(Random& random, NameOperation* operation) const {
  operation->path = FolderName(random);
  const bool is_there = names_.contains(operation->path);
  if (is_there && random.OneIn(2)) {
    operation->kind = Kind::kRename;
    operation->other = FolderName(random);
    return IsEmpty(operation->path) && !names_.contains(operation->other);
  }
  operation->kind = is_there ? Kind::kRemoveFolder : Kind::kMakeFolder;
  operation->mode = is_there ? 0 : Pick(random, kFolderModes);
  return !is_there || IsEmpty(operation->path);
}

bool NameScript::DrawFile(Random& random, NameOperation* operation) const {
  const uint64_t choice = random.Below(100);
  const bool attributes = choice < 28;
  const std::vector<std::string> old = Having(attributes ? IsNoSymlink : IsFile);
  if (old.empty()) return false;
  operation->path = Pick(random, old);
  const Node& node = *names_.at(operation->path);
  if (attributes) {
    operation->kind = choice < 10 ? Kind::kChmod : choice < 18 ? Kind::kChown : Kind::kUtimens;
    operation->mode = IsFolder(node) ? Pick(random, kFolderModes) : Pick(random, kFileModes);
    operation->owner = static_cast<uid_t>(random.Below(4));
    operation->group = static_cast<gid_t>(random.Below(4));
    operation->modified = kSomeTime + static_cast<int64_t>(number_);
    return true;
  }
  operation->length = random.Length(random.OneIn(8) ? kMaxSize / 2 : 9000);
  if (choice < 74) {
    operation->kind = choice < 52 ? Kind::kWrite : Kind::kAppend;
    operation->offset = operation->kind == Kind::kAppend ? node.bytes.size()
                                                         : random.Below(node.bytes.size() + 4000);
    return operation->offset + operation->length <= kMaxSize;
  }
  operation->kind = choice < 88 ? Kind::kFtruncate : choice < 94 ? Kind::kTruncate : Kind::kCreat;
  if (operation->kind == Kind::kFtruncate) operation->offset = random.Below(20000);
  operation->length = 0;
  return true;
}

void NameScript::Apply(const NameOperation& operation) {
  const std::string& path = operation.path;
  switch (operation.kind) {
    case Kind::kCreate:
    case Kind::kMakeFolder:
    case Kind::kSymlink: {
      auto node = std::make_shared<Node>();
      node->kind = operation.kind == Kind::kCreate    ? Node::kFile
                   : operation.kind == Kind::kSymlink ? Node::kSymlink
                                                      : Node::kFolder;
      node->mode = operation.kind == Kind::kSymlink ? 0777 : operation.mode;
      node->bytes.assign(operation.other.begin(), operation.other.end());
      names_[path] = node;
      ChangedIn(path);
      break;
    }
    case Kind::kRename:
      ChangedIn(path);
      ChangedIn(operation.other);
      // Two names of one file stay both.
      if (names_.contains(operation.other) && names_.at(operation.other) == names_.at(path)) break;
      names_[operation.other] = names_.at(path);
      names_.erase(path);
      break;
    case Kind::kLink:
      names_[operation.other] = names_.at(path);
      ChangedIn(operation.other);
      break;
    case Kind::kUnlink:
    case Kind::kRemoveFolder:
      names_.erase(path);
      ChangedIn(path);
      break;
    default:
      ApplyToFile(operation, names_.at(path).get());
  }
}

void NameScript::ApplyToFile(const NameOperation& operation, Node* node) {
  switch (operation.kind) {
    case Kind::kWrite:
    case Kind::kAppend:
      kit::Put(&node->bytes, operation.offset, Content(operation.id, operation.length).data(),
               operation.length);
      break;
    case Kind::kFtruncate:
    case Kind::kTruncate:
    case Kind::kCreat:
      node->bytes.resize(operation.offset);
      break;
    case Kind::kChmod:
      node->mode = operation.mode;
      break;
    case Kind::kChown:
      node->owner = operation.owner;
      node->group = operation.group;
      break;
    case Kind::kUtimens:
      node->modified = operation.modified;
      break;
    default:
      break;
  }
  if (operation.ChangesBytes()) node->modified = 0;
}

void NameScript::ChangedIn(const std::string& path) {
  const auto folder = names_.find(path.substr(0, path.rfind('/')));
  if (folder != names_.end()) folder->second->modified = 0;
}

std::vector<std::string> NameScript::Folders() const {
  std::vector<std::string> folders(std::begin(kRoots), std::end(kRoots));
  const std::vector<std::string> made = Having(IsFolder);
  folders.insert(folders.end(), made.begin(), made.end());
  return folders;
}

std::string NameScript::AnyName(Random& random) const {
  const std::string folder = Pick(random, Folders());
  return folder + "/" + prefix_ + "." + std::to_string(random.Below(6));
}

std::string NameScript::FolderName(Random& random) const {
  return std::string(kRoots[random.Below(std::size(kRoots))]) + "/" + prefix_ + ".d" +
         std::to_string(random.Below(3));
}

std::vector<std::string> NameScript::Having(bool (*wanted)(const Node&)) const {
  std::vector<std::string> found;
  for (const auto& [path, node] : names_) {
    if (wanted(*node)) found.push_back(path);
  }
  return found;
}

bool NameScript::IsEmpty(const std::string& folder) const {
  const auto next = names_.upper_bound(folder + "/");
  return next == names_.end() || !next->first.starts_with(folder + "/");
}

}  // namespace nvcache::power_test
