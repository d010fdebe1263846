// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/name_scenarios.h"

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
#include "tests/crash/capture.h"
#include "tests/crash/log_stage.h"
#include "tests/unit/host.h"

namespace nvcache::crash {

namespace {

using vfs::NameCall;

constexpr mode_t kMode = 0640;

// A program whose folders are known. Its calls are made as a front end makes them, and those that
// the engine leaves to the kernel are noted as well.
class NameProgram {
 public:
  // What becomes of a name.
  struct Fate {
    std::string path;
    vfs::NameGuard::Fate fate;
  };

  // What is below `place.disk` is there, and durable.
  NameProgram(const std::string& name, const Place& place, uint64_t seed)
      : place_(place),
        random_(seed),
        capture_(*new Capture(name, seed, MakeAgedPool(place, seed, kPool))) {
    ::umask(0);
    capture_.WatchFolder(place.disk);
    std::string settings[] = {"NVCACHE_POOL=" + place.memory + "/pool",
                              "NVCACHE_EMULATE=1",
                              "NVCACHE_NOTICE=0",
                              "NVCACHE_DRAM=128k",
                              "NVCACHE_INCLUDE=*",
                              "NVCACHE_NAMES=auto"};
    std::vector<char*> environment;
    for (std::string& setting : settings) environment.push_back(setting.data());
    environment.push_back(nullptr);
    vfs::engine.lease_folder = place_.memory.c_str();
    vfs::Start(test::HostOfLibcThreads(), environment.data());
  }

  // The folder is synced until the log knows all of its names: "" is the one that all are in.
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
  int Open(const std::string& name, int flags = O_RDWR) {
    int fd = -1;
    const auto open = [&] {
      const std::string path = Path(name);
      vfs::OpenGuard guard(AT_FDCWD, path.c_str(), flags, kMode);
      const long replaced = guard.Replace();
      const long opened =
          replaced != vfs::kNotOurs ? replaced : sys::Openat(AT_FDCWD, path.c_str(), flags, kMode);
      Must(opened >= 0);
      fd = static_cast<int>(opened);
      Must(guard.Opened(fd) == 0);
    };
    if ((flags & O_CREAT) != 0) {
      Change(open);
      Must(IsKnown(fd));
    } else {
      open();
    }
    return fd;
  }
  int OpenKnown(const std::string& name) {
    const int fd = Open(name);
    Must(IsKnown(fd));
    return fd;
  }
  int Create(const std::string& name) { return Open(name, O_RDWR | O_CREAT); }
  // The same, with bytes.
  void Make(const std::string& name, size_t n) {
    const int fd = Create(name);
    Write(fd, 0, n);
    Close(fd);
  }
  void Write(int fd, uint64_t offset, size_t n) {
    const std::string bytes = RandomBytes(&random_, n);
    capture_.Do({Operation::kThrough, capture_.FileAt(fd), offset, 0, 0}, bytes, [&] {
      long r = vfs::Pwrite(fd, bytes.data(), n, static_cast<off_t>(offset));
      if (r == vfs::kNotOurs) r = sys::Pwrite(fd, bytes.data(), n, offset);
      Must(r == static_cast<long>(n));
    });
  }
  // The file is synced until it is cached.
  void MakeHot(int fd) {
    for (int tries = 0; !IsCached(fd); ++tries) {
      Must(tries < 10);
      Sync(fd);
    }
  }
  void WriteCached(int fd, uint64_t offset, size_t n) {
    const std::string bytes = RandomBytes(&random_, n);
    Must(IsCached(fd));
    capture_.Do({Operation::kWrite, capture_.FileAt(fd), offset, 0, 0}, bytes, [&] {
      Must(vfs::Pwrite(fd, bytes.data(), n, static_cast<off_t>(offset)) == static_cast<long>(n));
    });
  }
  // As the kernel copies bytes into it (copy_file_range): the log has none of them.
  void CopyInto(int fd, uint64_t offset, size_t n) {
    capture_.Do({Operation::kPublish, capture_.FileAt(fd), 0, 0, 0}, "",
                [&] { Must(vfs::PassThrough(fd) == 0); });
    Write(fd, offset, n);
  }
  void Truncate(int fd, uint64_t size) {
    capture_.Do({Operation::kTruncate, capture_.FileAt(fd), size, 0, 0}, "", [&] {
      long r = vfs::Ftruncate(fd, static_cast<off_t>(size));
      if (r == vfs::kNotOurs) r = sys::Ftruncate(fd, static_cast<off_t>(size));
      Must(r == 0);
    });
  }
  void Sync(int fd) {
    capture_.Do({Operation::kSync, capture_.FileAt(fd), 0, 0, 0}, "", [&] {
      const long r = vfs::Fsync(fd);
      Must(r == 0 || (r == vfs::kNotOurs && sys::Fsync(fd) == 0));
    });
  }
  void Close(int fd) {
    vfs::Close(fd);
    ::close(fd);
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
  // Of a symbolic link, too.
  void SetOwner(const std::string& name, uid_t uid, gid_t gid) {
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
  // What comes next to change a name, the kernel refuses.
  void RefuseNext(int error) { capture_.RefuseNextName(error); }
  void MoveCheckpoint() {
    capture_.Do({Operation::kOther, 0, 0, 0, 0}, "", [] { Must(vfs::engine.checkpoint.Move()); });
  }
  // All that is pending of cached files is on the disk when it returns.
  void Drain() {
    capture_.Do({Operation::kOther, 0, 0, 0, 0}, "", [] { vfs::DrainAll(); });
  }
  std::mt19937_64& random() { return random_; }
  // All folders and files that are open or named here are known still.
  Trace Finish() {
    Trace trace = capture_.Finish();
    trace.FindItems();
    return trace;
  }

 private:
  static constexpr uint64_t kPool = pool::kMinPoolSize;
  static constexpr Operation kNames = {Operation::kNames, 0, 0, 0, 0};

  static void Must(bool ok, int line = __builtin_LINE()) {
    if (ok) return;
    throw std::runtime_error("the scenario failed: a call's result is wrong in line " +
                             std::to_string(line));
  }
  std::string Path(const std::string& name) const {
    return name.empty() ? place_.disk : place_.disk + "/" + name;
  }
  // In the folder that all are in.
  void ChangeByStranger(const std::function<long()>& function) {
    capture_.Do({Operation::kStranger, 0, 0, 0, 0}, "", [&] {
      Must(function() == 0);
      const int fd = ::open(Path("").c_str(), O_RDONLY | O_DIRECTORY);
      Must(sys::Fsync(fd) == 0);
      ::close(fd);
    });
  }
  static bool IsKnown(int fd) {
    struct stat st = {};
    Must(::fstat(fd, &st) == 0);
    const lease::Tally* tally =
        vfs::engine.tallies.Find(lease::TagOf(st.st_dev, st.st_ino, st.st_mode));
    return tally != nullptr && lease::Tallies::StandingOf(*tally).known;
  }
  static bool IsCached(int fd) {
    vfs::Access access;
    return access.Enter(fd, vfs::Access::kData) == 0 && access.cached();
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
    const int fd = ::open(Path(name).c_str(), O_PATH | O_NOFOLLOW);
    Must(fd >= 0);
    const uint32_t file = capture_.FileAt(fd);
    ::close(fd);
    return {Operation::kRename, file, 0, 0, 0};
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

  const Place place_;
  std::mt19937_64 random_;
  Capture& capture_;  // the engine's threads outlive us
};

// One folder: what makes and what destroys names.
Trace Known(const Place& place, uint64_t seed) {
  MakeFile(place, "old", 300);
  NameProgram program("known", place, seed);
  program.MakeKnown("");
  const int a = program.Create("a");
  program.Write(a, 0, 100);
  program.Write(a, 60, 100);
  program.Close(a);
  program.Rename("old", "b");
  program.MoveCheckpoint();
  program.Rename("b", "c");
  program.Rename("a", "c");
  program.Make("a", 50);
  program.Rename("c", "b");
  program.Remove("b");
  program.Rename("a", "c");
  return program.Finish();
}

// Two folders; some files have other names, which the log does not know.
Trace KnownLinks(const Place& place, uint64_t seed) {
  MakeFile(place, "old", 300);
  MakeFile(place, "other", 200);
  std::filesystem::create_directory(place.disk + "/s");
  std::filesystem::create_hard_link(place.disk + "/old", place.disk + "/s/hidden");
  NameProgram program("known-links", place, seed);
  program.MakeKnown("");
  program.MakeKnown("s");
  program.Rename("old", "s/a");
  program.Make("b", 70);
  program.Link("b", "s/c");
  program.Rename("other", "b");
  program.Remove("s/a");
  program.Link("b", "s/a");
  program.MoveCheckpoint();
  program.Rename("s/c", "b");
  program.Remove("b");
  return program.Finish();
}

// Folders and symbolic links are made and removed, and files go through them.
Trace KnownFolders(const Place& place, uint64_t seed) {
  MakeFile(place, "old", 300);
  NameProgram program("known-folders", place, seed);
  program.MakeKnown("");
  program.MakeFolder("s");
  program.Make("s/a", 60);
  program.Rename("old", "s/b");
  program.Rename("s/a", "a");
  program.MakeLink("s/b", "to");
  program.Remove("s", AT_REMOVEDIR, -ENOTEMPTY);
  program.Rename("s/b", "b");
  program.Remove("s", AT_REMOVEDIR);
  program.Remove("to");
  program.MakeFolder("s");
  program.Make("s/c", 20);
  program.RenameFolder("s", "t");
  program.Rename("a", "t/a");
  return program.Finish();
}

// Folders get other names while nothing is in them.
Trace KnownMoved(const Place& place, uint64_t seed) {
  MakeFile(place, "old", 300);
  NameProgram program("known-moved", place, seed);
  program.MakeKnown("");
  program.MakeFolder("n");
  program.MoveFolder("n", "s");
  program.Make("s/a", 60);
  program.MakeFolder("n");
  program.MakeFolder("t");
  program.MoveFolder("n", "t/n");  // into one that is younger
  program.Make("t/n/b", 50);
  program.MakeFolder("x");
  program.MakeFolder("y");
  program.MoveCheckpoint();
  program.MoveFolder("x", "z");
  program.MoveFolder("y", "x");
  program.MoveFolder("z", "y");
  program.Make("x/c", 40);
  program.Remove("s/a");
  program.MoveFolder("s", "y/s");
  program.Rename("old", "s");
  program.Remove("y/s", AT_REMOVEDIR);
  return program.Finish();
}

// Files change places: each has to give its name away before it gets its new one.
Trace KnownSwap(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 300);
  MakeFile(place, "b", 200);
  std::filesystem::create_directory(place.disk + "/s");
  NameProgram program("known-swap", place, seed);
  program.MakeKnown("");
  program.MakeKnown("s");
  program.Rename("a", "s/c");
  program.Rename("b", "a");
  program.Rename("s/c", "b");
  program.Make("s/c", 40);
  program.Rename("s/c", "a");
  return program.Finish();
}

// Files get another name, or lose theirs, with what only the log has of them. One is closed, and
// known when it is opened again.
Trace KnownCached(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 300);
  MakeFile(place, "b", 200);
  MakeFile(place, "c", 100);
  MakeFile(place, "e", 250);
  NameProgram program("known-cached", place, seed);
  program.MakeKnown("");
  int e = program.Open("e");
  program.MakeHot(e);
  program.WriteCached(e, 30, 70);
  program.Close(e);
  program.Drain();
  e = program.OpenKnown("e");
  program.Write(e, 50, 400);
  const int a = program.Open("a"), b = program.Open("b"), c = program.Open("c");
  for (const int fd : {a, b, c}) program.MakeHot(fd);
  program.WriteCached(a, 100, 400);
  program.WriteCached(b, 50, 60);
  program.WriteCached(c, 0, 150);
  program.Rename("a", "d");
  program.Write(a, 200, 50);
  program.Link("b", "a");
  program.MoveCheckpoint();
  program.Write(b, 0, 20);
  program.Rename("d", "c");
  program.Remove("a");
  for (const int fd : {a, b, c, e}) program.Close(fd);
  return program.Finish();
}

// The kernel refuses what was announced; other calls come after that.
Trace KnownRefused(const Place& place, uint64_t seed) {
  MakeFile(place, "old", 300);
  MakeFile(place, "b", 200);
  NameProgram program("known-refused", place, seed);
  program.MakeKnown("");
  program.RefuseNext(EIO);
  program.Rename("old", "c", -EIO);
  program.Make("a", 60);
  program.RefuseNext(ENOSPC);
  program.Rename("a", "b", -ENOSPC);
  program.RefuseNext(EIO);
  program.Remove("b", 0, -EIO);
  program.Rename("a", "old");
  return program.Finish();
}

// Bytes and names that are in no log, by the program itself and by somebody else.
Trace KnownPast(const Place& place, uint64_t seed) {
  for (const char* name : {"old", "d"}) MakeFile(place, name, 300);
  std::filesystem::create_directory(place.disk + "/s");
  NameProgram program("known-past", place, seed);
  const int old = program.Open("old");
  program.MakeKnown("");
  program.Write(old, 20, 200);
  program.Rename("old", "new");
  program.Write(old, 50, 100);
  program.Rename("new", "b");
  program.Close(old);
  program.Make("c", 50);
  program.RefuseNext(EIO);
  program.Remove("d", 0, -EIO);
  program.Remove("d");
  program.LinkByStranger("c", "d");
  program.RenameByStranger("d", "f");
  program.Make("e", 20);
  program.RenameFolder("s", "t");
  program.Rename("b", "e");
  return program.Finish();
}

// `cp a b.tmp && mv b.tmp b`, where cp leaves the bytes to the kernel.
Trace KnownCopied(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 300);
  MakeFile(place, "b", 200);
  std::filesystem::create_directory(place.disk + "/s");
  NameProgram program("known-copied", place, seed);
  program.MakeKnown("");
  program.MakeKnown("s");
  int copy = program.Create("b.tmp");
  program.CopyInto(copy, 0, 300);
  program.Close(copy);
  program.Rename("b.tmp", "b");
  copy = program.Create("s/b.tmp");
  program.Write(copy, 0, 150);
  program.CopyInto(copy, 100, 100);
  program.Rename("s/b.tmp", "b");
  program.Write(copy, 20, 60);  // under its new name
  program.Close(copy);
  program.MoveCheckpoint();
  copy = program.Create("b.tmp");
  program.CopyInto(copy, 0, 80);
  program.Link("b.tmp", "s/c");
  program.Close(copy);
  program.Remove("b");
  program.Rename("s/c", "b");
  return program.Finish();
}

// Files that are known are cut, and grow.
Trace KnownCut(const Place& place, uint64_t seed) {
  MakeFile(place, "old", 300);
  NameProgram program("known-cut", place, seed);
  program.MakeKnown("");
  const int a = program.Create("a");
  program.Write(a, 0, 200);
  program.Truncate(a, 120);
  program.Write(a, 150, 100);
  program.Rename("a", "b");
  program.Truncate(a, 400);
  program.Truncate(a, 60);
  program.Write(a, 50, 30);
  program.MoveCheckpoint();
  program.Write(a, 60, 40);
  program.Truncate(a, 10);
  program.Rename("b", "old");
  program.Write(a, 90, 20);
  program.Close(a);
  return program.Finish();
}

// Modes of files and folders that the log has all of.
Trace KnownModes(const Place& place, uint64_t seed) {
  NameProgram program("known-modes", place, seed);
  program.MakeKnown("");
  program.Make("old", 50);
  program.SetMode("old", 0604);
  program.MoveCheckpoint();
  program.SetMode("old", 0400);
  program.Make("a", 60);
  program.SetMode("a", 0620);
  program.SetMode("a", 0444);
  program.Rename("a", "b");
  program.MakeFolder("s");
  program.SetMode("s", 0711);
  program.Make("s/c", 30);
  program.SetMode("s/c", 0600);
  program.SetMode("s", 0555);
  program.Remove("s/c");
  return program.Finish();
}

// Owners and times, of folders and symbolic links as well. Without the right to give files away,
// the owner stays the same.
Trace KnownOwners(const Place& place, uint64_t seed) {
  const uid_t owner = ::geteuid() == 0 ? 12 : ::geteuid();
  const gid_t group = ::geteuid() == 0 ? 34 : ::getegid();
  MakeFile(place, "old", 300);
  NameProgram program("known-owners", place, seed);
  program.MakeKnown("");
  program.Make("a", 50);
  program.SetTimes("a", 1'000'000'000);
  program.SetOwner("a", owner, group);
  program.MoveCheckpoint();
  program.SetTimes("a", 1'100'000'000);
  int b = program.Create("b");
  program.SetMode("b", 04755);
  program.SetOwner("b", owner, ::getegid());
  program.SetMode("b", 02711);
  program.Write(b, 0, 60);
  program.SetTimes("b", 1'200'000'000);
  program.Rename("b", "c");
  program.SetTimes("c", 1'300'000'000);
  program.Write(b, 30, 60);
  program.Close(b);
  program.MakeFolder("s");
  program.SetOwner("s", owner, group);
  program.Make("s/d", 20);
  program.SetTimes("s/d", 1'400'000'000);
  program.SetTimes("s", 1'500'000'000);
  program.MakeLink("s/d", "to");
  program.SetOwner("to", owner, group);
  program.SetTimes("to", 1'600'000'000);
  program.Rename("c", "a");
  return program.Finish();
}

// Two folders, three names.
Trace KnownMixed(const Place& place, uint64_t seed) {
  constexpr const char* kNames[] = {"a", "s/a", "s/b"};
  std::filesystem::create_directory(place.disk + "/s");
  for (const char* name : kNames) MakeFile(place, name, 100);
  NameProgram program("known-mixed", place, seed);
  program.MakeKnown("");
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

}  // namespace

std::vector<Scenario> NameScenarios() {
  return {
      {"known", "files in a known folder are made, renamed and removed", Known, false, 40, 256, 40},
      {"known-links", "files of known folders have several names", KnownLinks, false, 100, 256, 60,
       false, true},
      {"known-folders", "folders and symbolic links in known folders", KnownFolders, false, 100,
       256, 60},
      {"known-moved", "empty folders in known folders get other names", KnownMoved, false, 60, 256,
       60},
      {"known-cached", "files get other names with what only the log has of them", KnownCached,
       false, 100, 256, 60},
      {"known-swap", "files in known folders change places", KnownSwap, false, 20, 256, 40},
      {"known-refused", "the kernel refuses calls that were announced", KnownRefused, false, 100,
       256, 60},
      {"known-past", "bytes and names in known folders that are in no log", KnownPast, false, 100,
       256, 60, false, true},
      {"known-copied", "the kernel copies bytes into new files of known folders", KnownCopied,
       false, 100, 256, 60},
      {"known-cut", "files in known folders are cut", KnownCut, false, 60, 256, 60},
      {"known-modes", "modes in known folders", KnownModes, false, 100, 256, 60},
      {"known-owners", "owners and times in known folders", KnownOwners, false, 100, 256, 60},
      {"known-mixed", "any calls in two known folders, on three names", KnownMixed, false, 100, 256,
       60, false, true},
  };
}

}  // namespace nvcache::crash
