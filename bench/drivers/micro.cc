// SPDX-License-Identifier: BSD-3-Clause
//
// Measures what one call costs. An ordinary program: who starts it chooses what its calls meet
// (bench/suites/micro.py).
//
//   nvcache_micro FOLDER [--warm=BYTES] SPEC...
//
// A SPEC is one measurement, words with commas between: `op=pwrite,size=4096,calls=10000`.
//
//   op=pwrite    at random multiples of `size` within `area`
//   op=pwritev   the same, from `buffers` pieces
//   op=append    write() with O_APPEND to an empty file
//   op=pread     as pwrite; of bytes that were written before
//   op=dirty     pread of pages that were written a moment before, each once
//   op=mixed     three pwrites to seven preads
//   op=limit     what durability costs on this memory whoever pays it, without file or lock: copy
//                the payload around the cache, header, PWB, PFENCE, commit word, PWB, PSYNC.
//                `fences=1`: header with commit word, PWB, PSYNC; a checksum would have to tell
//   size, calls (of each thread, in each round), rounds, area (bytes, of all threads), threads,
//   own=1        a file for each thread; else one, of which each thread has its part
//   sync=1       fdatasync() after each call
//   hot=1        all of the file was read before
//   percentiles=1   one more round, in which each call is timed
//
// Every file has its full size and is on disk before the calls are timed; and before each round
// sync() is called, which empties NVCache's log. --warm writes so many bytes to some pages before
// anything else: a lap of the log, whose memory is then mapped.
//
// Prints a line of JSON for each SPEC. `ns` is the median of batches of calls; `rate` counts all
// calls of all threads from the first's beginning to the last's end, the median of the rounds. The
// time of each call that is timed is less what timing nothing takes. `faults` are the page faults
// of all rounds. If NVCACHE_POOL names a pool, `counters` says by how much its counters grew. Ends
// with status 1 when a file does not have the bytes that were written.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/pmem/persist.h"
#include "src/pool/format.h"

namespace nvcache::bench {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kChunk = 1u << 20;
constexpr int kMostWarmUps = 5;
// By the default rule, bytes go to the log of a file that was synced so often.
constexpr int kSyncsUntilHot = 3;
constexpr uint64_t kStamp = sizeof(uint64_t);
constexpr uint64_t kNever = ~uint64_t{0};

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "nvcache_micro: %s\n", what.c_str());
  std::_Exit(1);
}
[[noreturn]] void DieErrno(const std::string& what) { Die(what + ": " + std::strerror(errno)); }

struct Spec {
  explicit Spec(std::string text) {
    while (!text.empty()) {
      const std::string word = text.substr(0, text.find(','));
      text.erase(0, word.size() + 1);
      const size_t equals = word.find('=');
      if (equals == std::string::npos) Die(word + ": not NAME=VALUE");
      const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
      if (name == "op") {
        op = value;
      } else if (const auto found = numbers.find(name); found != numbers.end()) {
        *found->second = std::strtoull(value.c_str(), nullptr, 10);
      } else {
        Die(word + ": no such word");
      }
    }
    if (size < kStamp || calls == 0 || threads == 0 || rounds == 0 || area / threads < size) {
      Die("a SPEC with such numbers says nothing");
    }
  }
  Spec(const Spec&) = delete;
  Spec& operator=(const Spec&) = delete;

  uint64_t region() const { return area / threads; }  // bytes that a thread has for itself
  uint64_t batch() const { return std::clamp<uint64_t>(calls / 128, 1, 256); }

  std::string op;
  uint64_t size = kPage, calls = 0, rounds = 1, area = 64u << 20, threads = 1, buffers = 1;
  uint64_t fences = 2, own = 0, sync = 0, hot = 0, percentiles = 0;

 private:
  std::map<std::string, uint64_t*> numbers = {
      {"size", &size},       {"calls", &calls},     {"rounds", &rounds},          {"area", &area},
      {"threads", &threads}, {"buffers", &buffers}, {"fences", &fences},          {"own", &own},
      {"sync", &sync},       {"hot", &hot},         {"percentiles", &percentiles}};
};

class Random {
 public:
  explicit Random(uint64_t seed) : state_(88172645463325252u + seed * 0x9e3779b97f4a7c15u) {}
  uint64_t Next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

 private:
  uint64_t state_;
};

// Every page begins with its offset, and every byte was written.
class File {
 public:
  File(const std::string& path, uint64_t size, int flags)
      : path_(path), fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | flags, 0600)) {
    if (fd_ < 0) DieErrno(path);
    std::vector<char> chunk(kChunk, 'x');
    for (uint64_t at = 0; at < size; at += kChunk) {
      const uint64_t n = std::min(kChunk, size - at);
      for (uint64_t page = 0; page < n; page += kPage) {
        const uint64_t stamp = at + page;
        std::memcpy(chunk.data() + page, &stamp, kStamp);
      }
      Write(chunk.data(), n, at);
    }
  }
  ~File() {
    ::close(fd_);
    ::unlink(path_.c_str());
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int fd() const { return fd_; }
  void Write(const void* bytes, size_t n, uint64_t offset) const {
    if (::pwrite(fd_, bytes, n, static_cast<off_t>(offset)) != static_cast<ssize_t>(n)) {
      DieErrno(path_);
    }
  }
  void Read(void* bytes, size_t n, uint64_t offset) const {
    if (::pread(fd_, bytes, n, static_cast<off_t>(offset)) != static_cast<ssize_t>(n)) {
      DieErrno(path_);
    }
  }
  void ReadAll(uint64_t size) const {
    std::vector<char> chunk(kChunk);
    for (uint64_t at = 0; at < size; at += kChunk) {
      Read(chunk.data(), std::min(kChunk, size - at), at);
    }
  }
  void Sync() const {
    if (::fdatasync(fd_) != 0) DieErrno(path_);
  }
  [[noreturn]] void Wrong(uint64_t offset) const {
    Die(path_ + ": not the bytes that were written at " + std::to_string(offset));
  }

 private:
  std::string path_;
  int fd_;
};

// A thread works with this.
struct Worker {
  Worker(const Spec& spec, const File* its_file, uint64_t index)
      : file(its_file), base(spec.own != 0 ? 0 : index * spec.region()), bytes(spec.size, 'y') {
    Random random(index);
    const uint64_t blocks = spec.region() / spec.size;
    if (spec.op == "dirty") {  // each page once
      for (uint64_t i = 0; i < blocks; ++i) offsets.push_back(base + i * spec.size);
      for (uint64_t i = blocks; i > 1; --i) std::swap(offsets[i - 1], offsets[random.Next() % i]);
      if (spec.calls > blocks) Die("dirty: more calls than pages");
    } else {
      offsets.resize(1u << 15);
      for (uint64_t& offset : offsets) offset = base + random.Next() % blocks * spec.size;
    }
  }

  uint64_t Offset(uint64_t call) const { return offsets[call % offsets.size()]; }
  // The number of the newest bytes at a page of the thread's part.
  uint64_t& Expected(uint64_t offset) { return expected[(offset - base) / kPage]; }
  void Stamp(uint64_t number) { std::memcpy(bytes.data(), &number, kStamp); }
  bool Stamped(uint64_t number) const { return std::memcmp(bytes.data(), &number, kStamp) == 0; }

  const File* file;
  uint64_t base;
  std::vector<char> bytes;
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> expected;  // pread, dirty, mixed: by page
  std::vector<iovec> pieces;
  uint64_t done = 0;                 // calls so far
  char* ring = nullptr;              // limit's
  uint64_t at = 0;                   // in it
  std::vector<double> batches = {};  // ns for one call
  std::vector<uint64_t> ticks = {};  // for one call
  uint64_t begin = 0, end = 0;       // ns
};

uint64_t Now() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

uint64_t Ticks() {
  _mm_lfence();
  const uint64_t now = __rdtsc();
  _mm_lfence();
  return now;
}

// The nanoseconds of a tick, and the ticks that timing nothing takes.
struct Clock {
  Clock() {
    std::vector<uint64_t> costs(10001);
    const uint64_t ns = Now(), ticks = Ticks();
    for (uint64_t& nothing : costs) {
      const uint64_t before = Ticks();
      nothing = Ticks() - before;
    }
    while (Now() - ns < 20'000'000) {
    }
    per_tick = static_cast<double>(Now() - ns) / static_cast<double>(Ticks() - ticks);
    std::nth_element(costs.begin(), costs.begin() + 5000, costs.end());
    cost = costs[5000];
  }
  double per_tick;
  uint64_t cost;
};

template <typename Number>
Number Quantile(std::vector<Number>& numbers, double share) {
  const auto nth =
      numbers.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(numbers.size() - 1));
  std::nth_element(numbers.begin(), nth, numbers.end());
  return *nth;
}

// One thread's calls of one round.
template <typename Call>
void Round(const Spec& spec, Worker& worker, bool each, Call call) {
  worker.begin = Now();
  if (each) {
    for (uint64_t i = 0; i < spec.calls; ++i) {
      const uint64_t before = Ticks();
      call(worker);
      worker.ticks[i] = Ticks() - before;
      ++worker.done;
    }
  } else {
    uint64_t left = spec.calls, before = worker.begin;
    while (left > 0) {
      const uint64_t batch = std::min(left, spec.batch());
      for (uint64_t i = 0; i < batch; ++i) {
        call(worker);
        ++worker.done;
      }
      const uint64_t now = Now();
      worker.batches.push_back(static_cast<double>(now - before) / static_cast<double>(batch));
      before = now;
      left -= batch;
    }
  }
  worker.end = Now();
}

// Of the whole process, those of the cleanup thread as well.
uint64_t Faults() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_minflt);
}

class Counters {
 public:
  bool there() const { return path_ != nullptr; }
  // The first file that is cached makes the pool; until then, nothing was counted.
  pool::Statistics Get() const {
    pool::Statistics now = {};
    if (path_ == nullptr) return now;
    const int fd = ::open(path_, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return now;
    if (fd < 0 || ::pread(fd, &now, sizeof now, pool::kStatisticsOffset) != sizeof now) {
      DieErrno(path_);
    }
    ::close(fd);
    return now;
  }

 private:
  const char* path_ = std::getenv("NVCACHE_POOL");
};

// One SPEC.
class Measurement {
 public:
  Measurement(const Spec& spec, const Clock& clock, const Counters& counters,
              const std::string& folder)
      : spec_(spec), clock_(clock), counters_(counters) {
    workers_.reserve(spec.threads);
    const bool limit = spec.op == "limit", append = spec.op == "append";
    if (limit) MapRing(folder);
    for (uint64_t i = 0; i < spec.threads; ++i) {
      if (!limit && (i == 0 || spec.own != 0)) {
        const uint64_t size = append ? 0 : spec.own != 0 ? spec.region() : spec.area;
        files_.push_back(std::make_unique<File>(folder + "/micro" + std::to_string(i), size,
                                                append ? O_APPEND : 0));
        if (spec.hot != 0) files_.back()->ReadAll(size);
      }
      workers_.emplace_back(spec, limit ? nullptr : files_.back().get(), i);
      Worker& worker = workers_.back();
      if (limit) worker.ring = ring_ + i * spec.region();
      if (spec.op == "pread" || spec.op == "dirty" || spec.op == "mixed") {
        if (spec.size != kPage) Die("reads are of whole pages");
        for (uint64_t at = 0; at < spec.region(); at += kPage) {
          worker.expected.push_back(worker.base + at);
        }
      }
    }
    for (Worker& worker : workers_) {  // where they are now
      const uint64_t piece = spec.size / spec.buffers;
      for (uint64_t at = 0; at < spec.size; at += piece) {
        worker.pieces.push_back({worker.bytes.data() + at, std::min(piece, spec.size - at)});
      }
    }
  }
  ~Measurement() {
    if (ring_ != nullptr) ::munmap(ring_, spec_.area);
  }
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  void Run() {
    const File* file = files_.empty() ? nullptr : files_[0].get();
    const bool sync = spec_.sync != 0;
    if (spec_.op == "pwrite") {
      Passes([sync](Worker& worker) {
        worker.Stamp(worker.done);
        worker.file->Write(worker.bytes.data(), worker.bytes.size(), worker.Offset(worker.done));
        if (sync) worker.file->Sync();
      });
    } else if (spec_.op == "pwritev") {
      Passes([sync](Worker& worker) {
        worker.Stamp(worker.done);
        const auto offset = static_cast<off_t>(worker.Offset(worker.done));
        if (::pwritev(worker.file->fd(), worker.pieces.data(),
                      static_cast<int>(worker.pieces.size()),
                      offset) != static_cast<ssize_t>(worker.bytes.size())) {
          DieErrno("pwritev");
        }
        if (sync) worker.file->Sync();
      });
    } else if (spec_.op == "append") {
      Passes([sync](Worker& worker) {
        worker.Stamp(worker.done);
        if (::write(worker.file->fd(), worker.bytes.data(), worker.bytes.size()) !=
            static_cast<ssize_t>(worker.bytes.size())) {
          DieErrno("write");
        }
        if (sync) worker.file->Sync();
      });
    } else if (spec_.op == "pread" || spec_.op == "dirty") {
      Passes([](Worker& worker) { ReadAndCheck(worker, worker.Offset(worker.done)); });
    } else if (spec_.op == "mixed") {
      Passes([sync](Worker& worker) {
        const uint64_t offset = worker.Offset(worker.done);
        if (worker.done % 10 >= 3) return ReadAndCheck(worker, offset);
        worker.Stamp(worker.done);
        worker.Expected(offset) = worker.done;
        worker.file->Write(worker.bytes.data(), kPage, offset);
        if (sync) worker.file->Sync();
      });
    } else if (spec_.op == "limit" && spec_.fences == 2) {
      Passes([this](Worker& worker) { Persist<2>(worker); });
    } else if (spec_.op == "limit" && spec_.fences == 1) {
      Passes([this](Worker& worker) { Persist<1>(worker); });
    } else {
      Die(spec_.op + ": no such op");
    }
    if (file != nullptr && spec_.op != "pread") Verify();
  }

  void Print() {
    std::vector<double> batches;
    for (const Worker& worker : workers_) {
      batches.insert(batches.end(), worker.batches.begin(), worker.batches.end());
    }
    std::printf("{\"ns\": %.2f, \"rate\": %.1f, \"timing\": %.2f, \"written\": %" PRIu64
                ", \"faults\": %" PRIu64,
                Quantile(batches, 0.5), Quantile(rates_, 0.5),
                clock_.per_tick * static_cast<double>(clock_.cost), Written(), faults_);
    constexpr struct {
      const char* name;
      double share;
      size_t calls;  // from so many on, ten lie above
    } kQuantiles[] = {
        {"p50", .5, 20}, {"p99", .99, 1000}, {"p999", .999, 10000}, {"p9999", .9999, 100000}};
    for (const auto& quantile : kQuantiles) {
      if (ticks_.size() < quantile.calls) break;
      const uint64_t ticks = Quantile(ticks_, quantile.share);
      std::printf(", \"%s\": %.2f", quantile.name,
                  clock_.per_tick * static_cast<double>(ticks - std::min(ticks, clock_.cost)));
    }
    if (counters_.there()) {
      std::printf(", \"counters\": {\"bytes_cleaned\": %" PRIu64 ", \"full_waits\": %" PRIu64
                  ", \"misses\": %" PRIu64 ", \"dirty_misses\": %" PRIu64 "}",
                  after_.bytes_cleaned - before_.bytes_cleaned,
                  after_.full_waits - before_.full_waits, after_.misses - before_.misses,
                  after_.dirty_misses - before_.dirty_misses);
    }
    std::printf("}\n");
    std::fflush(stdout);
  }

 private:
  // pmem_memcpy of <libpmem.h>, and its flag for "flush, but no fence".
  using PmemMemcpy = void* (*)(void*, const void*, size_t, unsigned);
  static constexpr unsigned kNoDrain = 1u << 0;
  static PmemMemcpy FindCopy() {
    void* library = ::dlopen("libpmem.so.1", RTLD_NOW | RTLD_LOCAL);
    void* function = library != nullptr ? ::dlsym(library, "pmem_memcpy") : nullptr;
    if (function == nullptr) Die("libpmem.so.1 cannot be loaded; install libpmem1");
    return reinterpret_cast<PmemMemcpy>(function);
  }

  void MapRing(const std::string& folder) {
    copy_ = FindCopy();
    const std::string path = folder + "/limit";
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(spec_.area)) != 0) DieErrno(path);
    void* mapped = ::mmap(nullptr, spec_.area, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) DieErrno(path);
    ::close(fd);
    ::unlink(path.c_str());
    ring_ = static_cast<char*>(mapped);
    std::memset(ring_, 0, spec_.area);
  }

  static void ReadAndCheck(Worker& worker, uint64_t offset) {
    worker.file->Read(worker.bytes.data(), kPage, offset);
    if (!worker.Stamped(worker.Expected(offset))) worker.file->Wrong(offset);
  }

  template <int fences>
  void Persist(Worker& worker) const {
    using pmem::Step;
    const size_t lines = (spec_.size + pmem::kLine - 1) / pmem::kLine;
    const size_t slot = (1 + lines) * pmem::kLine;
    if (worker.at + slot > spec_.region()) worker.at = 0;
    char* place = worker.ring + worker.at;
    auto* header = reinterpret_cast<volatile uint64_t*>(place);
    copy_(place + pmem::kLine, worker.bytes.data(), spec_.size, kNoDrain);
    for (int word = 1; word < 8; ++word) header[word] = worker.done;
    if constexpr (fences == 2) {
      pmem::Pwb(place, pmem::kLine, Step::kGroupHeaders);
      pmem::Pfence(Step::kCommitted);
    }
    header[0] = worker.done + 1;
    pmem::Pwb(place, sizeof *header, Step::kCommit);
    pmem::Psync(Step::kCommitted);
    worker.at += slot;
  }

  // Every page anew, in the log and nowhere else.
  void MakeDirty(Worker& worker) {
    std::vector<char> page(kPage, 'd');
    ++dirty_laps_;
    for (const uint64_t offset : worker.offsets) {
      const uint64_t stamp = ++worker.Expected(offset);
      std::memcpy(page.data(), &stamp, kStamp);
      worker.file->Write(page.data(), kPage, offset);
    }
    worker.done = 0;
  }

  template <typename Call>
  void Pass(bool each, Call call) {
    if (each) {
      for (Worker& worker : workers_) worker.ticks.resize(spec_.calls);
    }
    for (Worker& worker : workers_) {
      worker.batches.reserve(worker.batches.size() + spec_.calls / spec_.batch() + 1);
    }
    ::sync();
    if (spec_.op == "dirty") {
      for (Worker& worker : workers_) MakeDirty(worker);
    }
    std::atomic<uint64_t> ready{0};
    std::vector<std::thread> others;
    const auto run = [&](Worker& worker) {
      ready.fetch_add(1);
      while (ready.load() < spec_.threads) std::this_thread::yield();
      Round(spec_, worker, each, call);
    };
    for (uint64_t i = 1; i < spec_.threads; ++i) others.emplace_back(run, std::ref(workers_[i]));
    run(workers_[0]);
    for (std::thread& other : others) other.join();
    uint64_t begin = workers_[0].begin, end = workers_[0].end;
    for (const Worker& worker : workers_) {
      begin = std::min(begin, worker.begin);
      end = std::max(end, worker.end);
    }
    if (!each) {
      rates_.push_back(static_cast<double>(spec_.calls * spec_.threads) * 1e9 /
                       static_cast<double>(end - begin));
    }
  }

  template <typename Call>
  void Passes(Call call) {
    ::sync();
    before_ = counters_.Get();
    faults_ = Faults();
    for (uint64_t round = 0; round < spec_.rounds; ++round) Pass(false, call);
    if (spec_.percentiles != 0) Pass(true, call);
    faults_ = Faults() - faults_;
    ::sync();
    after_ = counters_.Get();
    for (const Worker& worker : workers_) {
      ticks_.insert(ticks_.end(), worker.ticks.begin(), worker.ticks.end());
    }
  }

  // Bytes, between the first round and the last.
  uint64_t Written() const {
    if (spec_.op == "pread") return 0;
    if (spec_.op == "dirty") return dirty_laps_ * spec_.region();
    uint64_t calls = 0;
    for (const Worker& worker : workers_) {
      calls += spec_.op != "mixed" ? worker.done
                                   : worker.done / 10 * 3 + std::min<uint64_t>(worker.done % 10, 3);
    }
    return calls * spec_.size;
  }

  // Every block has the bytes of the last call that wrote it.
  void Verify() {
    std::vector<char> found(spec_.size);
    for (Worker& worker : workers_) {
      // The number that each block's newest bytes begin with.
      std::vector<uint64_t> last = worker.expected;
      const bool whole = last.empty();  // else the blocks' other bytes are of several kinds
      if (whole) {
        last.assign(spec_.op == "append" ? worker.done : spec_.region() / spec_.size, kNever);
        for (uint64_t i = 0; i < worker.done; ++i) {
          last[spec_.op == "append" ? i : (worker.Offset(i) - worker.base) / spec_.size] = i;
        }
      }
      for (uint64_t i = 0; i < last.size(); ++i) {
        if (last[i] == kNever) continue;
        const uint64_t offset = worker.base + i * spec_.size;
        worker.file->Read(found.data(), found.size(), offset);
        worker.Stamp(last[i]);
        if (std::memcmp(found.data(), worker.bytes.data(), whole ? spec_.size : kStamp) != 0) {
          worker.file->Wrong(offset);
        }
      }
    }
  }

  const Spec& spec_;
  const Clock& clock_;
  const Counters& counters_;
  std::vector<std::unique_ptr<File>> files_;
  std::vector<Worker> workers_;
  char* ring_ = nullptr;
  PmemMemcpy copy_ = nullptr;
  uint64_t dirty_laps_ = 0;
  std::vector<double> rates_;
  std::vector<uint64_t> ticks_;
  pool::Statistics before_ = {}, after_ = {};
  uint64_t faults_ = 0;
};

// Bytes of the pool that this process has mapped and touched.
uint64_t Resident(const std::string& pool) {
  std::ifstream smaps("/proc/self/smaps");
  uint64_t bytes = 0;
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.ends_with(pool)) inside = true;
    if (!inside || !line.starts_with("Rss:")) continue;
    bytes += std::strtoull(line.c_str() + 4, nullptr, 10) * 1024;
    inside = false;
  }
  return bytes;
}

// Until all of the pool's memory was used once, for that of an NVMM is always there. A log takes
// first what was freed last; so what is written has to wait for the disk, all of it at a time.
void WarmUp(const std::string& folder, uint64_t bytes) {
  const char* pool = std::getenv("NVCACHE_POOL");
  if (pool == nullptr) Die("--warm without NVCACHE_POOL");
  const std::vector<char> chunk(kChunk, 'w');
  for (int turn = 0; Resident(pool) < bytes - bytes / 16; ++turn) {
    if (turn == kMostWarmUps) Die("the pool does not fill");
    const File file(folder + "/warm", 0, 0);
    for (int i = 0; i < kSyncsUntilHot; ++i) file.Sync();
    for (uint64_t at = 0; at < bytes; at += kChunk) file.Write(chunk.data(), kChunk, at);
    ::sync();
  }
}

int Main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: nvcache_micro FOLDER [--warm=BYTES] SPEC...\n");
    return 2;
  }
  const std::string folder = argv[1];
  pmem::Initialize();
  const Clock clock;
  const Counters counters;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("--warm=")) {
      WarmUp(folder, std::strtoull(word.c_str() + 7, nullptr, 10));
      continue;
    }
    const Spec spec(word);
    Measurement measurement(spec, clock, counters, folder);
    measurement.Run();
    measurement.Print();
  }
  return 0;
}

}  // namespace
}  // namespace nvcache::bench

int main(int argc, char** argv) { return nvcache::bench::Main(argc, argv); }
