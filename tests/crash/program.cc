// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/program.h"

#include <errno.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdexcept>

#include "src/lease/file_table.h"
#include "src/sys/kernel.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/engine.h"
#include "src/vfs/vfs.h"
#include "tests/crash/log_stage.h"
#include "tests/unit/host.h"

namespace nvcache::crash {

namespace {

constexpr mode_t kMode = 0640;

}  // namespace

Program::Program(const std::string& name, const Place& place, uint64_t seed, uint64_t pool,
                 const std::vector<std::string>& settings)
    : place_(place),
      random_(seed),
      capture_(*new Capture(name, seed, MakeAgedPool(place, seed, pool))) {
  ::umask(0);
  using A = const Action&;
  const auto refuse_writes = [this](A a, int error) {
    capture_.RefuseWrites(FileOf(a.Word(0)), error);
  };
  const auto refuse_syncs = [this](A a, int error) {
    capture_.RefuseSyncs(FileOf(a.Word(0)), error);
  };
  Add({
      {"has", [](A) {}},  // these three are done before anything is recorded
      {"has-folder", [](A) {}},
      {"has-link", [](A) {}},
      {"file", [this](A a) { Open(a.Word(0)); }},
      {"new", [this](A a) { Create(a.Word(0)); }},
      {"open", [this](A a) { Open(a.Word(0), O_RDWR, a.Alias()); }},
      {"open-cut", [this](A a) { Cut(a.Word(0)); }},
      {"write", [this](A a) { Write(a.Word(0), a.Number(1), a.Number(2)); }},
      {"cut", [this](A a) { Truncate(a.Word(0), a.Number(1)); }},
      {"punch", [this](A a) { Punch(a.Word(0), a.Number(1), static_cast<uint32_t>(a.Number(2))); }},
      {"sync", [this](A a) { Sync(a.Word(0)); }},
      {"get-known", [this](A a) { SyncUntil(a.Word(0), IsKnown); }},
      {"get-cached", [this](A a) { SyncUntil(a.Word(0), IsCached); }},
      // The disk refuses the file's bytes, or only says so when it is to sync them.
      {"refuse-writes", [=](A a) { refuse_writes(a, EIO); }},
      {"take-writes", [=](A a) { refuse_writes(a, 0); }},
      {"refuse-syncs", [=](A a) { refuse_syncs(a, EIO); }},
      {"take-syncs", [=](A a) { refuse_syncs(a, 0); }},
      {"await-disk", [this](A a) { AwaitDisk(a.Word(0)); }},
      {"close", [this](A a) { Close(a.Word(0)); }},
      {"drain", [this](A) { Drain(); }},
      {"detach", [this](A) { Detach(); }},
  });
  std::vector<std::string> all = {"NVCACHE_POOL=" + place.memory + "/pool",
                                  "NVCACHE_EMULATE=1",
                                  "NVCACHE_NOTICE=0",
                                  "NVCACHE_DRAM=128k",
                                  "NVCACHE_INCLUDE=*",
                                  "NVCACHE_EXCLUSIVE=*"};
  all.insert(all.end(), settings.begin(), settings.end());
  std::vector<char*> environment;
  for (std::string& setting : all) environment.push_back(setting.data());
  environment.push_back(nullptr);
  vfs::engine.lease_folder = place_.memory.c_str();
  vfs::Start(test::HostOfLibcThreads(), environment.data());
}

void Program::Open(const std::string& name, int flags, const std::string& as) {
  const std::string path = Path(name);
  const bool exists = ::access(path.c_str(), F_OK) == 0;
  vfs::OpenGuard guard(AT_FDCWD, path.c_str(), flags, kMode);
  long opened = guard.Replace();
  if (opened == vfs::kNotOurs) opened = sys::Openat(AT_FDCWD, path.c_str(), flags, kMode);
  Must(opened >= 0);
  const int fd = descriptors_[as] = static_cast<int>(opened);
  if (FileOf(as) == kNobody) capture_.Watch(fd, path, exists);
  Must(guard.Opened(fd) == 0);
}

// Opens a file that is known with O_TRUNC.
void Program::Cut(const std::string& name) {
  const uint32_t file = FileNamed(name);
  capture_.Do({Operation::kTruncate, file, 0, 0, 0}, "", [&] {
    const std::string path = Path(name);
    vfs::OpenGuard guard(AT_FDCWD, path.c_str(), O_RDWR | O_TRUNC, 0);
    long fd = guard.Replace();
    if (fd == vfs::kNotOurs) {
      fd = ::open(path.c_str(), O_RDWR | O_TRUNC, 0);
      capture_.Cut(file);
    }
    Must(fd >= 0);
    descriptors_[name] = static_cast<int>(fd);
    guard.Opened(static_cast<int>(fd));
  });
}

void Program::Write(const std::string& name, uint64_t offset, size_t n, std::mt19937_64* random) {
  const int fd = Descriptor(name);
  const std::string bytes = RandomBytes(random, n);
  const auto kind = IsCached(fd) ? Operation::kWrite : Operation::kThrough;
  capture_.Do({kind, FileOf(name), offset, 0, 0}, bytes, [&] {
    long r = vfs::Pwrite(fd, bytes.data(), n, static_cast<off_t>(offset));
    if (r == vfs::kNotOurs) r = sys::Pwrite(fd, bytes.data(), n, offset);
    Must(r == static_cast<long>(n));
  });
}

void Program::Read(const std::string& name, uint64_t offset, size_t n) {
  std::string bytes(n, '\0');
  vfs::Pread(Descriptor(name), bytes.data(), n, static_cast<off_t>(offset));
}

void Program::Truncate(const std::string& name, uint64_t size) {
  capture_.Do({Operation::kTruncate, FileOf(name), size, 0, 0}, "", [&] {
    long r = vfs::Ftruncate(Descriptor(name), static_cast<off_t>(size));
    if (r == vfs::kNotOurs) r = sys::Ftruncate(Descriptor(name), static_cast<off_t>(size));
    Must(r == 0);
  });
}

void Program::Punch(const std::string& name, uint64_t offset, uint32_t n) {
  capture_.Do({Operation::kErase, FileOf(name), offset, n, 0}, "", [&] {
    constexpr int kHole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    const auto at = static_cast<off_t>(offset);
    const long r = vfs::Fallocate(Descriptor(name), kHole, at, n);
    Must(r == 0 || (r == vfs::kNotOurs && sys::Fallocate(Descriptor(name), kHole, at, n) == 0));
  });
}

void Program::Sync(const std::string& name) {
  capture_.Do({Operation::kSync, FileOf(name), 0, 0, 0}, "", [&] {
    const long r = vfs::Fsync(Descriptor(name));
    Must(r == 0 || (r == vfs::kNotOurs && sys::Fsync(Descriptor(name)) == 0));
  });
}

void Program::SyncUntil(const std::string& name, bool (*is)(int fd)) {
  for (int tries = 0; !is(Descriptor(name)); ++tries) {
    Must(tries < 1000);
    Sync(name);
  }
}

bool Program::IsCached(int fd) {
  const vfs::File* file = vfs::engine.descriptors.Of(fd)->file.load();
  return file != nullptr && file->state.load() == vfs::State::kCached;
}

bool Program::IsKnown(int fd) {
  sys::BornStat st;
  Must(sys::Look(fd, &st) == 0);
  const lease::FileEntry* entry = vfs::engine.file_table.Find(lease::TagOf(st));
  return entry != nullptr && lease::FileTable::CoverageOf(*entry).known;
}

uint32_t Program::FileNamed(const std::string& name) {
  const int fd = ::open(Path(name).c_str(), O_PATH | O_NOFOLLOW);
  Must(fd >= 0);
  const uint32_t file = capture_.FileAt(fd);
  ::close(fd);
  return file;
}

// Returns when the disk has all of it.
void Program::AwaitDisk(const std::string& name) {
  for (int tries = 0; vfs::Drain(Descriptor(name)) != 0; ++tries) Must(tries < 1000);
}

void Program::Close(const std::string& name) {
  vfs::Close(Descriptor(name));
  ::close(Descriptor(name));
}

void Program::Drain() { vfs::DrainAll(); }

void Program::Detach() {
  capture_.Do({Operation::kClose, 0, 0, 0, 0}, "", [&] {
    vfs::TableLock lock;
    Must(vfs::engine.attachment.ReleaseAll() == 0);
    Must(!vfs::engine.attached());
  });
}

void Program::Reattach() {
  capture_.Do({Operation::kOther, 0, 0, 0, 0}, "", [] {});
}

Trace Program::Finish() {
  Trace trace = capture_.Finish();
  trace.FindItems();
  return trace;
}

void Program::Must(bool ok, int line) {
  if (ok) return;
  throw std::runtime_error("the scenario failed: a call's result is wrong in line " +
                           std::to_string(line));
}

std::string Program::Path(const std::string& name) const {
  return name == "." ? place_.disk : place_.disk + "/" + name;
}

}  // namespace nvcache::crash
