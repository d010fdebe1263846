// SPDX-License-Identifier: BSD-3-Clause
//
// git:     commits of the program. Each one that is acknowledged can be reached, and fsck is clean.
// maildir: messages, delivered as mail servers do: written in `tmp`, and linked or renamed to
// `new`.
//          No folder is ever synced, once these are known to the log.
// dpkg:    small packages, installed, replaced and purged. What is acknowledged is installed, with
// its
//          files, and when the interrupted call is repeated, the audit finds nothing.
#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <set>

#include "tests/power/workload.h"

namespace nvcache::power_test {
namespace {

constexpr int kSyncs = 3;  // of a folder, until it is known

std::string Text(uint64_t n) { return std::to_string(n); }

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const directory = ::opendir(folder.c_str());
  if (directory == nullptr) return names;
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  ::closedir(directory);
  return names;
}

// A workload of one process, with folders that are known to the log when it begins.
class KnownFolders : public Workload {
 public:
  using Workload::Workload;
  bool HasProcess() const override { return true; }

 protected:
  void MakeKnown(const std::vector<std::string>& folders) const {
    if (promise() == Promise::kNothing) return;
    for (int i = 0; i < kSyncs; ++i) {
      for (const std::string& name : folders) SyncPath(name);
    }
  }
  void SyncPath(const std::string& name) const {
    const int fd = ::open(Path(name.c_str()).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || ::fsync(fd) != 0) Die(name.c_str());
    ::close(fd);
  }
};

// ---------------------------------------------------------------------------------------------

class Maildir : public KnownFolders {
 public:
  // `syncs`: each message, and each time the folder that it is in then.
  Maildir(const Settings& settings, bool syncs) : KnownFolders(settings), syncs_(syncs) {}

  void Prepare(uint64_t) override {
    for (const char* name : kFolders) {
      if (::mkdir(Path(name).c_str(), 0755) != 0 && errno != EEXIST) Die("mkdir");
    }
    if (promise() == Promise::kNothing) return;
    SyncFolder();
    MakeKnown({std::begin(kFolders), std::end(kFolders)});
  }

  void Run(uint64_t done) override {
    for (uint64_t number = done + 1;; ++number) {
      Deliver(number);
      if (promise() == Promise::kFsync) ::sync();
      AcknowledgeAtOnce(number);
    }
  }

  // All messages, and no other ones but the one that was being delivered.
  Verdict Check(uint64_t acknowledged, uint64_t announced) override {
    std::set<uint64_t> numbers;
    for (const std::string& name : NamesIn(Path("new"))) {
      numbers.insert(std::strtoull(name.c_str(), nullptr, 10));
    }
    const uint64_t last = numbers.empty() ? 0 : *numbers.rbegin();
    for (uint64_t number = 1; number <= std::max(acknowledged, last); ++number) {
      bool exists;
      const std::vector<uint8_t> found = ReadFile(Path(("new/" + Text(number)).c_str()), &exists);
      if (exists && found == Message(number)) continue;
      return Bad("message %s of %s acknowledged ones %s, and has %zu bytes of %zu",
                 Text(number).c_str(), Text(acknowledged).c_str(),
                 exists ? "is there" : "is missing", found.size(), Message(number).size());
    }
    if (last > std::max(acknowledged, announced) + 1) {
      return Bad("message %s is there", Text(last).c_str());
    }
    return Good(last);
  }

 private:
  static constexpr const char* kFolders[] = {"tmp", "new"};

  std::vector<uint8_t> Message(uint64_t number) const {
    return Content(seed() ^ number << 20, Random(seed() ^ number).Length(20000));
  }

  void Deliver(uint64_t number) {
    Random random(seed() ^ number ^ uint64_t{1} << 60);
    const std::string from = Path(("tmp/" + Text(number)).c_str());
    const std::string to = Path(("new/" + Text(number)).c_str());
    // The same message may have been begun before the last power failure.
    const int fd = ::open(from.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) Die("open");
    const std::vector<uint8_t> bytes = Message(number);
    const size_t half = bytes.size() / 2;
    if (::write(fd, bytes.data(), half) != static_cast<ssize_t>(half) ||
        ::write(fd, bytes.data() + half, bytes.size() - half) !=
            static_cast<ssize_t>(bytes.size() - half)) {
      Die("write");
    }
    if ((syncs_ || MustSync(random)) && ::fsync(fd) != 0) Die("fsync");
    ::close(fd);
    if (random.OneIn(2)) {
      if (::rename(from.c_str(), to.c_str()) != 0) Die("rename");
    } else if (::link(from.c_str(), to.c_str()) != 0 || ::unlink(from.c_str()) != 0) {
      Die("link");
    }
    if (syncs_) SyncPath("new");
  }

  const bool syncs_;
};

// ---------------------------------------------------------------------------------------------

class Git : public KnownFolders {
 public:
  using KnownFolders::KnownFolders;

  void Prepare(uint64_t) override {
    if (::access(Path(".git/refs/heads/main").c_str(), F_OK) != 0) Begin();
    MakeKnown(
        {".", ".git", ".git/objects", ".git/refs/heads", ".git/logs", ".git/logs/refs/heads"});
  }

  void Run(uint64_t done) override {
    for (uint64_t number = done + 1;; ++number) {
      WriteFile(Name(number), Line(number));
      Must({"commit", "-q", "-a", "-m", Text(number)});
      if (promise() == Promise::kFsync) ::sync();
      AcknowledgeAtOnce(number);
    }
  }

  Verdict Check(uint64_t acknowledged, uint64_t) override {
    // A git that was killed leaves its locks to whoever runs it next.
    for (const char* name : {"index", "HEAD", "refs/heads/main"}) {
      ::unlink(Path((".git/" + std::string(name) + ".lock").c_str()).c_str());
    }
    if (acknowledged == 0) return Good(Restart());
    std::string said;
    if (!Try({"fsck", "--full", "--strict", "--no-dangling"}, &said)) {
      return Bad("fsck: %s", said.c_str());
    }
    said.clear();
    if (!Try({"log", "--format=%s"}, &said)) return Bad("log: %s", said.c_str());
    const uint64_t last = std::strtoull(said.c_str(), nullptr, 10);
    std::string expected;
    for (uint64_t number = last + 1; number-- > 0;) expected += Text(number) + "\n";
    if (said != expected) return Bad("commits are missing: %s", said.c_str());
    if (last < acknowledged || last > acknowledged + 1) {
      return Bad("the last commit is %s, acknowledged are %s", Text(last).c_str(),
                 Text(acknowledged).c_str());
    }
    const std::string file = "HEAD:" + Name(last);
    said.clear();
    if (!Try({"show", file}, &said) || said != Line(last))
      return Bad("%s: %s", file.c_str(), said.c_str());
    // The files themselves git does not sync: they are as in the last commit from now on.
    if (!Try({"reset", "-q", "--hard"}, &said)) return Bad("reset: %s", said.c_str());
    ::sync();
    return Good(last);
  }

 private:
  static constexpr uint64_t kFiles = 7;

  static std::string Name(uint64_t number) { return "file" + Text(number % kFiles); }
  std::string Line(uint64_t number) const {
    const std::vector<uint8_t> bytes = Content(seed() ^ number << 20, 300);
    std::string line = Text(number) + " ";
    for (const uint8_t byte : bytes) line += static_cast<char>('a' + byte % 26);
    return line + "\n";
  }

  // All that git makes is synced before a commit is done.
  bool Try(const std::vector<std::string>& more, std::string* output) const {
    std::vector<std::string> words = {"git",
                                      "-C",
                                      folder(),
                                      "-c",
                                      "core.fsync=all",
                                      "-c",
                                      "maintenance.auto=false",
                                      "-c",
                                      "user.name=a",
                                      "-c",
                                      "user.email=a@b"};
    words.insert(words.end(), more.begin(), more.end());
    return RunProgram(words, output);
  }
  void Must(const std::vector<std::string>& words) const {
    std::string said;
    if (!Try(words, &said)) Die(("git " + words[0] + ": " + said).c_str());
  }
  void WriteFile(const std::string& name, const std::string& line) const {
    const int fd =
        ::open(Path(name.c_str()).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || ::write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      Die("write");
    }
    ::close(fd);
  }
  // Commit 0 has all files.
  void Begin() const {
    Must({"init", "-q", "-b", "main", "."});
    for (uint64_t number = 0; number < kFiles; ++number) WriteFile(Name(number), Line(0));
    Must({"add", "-A"});
    Must({"commit", "-q", "-m", "0"});
    ::sync();
  }
  // Nothing was promised yet; what there is may be anything.
  uint64_t Restart() const {
    std::string said;
    RunProgram({"rm", "-rf", Path(".git")}, &said);
    ::sync();
    return 0;
  }
};

// ---------------------------------------------------------------------------------------------

// Of five packages, each number gives one the version of that number, or purges it. They lie in the
// folder that PACKAGES names (tests/kit/packages.py); after the last one it waits.
class Dpkg : public KnownFolders {
 public:
  using KnownFolders::KnownFolders;

  void Prepare(uint64_t) override {
    std::string said;
    if (::access(Path("var/lib/dpkg/status").c_str(), F_OK) != 0) {
      RunProgram({"mkdir", "-p", Path("var/lib/dpkg/info"), Path("var/lib/dpkg/updates"),
                  Path("usr/share"), Path("usr/bin")},
                 &said);
      ::close(::open(Path("var/lib/dpkg/status").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
      ::sync();
    }
    MakeKnown({".", "usr", "usr/bin", "usr/share", "var/lib/dpkg", "var/lib/dpkg/info",
               "var/lib/dpkg/updates"});
  }

  void Run(uint64_t done) override {
    for (uint64_t number = done + 1; CanDo(number); ++number) {
      std::string said;
      if (!Do(number, &said)) Die(said.c_str());
      if (promise() == Promise::kFsync) ::sync();
      AcknowledgeAtOnce(number);
    }
    for (;;) ::pause();
  }

  Verdict Check(uint64_t acknowledged, uint64_t) override {
    if (::access(Path("var/lib/dpkg/status").c_str(), F_OK) != 0) {
      return acknowledged == 0 ? Good(0) : Bad("dpkg's database is not there");
    }
    const uint64_t next = CanDo(acknowledged + 1) ? acknowledged + 1 : acknowledged;
    std::string wrong = Difference(acknowledged, next % kNames);
    if (!wrong.empty()) return Bad("after %s: %s", Text(acknowledged).c_str(), wrong.c_str());
    // What was interrupted is done once more, as an administrator would.
    std::string said;
    if (!Do(next, &said)) return Bad("once more: %s", said.c_str());
    if (!Call({"--audit"}, &said) || !said.empty()) return Bad("audit: %s", said.c_str());
    wrong = Difference(next, kNames);
    if (!wrong.empty()) return Bad("after %s, done again: %s", Text(next).c_str(), wrong.c_str());
    ::sync();
    return Good(next);
  }

 private:
  static constexpr uint64_t kNames = 5;

  static bool Purges(uint64_t number) { return number % 4 == 0; }
  static std::string Package(uint64_t number) { return "p" + Text(number % kNames); }
  static std::string ArchiveOf(uint64_t number) {
    const char* folder = std::getenv("PACKAGES");
    return std::string(folder != nullptr ? folder : "/packages") + "/" + Text(number) + ".deb";
  }
  static bool CanDo(uint64_t number) {
    return Purges(number) || ::access(ArchiveOf(number).c_str(), F_OK) == 0;
  }

  bool Call(const std::vector<std::string>& more, std::string* output) const {
    std::vector<std::string> words = {"dpkg", "--root=" + folder(), "--log=/dev/null",
                                      "--refuse-unsafe-io", "--force-bad-path"};
    words.insert(words.end(), more.begin(), more.end());
    output->clear();
    return RunProgram(words, output);
  }
  bool Do(uint64_t number, std::string* output) const {
    const bool done = Purges(number) ? Call({"--purge", Package(number)}, output)
                                     : Call({"--install", ArchiveOf(number)}, output);
    if (done) output->clear();
    return done;
  }
  // Of all packages but for one, of which nothing is known.
  std::string Difference(uint64_t number, uint64_t but) const {
    std::string said;
    if (!RunProgram(
            {"dpkg-query", "--root=" + folder(), "-W", "-f", "${Package} ${Version} ${Status}\\n"},
            &said)) {
      return said;
    }
    for (uint64_t name = 0; name < kNames; ++name) {
      if (name == but) continue;
      // The last number that was this package's.
      const uint64_t last = number < name ? 0 : number - (number - name) % kNames;
      const bool is_there = last > 0 && !Purges(last);
      const std::string wanted = Package(name) + " " + Text(last) + " install ok installed\n";
      const std::string line = LineOf(said, Package(name) + " ");
      if (line != (is_there ? wanted : "")) return "dpkg knows: " + said;
      std::string wrong = FilesOf(name, is_there ? last : 0);
      if (!wrong.empty()) return wrong;
    }
    return "";
  }
  static std::string LineOf(const std::string& text, const std::string& begin) {
    const size_t at = text.starts_with(begin) ? 0 : text.find("\n" + begin);
    if (at == std::string::npos) return "";
    const size_t from = at == 0 ? 0 : at + 1;
    return text.substr(from, text.find('\n', from) + 1 - from);
  }
  // Of version 0: no files.
  std::string FilesOf(uint64_t name, uint64_t version) const {
    for (uint64_t k = 0; k < kFiles; ++k) {
      const std::string line = Text(version) + " " + Text(k) + "\n";
      const bool is_there = version != 0 && k <= version % kFiles;
      std::string wrong =
          FileOf("usr/share/" + Package(name) + "/f" + Text(k), is_there, line, 1 + 37 * k);
      if (!wrong.empty()) return wrong;
    }
    return FileOf("usr/bin/" + Package(name), version != 0, "program " + Text(version) + "\n",
                  3000);
  }
  // So many lines.
  std::string FileOf(const std::string& path, bool is_there, const std::string& line,
                     uint64_t lines) const {
    bool exists;
    const std::vector<uint8_t> found = ReadFile(Path(path.c_str()), &exists);
    std::string wanted;
    for (uint64_t i = 0; i < lines; ++i) wanted += line;
    if (exists != is_there) return path + (exists ? " is there" : " is missing") + ": " + line;
    if (!exists || std::string(found.begin(), found.end()) == wanted) return "";
    return path + " has " + Text(found.size()) + " other bytes: " + line;
  }
  static constexpr uint64_t kFiles = 7;
};

}  // namespace

pid_t StartProgram(const std::vector<std::string>& words, int input, int output) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  if (input >= 0) ::posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  if (output >= 0) {
    ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  }
  pid_t child = -1;
  const int error =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? child : -1;
}

bool RunProgram(const std::vector<std::string>& words, std::string* output) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  const pid_t child = StartProgram(words, -1, output != nullptr ? ends[1] : -1);
  ::close(ends[1]);
  char buffer[4096];
  while (output != nullptr) {
    const ssize_t n = ::read(ends[0], buffer, sizeof(buffer));
    if (n <= 0) break;
    output->append(buffer, static_cast<size_t>(n));
  }
  ::close(ends[0]);
  int status = -1;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

std::unique_ptr<Workload> MakeDpkg(const Settings& settings) {
  return std::make_unique<Dpkg>(settings);
}

std::unique_ptr<Workload> MakeMaildir(const Settings& settings) {
  return std::make_unique<Maildir>(settings, settings.name.starts_with("maildir-synced"));
}

std::unique_ptr<Workload> MakeGit(const Settings& settings) {
  return std::make_unique<Git>(settings);
}

}  // namespace nvcache::power_test
