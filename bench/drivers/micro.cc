// SPDX-License-Identifier: BSD-3-Clause
//
// One write, one read: what they cost with NVCache, and what the same costs elsewhere.
//
//   nvcache_micro [--folder=DIR] [--only=others|nvcache] [--short] [Google Benchmark's options]
//
//   persist_limit    what durability on this memory costs whoever pays it: copy the payload around
//                    the cache, header with the commit word last, PWB, PSYNC. No file, no lock.
//   nvcache_pwrite   pwrite() of this very program under libnvcache.so; the pages are not in the
//                    DRAM cache
//   nvcache_pwrite_hot   the same, with the pages in the DRAM cache, which is then updated, too
//   tmpfs_pwrite, disk_pwrite, disk_pwrite_fdatasync
//   nvcache_pread, disk_pread   4 KiB, from the DRAM cache and from the page cache; random pages
//   out
//                    of so many bytes (1 MiB: they are in the processor's caches; 64 MiB: in
//                    memory)
//
// The numbers are wall time per call. Everything is warm: the pool's pages are mapped, the files
// exist at their full size, and each benchmark starts with an empty log, which is larger than what
// the benchmark writes. Offsets are random multiples of the block size within 64 MiB.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "libc-shim/glibc/host.h"
#include "src/pmem/persist.h"
#include "src/pool/pool.h"

namespace nvcache::bench {
namespace {

constexpr uint64_t kFileSize = 64u << 20;
constexpr uint64_t kPoolSize = 1u << 30;
constexpr const char* kPoolSizeText = "1G";
constexpr const char* kDramText = "256M";
constexpr const char* kInnerVariable = "MICRO_UNDER_NVCACHE";

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "nvcache_micro: %s: %s\n", what.c_str(), std::strerror(errno));
  std::_Exit(1);
}

struct Options {
  std::string folder = ".";
  std::string only;
  bool brief = false;
};

// Multiples of `size` within the file, in an order that no prefetcher likes.
std::vector<off_t> Offsets(uint64_t size, uint64_t area = kFileSize) {
  const uint64_t blocks = area / size;
  std::vector<off_t> offsets(1u << 15);
  uint64_t state = 88172645463325252u;
  for (off_t& offset : offsets) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    offset = static_cast<off_t>(state % blocks * size);
  }
  return offsets;
}

// A file of kFileSize with every byte written once.
class File {
 public:
  explicit File(const std::string& path) : path_(path) {
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd_ < 0) Die(path);
    const std::vector<char> chunk(1u << 20, 'x');
    for (uint64_t at = 0; at < kFileSize; at += chunk.size()) {
      Write(chunk.data(), chunk.size(), static_cast<off_t>(at));
    }
    if (::fsync(fd_) != 0) Die(path);
  }
  ~File() {
    ::close(fd_);
    ::unlink(path_.c_str());
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int fd() const { return fd_; }
  void Write(const void* bytes, size_t n, off_t offset) const {
    if (::pwrite(fd_, bytes, n, offset) != static_cast<ssize_t>(n)) Die(path_);
  }
  void Read(void* bytes, size_t n, off_t offset) const {
    if (::pread(fd_, bytes, n, offset) != static_cast<ssize_t>(n)) Die(path_);
  }
  void ReadAll() const {
    std::vector<char> chunk(1u << 20);
    for (uint64_t at = 0; at < kFileSize; at += chunk.size()) {
      Read(chunk.data(), chunk.size(), static_cast<off_t>(at));
    }
  }

 private:
  std::string path_;
  int fd_;
};

void Pwrite(benchmark::State& state, const std::string& path, bool sync, bool hot) {
  const auto size = static_cast<size_t>(state.range(0));
  const File file(path);
  if (hot) file.ReadAll();
  ::sync();  // with NVCache: the log is empty, the cleanup thread idle
  const std::vector<off_t> offsets = Offsets(size);
  const std::vector<char> bytes(size, 'y');
  size_t next = 0;
  for (auto _ : state) {
    file.Write(bytes.data(), size, offsets[next++ % offsets.size()]);
    if (sync && ::fdatasync(file.fd()) != 0) Die(path);
  }
}

void Pread(benchmark::State& state, const std::string& path) {
  constexpr size_t size = 4096;
  const File file(path);
  file.ReadAll();
  ::sync();
  const std::vector<off_t> offsets = Offsets(size, static_cast<uint64_t>(state.range(0)));
  std::vector<char> bytes(size);
  size_t next = 0;
  for (auto _ : state) {
    file.Read(bytes.data(), size, offsets[next++ % offsets.size()]);
    benchmark::DoNotOptimize(bytes.data());
  }
}

void PersistLimit(benchmark::State& state, const std::string& path) {
  using pmem::Step;
  const auto size = static_cast<size_t>(state.range(0));
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || ::ftruncate(fd, kFileSize) != 0) Die(path);
  void* mapped = ::mmap(nullptr, kFileSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) Die(path);
  ::close(fd);
  auto* base = static_cast<char*>(mapped);
  std::memset(base, 0, kFileSize);

  const std::vector<char> bytes(size, 'y');
  const size_t slot = pmem::kLine + (size + pmem::kLine - 1) / pmem::kLine * pmem::kLine;
  size_t at = 0;
  uint64_t count = 0;
  for (auto _ : state) {
    if (at + slot > kFileSize) at = 0;
    auto* header = reinterpret_cast<volatile uint64_t*>(base + at);
    pmem::Copy(base + at + pmem::kLine, bytes.data(), size, Step::kPayload);
    for (int word = 1; word < 8; ++word) header[word] = count;
    header[0] = ++count;
    pmem::Pwb(base + at, pmem::kLine, Step::kCommit);
    pmem::Psync(Step::kCommitted);
    at += slot;
  }
  ::munmap(mapped, kFileSize);
  ::unlink(path.c_str());
}

constexpr int64_t kSizes[] = {64, 512, 4096, 65536};
constexpr int64_t kReadAreas[] = {1 << 20, kFileSize};

int64_t Iterations(int64_t size, bool brief) {
  const int64_t n = size <= 64 ? 131072 : size <= 512 ? 65536 : size <= 4096 ? 32768 : 2048;
  return brief ? n / 64 : n;
}

template <typename Function>
void Register(const std::string& name, int64_t size, int64_t iterations, Function function) {
  benchmark::RegisterBenchmark(name.c_str(), function)
      ->Arg(size)
      ->Iterations(iterations)
      ->UseRealTime();
}

void RegisterOthers(const Options& options, const std::string& memory) {
  const std::string on_disk = options.folder + "/nvcache-micro";
  for (const int64_t size : kSizes) {
    const int64_t n = Iterations(size, options.brief);
    Register("persist_limit", size, n,
             [=](benchmark::State& state) { PersistLimit(state, memory); });
    Register("tmpfs_pwrite", size, n,
             [=](benchmark::State& state) { Pwrite(state, memory, false, false); });
    Register("disk_pwrite", size, n,
             [=](benchmark::State& state) { Pwrite(state, on_disk, false, false); });
    Register("disk_pwrite_fdatasync", size, options.brief ? 10 : 400,
             [=](benchmark::State& state) { Pwrite(state, on_disk, true, false); });
  }
  for (const int64_t area : kReadAreas) {
    Register("disk_pread", area, options.brief ? 2000 : 200000,
             [=](benchmark::State& state) { Pread(state, on_disk); });
  }
}

void RegisterNvcache(const Options& options) {
  const std::string on_disk = options.folder + "/nvcache-micro";
  // The first lap of the log also pays for mapping its pages. This lap is for free.
  Register("warm_up", 65536, kPoolSize / 65536,
           [=](benchmark::State& state) { Pwrite(state, on_disk, false, false); });
  for (const int64_t size : kSizes) {
    const int64_t n = Iterations(size, options.brief);
    Register("nvcache_pwrite", size, n,
             [=](benchmark::State& state) { Pwrite(state, on_disk, false, false); });
    Register("nvcache_pwrite_hot", size, n,
             [=](benchmark::State& state) { Pwrite(state, on_disk, false, true); });
  }
  for (const int64_t area : kReadAreas) {
    Register("nvcache_pread", area, options.brief ? 2000 : 200000,
             [=](benchmark::State& state) { Pread(state, on_disk); });
  }
}

// Runs this program once more, under the preload library. True if its writes went through the log.
bool RunUnderNvcache(char** argv, const std::string& pool_path) {
  char self[4096];
  const ssize_t length = ::readlink("/proc/self/exe", self, sizeof self - 1);
  if (length < 0) Die("/proc/self/exe");
  self[length] = '\0';
  const std::string program = self;
  const std::string library = program.substr(0, program.rfind('/')) + "/libnvcache.so";
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child < 0) Die("fork");
  if (child == 0) {
    ::setenv("LD_PRELOAD", library.c_str(), 1);
    ::setenv("NVCACHE_POOL", pool_path.c_str(), 1);
    ::setenv("NVCACHE_SIZE", kPoolSizeText, 1);
    ::setenv("NVCACHE_DRAM", kDramText, 1);
    ::setenv("NVCACHE_EMULATE", "1", 1);
    ::setenv("NVCACHE_REQUIRED", "1", 1);
    ::setenv(kInnerVariable, "1", 1);
    ::execv(self, argv);
    Die(program);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return false;

  pool::Pool pool;
  pool::Problem problem;
  if (!pool.Open(pool_path.c_str(), pool::Access::kInspect, true, nullptr, &problem)) {
    std::fprintf(stderr, "nvcache_micro: %s\n", problem.text.c_str());
    return false;
  }
  const pool::Statistics& counters = *pool.view().statistics();
  const bool used = pool::Peek(counters.entries_cleaned) > 0;
  if (!used) std::fprintf(stderr, "nvcache_micro: nothing went through the log\n");
  pool.Close();
  return used;
}

int Main(int argc, char** argv) {
  Options options;
  const std::vector<char*> arguments(argv, argv + argc);
  std::vector<char*> original = arguments;
  original.push_back(nullptr);
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.substr(0, 9) == "--folder=") {
      options.folder = argument.substr(9);
    } else if (argument.substr(0, 7) == "--only=") {
      options.only = argument.substr(7);
    } else if (argument == "--short") {
      options.brief = true;
    } else {
      argv[kept++] = argv[i];
    }
  }
  argv[kept] = nullptr;
  argc = kept;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv) ||
      (!options.only.empty() && options.only != "others" && options.only != "nvcache")) {
    return 2;
  }

  if (std::getenv(kInnerVariable) != nullptr) {
    RegisterNvcache(options);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
  }
  const std::string memory = "/dev/shm/nvcache-test-micro-" + std::to_string(::getpid());
  if (options.only != "nvcache") {
    pmem::Initialize(GlibcHost().load_libpmem());
    RegisterOthers(options, memory);
    benchmark::RunSpecifiedBenchmarks();
  }
  bool good = true;
  if (options.only != "others") {
    good = RunUnderNvcache(original.data(), memory);
    ::unlink(memory.c_str());
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace nvcache::bench

int main(int argc, char** argv) { return nvcache::bench::Main(argc, argv); }
