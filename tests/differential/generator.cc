// SPDX-License-Identifier: BSD-3-Clause
#include "tests/differential/generator.h"

#include <fmt/format.h>

#include <functional>
#include <initializer_list>
#include <limits>

#include "tests/kit/random.h"

namespace nvcache::differential {
namespace {

// The kernel gives blocks to more than what it can read of a bad buffer.
constexpr uint64_t kMostWithBadBuffers = 60000;

using kit::Random;

class Generator {
 public:
  Generator(uint64_t seed, Ending ending) : random_(seed), ending_(ending) {
    ChooseTheme();
    Collect();
  }

  Sequence Make(int operations) {
    Sequence sequence;
    sequence.settings = Settings();
    out_ = &sequence.operations;
    Emit("mkdir path=d0");
    Emit("mkdir path=d1");
    while (static_cast<int>(out_->size()) < operations) {
      if (processes_ && Chance(1, 60)) ChangeProcesses();
      if (threads_ > 1) thread_ = static_cast<int>(Below(static_cast<uint64_t>(threads_)));
      One();
      if (reopens_ && Chance(1, 2)) Reopen();
    }
    return sequence;
  }

 private:
  // ---- Chance
  uint64_t Below(uint64_t n) { return random_.Below(n); }
  bool Chance(uint64_t of, uint64_t n) { return Below(n) < of; }
  template <typename T>
  T Pick(std::initializer_list<T> list) {
    return list.begin()[Below(list.size())];
  }

  // ---- The theme
  void ChooseTheme() {
    threads_ = Chance(1, 3) ? 3 : 1;
    processes_ = Chance(1, 4);
    streams_ = Chance(1, 3);
    mappings_ = Chance(1, 6);
    direct_ = Chance(1, 6);
    transfers_ = Chance(1, 4);
    aio_ = Chance(1, 10);
    locks_ = Chance(1, 5);
    limits_ = Chance(1, 8);
    bad_ = Chance(1, 3);
    huge_ = Chance(1, 3);
    names_ = Chance(1, 2);
    sync_ = Chance(1, 4);
    fallocate_ = Chance(1, 3);
    places_ = 2 + static_cast<int>(Below(11));
    files_ = 1 + static_cast<int>(Below(8));
    reopens_ = Chance(1, 4);
    if (reopens_) {
      places_ = 2 + static_cast<int>(Below(2));
      files_ = 2 + static_cast<int>(Below(2));
    }
    // What becomes hot in the middle of a sequence is the kernel's before that, which may write a
    // part of a call when its process is killed.
    hot_only_ = ending_ != Ending::kKilledInside && Chance(2, 3);
    exclusive_ = Chance(1, 2);
    if (hot_only_) sync_ = true;
    // So may it when the program takes turns by its locks, or has a lower limit of file size: then
    // its files are the kernel's.
    if (ending_ == Ending::kKilledInside) {
      streams_ = transfers_ = aio_ = mappings_ = direct_ = processes_ = huge_ = bad_ = names_ =
          locks_ = limits_ = false;
    }
  }

  std::vector<std::string> Settings() {
    std::string size = Pick({"1M", "1M", "2M", "16M"});
    // A write that a kill finds halfway is there whole or not at all up to a quarter of the log,
    // which is less in the smallest pool than the longest write here.
    if (ending_ == Ending::kKilledInside && size == "1M") size = "2M";
    const std::string frames =
        Pick({"dram:64k", "dram:256k", "dram:4M", "dram:64M", "pool:64k", "pool:512k"});
    // The smallest pool has no room for any.
    if (frames[0] == 'p' && size == "1M") size = "2M";
    std::vector<std::string> settings = {"NVCACHE_SIZE=" + size, "NVCACHE_FRAMES=" + frames,
                                         hot_only_ ? kThroughHot : kCacheAll};
    if (hot_only_ && exclusive_) settings.emplace_back(kCacheHot);
    if (Chance(1, 2)) {
      const uint64_t least = Pick<uint64_t>({1, 10, 100, 1000});
      settings.push_back(fmt::format("NVCACHE_BATCH_MIN={}", least));
      settings.push_back(fmt::format("NVCACHE_BATCH_MAX={}", least * Pick<uint64_t>({1, 10, 100})));
      settings.push_back(fmt::format("NVCACHE_BATCH_DELAY={}", Pick({1, 5, 50, 5000})));
    }
    return settings;
  }

  // ---- Words of an operation
  std::string Place() { return std::to_string(Below(static_cast<uint64_t>(places_))); }
  // A descriptor: sometimes none.
  std::string Fd() {
    return "fd=" + (Chance(1, 80) ? std::to_string(Pick({-1, -100, 1000000})) : Place());
  }
  std::string To() { return "to=" + Place(); }
  std::string File() { return fmt::format("f{}", Below(static_cast<uint64_t>(files_))); }
  std::string Path() {
    if (!names_ || Chance(6, 10)) return File();
    switch (Below(10)) {
      case 0:
      case 1:
        return "d0/" + File();
      case 2:
        return "d1/" + File();
      case 3:
        return "/" + File();
      case 4:
        return Pick({"s0", "s1", "s2"});
      case 5:
        return Pick({"l0", "l1", "d0/l0"});
      case 6:
        return Pick({"d0", "d1", ".", "/d0", "/"});
      case 7:
        return Pick({"missing/x", "f0/x", "d0/./f0", "d2", "d0/d2"});
      default:
        return "d0/" + File();
    }
  }
  std::string PathIs(const char* key = "path") { return std::string(key) + "=" + Path(); }

  uint64_t Length() {
    switch (Below(8)) {
      case 0:
        return Chance(1, 4) ? 0 : 1 + Below(16);
      case 1:
        return 4096 * (1 + Below(4));
      case 2:
        return 4096 * (1 + Below(4)) + Below(3) - 1;
      case 3:
        return 1 + Below(bad_ ? kMostWithBadBuffers : 200000);
      default:
        return random_.Length(20000);
    }
  }
  int64_t Offset() {
    if (huge_ && Chance(1, 25)) {
      constexpr int64_t kOne = 1;
      return Pick<int64_t>(
          {-1, -4096, kOne << 31, (kOne << 32) + 1, kOne << 43, (kOne << 44) - 4096,
           (kOne << 44) - 4097, kOne << 44, kOne << 62, std::numeric_limits<int64_t>::max(),
           std::numeric_limits<int64_t>::max() - 4096, std::numeric_limits<int64_t>::min()});
    }
    switch (Below(8)) {
      case 0:
        return 0;
      case 1:
        return static_cast<int64_t>(4096 * Below(64));
      case 2:
        return static_cast<int64_t>(4096 * (1 + Below(64)) + Below(3) - 1);
      case 3:
        return static_cast<int64_t>(random_.Length(huge_ ? 1u << 30 : 1u << 20));
      default:
        return static_cast<int64_t>(random_.Length(200000));
    }
  }
  std::string Extent() { return fmt::format("off={} len={}", Offset(), Length()); }
  std::string Data() { return fmt::format("data={}", ++data_); }
  std::string BufferKind() {
    if (!bad_ || Chance(14, 15)) return "";
    return fmt::format(" buf={}", Pick({"null", "bad", "half", "half"}));
  }
  std::string VectorKind() {
    std::string text = fmt::format(" vec={}", 1 + Below(6));
    if (Chance(1, 15)) text = " vec=1024";
    if (bad_ && Chance(1, 15)) text = fmt::format(" vec={}", Pick({0, -1, 1024, 1025}));
    if (Chance(1, 5)) text += " stack=small";
    if (bad_ && Chance(1, 30)) text += " iov=bad";
    return text;
  }

  std::string OpenFlags() {
    std::string flags = Pick({"O_RDWR", "O_RDWR", "O_RDWR", "O_WRONLY", "O_RDONLY"});
    const auto add = [&](uint64_t of, uint64_t n, const char* flag) {
      if (Chance(of, n)) flags += std::string("|") + flag;
    };
    add(6, 10, "O_CREAT");
    add(1, 20, "O_EXCL");
    add(1, 10, "O_TRUNC");
    add(1, 7, "O_APPEND");
    add(1, 5, "O_CLOEXEC");
    if (sync_) add(1, hot_only_ ? 6 : 30, Pick({"O_SYNC", "O_DSYNC"}));
    if (direct_) add(1, 6, "O_DIRECT");
    if (names_) {
      add(1, 30, "O_PATH");
      add(1, 20, "O_NOFOLLOW");
      add(1, 40, "O_DIRECTORY");
    }
    return "flags=" + flags;
  }

  // ---- Kinds of operations
  void Add(int weight, std::function<void()> make) {
    total_ += static_cast<uint64_t>(weight);
    kinds_.push_back({total_, std::move(make)});
  }
  template <typename... Words>
  void Emit(const char* format, const Words&... words) {
    out_->push_back(
        fmt::format("{}.{} {}", process_, thread_, fmt::format(fmt::runtime(format), words...)));
  }
  void One() {
    const uint64_t at = Below(total_);
    for (const Kind& kind : kinds_) {
      if (at < kind.up_to) return kind.make();
    }
  }

  void Collect() {
    CollectData();
    if (names_) CollectNames();
    CollectSmall();
    if (streams_) CollectStreams();
    if (mappings_) CollectMappings();
    if (transfers_) CollectTransfers();
    if (locks_) CollectLocks();
    if (aio_) {
      Add(4, [this] { Emit("aio_write {} {} {}", Fd(), Extent(), Data()); });
      Add(4, [this] { Emit("aio_read {} {}", Fd(), Extent()); });
      Add(1, [this] { Emit("aio_fsync {}", Fd()); });
    }
    if (limits_) {
      Add(4, [this] { Emit("rlimit size={}", Chance(1, 2) ? -1 : Offset() & 0xfffff); });
    }
    if (processes_) Add(1, [this] { Emit(Chance(1, 3) ? "exec missing=1" : "spawn"); });
  }

  void CollectData() {
    for (const char* name : {"write", "read"}) {
      Add(60,
          [this, name] { Emit("{} {} len={} {}{}", name, Fd(), Length(), Data(), BufferKind()); });
    }
    for (const char* name : {"pwrite", "pread"}) {
      Add(80, [this, name] { Emit("{} {} {} {}{}", name, Fd(), Extent(), Data(), BufferKind()); });
    }
    for (const char* name : {"writev", "readv"}) {
      Add(12, [this, name] {
        Emit("{} {} len={} {}{}{}", name, Fd(), Length(), Data(), BufferKind(), VectorKind());
      });
    }
    for (const char* name : {"pwritev", "preadv"}) {
      Add(12, [this, name] {
        Emit("{} {} {} {}{}{}", name, Fd(), Extent(), Data(), BufferKind(), VectorKind());
      });
    }
    for (const char* name : {"pwritev2", "preadv2"}) {
      Add(12, [this, name] {
        const std::string flags = bad_ && Chance(1, 20)
                                      ? "0x4000"
                                      : Pick({"0", "RWF_DSYNC", "RWF_APPEND", "RWF_NOWAIT",
                                              "RWF_HIPRI", "RWF_SYNC|RWF_APPEND"});
        Emit("{} {} off={} len={} flags={} {}{}{}", name, Fd(), Chance(1, 4) ? -1 : Offset(),
             Length(), flags, Data(), BufferKind(), VectorKind());
      });
    }
    Add(20, [this] {
      Emit("lseek {} off={} whence={}", Fd(), Chance(1, 6) ? -Offset() : Offset(),
           Pick({"SEEK_SET", "SEEK_SET", "SEEK_CUR", "SEEK_END", "77"}));
    });
    Add(8, [this] { Emit("holes {}", Fd()); });
    Add(14, [this] { Emit("ftruncate {} len={}", Fd(), Offset()); });
    Add(4, [this] { Emit("truncate {} len={}", PathIs(), Offset()); });
    Add(25, [this] { Emit("fstat {}", Fd()); });
    Add(15, [this] { Emit("stat {}", PathIs()); });
    Add(5, [this] { Emit("lstat {}", PathIs()); });
    Add(5, [this] { Emit("statx {}", PathIs()); });
    if (sync_) {
      const int often = hot_only_ ? 30 : 6;
      Add(often, [this] { Emit("fsync {}", Fd()); });
      Add(often, [this] { Emit("fdatasync {}", Fd()); });
      Add(3, [this] {
        Emit("sync_file_range {} {} flags={}", Fd(), Extent(),
             Pick({"SYNC_FILE_RANGE_WRITE", "0", "SYNC_FILE_RANGE_WAIT_BEFORE"}));
      });
      Add(1, [this] { Emit("syncfs {}", Fd()); });
    }
    if (fallocate_) {
      Add(14, [this] {
        Emit("fallocate {} {} mode={}", Fd(), FallocateExtent(),
             Pick({"0", "FALLOC_FL_KEEP_SIZE", "FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE",
                   "FALLOC_FL_PUNCH_HOLE", "FALLOC_FL_COLLAPSE_RANGE", "FALLOC_FL_ZERO_RANGE",
                   "FALLOC_FL_ZERO_RANGE|FALLOC_FL_KEEP_SIZE", "FALLOC_FL_INSERT_RANGE",
                   "FALLOC_FL_UNSHARE_RANGE", "0x8000"}));
      });
      Add(4, [this] { Emit("posix_fallocate {} {}", Fd(), FallocateExtent()); });
    }
    Add(2, [this] {
      Emit("posix_fadvise {} {} advice={}", Fd(), Extent(),
           Pick({"POSIX_FADV_DONTNEED", "POSIX_FADV_WILLNEED", "POSIX_FADV_RANDOM", "99"}));
    });
    Add(1, [this] { Emit("readahead {} {}", Fd(), Extent()); });
  }
  // Blocks, half of the time; some modes take nothing else.
  std::string FallocateExtent() {
    if (Chance(1, 2)) return Extent();
    return fmt::format("off={} len={}", 4096 * Below(64), 4096 * Below(32));
  }

  // From a folder that is the path's root, or not; the file may be another of the same name.
  void Openat2() {
    const std::string resolve =
        Pick({"RESOLVE_IN_ROOT", "RESOLVE_IN_ROOT", "RESOLVE_BENEATH", "RESOLVE_NO_SYMLINKS",
              "RESOLVE_NO_MAGICLINKS", "RESOLVE_NO_XDEV", "RESOLVE_IN_ROOT|RESOLVE_NO_SYMLINKS",
              bad_ ? "0x8000" : "0"});
    std::string path = Path();
    // Out of the test's folder leads no other.
    const bool contained =
        resolve.find("ROOT") != std::string::npos || resolve == "RESOLVE_BENEATH";
    if (Chance(1, 2)) path = (contained ? Pick({"/", "../", "/../"}) : Pick({"/"})) + File();
    const std::string flags = Chance(1, 2) ? OpenFlags() : OpenFlags() + "|O_TRUNC";
    Emit("openat2 dir={} path={} {} resolve={} {}", names_ ? Pick({".", "d0", "d1"}) : ".", path,
         flags, resolve, To());
  }

  void CollectSmall() {
    Add(8, [this] { Openat2(); });
    Add(2, [this] { Emit("getflags {}", Fd()); });
    Add(3, [this] {
      Emit("setflags {} flags={}", Fd(),
           Pick({"0", "FS_NODUMP_FL", "FS_NOATIME_FL", "FS_NODUMP_FL|FS_NOATIME_FL"}));
    });
    Add(1, [this] { Emit("fsgetxattr {}", Fd()); });
    Add(2, [this] {
      Emit("fssetxattr {} flags={}", Fd(), Pick({"0", "FS_XFLAG_NODUMP", "FS_XFLAG_NOATIME"}));
    });
    Add(1, [this] { Emit("figetbsz {}", Fd()); });
    Add(2, [this] { Emit("fionread {}", Fd()); });
    Add(1, [this] {
      if (transfers_) Emit("unknown_control {}", Fd());  // passes its file through
    });
    Add(50, [this] {
      if (names_ && Chance(1, 20))
        return Emit("open path={} flags=O_RDWR|O_TMPFILE {}", Pick({".", "d0"}), To());
      if (names_ && Chance(1, 10))
        return Emit("open {} {} {} at={}", PathIs(), OpenFlags(), To(), Place());
      Emit("open {} {} {}", PathIs(), OpenFlags(), To());
    });
    Add(4, [this] { Emit("creat {} {}", PathIs(), To()); });
    Add(3, [this] { Emit("open_by_number {} {} {}", Fd(), OpenFlags(), To()); });
    Add(2, [this] {
      if (ending_ == Ending::kKilledInside) return;
      Emit("mkstemp {} {} flags={}", PathIs(), To(), Pick({"0", "O_APPEND"}));
    });
    Add(22, [this] { Emit("close {}", Fd()); });
    Add(6, [this] { Emit("dup {} {}", Fd(), To()); });
    Add(5, [this] { Emit("dup2 {} over={}", Fd(), Place()); });
    Add(3, [this] {
      Emit("dup3 {} over={} flags={}", Fd(), Place(), Pick({"0", "O_CLOEXEC", "O_APPEND"}));
    });
    Add(3, [this] {
      Emit("dup_above {} least={} cloexec={} {}", Fd(), Pick({0, 10, 40, -1, 100000000}), Below(2),
           To());
    });
    Add(6, [this] { Emit("getfl {}", Fd()); });
    Add(4, [this] {
      Emit("setfl {} flags={}", Fd(),
           Pick({"O_APPEND", "O_APPEND", "0", "0", "O_NONBLOCK", direct_ ? "O_DIRECT" : "0"}));
    });
    Add(2, [this] { Emit("getfd {}", Fd()); });
    Add(2, [this] { Emit("setfd {} flags={}", Fd(), Pick({"FD_CLOEXEC", "0"})); });
    Add(1, [this] {
      Emit("close_range first={} last={} flags={}", Place(), Place(),
           Pick({"0", "CLOSE_RANGE_CLOEXEC", "0x100"}));
    });
    Add(1, [this] {
      if (Chance(1, 4)) Emit("closefrom first={}", Place());
    });
    Add(3, [this] {
      const uint64_t time = Chance(1, 4) ? 0 : 1 + Below(900000);
      if (Chance(1, 2)) return Emit("futimens {} time={}", Fd(), time);
      Emit("utimensat {} time={} flags={}", PathIs(), time, Pick({"0", "AT_SYMLINK_NOFOLLOW"}));
    });
    Add(3, [this] { Emit("fchmod {} mode={:#o}", Fd(), Pick({0644, 0600, 0777, 0444})); });
    Add(4, [this] { Emit("unlink {}", PathIs()); });
    Add(3, [this] { Emit("rename {} {}", PathIs("from"), PathIs("to")); });
    Add(3, [this] { Emit("list path={}", Pick({".", "d0", "/", "f0"})); });
  }

  // What was done to a file before its last close, and between that and the next open.
  void Reopen() {
    const std::string place = Place();
    Emit("close fd={}", place);
    if (Chance(1, 2)) OutsideOfOpen();
    Emit("open path={} flags={} to={}", File(),
         Pick({"O_RDWR|O_CREAT", "O_RDWR|O_CREAT", "O_RDWR|O_CREAT|O_TRUNC",
               "O_RDWR|O_CREAT|O_EXCL", "O_WRONLY|O_CREAT|O_APPEND"}),
         place);
  }
  void OutsideOfOpen() {
    switch (Below(5)) {
      case 0:
        return Emit("link from={} to={}", File(), File());
      case 1:
        return Emit("unlink path={}", File());
      case 2:
        return Emit("rename from={} to={}", File(), File());
      case 3:
        return Emit("truncate path={} len={}", File(), Chance(1, 2) ? 0 : Below(20000));
      default:
        return Emit("chmod path={} mode={:#o}", File(), Pick({0644, 0600}));
    }
  }

  void CollectNames() {
    Add(8, [this] { Emit("rename {} {}", PathIs("from"), PathIs("to")); });
    Add(6, [this] {
      Emit("renameat2 {} {} flags={}", PathIs("from"), PathIs("to"),
           Pick({"0", "RENAME_NOREPLACE", "RENAME_EXCHANGE", "0x40"}));
    });
    Add(7, [this] { Emit("link {} {}", PathIs("from"), PathIs("to")); });
    Add(4, [this] { Emit("link_descriptor {} {} empty={}", Fd(), PathIs("to"), Below(2)); });
    Add(4, [this] { Emit("symlink target={} {}", File(), PathIs()); });
    Add(2, [this] {
      Emit("symlink target={} path={}", Pick({"f0", "d0/f1", "s1", "d0", "nowhere"}),
           Pick({"s0", "s1", "s2"}));
    });
    Add(2, [this] { Emit("readlink {}", PathIs()); });
    Add(6, [this] { Emit("unlink {}", PathIs()); });
    Add(3, [this] { Emit("unlinkat {} flags={}", PathIs(), Pick({"0", "AT_REMOVEDIR"})); });
    Add(3, [this] { Emit("remove {}", PathIs()); });
    Add(4, [this] { Emit("mkdir {}", PathIs()); });
    Add(1, [this] { Emit("rmdir {}", PathIs()); });
    Add(3, [this] { Emit("chmod {} mode={:#o}", PathIs(), Pick({0644, 0600, 0755, 0700})); });
    Add(2, [this] { Emit("access {} mode={}", PathIs(), Pick({"F_OK", "R_OK|W_OK", "X_OK"})); });
    Add(3, [this] {
      Emit("fstatat {} at={} flags={}", PathIs(), Place(), Pick({"0", "AT_SYMLINK_NOFOLLOW"}));
    });
    Add(2, [this] { Emit("scandir {}", PathIs()); });
    Add(2, [this] { Emit("chdir path={}", Pick({"/", "/", "d0", "d1", "f0", "/d0"})); });
    Add(1, [this] { Emit("fchdir {}", Fd()); });
  }

  std::string S() { return fmt::format("s={}", Below(4)); }
  void CollectStreams() {
    Add(14, [this] {
      const std::string mode =
          Pick({"r", "w", "a", "r+", "w+", "a+", "r+", "wx", "re", "w+x", "ae"});
      std::string buffer;
      if (Chance(1, 3)) {
        buffer = fmt::format(" buffer={} size={}", Pick({"_IONBF", "_IOLBF", "_IOFBF"}),
                             Pick({0, 1, 100, 4096, 65536}));
      }
      Emit("fopen {} {} mode={}{}", S(), PathIs(), mode, buffer);
    });
    Add(4, [this] { Emit("fdopen {} {} mode={}", S(), Fd(), Pick({"r", "w", "a", "r+", "a+"})); });
    Add(3, [this] {
      if (Chance(1, 5)) return Emit("freopen {} mode={}", S(), Pick({"r", "r+", "a"}));
      Emit("freopen {} {} mode={}", S(), PathIs(), Pick({"r", "w", "r+", "a+"}));
    });
    Add(7, [this] { Emit("fclose {}", S()); });
    Add(20, [this] { Emit("fwrite {} len={} {}", S(), Length(), Data()); });
    Add(14, [this] { Emit("fread {} len={}", S(), Length()); });
    Add(6, [this] { Emit("fputs {} len={} {}", S(), Below(6000), Data()); });
    Add(6, [this] { Emit("fprintf {} len={} {}", S(), Below(300), Data()); });
    Add(6, [this] { Emit("fputc {} {}", S(), Data()); });
    Add(4, [this] { Emit("fgetc {}", S()); });
    Add(2, [this] { Emit("ungetc {} {}", S(), Data()); });
    Add(4, [this] { Emit("fgets {} len={}", S(), 1 + Below(500)); });
    Add(4, [this] { Emit("getline {}", S()); });
    Add(10, [this] {
      Emit("fseeko {} off={} whence={}", S(), Offset(), Pick({"SEEK_SET", "SEEK_CUR", "SEEK_END"}));
    });
    Add(6, [this] { Emit("ftello {}", S()); });
    Add(2, [this] { Emit("rewind {}", S()); });
    Add(8, [this] { Emit("fflush {}", S()); });
    Add(1, [this] { Emit("flush_all"); });
    Add(3, [this] { Emit("stream_state {}", S()); });
    Add(2, [this] { Emit("clearerr {}", S()); });
    Add(3, [this] { Emit("fileno {} {}", S(), To()); });
    Add(1, [this] { Emit("tmpfile {}", S()); });
    Add(5, [this] { Emit("dprintf {} len={} {}", Fd(), Below(9000), Data()); });
  }

  std::string M() { return fmt::format("map={}", Below(4)); }
  void CollectMappings() {
    Add(5, [this] {
      Emit("mmap {} {} off={} len={} prot={} flags={}", M(), Fd(), 4096 * Below(16), 1 + Length(),
           Pick({"PROT_READ", "PROT_READ|PROT_WRITE", "PROT_READ|PROT_WRITE"}),
           Pick({"MAP_SHARED", "MAP_SHARED", "MAP_PRIVATE"}));
    });
    Add(10, [this] { Emit("map_read {} off={} len={}", M(), Below(20000), Length()); });
    Add(10, [this] { Emit("map_write {} off={} len={} {}", M(), Below(20000), Length(), Data()); });
    Add(2, [this] { Emit("msync {} flags={}", M(), Pick({"MS_ASYNC", "MS_SYNC"})); });
    Add(3, [this] { Emit("munmap {}", M()); });
  }

  std::string InOut() { return fmt::format("in={} out={}", Place(), Place()); }
  std::string Maybe(const char* key) {
    return Chance(1, 2) ? "" : fmt::format(" {}={}", key, Offset());
  }
  void CollectTransfers() {
    Add(6, [this] { Emit("sendfile {} len={}{}", InOut(), Length(), Maybe("off")); });
    Add(6, [this] {
      Emit("copy_file_range {} len={}{}{}", InOut(), Length(), Maybe("off"), Maybe("to"));
    });
    Add(4, [this] { Emit("splice_out {} len={}{}", Fd(), Length(), Maybe("off")); });
    Add(4, [this] { Emit("splice_in {} len={} {}{}", Fd(), 1 + Length(), Data(), Maybe("off")); });
    Add(1, [this] { Emit("ficlone {}", InOut()); });
  }

  void CollectLocks() {
    const auto lock = [this] {
      return fmt::format("type={} whence={} off={} len={} ofd={}",
                         Pick({"F_RDLCK", "F_WRLCK", "F_UNLCK"}),
                         Pick({"SEEK_SET", "SEEK_SET", "SEEK_CUR", "SEEK_END"}), Below(20000),
                         Below(20000), Below(2));
    };
    Add(8, [this, lock] { Emit("setlk {} {}", Fd(), lock()); });
    Add(8, [this, lock] { Emit("getlk {} {}", Fd(), lock()); });
    Add(4, [this] { Emit("flock {} type={}", Fd(), Pick({"LOCK_SH", "LOCK_EX", "LOCK_UN"})); });
    Add(4, [this] {
      Emit("lockf {} type={} len={}", Fd(), Pick({"F_TLOCK", "F_LOCK", "F_ULOCK", "F_TEST"}),
           Chance(1, 2) ? 0 : Below(20000));
    });
  }

  // ---- Processes: one after the other, exec, a child alone, parent and child in turn.
  void ChangeProcesses() {
    const int before = thread_;
    if (Chance(1, 4)) {
      Emit("exec");
    } else if (Chance(1, 3) && ending_ == Ending::kOwn) {
      Emit("exit how={}", Pick({"exit", "_exit", "kill"}));
    } else {
      Child();
    }
    thread_ = before;
  }

  void Child() {
    Emit("fork child=1");
    const bool turns = Chance(1, 2);
    const uint64_t n = 1 + Below(40);
    for (uint64_t i = 0; i < n; ++i) {
      process_ = turns && Chance(1, 2) ? 0 : 1;
      thread_ = static_cast<int>(Below(static_cast<uint64_t>(threads_)));
      if (process_ == 1 && Chance(1, 40)) {
        Emit("exec");
      } else {
        One();
      }
    }
    process_ = 1;
    thread_ = 0;
    Emit("exit how={}", Pick({"exit", "_exit", "kill"}));
    process_ = 0;
  }

  struct Kind {
    uint64_t up_to;
    std::function<void()> make;
  };

  Random random_;
  const Ending ending_;

  int threads_;
  bool processes_, streams_, mappings_, direct_, transfers_, aio_, locks_, limits_, bad_, huge_,
      names_, sync_, fallocate_, reopens_, hot_only_, exclusive_;
  int places_;
  int files_;

  std::vector<Kind> kinds_;
  uint64_t total_ = 0;
  std::vector<std::string>* out_ = nullptr;
  uint64_t data_ = 0;
  int process_ = 0;
  int thread_ = 0;
};

}  // namespace

Sequence Generate(uint64_t seed, int operations, Ending ending) {
  return Generator(seed, ending).Make(operations);
}

}  // namespace nvcache::differential
