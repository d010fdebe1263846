// SPDX-License-Identifier: BSD-3-Clause
//
// One run: two processes that change names under one lock, and perhaps somebody who knows nothing
// of the log; or one process that makes given calls. After each step the power fails, in thought,
// and recovery has to find what was promised.
#ifndef NVCACHE_TESTS_NAMES_RUN_H_
#define NVCACHE_TESTS_NAMES_RUN_H_

#include <array>
#include <coroutine>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/names/act.h"
#include "tests/names/file_system.h"
#include "tests/names/log.h"
#include "tests/names/recovery.h"
#include "tests/names/rules.h"

namespace nvcache::names {

class Run {
 public:
  // `notes`, if there is one, gets a line for each thing that happens.
  Run(uint64_t seed, std::optional<Rule> broken, std::vector<std::string>* notes = nullptr);
  // One process makes these calls. In the last one, the power leaves all that it may. `linked`: one
  // of the two files has two names at first.
  Run(const std::vector<Act>& script, bool linked, Loss loss);

  // What was wrong; empty if nothing was.
  std::string Failure();
  uint64_t steps() const { return steps_; }
  uint64_t images() const { return images_; }

 private:
  static constexpr int kProcesses = 2;
  static constexpr int kNobody = -1;
  static constexpr size_t kFiles = kMostFiles;

  // A change of names, as it was looked up.
  struct Deed {
    Act act;
    File file;
    File other = kNoFile;   // has the name that file gets
    bool destroys = false;  // a name of a file
    bool spreads = false;   // the file gets another name
    bool logs = false;
    bool early = false;  // is committed before the call: a rule is broken
    int version = 0;     // of its bytes
  };
  struct Process {
    std::optional<Task<void>> program;
    std::coroutine_handle<> innermost;
    bool dead = false;
    uint64_t stopped_until = 0;
  };
  struct Image;

  bool Keeps(Rule rule) const { return broken_ != rule; }
  bool OneIn(unsigned n) { return random_() % n == 0; }
  Name AnyName() { return static_cast<Name>(random_() % kProgramNames); }
  bool IsStopped(int self) const { return steps_ < processes_[Index(self)].stopped_until; }
  static size_t Index(int n) { return static_cast<size_t>(n); }
  void Note(const std::string& who, const std::string& text);
  void NoteRecord(const Record& record);

  // ---- What a process does (calls.cc)
  Task<void> Program(int self);
  Task<void> Scripted(int self);
  Act AnyAct();
  Task<void> Do(int self, Act act);
  Task<void> Change(int self, Act act);
  Deed Plan(const Act& act) const;
  Task<bool> MakeKnown(int self, const Deed& deed);
  Task<void> Carry(int self, Deed deed);
  void Announce(const Deed& deed);
  bool Call(const Deed& deed);
  void Commit(const Deed& deed);
  void End(const Deed& deed, File replaced, size_t state);
  Task<void> Write(int self, File file, bool logged);
  void ForgetGone(File file);
  template <typename Condition>
  Task<void> DawdleWhile(Condition condition);
  Task<void> Settle(int self, File file);
  Task<void> Fsync(int self, Name name);
  Task<void> MoveCheckpoint(int self);
  Task<void> PassCheckpoint(int self);
  Task<void> TakeLock(int self);
  void ReleaseLock(int self);
  bool HasLock(int self) const { return owner_ == self; }

  // ---- The world (run.cc)
  void Begin();
  void Event();
  void Stranger();
  void Kill(int victim);
  State Now() const;
  void Happened();             // a name has changed
  void Promise(size_t state);  // this one, or a later one
  void PromiseBytes(File file) { promised_bytes_[Index(file)] = fs_.Version(file); }
  std::string Explore();
  std::string Explore(const FileSystem& left);
  std::string Recover(Image* image);
  bool Stays(File file) const;
  std::string Check(const Image& image) const;
  std::string CheckAll(const Image& image) const;
  std::string CheckBesideStrangers(const Image& image) const;
  bool StaysWhereItWasMoved(const Image& image, File file) const;
  std::string CheckName(const Image& image, Name name) const;

  Random random_;
  std::optional<Rule> broken_;
  std::vector<std::string>* notes_;
  bool strangers_ = false, linked_;
  std::optional<std::vector<Act>> script_;
  size_t begun_ = 0;  // calls of the script
  FileSystem fs_;
  Pool pool_;
  std::array<Process, kProcesses> processes_;
  uint64_t steps_ = 0, images_ = 0;

  int owner_ = kNobody;  // of the lock
  std::set<int> late_;   // have lost it, and may still make their call
  std::array<bool, kFiles> known_ = {};
  std::array<int, kFiles> past_log_ = {};  // so many of its writes
  int last_version_ = 0;
  std::set<File> removed_unseen_;  // perhaps: no process takes them for removed
  int unlogged_ = 0;  // changes under way that are in no log, or were when their process died
  std::array<File, kProcesses> open_ = {};  // that each has written to last

  std::vector<State> states_;  // all that there were
  size_t promised_ = 0;        // one of these or a later one is found again
  std::array<int, kFiles> promised_bytes_ = {};
  std::set<File> strangers_files_;
  // When a stranger has touched them, if the checkpoint has not passed that.
  std::map<File, uint64_t> touched_files_;
  std::map<Name, uint64_t> touched_names_;
  std::set<std::pair<Name, File>> replaced_;  // for good, by calls that have returned
};

}  // namespace nvcache::names

#endif  // NVCACHE_TESTS_NAMES_RUN_H_
