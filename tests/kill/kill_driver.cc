// SPDX-License-Identifier: BSD-3-Clause
//
// Kills kill_writer at random moments, lets the pool be recovered, and compares the files with
// what the writer had acknowledged. kill_driver --help.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/kill/model.h"
#include "tests/kill/protocol.h"
#include "tests/kit/files.h"

namespace nvcache::kill_test {
namespace {

namespace fs = std::filesystem;
using std::chrono::microseconds;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string nvcache;
  std::string preload;
  bool built_in = false;
  std::string writer;
  std::string scratch;
  uint64_t seed = 0;
  int rounds = 50;
  unsigned threads = 4;
  bool disk = false;
  bool self_check = false;
};

constexpr int kRoundsPerEpoch = 10;  // then new files and a new pool of another size

// A child process; killed and collected when it goes out of scope.
class Child {
 public:
  // `inherit`: a descriptor that the child keeps. Stdout and stderr are appended to `output`.
  Child(const std::vector<std::string>& command, const std::vector<std::string>& environment,
        int inherit, const std::string& output) {
    pid_ = ::fork();
    if (pid_ == 0) {
      const int fd = ::open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      ::dup2(fd, STDOUT_FILENO);
      ::dup2(fd, STDERR_FILENO);
      if (inherit >= 0) ::fcntl(inherit, F_SETFD, 0);
      for (const std::string& variable : environment) ::putenv(const_cast<char*>(variable.c_str()));
      std::vector<char*> argv;
      for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      ::execvp(argv[0], argv.data());
      std::perror(argv[0]);
      std::_Exit(127);
    }
  }
  ~Child() {
    if (pid_ > 0) {
      Kill();
      Wait();
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void Kill() const { ::kill(pid_, SIGKILL); }
  // 128 + signal for a killed one, like a shell.
  int Wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  pid_t pid_ = -1;
};

void Spit(const fs::path& path, const std::string& bytes) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream << bytes;
}

constexpr int kKilled = 128 + SIGKILL;

class Driver {
 public:
  explicit Driver(const Options& options)
      : options_(options),
        random_(options.seed),
        folder_(fs::path(options.scratch) / ("kill-" + std::to_string(::getpid()))),
        pools_((options.disk ? fs::path(options.scratch) : fs::path("/dev/shm")) /
               ("nvcache-test-kill-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
    fs::create_directories(pools_);
  }
  ~Driver() {
    if (failed_) {
      std::printf("kept: %s and %s\n", folder_.c_str(), pools_.c_str());
      return;
    }
    RemovePool();
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
    fs::remove_all(pools_, ignored);
  }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  bool Run() {
    std::printf("seed %llu (give it back with --seed), %d rounds, %u threads\n",
                static_cast<unsigned long long>(options_.seed), options_.rounds, options_.threads);
    for (int round = 0; round < options_.rounds; ++round) {
      if (round % kRoundsPerEpoch == 0) NewEpoch();
      std::string why;
      if (!Round(round, &why)) {
        std::printf("round %d: %s\n--- what its programs said\n%s---\n", round, why.c_str(),
                    kit::Slurp(pools_ / "output").c_str());
        failed_ = true;
        return false;
      }
    }
    std::printf(
        "%d rounds, %llu writes acknowledged, all found; %llu in flight, of which %llu were there, "
        "whole; %d kills, %d of them of recoveries\n",
        options_.rounds, Total(acknowledged_, model_->acknowledged()),
        Total(in_flight_, model_->in_flight()), Total(in_flight_found_, model_->in_flight_found()),
        options_.rounds + recoveries_killed_, recoveries_killed_);
    return true;
  }

  // Without NVCache: does the comparison find what it is there to find?
  bool SelfCheck();

 private:
  enum class Recovery { kCommand, kCommandKilled, kRun, kLibrary };

  static unsigned long long Total(uint64_t before, uint64_t now) { return before + now; }

  // With its memory, if it is a journal: that file's name ends with its device and inode.
  void RemovePool() const {
    struct stat st = {};
    if (::stat((pools_ / "pool").c_str(), &st) != 0) return;
    char end[40];
    std::snprintf(end, sizeof(end), "-%08llx-%016llx", static_cast<unsigned long long>(st.st_dev),
                  static_cast<unsigned long long>(st.st_ino));
    for (const fs::directory_entry& entry : fs::directory_iterator("/dev/shm")) {
      if (entry.path().string().ends_with(end)) fs::remove(entry.path());
    }
    fs::remove(pools_ / "pool");
  }

  void NewEpoch() {
    if (model_) {
      acknowledged_ += model_->acknowledged();
      in_flight_ += model_->in_flight();
      in_flight_found_ += model_->in_flight_found();
    }
    model_.emplace(options_.threads);
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    RemovePool();
    static constexpr const char* kSizes[] = {"8M", "32M", "128M", "512M"};
    constexpr uint64_t kSmall =
        2;  // of a journal, which has two and a half times as much to be filled
    // The log of the smallest pool takes a write of 1 MiB whole in any case.
    static constexpr const char* kFrames[] = {"dram:1M", "dram:8M", "dram:64M", "pool:1M",
                                              "pool:2M"};
    size_ = kSizes[random_.Below(options_.disk ? kSmall : std::size(kSizes))];
    frames_ = kFrames[random_.Below(std::size(kFrames))];
    exclusive_ = !exclusive_;
    std::printf("new files%s; a pool of %s, frames: %s\n", exclusive_ ? ", exclusive" : "",
                size_.c_str(), frames_.c_str());
  }

  // `command` by way of nvcache run.
  std::vector<std::string> Cached(const std::vector<std::string>& command) const {
    std::vector<std::string> all = {options_.nvcache, "run",   "--pool",      pools_ / "pool",
                                    "--size",         size_,   "--frames",    frames_,
                                    "--checkpointer", "never", "--write-back"};
    if (!options_.disk) all.insert(all.begin() + 2, "--emulate");
    if (exclusive_) {
      all.insert(all.end(), {"auto", "--exclusive", "*", "--"});
    } else {
      all.insert(all.end(), {"always", "--"});
    }
    all.insert(all.end(), command.begin(), command.end());
    return all;
  }

  // For a program that is started as it is.
  std::vector<std::string> Settings() const {
    std::vector<std::string> settings = {
        "NVCACHE_POOL=" + (pools_ / "pool").string(),
        "NVCACHE_SIZE=" + size_,
        "NVCACHE_FRAMES=" + frames_,
        options_.disk ? "NVCACHE_EMULATE=0" : "NVCACHE_EMULATE=1",
        "NVCACHE_REQUIRED=1",
        exclusive_ ? "NVCACHE_EXCLUSIVE=*" : "NVCACHE_WRITE_BACK=always"};
    if (!options_.built_in) settings.push_back("LD_PRELOAD=" + options_.preload);
    return settings;
  }

  std::vector<std::string> Writer(int pipe, uint64_t round) const {
    return {
        options_.writer, folder_, std::to_string(pipe), std::to_string(options_.seed),
        std::to_string(round), std::to_string(options_.threads),
        // By then what is exclusive is cached, whether its folder's names are in the log or not.
        exclusive_ ? "70" : "0"};
  }

  // Runs the writer; kills it after `life`, counted from its first record if `after_first`.
  // Without `life`, waits for its end. All its records.
  int RunWriter(bool cached, uint64_t round, std::optional<microseconds> life, bool after_first,
                uint64_t writes, std::vector<Record>* records) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
    ::fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
    std::vector<std::string> command = Writer(ends[1], round);
    if (!life) command.push_back(std::to_string(writes));
    const bool as_it_is = cached && options_.built_in;
    Child writer(cached && !as_it_is ? Cached(command) : command,
                 as_it_is ? Settings() : std::vector<std::string>(), ends[1], pools_ / "output");
    ::close(ends[1]);

    std::optional<Clock::time_point> deadline;
    if (life && !after_first) deadline = Clock::now() + *life;
    std::thread killer;
    std::string bytes;
    char chunk[1 << 16];
    for (;;) {
      if (deadline && !killer.joinable()) {
        killer = std::thread([&writer, when = *deadline] {
          std::this_thread::sleep_until(when);
          writer.Kill();
        });
      }
      const ssize_t n = ::read(ends[0], chunk, sizeof chunk);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      bytes.append(chunk, static_cast<size_t>(n));
      if (life && !deadline) deadline = Clock::now() + *life;
    }
    if (killer.joinable()) killer.join();
    ::close(ends[0]);
    records->resize(bytes.size() / sizeof(Record));
    std::memcpy(static_cast<void*>(records->data()), bytes.data(),
                records->size() * sizeof(Record));
    return writer.Wait();
  }

  bool Round(int round, std::string* why) {
    fs::remove(pools_ / "output");
    // Mostly while it writes, sometimes while it starts; now and then with a full log.
    const bool after_first = random_.Below(10) != 0;
    const uint64_t most = !after_first ? 20000 : random_.Below(4) == 0 ? 400000 : 100000;
    const microseconds life(random_.Below(most));
    std::vector<Record> records;
    const int status =
        RunWriter(true, static_cast<uint64_t>(round), life, after_first, 0, &records);
    if (status != kKilled) {
      *why = "the writer ended with exit code " + std::to_string(status) + " before it was killed";
      return false;
    }
    if (!model_->Take(records, why)) return false;

    const auto way = static_cast<Recovery>(round % 2 == 1         ? 1
                                           : (round / 2) % 3 == 0 ? 0
                                           : (round / 2) % 3 == 1 ? 2
                                                                  : 3);
    int killed = 0;
    // A pool that the writer was killed before it had made needs no recovery.
    if (!records.empty()) {
      if (!fs::exists(pools_ / "pool")) {
        *why = "the writer wrote, and made no pool: it runs without the cache";
        return false;
      }
      if (!Recover(way, &killed, why)) return false;
    }
    recoveries_killed_ += killed;
    static constexpr const char* kNames[] = {"nvcache recover", "nvcache recover, killed",
                                             "nvcache run", "the library"};
    std::printf("round %2d: %6zu records, %s", round, records.size(),
                kNames[static_cast<int>(way)]);
    if (killed > 0) std::printf(" (%d times)", killed);
    std::printf("\n");
    std::fflush(stdout);
    return model_->Verify(folder_, why);
  }

  bool Recover(Recovery way, int* killed, std::string* why) {
    const std::vector<std::string> recover = {options_.nvcache, "recover", pools_ / "pool"};
    if (way == Recovery::kCommandKilled) {
      for (int attempt = 0; attempt < 4; ++attempt) {
        const microseconds life(
            random_.Below(static_cast<uint64_t>(std::max<int64_t>(recovery_time_.count(), 2000))));
        Child child(recover, {}, -1, pools_ / "output");
        std::this_thread::sleep_for(life);  // the moment of the kill is what is tested
        child.Kill();
        const int status = child.Wait();
        if (status == kKilled) ++*killed;
        if (status != kKilled && status != 0) {
          *why = "nvcache recover, about to be killed: exit code " + std::to_string(status);
          return false;
        }
        if (random_.Below(3) == 0) break;
      }
    }
    std::vector<std::string> command = recover;
    std::vector<std::string> environment;
    if (way == Recovery::kRun) command = Cached({"true"});
    if (way == Recovery::kLibrary) {
      command = {"true"};
      if (options_.built_in) {
        command = Writer(STDOUT_FILENO, 0);
        command.emplace_back("0");  // writes
      }
      environment = Settings();
    }
    const auto start = Clock::now();
    Child child(command, environment, -1, pools_ / "output");
    const int status = child.Wait();
    if (way == Recovery::kCommand) {
      recovery_time_ = std::chrono::duration_cast<microseconds>(Clock::now() - start);
    }
    if (status != 0) {
      *why = "recovery: exit code " + std::to_string(status);
      return false;
    }
    // Once more: a clean pool is left alone.
    if (random_.Below(4) == 0) {
      Child again(recover, {}, -1, pools_ / "output");
      if (const int code = again.Wait(); code != 0) {
        *why = "recovery of a clean pool: exit code " + std::to_string(code);
        return false;
      }
    }
    return true;
  }

  const Options options_;
  Random random_;
  const fs::path folder_;
  const fs::path pools_;
  std::optional<Model> model_;
  std::string size_;
  std::string frames_;
  bool exclusive_ = false;  // and hot, or each file is cached from its first open for writing
  microseconds recovery_time_{20000};
  uint64_t acknowledged_ = 0;
  uint64_t in_flight_ = 0;
  uint64_t in_flight_found_ = 0;
  int recoveries_killed_ = 0;
  bool failed_ = false;
};

bool Overlap(const Record& a, const Record& b) {
  return a.file == b.file && a.offset < b.offset + b.length && b.offset < a.offset + a.length;
}

// Of a write into a region file, or the race file.
std::string BytesOf(const Record& write) {
  std::vector<uint8_t> content(write.length);
  if (write.file != kRaceFile) {
    content = Content(write.id, write.length);
  } else {
    for (uint64_t i = 0; i < write.length / 8; ++i) {
      const uint64_t word = RaceWord(write.id, write.offset / 8 + i);
      std::memcpy(content.data() + 8 * i, &word, 8);
    }
  }
  return {content.begin(), content.end()};
}

bool Driver::SelfCheck() {
  std::printf("seed %llu\n", static_cast<unsigned long long>(options_.seed));
  std::vector<Record> records;
  std::string why;
  if (RunWriter(false, 1, std::nullopt, false, 400, &records) != 0 || records.empty()) {
    std::printf("the writer failed\n");
    return false;
  }
  Model model(options_.threads);
  if (!model.Take(records, &why)) {
    std::printf("%s\n", why.c_str());
    return false;
  }
  // Each damage on its own, to the whole files.
  const auto verify = [&] {
    Model copy = model;
    why.clear();
    return copy.Verify(folder_, &why);
  };
  if (!verify()) {
    std::printf("the undamaged files do not pass: %s\n", why.c_str());
    return false;
  }
  bool good = true;
  const auto must_fail = [&](const char* name, unsigned file, auto damage) {
    const fs::path path = folder_ / FileName(file);
    const std::string whole = kit::Slurp(path);
    std::string bytes = whole;
    damage(bytes);
    Spit(path, bytes);
    const bool passed = bytes != whole && verify();
    std::printf("%-34s %s\n", name,
                bytes == whole ? "did no damage"
                : passed       ? "NOT FOUND"
                               : why.c_str());
    good = good && bytes != whole && !passed;
    Spit(path, whole);
  };
  const auto flip_middle = [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; };
  const auto cut = [](std::string& bytes) { bytes.pop_back(); };
  const auto longer = [](std::string& bytes) { bytes.push_back('\0'); };
  for (const unsigned file : {0u, kRaceFile, kFirstAppendFile, kFirstStreamFile}) {
    must_fail(("flipped bit, " + FileName(file)).c_str(), file, flip_middle);
    must_fail(("one byte less, " + FileName(file)).c_str(), file, cut);
    must_fail(("one byte more, " + FileName(file)).c_str(), file, longer);
  }

  // An older write on top of one that began when it had returned: the first that leaves a trace.
  const auto older_on_top = [&](uint32_t file, std::string& bytes) {
    const std::string whole = bytes;
    for (size_t older = 0; older < records.size() && bytes == whole; ++older) {
      if (records[older].kind != Record::kEnd || records[older].file != file) continue;
      const bool is_older =
          std::any_of(records.begin() + static_cast<std::ptrdiff_t>(older), records.end(),
                      [&](const Record& newer) {
                        return newer.kind == Record::kBegin && Overlap(newer, records[older]);
                      });
      if (is_older)
        bytes.replace(records[older].offset, records[older].length, BytesOf(records[older]));
    }
  };
  must_fail("wrong order, region0", 0, [&](std::string& bytes) { older_on_top(0, bytes); });
  must_fail("wrong order, race", kRaceFile,
            [&](std::string& bytes) { older_on_top(kRaceFile, bytes); });

  // Records of an append file.
  const auto record_size = [](const std::string& bytes, size_t at) {
    AppendHeader header;
    std::memcpy(&header, bytes.data() + at, sizeof header);
    return sizeof header + header.payload;
  };
  must_fail("first record lost, append0", kFirstAppendFile,
            [&](std::string& bytes) { bytes.erase(0, record_size(bytes, 0)); });
  must_fail("first record twice, append0", kFirstAppendFile,
            [&](std::string& bytes) { bytes += bytes.substr(0, record_size(bytes, 0)); });
  must_fail("first record last, append0", kFirstAppendFile, [&](std::string& bytes) {
    const size_t n = record_size(bytes, 0);
    bytes = bytes.substr(n) + bytes.substr(0, n);
  });

  // A write of which the end record never came may be missing, but not be there in part.
  // It is one that nothing has been written over, and long enough to differ from what was there.
  constexpr uint64_t kLong = 64;
  std::vector<Record> shorter = records;
  const auto last = std::find_if(shorter.rbegin(), shorter.rend(), [&](const Record& end) {
    return end.kind == Record::kEnd && end.file < kRegionFiles && end.length >= kLong &&
           std::none_of(shorter.rbegin(), shorter.rend(),
                        [&](const Record& other) { return &other > &end && Overlap(other, end); });
  });
  if (last == shorter.rend()) {
    std::printf("no write is the last one in its place\n");
    return false;
  }
  const Record in_flight = *last;
  shorter.erase(std::next(last).base());
  model = Model(options_.threads);
  if (!model.Take(shorter, &why) || !verify()) {
    std::printf("a whole write in flight does not pass: %s\n", why.c_str());
    return false;
  }
  must_fail("in flight, torn", in_flight.file,
            [&](std::string& bytes) { bytes[in_flight.offset + in_flight.length - 1] ^= 1; });
  return good;
}

int Main(int argc, char** argv) {
  Options options;
  options.seed = std::random_device()();
  CLI::App app(
      "Kills a writer at random moments, recovers, and looks for every acknowledged write.");
  app.add_option("--nvcache", options.nvcache, "the nvcache command")->required();
  CLI::Option* preload = app.add_option("--preload", options.preload, "libnvcache.so");
  app.add_flag("--built-in", options.built_in,
               "the writer's libc has the cache: it is started as it is")
      ->excludes(preload);
  app.add_option("--writer", options.writer, "kill_writer")->required();
  app.add_option("--scratch", options.scratch, "a folder on a disk file system")->required();
  app.add_option("--seed", options.seed, "repeats the random choices of a run");
  app.add_option("--rounds", options.rounds, "kills");
  app.add_option("--threads", options.threads, "of the writer")->check(CLI::Range(1u, kMaxThreads));
  app.add_flag("--disk", options.disk, "the pool has its journal there");
  app.add_flag("--self-check", options.self_check, "damage good files: is it found?");
  CLI11_PARSE(app, argc, argv);
  if (options.preload.empty() && !options.built_in && !options.self_check) {
    std::fprintf(stderr, "kill_driver: no cache: give --preload or --built-in\n");
    return 2;
  }
  Driver driver(options);
  return (options.self_check ? driver.SelfCheck() : driver.Run()) ? 0 : 1;
}

}  // namespace
}  // namespace nvcache::kill_test

int main(int argc, char** argv) { return nvcache::kill_test::Main(argc, argv); }
