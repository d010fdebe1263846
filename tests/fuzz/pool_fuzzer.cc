// SPDX-License-Identifier: BSD-3-Clause
//
// Damaged pools of a user, given to root's `nvcache status`, `dump` and `recover`, in this process,
// under libFuzzer and the sanitizers. Whatever is in the pool: no crash, no hang, and no file
// changes but those that the pool names and its owner may write, and no folder but those whose
// names it has.
//
//   pool_fuzzer [OPTION...] [FOLDER...]    libFuzzer's options; fuzz.py chooses them
//   pool_fuzzer FILE                       one input again
//
// Files lie on a tmpfs in a mount namespace of its own. Needs root; 77 without.
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "recovery/tool/commands.h"
#include "recovery/tool/libpmem.h"
#include "src/pool/identify.h"
#include "src/pool/pool.h"
#include "src/sys/check.h"
#include "src/vfs/checkpointer.h"
#include "tests/fuzz/files.h"
#include "tests/fuzz/name_tree.h"
#include "tests/fuzz/pool_image.h"

// ---------------------------------------------------------------------------------------------
// What is not as in the command.

namespace nvcache {

const pmem::Libpmem* tool::LoadLibpmem() { return nullptr; }

// The engine is not here, nor is the one command that is made of it.
bool vfs::Checkpointer::Run(const Host& /*threads*/, char** /*environment*/, int /*post*/) {
  std::abort();
}

namespace sys {

void Report(const char* text) { fmt::print(stderr, "{}\n", text); }

// Where the sanitizers see it.
void CheckFailed(const char* expression, const char* file, int line) {
  fmt::print(stderr, "invariant broken: {} at {}:{}\n", expression, file, line);
  abort();
}
void SetKeepWords(KeepWords /*keep*/) {}

}  // namespace sys
}  // namespace nvcache

namespace nvcache::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kUser = 65534;
constexpr int kSkipped = 77;
const std::string kMount = "/mnt";
const std::string kPool = kMount + "/pool";
const std::string kHome = kMount + "/home";      // of the pool's owner
const std::string kOthers = kMount + "/others";  // everybody may read it
const std::string kNames = kHome + "/names";
const std::string kOutside = kHome + "/outside";

// What the owner may lose, and what nobody may.
const std::string kOld(6000, 'o');
const std::string kPrecious(6000, 'p');

std::string NewPool() {
  pool::Problem problem;
  if (!pool::Pool::Create(kPool.c_str(), {.size = pool::kMinPoolSize, .emulate = true}, nullptr,
                          &problem)) {
    Die(problem.text.c_str());
  }
  if (chown(kPool.c_str(), kUser, kUser) != 0) Die("chown");
  return ReadFile(kPool);
}

class Bench {
 public:
  Bench();
  void Try(const uint8_t* data, size_t size);

 private:
  void TryUndamaged();
  void MakeOutside();
  void MakeNames();
  void Restore();
  void Check(const char* when);
  int Command(const std::vector<std::string>& words);

  const std::string new_pool_ = NewPool();
  PoolImage files_{new_pool_};  // with nothing of names
  PoolImage image_ = files_;    // with the names of `tree_`
  NameTree tree_{kNames, kUser};
  std::string outside_;                          // how it looks
  std::vector<std::string> named_;               // the pool's: restored after each run
  std::map<std::string, std::string> precious_;  // path to how it looks
};

Bench::Bench() {
  fs::create_directory(kHome);
  fs::create_directory(kOthers);
  if (chown(kHome.c_str(), kUser, kUser) != 0) Die("chown");
  // Of the user: some that the pool names, and some that it does not.
  for (uint32_t number = 0; number < 6; ++number) {
    named_.push_back(fmt::format("{}/file{}", kHome, number));
    WriteFile(named_.back(), kOld, kUser, 0600);
    files_.AddFile(number, named_.back());
  }
  fs::remove(named_[4]);  // deleted
  WriteFile(named_[3] + ".other", kPrecious, kUser, 0600);
  fs::rename(named_[3], kHome + "/renamed");  // another has its name
  fs::rename(named_[3] + ".other", named_[3]);
  fs::remove(named_[5]);  // lost
  named_ = {named_[0], named_[1], named_[2], kHome + "/renamed"};
  if (chmod(named_[2].c_str(), 0400) != 0) Die("chmod");
  for (const auto& [path, owner, mode] :
       std::vector<std::tuple<std::string, uid_t, mode_t>>{{kHome + "/file3", kUser, 0600},
                                                           {kHome + "/wrong", kUser, 0600},
                                                           {kOthers + "/secret", 0, 0600},
                                                           {kOthers + "/readable", 0, 0644}}) {
    WriteFile(path, kPrecious, owner, mode);
    files_.Offer(path);
    precious_[path] = Look(path);
  }
  // Named by the pool as if the user had had it open once.
  files_.AddFile(6, kOthers + "/secret");
  files_.AddFile(7, kOthers + "/readable");
  files_.Offer(kHome + "/file5");
  files_.Offer(kOthers + "/new");
  files_.Offer(kHome + "/missing/new");
  files_.Offer(kHome);
  files_.Offer("/dev/null");
  files_.Offer("/");
  for (uint32_t number = 0; number < 3; ++number) {
    files_.Keep(number, 50 * number, std::string(200, 'k'));
  }
  for (uint32_t round = 0; round < 3; ++round) {
    for (uint32_t number = 0; number < 8; ++number) {
      const std::string data(number == 1 ? 9000 : 100 + number, static_cast<char>('a' + round));
      files_.AddWrite(number % 3 == 2, number, 700 * round + 90 * number, data,
                      round == 2 && number == 2 ? ~0ull : 0);
    }
    // One of them goes over the segment's end.
    files_.AddWrite(1, 1, 100 * round, std::string(33000, static_cast<char>('p' + round)), 0);
    files_.AddMark(0, 0, nvlog::Kind::kErase, 100, 300);
    files_.AddMark(0, 5, nvlog::Kind::kTruncate, 2000 - 500 * round, 0);
  }
  MakeOutside();
  MakeNames();
  TryUndamaged();
}

// Of the same user, with names and paths that records have, but no record knows this folder.
void Bench::MakeOutside() {
  fs::create_directory(kOutside);
  for (const char* name : {"a", "b", "new", "old", "in", "last", "gone"}) {
    WriteFile(kOutside + "/" + name, kPrecious, kUser, 0600);
  }
  fs::create_directory(kOutside + "/empty");
  for (const std::string& path : {kOutside, kOutside + "/empty"}) {
    if (chown(path.c_str(), kUser, kUser) != 0) Die(path);
  }
  outside_ = LookAtAll(kOutside);
}

// Recovery has changed them; and what is made again is something else.
void Bench::MakeNames() {
  if (tree_.IsAsMade()) return;
  image_ = files_;
  for (const std::string& path : {kHome, kOthers, kOthers + "/secret", kOthers + "/readable"}) {
    pool::Identity identity;
    struct statx st;
    if (pool::IdentifyAt(AT_FDCWD, path.c_str(), &identity, &st) < 0) Die(path);
    image_.OfferIdentity(identity);
  }
  tree_.Make(&image_, 8);
}

// Everything that the owner could have changed by himself is as it was.
void Bench::Restore() {
  for (const std::string& path : named_) {
    WriteFile(path, kOld, kUser, path == named_[2] ? 0400 : 0600);
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(kHome)) {
    const std::string& path = entry.path().string();
    const bool stays = path == kNames || path == kOutside || precious_.count(path) != 0;
    if (!stays && std::find(named_.begin(), named_.end(), path) == named_.end()) {
      fs::remove_all(path);
    }
  }
  MakeNames();
}

void Bench::Check(const char* when) {
  for (const auto& [path, look] : precious_) {
    if (Look(path) == look && ReadFile(path) == kPrecious) continue;
    fmt::print(stderr, "{}: {} was {}, is {}\n", when, path, look, Look(path));
    abort();
  }
  if (LookAtAll(kOutside) != outside_) {
    fmt::print(stderr, "{}: a folder that no record knows was\n{}is\n{}", when, outside_,
               LookAtAll(kOutside));
    abort();
  }
  for (const std::string& folder : {kOthers, kMount}) {
    const auto entries = fs::directory_iterator(folder);
    if (std::distance(begin(entries), end(entries)) == (folder == kMount ? 3 : 2)) continue;
    fmt::print(stderr, "{}: something was created in {}\n", when, folder);
    abort();
  }
}

// The exit status; what is printed goes nowhere.
int Bench::Command(const std::vector<std::string>& words) {
  int status = tool::kOk;
  CLI::App app("", "nvcache");
  tool::AddRecover(app, &status);
  tool::AddStatus(app, &status);
  tool::AddDump(app, &status);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const tool::Failure& failure) {
    status = failure.status;
    if (failure.text.empty() || failure.text.find('\n') != std::string::npos) abort();
  }
  if (status == tool::kUsage || status > tool::kDamaged) abort();
  Check(words[0].c_str());
  return status;
}

// Or the fuzzer tries nothing: what should be applied is, the rest is kept.
void Bench::TryUndamaged() {
  Input none(nullptr, 0);
  WriteFile(kPool, image_.Damaged(&none), kUser, 0600);
  if (Command({"status", kPool}) != tool::kOk || Command({"dump", kPool}) != tool::kOk ||
      Command({"recover", kPool}) != tool::kUnresolved ||
      Command({"recover", kPool}) != tool::kUnresolved) {
    Die("the undamaged pool");
  }
  for (const std::string& path : named_) {
    if (ReadFile(path) == kOld) Die(path);
  }
  if (Look(kHome + "/file5") != "nothing") Die("the lost file is there");
  if (!tree_.IsRecovered()) Die(LookAtAll(kNames));
  Restore();
}

void Bench::Try(const uint8_t* data, size_t size) {
  Input input(data, size);
  const uint64_t how = input.Take(1);
  const std::string bytes = image_.Damaged(&input);
  WriteFile(kPool, bytes, kUser, 0600);
  const std::string folder = kHome + "/export";

  // Looking changes nothing.
  std::vector<std::vector<std::string>> looks;
  if ((how & 16) != 0) looks.push_back({"status", kPool});
  if ((how & 32) != 0) looks.push_back({"dump", kPool});
  if ((how & 1) != 0) looks.push_back({"dump", "--all", "--export", folder, kPool});
  if ((how & 2) != 0) looks.push_back({"recover", "--dry-run", kPool});
  for (std::vector<std::string>& words : looks) {
    if ((how & 4) != 0) words.insert(words.begin() + 1, "--json");
    Command(words);
  }
  if (!looks.empty() && ReadFile(kPool) != bytes) {
    const std::string now = ReadFile(kPool);
    const auto [at, other] = std::mismatch(bytes.begin(), bytes.end(), now.begin(), now.end());
    fmt::print(stderr, "the pool was changed by a look at it: {} of {} bytes, from {} on\n",
               now.size(), bytes.size(), at - bytes.begin());
    abort();
  }

  fs::remove_all(folder);
  std::vector<std::string> recover = {"recover", kPool};
  if ((how & 8) != 0) recover.insert(recover.end(), {"--export", folder, "--discard"});
  if ((how & 4) != 0) recover.push_back("--json");
  const int first = Command(recover);
  if (first == tool::kDamaged && getenv("NVCACHE_FUZZ_PLANT") != nullptr) {
    WriteFile(kHome + "/wrong", kOld, kUser, 0600);  // for the test of this test
  }
  // Done is done.
  if (first == tool::kOk || first == tool::kDamaged) {
    const std::string after = ReadFile(named_[0]) + ReadFile(named_[1]) + LookAtAll(kNames);
    const int second = Command({"recover", kPool});
    if (second != tool::kOk ||
        after != ReadFile(named_[0]) + ReadFile(named_[1]) + LookAtAll(kNames)) {
      fmt::print(stderr, "recovered once more: {} after {}\n", second, first);
      abort();
    }
  }
  Restore();
}

// Where a file system has no folder that could be had, recovery syncs all that there are: the disks
// of this machine have nothing to do with it.
bool SyncNothing() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sync, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(filter), filter};
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

void Prepare() {
  if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0 ||
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("fuzz", kMount.c_str(), "tmpfs", 0, "size=64m,mode=755") != 0 || !SyncNothing()) {
    fmt::print(stderr, "pool_fuzzer: needs root, and a mount namespace\n");
    _exit(kSkipped);
  }
  umask(022);
  if (std::freopen("/dev/null", "w", stdout) == nullptr) Die("/dev/null");
}

}  // namespace
}  // namespace nvcache::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  nvcache::fuzz::Prepare();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static nvcache::fuzz::Bench bench;
  bench.Try(data, size);
  return 0;
}
