// SPDX-License-Identifier: BSD-3-Clause
//
// Names in the log.

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <iterator>
#include <random>
#include <stdexcept>

#include "src/pool/name_record.h"
#include "src/sys/kernel.h"
#include "src/vfs/attribute_call.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/engine.h"
#include "src/vfs/name_call.h"
#include "src/vfs/vfs.h"
#include "tests/crash/log_stage.h"
#include "tests/crash/program.h"

namespace nvcache::crash {

namespace {

using vfs::NameCall;

// A program whose folders are known.
class NameProgram : public Program {
 public:
  // What becomes of a name.
  struct Fate {
    std::string path;
    vfs::NameGuard::Fate fate;
  };

  // What is below `place.disk` is there, and durable.
  NameProgram(const std::string& name, const Place& place, uint64_t seed)
      : Program(name, place, seed, pool::kMinPoolSize, {"NVCACHE_NAMES=auto"}) {
    capture_.WatchFolder(place.disk);
    AddVerbs();
  }

  // The folder is synced until the log knows all of its names: "." is the one that all are in.
  void MakeKnown(const std::string& folder) {
    capture_.Do({Operation::kOther, 0, 0, 0, 0}, "", [&] {
      const int fd = ::open(Path(folder).c_str(), O_RDONLY | O_DIRECTORY);
      for (int tries = 0; !IsKnown(fd); ++tries) {
        Must(tries < 10);
        if (vfs::Fsync(fd) == vfs::kNotOurs) Must(sys::Fsync(fd) == 0);
      }
      ::close(fd);
    });
  }

  // A new file, which is known; or one that is there.
  void Open(const std::string& name, int flags, const std::string& as) override {
    if ((flags & O_CREAT) == 0) return Program::Open(name, flags, as);
    Change([&] { Program::Open(name, flags, as); });
    Must(IsKnown(Descriptor(as)));
  }
  // The same, with bytes.
  void Make(const std::string& name, size_t n) {
    Create(name);
    Write(name, 0, n);
    Close(name);
  }
  // As the kernel copies bytes into it (copy_file_range): the log has none of them.
  void CopyInto(const std::string& name, uint64_t offset, size_t n) {
    capture_.Do({Operation::kHandOver, FileOf(name), 0, 0, 0}, "",
                [&] { Must(vfs::PassThrough(Descriptor(name)) == 0); });
    Write(name, offset, n);
  }

  void Rename(const std::string& from, const std::string& to, long expected = 0) {
    const std::string a = Path(from), b = Path(to);
    Change(
        Renames(from),
        [&](NameCall& call, bool past) {
          call.Rename(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), 0, past);
        },
        [&] {
          return sys::Call(SYS_renameat2, AT_FDCWD, sys::Address(a.c_str()), AT_FDCWD,
                           sys::Address(b.c_str()), 0);
        },
        {{a, vfs::NameGuard::Fate::kStays}, {b, vfs::NameGuard::Fate::kIsRemoved}}, expected);
  }
  void Link(const std::string& from, const std::string& to) {
    const std::string a = Path(from), b = Path(to);
    Change(
        Renames(from),
        [&](NameCall& call, bool past) {
          call.Link(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), 0, past);
        },
        [&] { return sys::Linkat(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), 0); },
        {{a, vfs::NameGuard::Fate::kStays}});
  }
  void Remove(const std::string& name, int flags = 0, long expected = 0) {
    const std::string path = Path(name);
    std::vector<Fate> fates;
    if ((flags & AT_REMOVEDIR) == 0) fates.push_back({path, vfs::NameGuard::Fate::kIsRemoved});
    Change(
        kNames,
        [&](NameCall& call, bool past) { call.Remove(AT_FDCWD, path.c_str(), flags, past); },
        [&] { return sys::Unlinkat(AT_FDCWD, path.c_str(), flags); }, fates, expected);
  }
  // By somebody without NVCache, who syncs it.
  void RenameByStranger(const std::string& from, const std::string& to) {
    const std::string a = Path(from), b = Path(to);
    ChangeByStranger([&] {
      return sys::Call(SYS_renameat2, AT_FDCWD, sys::Address(a.c_str()), AT_FDCWD,
                       sys::Address(b.c_str()), 0);
    });
  }
  void LinkByStranger(const std::string& from, const std::string& to) {
    const std::string a = Path(from), b = Path(to);
    ChangeByStranger([&] { return sys::Linkat(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), 0); });
  }
  // An empty one that is known, to a free name.
  void MoveFolder(const std::string& from, const std::string& to) {
    const std::string a = Path(from), b = Path(to);
    Change([&] {
      NameCall call;
      call.Rename(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), 0, false);
      Must(call.error() == 0 && call.Make() == 0);
    });
  }
  // The log has no record for it.
  void RenameFolder(const std::string& from, const std::string& to) {
    const std::string a = Path(from), b = Path(to);
    capture_.Do({Operation::kPast, 0, 0, 0, 0}, "", [&] {
      for (bool past = false;; past = true) {
        NameCall call;
        call.Rename(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), 0, past);
        Must(call.error() == 0);
        const long result = call.Make();
        if (result == vfs::kBeginAnew) continue;
        Must(result == vfs::kNotOurs);
        Must(sys::Call(SYS_renameat2, AT_FDCWD, sys::Address(a.c_str()), AT_FDCWD,
                       sys::Address(b.c_str()), 0) == 0);
        break;
      }
    });
  }
  void MakeFolder(const std::string& name) {
    const std::string path = Path(name);
    Change(
        kNames,
        [&](NameCall& call, bool past) { call.MakeFolder(AT_FDCWD, path.c_str(), 0750, past); },
        [&] { return sys::Call(SYS_mkdirat, AT_FDCWD, sys::Address(path.c_str()), 0750); });
  }
  void MakeLink(const std::string& target, const std::string& name) {
    const std::string path = Path(name);
    Change(
        kNames,
        [&](NameCall& call, bool past) {
          call.MakeLink(target.c_str(), AT_FDCWD, path.c_str(), past);
        },
        [&] {
          return sys::Call(SYS_symlinkat, sys::Address(target.c_str()), AT_FDCWD,
                           sys::Address(path.c_str()));
        });
  }
  void SetMode(const std::string& name, mode_t mode) {
    SetAttributes(name, pool::kSetMode,
                  [&](const char* path) { return sys::Fchmodat(AT_FDCWD, path, mode); });
  }
  // Of an open file, which need not be known.
  void SetModeAndSync(const std::string& name, mode_t mode) {
    const int fd = Descriptor(name);
    Change([&] {
      {
        vfs::AttributeCall call(fd);
        Must(call.Begin(pool::kSetMode) == 0);
        Must(sys::Call(SYS_fchmod, fd, static_cast<long>(mode)) == 0);
        call.End(true);
      }
      if (vfs::Fsync(fd) == vfs::kNotOurs) Must(sys::Fsync(fd) == 0);
    });
  }
  // Of a symbolic link, too; and the group, or it stays ours. Without the right to give files away,
  // so does all.
  void SetOwner(const std::string& name, bool group) {
    const bool may = ::geteuid() == 0;
    const uid_t uid = may ? 12 : ::geteuid();
    const gid_t gid = may && group ? 34 : ::getegid();
    SetAttributes(name, pool::kSetOwner | pool::kSetMode, [&](const char* path) {
      return sys::Call(SYS_fchownat, AT_FDCWD, sys::Address(path), uid, gid, AT_SYMLINK_NOFOLLOW);
    });
  }
  void SetTimes(const std::string& name, time_t seconds) {
    const timespec times[] = {{seconds, 1}, {seconds, 2}};
    SetAttributes(name, pool::kSetTimes, [&](const char* path) {
      return sys::Call(SYS_utimensat, AT_FDCWD, sys::Address(path), sys::Address(times),
                       AT_SYMLINK_NOFOLLOW);
    });
  }
  void MoveCheckpoint() {
    capture_.Do({Operation::kOther, 0, 0, 0, 0}, "", [] { Must(vfs::engine.checkpoint.Move()); });
  }

 private:
  static constexpr Operation kNames = {Operation::kNames, 0, 0, 0, 0};

  // In the folder that all are in.
  void ChangeByStranger(const std::function<long()>& function) {
    capture_.Do({Operation::kStranger, 0, 0, 0, 0}, "", [&] {
      Must(function() == 0);
      const int fd = ::open(Path(".").c_str(), O_RDONLY | O_DIRECTORY);
      Must(sys::Fsync(fd) == 0);
      ::close(fd);
    });
  }
  void SetAttributes(const std::string& name, uint32_t set,
                     const std::function<long(const char*)>& real) {
    const std::string path = Path(name);
    Change([&] {
      vfs::AttributeCall call(AT_FDCWD, path.c_str(), false);
      Must(call.Begin(set) == 0);
      Must(real(path.c_str()) == 0);
      call.End(true);
    });
  }
  void Change(const std::function<void()>& function) { capture_.Do(kNames, "", function); }
  // The file gets another name, with all of its bytes.
  Operation Renames(const std::string& name) {
    return {Operation::kRename, FileNamed(name), 0, 0, 0};
  }
  void Change(const Operation& operation, const std::function<void(NameCall&, bool)>& prepare,
              const std::function<long()>& real, const std::vector<Fate>& fates = {},
              long expected = 0) {
    capture_.Do(operation, "", [&] {
      for (bool past = false;; past = true) {
        NameCall call;
        prepare(call, past);
        Must(call.error() == 0);
        Must(past || call.logs());
        vfs::NameGuard guard;
        for (const Fate& each : fates) {
          Must(guard.Claim(AT_FDCWD, each.path.c_str(), false, call.logs()) == 0);
        }
        for (const Fate& each : fates) {
          Must(guard.Add(AT_FDCWD, each.path.c_str(), false, each.fate, call.logs()) == 0);
        }
        const long result = call.Make();
        if (result == vfs::kBeginAnew) continue;
        Must((result == vfs::kNotOurs ? real() : result) == expected);
        break;
      }
    });
  }

  void AddVerbs() {
    using A = const Action&;
    Add({
        {"know", [this](A a) { MakeKnown(a.Word(0)); }},
        {"create", [this](A a) { Open(a.Word(0), O_RDWR | O_CREAT, a.Alias()); }},
        {"make", [this](A a) { Make(a.Word(0), a.Number(1)); }},
        {"must-be-known", [this](A a) { Must(IsKnown(Descriptor(a.Word(0)))); }},
        {"must-be-cached", [this](A a) { Must(IsCached(Descriptor(a.Word(0)))); }},
        {"copy-into", [this](A a) { CopyInto(a.Word(0), a.Number(1), a.Number(2)); }},
        {"rename", [this](A a) { Rename(a.Word(0), a.Word(1), ResultOf(a, 2)); }},
        {"link", [this](A a) { Link(a.Word(0), a.Word(1)); }},
        {"remove", [this](A a) { Remove(a.Word(0), 0, ResultOf(a, 1)); }},
        {"remove-folder", [this](A a) { Remove(a.Word(0), AT_REMOVEDIR, ResultOf(a, 1)); }},
        {"stranger-renames", [this](A a) { RenameByStranger(a.Word(0), a.Word(1)); }},
        {"stranger-links", [this](A a) { LinkByStranger(a.Word(0), a.Word(1)); }},
        {"move-folder", [this](A a) { MoveFolder(a.Word(0), a.Word(1)); }},
        {"rename-folder", [this](A a) { RenameFolder(a.Word(0), a.Word(1)); }},
        {"make-folder", [this](A a) { MakeFolder(a.Word(0)); }},
        {"make-link", [this](A a) { MakeLink(a.Word(0), a.Word(1)); }},
        {"set-mode",
         [this](A a) {
           SetMode(a.Word(0), static_cast<mode_t>(std::stoul(a.Word(1), nullptr, 8)));
         }},
        {"set-mode-and-sync",
         [this](A a) {
           SetModeAndSync(a.Word(0), static_cast<mode_t>(std::stoul(a.Word(1), nullptr, 8)));
         }},
        {"set-owner", [this](A a) { SetOwner(a.Word(0), a.Has("group")); }},
        {"set-times", [this](A a) { SetTimes(a.Word(0), static_cast<time_t>(a.Number(1))); }},
        // What comes next to change a name, the kernel refuses.
        {"refuse", [this](A a) { capture_.RefuseNextName(static_cast<int>(-ResultOf(a, 0))); }},
        {"move-checkpoint", [this](A) { MoveCheckpoint(); }},
        {"drain",
         [this](A) {
           capture_.Do({Operation::kOther, 0, 0, 0, 0}, "", [this] { Drain(); });
         }},
    });
  }
  // What a call returns of which the script says so.
  static long ResultOf(const Action& action, size_t i) {
    static const std::map<std::string, long> kErrors = {
        {"EIO", EIO}, {"ENOSPC", ENOSPC}, {"ENOTEMPTY", ENOTEMPTY}};
    return i < action.words.size() ? -kErrors.at(action.Word(i)) : 0;
  }
};

// Two folders, three names.
Trace KnownMixed(const Place& place, uint64_t seed) {
  constexpr const char* kNames[] = {"a", "s/a", "s/b"};
  std::filesystem::create_directory(place.disk + "/s");
  for (const char* name : kNames) MakeFile(place, name, 100);
  NameProgram program("known-mixed", place, seed);
  program.MakeKnown(".");
  program.MakeKnown("s");
  const auto exists = [&](const std::string& name) {
    return std::filesystem::exists(place.disk + "/" + name);
  };
  for (int calls = 0; calls < 10;) {
    const std::string name = kNames[program.random()() % std::size(kNames)];
    const std::string other = kNames[program.random()() % std::size(kNames)];
    const bool is_free = !exists(name);
    switch (program.random()() % 6) {
      case 0:
        if (!is_free) continue;
        program.Make(name, 1 + program.random()() % 100);
        break;
      case 1:
        if (is_free) continue;
        program.Remove(name);
        break;
      case 2:
        if (is_free || exists(other)) continue;
        program.Link(name, other);
        break;
      case 3:
        if (calls < 4 || program.random()() % 4 != 0) continue;
        program.MoveCheckpoint();
        break;
      default:
        if (is_free || name == other ||
            (exists(other) &&
             std::filesystem::equivalent(place.disk + "/" + name, place.disk + "/" + other))) {
          continue;
        }
        program.Rename(name, other);
    }
    ++calls;
  }
  return program.Finish();
}

struct NameScenario {
  const char* name;
  const char* what;
  Effort effort;
  const char* script;
};

const NameScenario kNameScenarios[] = {
    // One folder: what makes and what destroys names.
    {"known", "files in a known folder are made, renamed and removed", Every(40, 40, 256), R"(
       has old 300
       know ., create a, write a 0 100, write a 60 100, close a, rename old b
       move-checkpoint, rename b c, rename a c, make a 50, rename c b, remove b, rename a c)"},
    // Two folders; some files have other names, which the log does not know.
    {"known-links", "files of known folders have several names", WithHandles(Every(100, 60, 256)),
     R"(
       has old 300, has other 200, has-folder s, has-link old s/hidden
       know ., know s, rename old s/a, make b 70, link b s/c, rename other b, remove s/a
       link b s/a, move-checkpoint, rename s/c b, remove b)"},
    // Folders and symbolic links are made and removed, and files go through them.
    {"known-folders", "folders and symbolic links in known folders", Every(100, 60, 256), R"(
       has old 300
       know ., make-folder s, make s/a 60, rename old s/b, rename s/a a, make-link s/b to
       remove-folder s ENOTEMPTY, rename s/b b, remove-folder s, remove to, make-folder s
       make s/c 20, rename-folder s t, rename a t/a)"},
    // Folders get other names while nothing is in them, once in one that is younger.
    {"known-moved", "empty folders in known folders get other names", Every(60, 60, 256), R"(
       has old 300
       know ., make-folder n, move-folder n s, make s/a 60, make-folder n, make-folder t
       move-folder n t/n, make t/n/b 50, make-folder x, make-folder y, move-checkpoint
       move-folder x z, move-folder y x, move-folder z y, make x/c 40, remove s/a
       move-folder s y/s, rename old s, remove-folder y/s)"},
    // Files get another name, or lose theirs, with what only the log has of them. One is closed,
    // and known when it is opened again.
    {"known-cached", "files get other names with what only the log has of them",
     Every(100, 60, 256), R"(
       has a 300, has b 200, has c 100, has e 250
       know ., open e, get-cached e, must-be-cached e, write e 30 70, close e, drain, open e
       must-be-known e
       write e 50 400
       open a, open b, open c, get-cached a, get-cached b, get-cached c, must-be-cached a
       write a 100 400
       must-be-cached b, write b 50 60, must-be-cached c, write c 0 150, rename a d
       write a 200 50, link b a
       move-checkpoint, write b 0 20, rename d c, remove a
       close a, close b, close c, close e)"},
    // Files change places: each has to give its name away before it gets its new one.
    {"known-swap", "files in known folders change places", Every(20, 40, 256), R"(
       has a 300, has b 200, has-folder s
       know ., know s, rename a s/c, rename b a, rename s/c b, make s/c 40, rename s/c a)"},
    // The kernel refuses what was announced; other calls come after that.
    {"known-refused", "the kernel refuses calls that were announced", Every(100, 60, 256), R"(
       has old 300, has b 200
       know ., refuse EIO, rename old c EIO, make a 60, refuse ENOSPC, rename a b ENOSPC
       refuse EIO, remove b EIO, rename a old)"},
    // Bytes and names that are in no log, by the program itself and by somebody else.
    {"known-past", "bytes and names in known folders that are in no log",
     WithHandles(Every(100, 60, 256)), R"(
       has old 300, has d 300, has-folder s
       open old, know ., write old 20 200, rename old new, write old 50 100, rename new b
       close old, make c 50, refuse EIO, remove d EIO, remove d, stranger-links c d
       stranger-renames d f, make e 20, rename-folder s t, rename b e)"},
    // `cp a b.tmp && mv b.tmp b`, where cp leaves the bytes to the kernel.
    {"known-copied", "the kernel copies bytes into new files of known folders", Every(100, 60, 256),
     R"(
       has a 300, has b 200, has-folder s
       know ., know s, create b.tmp as copy, copy-into copy 0 300, close copy
       rename b.tmp b, create s/b.tmp as copy, write copy 0 150, copy-into copy 100 100
       rename s/b.tmp b, write copy 20 60, close copy, move-checkpoint
       create b.tmp as copy, copy-into copy 0 80, link b.tmp s/c, close copy, remove b
       rename s/c b)"},
    // Files that are known are cut, and grow.
    {"known-cut", "files in known folders are cut", Every(60, 60, 256), R"(
       has old 300
       know ., create a, write a 0 200, cut a 120, write a 150 100, rename a b, cut a 400
       cut a 60, write a 50 30, move-checkpoint, write a 60 40, cut a 10, rename b old
       write a 90 20, close a)"},
    // Modes of files and folders that the log has all of.
    {"known-modes", "modes in known folders", Every(100, 60, 256), R"(
       know ., make old 50, set-mode old 0604, move-checkpoint, set-mode old 0400
       make a 60, set-mode a 0620, set-mode a 0444, rename a b, make-folder s
       set-mode s 0711, make s/c 30, set-mode s/c 0600, set-mode s 0555, remove s/c)"},
    // The log has a mode of the file, and then not all of it: so other modes go past the log.
    {"known-modes-past", "modes in known folders that are in no log", Every(100, 60, 256), R"(
       know ., create a, write a 0 60, set-mode a 0604, copy-into a 40 50, sync a
       set-mode-and-sync a 0640, rename a b, set-mode-and-sync a 0400, close a, open b
       sync b, must-be-known b, set-mode b 0620, write b 10 30, copy-into b 0 20, sync b
       move-checkpoint, set-mode-and-sync b 0444, close b)"},
    // Owners and times, of folders and symbolic links as well.
    {"known-owners", "owners and times in known folders", Every(100, 60, 256), R"(
       has old 300, know .
       make a 50, set-times a 1000000000, set-owner a owner group, move-checkpoint
       set-times a 1100000000, create b, set-mode b 04755, set-owner b owner
       set-mode b 02711, write b 0 60, set-times b 1200000000, rename b c
       set-times c 1300000000, write b 30 60, close b, make-folder s
       set-owner s owner group, make s/d 20, set-times s/d 1400000000
       set-times s 1500000000, make-link s/d to, set-owner to owner group
       set-times to 1600000000, rename c a)"},
};

}  // namespace

std::vector<Scenario> NameScenarios() {
  std::vector<Scenario> all;
  for (const NameScenario& each : kNameScenarios) {
    all.push_back({each.name, each.what, each.effort, [each](const Place& place, uint64_t seed) {
                     const Script script = Parse(each.script);
                     MakeFiles(place, script);
                     NameProgram program(each.name, place, seed);
                     program.Do(script);
                     return program.Finish();
                   }});
  }
  all.push_back({"known-mixed", "any calls in two known folders, on three names",
                 WithHandles(Every(100, 60, 256)), KnownMixed});
  return all;
}

}  // namespace nvcache::crash
