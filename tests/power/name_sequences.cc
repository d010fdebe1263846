// SPDX-License-Identifier: BSD-3-Clause
//
// names: a process with names of its own, in folders that all such processes share.
// turns: several processes that take turns at the same names, in the same folders.
//
// The folders are known to the log when it begins (docs/names.md). From then on a call that changes
// names is acknowledged when it has returned, and one that changes a file's bytes or attributes, or
// a folder's, when that is synced as well. The sync has nothing to do as long as the log knows the
// file. It does not know those from before the last power failure; and now and then it knows one no
// more, though nobody did anything unusual with it: processes are told apart by classes of files,
// and one that waits for a processor may be taken for stopped.
// An acknowledgement is on its way before the next call, so after recovery all is as after the last
// acknowledged call, or after the one that was under way.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "tests/power/name_script.h"
#include "tests/power/workload.h"

namespace nvcache::power_test {
namespace {

constexpr int kProcesses = 3;  // that take turns
constexpr int kSyncs = 3;      // of a folder, until it is known

using Kind = NameOperation::Kind;

struct Found {
  struct stat status = {};
  std::vector<uint8_t> bytes;
};
using FoundNames = std::map<std::string, Found>;

// ---------------------------------------------------------------------------------------------
// What is there, beside what should be.

Node::Kind KindOf(const Found& found) {
  return S_ISDIR(found.status.st_mode)   ? Node::kFolder
         : S_ISLNK(found.status.st_mode) ? Node::kSymlink
                                         : Node::kFile;
}

std::vector<uint8_t> Target(const std::string& path) {
  std::vector<uint8_t> bytes(1000);
  const ssize_t n = ::readlink(path.c_str(), reinterpret_cast<char*>(bytes.data()), bytes.size());
  bytes.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return bytes;
}

std::string Joined(std::string folder, const std::string& name) {
  folder += '/';
  folder += name;
  return folder;
}

// What is in `folder`, and begins with `prefix`, and is below it.
void Look(const std::string& base, const std::string& folder, const std::string& prefix,
          FoundNames* names) {
  DIR* const directory = ::opendir(Joined(base, folder).c_str());
  if (directory == nullptr) return;
  while (const dirent* entry = ::readdir(directory)) {
    const std::string name = entry->d_name;
    const bool is_ours = name.starts_with(prefix) || name.starts_with(".nvcache-");
    if (name == "." || name == ".." || !is_ours) continue;
    const std::string path = Joined(folder, name);
    const std::string full = Joined(base, path);
    Found& found = (*names)[path];
    if (::lstat(full.c_str(), &found.status) != 0) continue;
    bool exists;
    if (KindOf(found) == Node::kFile) found.bytes = ReadFile(full, &exists);
    if (KindOf(found) == Node::kSymlink) found.bytes = Target(full);
    if (KindOf(found) == Node::kFolder) Look(base, path, "", names);
  }
  ::closedir(directory);
}

// The bytes of a file while a call changes them from `before` to `after`: each is an old or a new
// one, or was not there before.
bool IsBetween(const std::vector<uint8_t>& found, const std::vector<uint8_t>& before,
               const std::vector<uint8_t>& after) {
  const size_t least = std::min(before.size(), after.size());
  const size_t most = std::max(before.size(), after.size());
  if (found.size() < least || found.size() > most) return false;
  for (size_t i = 0; i < found.size(); ++i) {
    const bool is_old = i < before.size() && found[i] == before[i];
    const bool is_new = i < after.size() && found[i] == after[i];
    const bool is_cut = found[i] == 0 && i >= least;
    if (!is_old && !is_new && !is_cut) return false;
  }
  return true;
}

// Of a call that is under way: the file whose bytes it changes, and what they were.
struct Unfinished {
  const Node* node = nullptr;
  std::vector<uint8_t> before;
};

std::string Difference(const std::string& path, const Node& node, const Found& found,
                       const Unfinished& unfinished) {
  char text[200] = "";
  if (KindOf(found) != node.kind || (found.status.st_mode & 07777) != node.mode) {
    std::snprintf(text, sizeof(text), " has type and mode %o, expected %o", found.status.st_mode,
                  node.mode);
  } else if (found.status.st_uid != node.owner || found.status.st_gid != node.group) {
    std::snprintf(text, sizeof(text), " belongs to %u:%u, expected %u:%u", found.status.st_uid,
                  found.status.st_gid, node.owner, node.group);
  } else if (node.modified != 0 && found.status.st_mtim.tv_sec != node.modified) {
    std::snprintf(text, sizeof(text), " was modified at %lld, expected %lld",
                  static_cast<long long>(found.status.st_mtim.tv_sec),
                  static_cast<long long>(node.modified));
  } else if (found.bytes != node.bytes &&
             (&node != unfinished.node || !IsBetween(found.bytes, unfinished.before, node.bytes))) {
    const size_t size = std::min(found.bytes.size(), node.bytes.size());
    size_t at = 0;
    while (at < size && found.bytes[at] == node.bytes[at]) ++at;
    std::snprintf(text, sizeof(text), " has %zu bytes, expected %zu, others from %zu on",
                  found.bytes.size(), node.bytes.size(), at);
  }
  return text[0] != '\0' ? path + text : "";
}

// Empty: all is as it should be.
std::string Difference(const Names& names, const FoundNames& found, const Unfinished& unfinished) {
  for (const auto& [path, what] : found) {
    if (!names.contains(path)) return path + " is there";
  }
  std::map<ino_t, const Node*> nodes;
  for (const auto& [path, node] : names) {
    const auto one = found.find(path);
    if (one == found.end()) return path + " is missing";
    std::string difference = Difference(path, *node, one->second, unfinished);
    if (!difference.empty()) return difference;
    const Node*& same = nodes.try_emplace(one->second.status.st_ino, node.get()).first->second;
    if (same != node.get()) return path + " leads to another one's file";
  }
  std::set<const Node*> different;
  for (const auto& [number, node] : nodes) {
    if (!different.insert(node).second) return "two names of one file lead to two";
  }
  return "";
}

// ---------------------------------------------------------------------------------------------

class NameSequences : public Workload {
 public:
  NameSequences(const Settings& settings, int processes)
      : Workload(settings),
        processes_(processes),
        syncs_files_(!settings.name.starts_with("names-bare")),
        syncs_all_(settings.name.starts_with("names-sync")) {}

  bool HasProcess() const override { return true; }
  void Prepare(uint64_t done) override;
  void Run(uint64_t done) override;
  Verdict Check(uint64_t acknowledged, uint64_t) override;

 private:
  // Turn after turn, of which `me` has each `processes_`th.
  [[noreturn]] void Work(NameScript* script, int me);
  void Do(const NameOperation& operation);
  void ChangeFile(const NameOperation& operation);
  void Write(const NameOperation& operation);
  void SyncFile(const std::string& path) const;
  void Repair(const std::string& path, const std::vector<uint8_t>& bytes) const;
  int Open(const std::string& path, int flags, mode_t mode = 0) const;
  void Must(long result, const NameOperation& operation) const {
    if (result < 0) Die(operation.Text().c_str());
  }
  std::string Full(const std::string& path) const { return base() + "/" + path; }
  // All workloads of this kind share it.
  std::string base() const { return folder().substr(0, folder().rfind('/')) + "/common"; }

  const int processes_;
  const bool syncs_files_, syncs_all_;  // all that it changes; everything, now and then
  int turns_[kProcesses][2] = {};       // pipes
  int last_fd_ = -1;                    // of the file that this process has made last
};

int NameSequences::Open(const std::string& path, int flags, mode_t mode) const {
  const int fd = ::open(Full(path).c_str(), flags | O_CLOEXEC, mode);
  if (fd < 0) Die(path.c_str());
  return fd;
}

void NameSequences::SyncFile(const std::string& path) const {
  const int fd = Open(path, O_RDONLY);
  if (::fsync(fd) != 0) Die("fsync");
  ::close(fd);
}

void NameSequences::Prepare(uint64_t done) {
  if (promise() == Promise::kNothing) return;
  NameScript script(seed(), name());
  while (script.number() < done) script.Next();
  for (int i = 0; i < kSyncs; ++i) {
    for (const std::string& folder : script.Folders()) SyncFile(folder);
  }
}

void NameSequences::Run(uint64_t done) {
  ::umask(0);
  NameScript script(seed(), name());
  while (script.number() < done) script.Next();
  for (int i = 0; i < processes_; ++i) {
    if (::pipe2(turns_[i], O_CLOEXEC) != 0) Die("pipe");
  }
  for (int me = 1; me < processes_; ++me) {
    const pid_t child = ::fork();
    if (child < 0) Die("fork");
    if (child == 0) Work(&script, me);
  }
  const char token = 0;
  const auto first = (done + 1) % static_cast<uint64_t>(processes_);
  if (::write(turns_[first][1], &token, 1) != 1) Die("write to a pipe");
  Work(&script, 0);
}

void NameSequences::Work(NameScript* script, int me) {
  std::set<std::shared_ptr<Node>> old;
  for (const auto& [path, node] : script->names()) old.insert(node);
  for (;;) {
    const NameOperation operation = script->Next();
    if (script->number() % static_cast<uint64_t>(processes_) != static_cast<uint64_t>(me)) continue;
    char token;
    if (::read(turns_[me][0], &token, 1) != 1) Die("read from a pipe");
    Do(operation);
    const auto node = script->names().find(operation.path);
    if (promise() == Promise::kFsync) {
      ::sync();
    } else if (promise() == Promise::kWrite && node != script->names().end() &&
               (syncs_files_ || old.contains(node->second)) &&
               (operation.ChangesBytes() || operation.ChangesAttributes())) {
      SyncFile(operation.path);
    }
    if (syncs_all_ && Random(seed() ^ script->number()).OneIn(25)) ::sync();
    AcknowledgeAtOnce(script->number());
    if (::write(turns_[(me + 1) % processes_][1], &token, 1) != 1) Die("write to a pipe");
  }
}

void NameSequences::Do(const NameOperation& operation) {
  const std::string path = Full(operation.path);
  const std::string other = Full(operation.other);
  switch (operation.kind) {
    case Kind::kCreate:
      if (last_fd_ >= 0) ::close(last_fd_);
      last_fd_ = Open(operation.path, O_RDWR | O_CREAT | O_EXCL, operation.mode);
      break;
    case Kind::kRename:
      Must(::rename(path.c_str(), other.c_str()), operation);
      break;
    case Kind::kLink:
      Must(::link(path.c_str(), other.c_str()), operation);
      break;
    case Kind::kSymlink:
      Must(::symlink(operation.other.c_str(), path.c_str()), operation);
      break;
    case Kind::kUnlink:
      Must(::unlink(path.c_str()), operation);
      break;
    case Kind::kMakeFolder:
      Must(::mkdir(path.c_str(), operation.mode), operation);
      break;
    case Kind::kRemoveFolder:
      Must(::rmdir(path.c_str()), operation);
      break;
    default:
      ChangeFile(operation);
  }
}

void NameSequences::ChangeFile(const NameOperation& operation) {
  const std::string path = Full(operation.path);
  const auto size = static_cast<off_t>(operation.offset);
  switch (operation.kind) {
    case Kind::kFtruncate: {
      const int fd = Open(operation.path, O_WRONLY);
      Must(::ftruncate(fd, size), operation);
      ::close(fd);
      break;
    }
    case Kind::kTruncate:
      ::close(Open(operation.path, O_WRONLY | O_TRUNC));
      break;
    case Kind::kCreat: {
      const int fd = ::creat(path.c_str(), 0644);
      Must(fd, operation);
      ::close(fd);
      break;
    }
    case Kind::kChmod:
      Must(::chmod(path.c_str(), operation.mode), operation);
      break;
    case Kind::kChown:
      Must(::chown(path.c_str(), operation.owner, operation.group), operation);
      break;
    case Kind::kUtimens: {
      const timespec times[2] = {{operation.modified, 0}, {operation.modified, 0}};
      Must(::utimensat(AT_FDCWD, path.c_str(), times, 0), operation);
      break;
    }
    default:
      Write(operation);
  }
}

// What is written by a descriptor whose own name is gone is in no log, though the file may have
// other names (docs/names.md, limits).
bool HasOwnName(int fd) {
  const std::vector<uint8_t> path = Target("/proc/self/fd/" + std::to_string(fd));
  return !std::string(path.begin(), path.end()).ends_with(" (deleted)");
}

void NameSequences::Write(const NameOperation& operation) {
  struct stat made = {}, named = {};
  const bool is_last = last_fd_ >= 0 && HasOwnName(last_fd_) && ::fstat(last_fd_, &made) == 0 &&
                       ::stat(Full(operation.path).c_str(), &named) == 0 &&
                       made.st_ino == named.st_ino;
  const bool appends = operation.kind == Kind::kAppend;
  const bool uses_last = is_last && !appends;
  const int fd = uses_last ? last_fd_ : Open(operation.path, O_WRONLY | (appends ? O_APPEND : 0));
  const std::vector<uint8_t> bytes = Content(operation.id, operation.length);
  const ssize_t n =
      appends ? ::write(fd, bytes.data(), bytes.size())
              : ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(operation.offset));
  if (n != static_cast<ssize_t>(bytes.size())) Die(operation.Text().c_str());
  if (!uses_last) ::close(fd);
}

// A call that was under way has changed a part of the file. The next one is drawn for the whole of
// it.
void NameSequences::Repair(const std::string& path, const std::vector<uint8_t>& bytes) const {
  const int fd = Open(path, O_WRONLY | O_TRUNC);
  if (::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()) ||
      ::fsync(fd) != 0) {
    Die("repair");
  }
  ::close(fd);
}

Verdict NameSequences::Check(uint64_t acknowledged, uint64_t) {
  FoundNames found;
  for (const char* root : kRoots) Look(base(), root, name() + ".", &found);
  NameScript script(seed(), name());
  std::string last;
  while (script.number() < acknowledged) {
    const std::string text = script.Next().Text();
    if (script.number() + 4 > acknowledged) last += text + "; ";
  }
  const std::string wrong = Difference(script.names(), found, {});
  if (wrong.empty()) return Good(acknowledged);

  // The call that was under way.
  std::map<std::string, std::vector<uint8_t>> before;
  for (const auto& [path, node] : script.names()) before[path] = node->bytes;
  const NameOperation next = script.Next();
  Unfinished unfinished;
  if (next.ChangesBytes()) {
    unfinished = {script.names().at(next.path).get(), before[next.path]};
  }
  const std::string later = Difference(script.names(), found, unfinished);
  if (!later.empty()) {
    return Bad("%s; or %s; after call %llu: %snext: %s", wrong.c_str(), later.c_str(),
               static_cast<unsigned long long>(acknowledged), last.c_str(), next.Text().c_str());
  }
  if (unfinished.node != nullptr) Repair(next.path, unfinished.node->bytes);
  return Good(script.number());
}

}  // namespace

std::unique_ptr<Workload> MakeNames(const Settings& settings) {
  return std::make_unique<NameSequences>(settings, 1);
}

std::unique_ptr<Workload> MakeTurns(const Settings& settings) {
  return std::make_unique<NameSequences>(settings, kProcesses);
}

}  // namespace nvcache::power_test
