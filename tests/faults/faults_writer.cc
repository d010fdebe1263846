// SPDX-License-Identifier: BSD-3-Clause
//
// Writes, reads back and syncs, until it is told to end or killed; and keeps a model of what was
// acknowledged. An ordinary POSIX program: it knows nothing of NVCache.
//
//   faults_writer SEED MODELS FILE BYTES [FILE BYTES]...
//
// One thread for each file, of at most BYTES. MODELS is a folder in memory with a model for each
// file, which outlives the process: the next one checks what it finds, and goes on. A write that
// was at work when the process was killed is there whole or not at all. Ends when its standard
// input does: exit code 0, or 3 when something was not as written. Prints what it did. With SEED 0
// it only checks.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/kit/acknowledged.h"
#include "tests/kit/random.h"

namespace nvcache::faults_test {
namespace {

using kit::Mix;
using kit::Random;

constexpr uint64_t kMaxWrite = 48u << 10;

// The newest acknowledged bytes, and the write at work.
struct Model {
  std::atomic<uint64_t> id;  // of the write at work; 0: none
  uint64_t offset;
  uint64_t length;
  uint64_t count;  // writes so far
  uint64_t size;   // of the file

  uint8_t* bytes() { return reinterpret_cast<uint8_t*>(this + 1); }
  kit::Acknowledged written() { return {bytes(), &size}; }
};

std::atomic<bool> stopping{false};
std::atomic<uint64_t> writes{0}, refused{0}, syncs{0}, sync_errors{0};

[[noreturn]] void Die(const std::string& what, int code) {
  std::fprintf(stderr, "faults_writer: %s\n", what.c_str());
  std::_Exit(code);
}

// What a disk may say, and no other.
void CheckError(const std::string& call, const std::string& path) {
  switch (errno) {
    case EIO:
    case ENOSPC:
    case EDQUOT:
    case EROFS:
      return;
    default:
      Die(path + ": " + call + ": " + std::strerror(errno), 3);
  }
}

class File {
 public:
  File(std::string path, uint64_t limit, const std::string& model_path, uint64_t seed)
      : path_(std::move(path)), limit_(limit), seed_(seed), buffer_(limit) {
    const int fd = ::open(model_path.c_str(), O_RDWR | O_CREAT, 0600);
    const size_t n = sizeof(Model) + limit;
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(n)) != 0) Die(model_path, 2);
    void* mapped = ::mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) Die(model_path, 2);
    ::close(fd);
    model_ = static_cast<Model*>(mapped);
  }

  void Run() {
    Open();
    if (model_->id.load() != 0) Settle();
    CheckAll();
    Random random(seed_ ^ Mix(model_->count + 1));
    while (!stopping.load() && seed_ != 0) {
      const uint64_t choice = random.Below(100);
      if (choice < 60) {
        Write(random);
      } else if (choice < 85) {
        CheckSome(random);
      } else if (choice < 95) {
        Sync();
      } else if (choice < 97) {
        if (::close(fd_) != 0) CheckError("close", path_);
        Open();
      } else {
        ::usleep(static_cast<useconds_t>(random.Below(20000)));
      }
    }
    CheckAll();
    if (::close(fd_) != 0) CheckError("close", path_);
  }

 private:
  // What a file held before it was opened has to be on the disk before the log takes a write to it.
  // Where a disk refuses that, the file is passed through, and a write is as safe as an ordinary
  // one: so nothing is written before a sync has succeeded.
  void Open() {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT, 0644);
    if (fd_ < 0) Die(path_ + ": open: " + std::strerror(errno), 3);
    while (seed_ != 0 && !stopping.load() && ::fsync(fd_) != 0) {
      CheckError("fsync", path_);
      ::usleep(1000);
    }
  }

  // How many bytes there are, which are in the buffer then.
  uint64_t Read(uint64_t offset, uint64_t length) {
    uint64_t done = 0;
    while (done < length) {
      const ssize_t n =
          ::pread(fd_, buffer_.data() + done, length - done, static_cast<off_t>(offset + done));
      if (n < 0) Die(path_ + ": read: " + std::strerror(errno), 3);
      if (n == 0) break;
      done += static_cast<uint64_t>(n);
    }
    return done;
  }

  bool Matches(uint64_t offset, uint64_t length) {
    return Read(offset, length) == length &&
           std::memcmp(buffer_.data(), model_->bytes() + offset, length) == 0;
  }

  void CheckSome(Random& random) {
    if (model_->size == 0) return;
    const uint64_t offset = random.Below(model_->size);
    const uint64_t length = 1 + random.Below(model_->size - offset);
    if (!Matches(offset, length)) Wrong(offset, length);
  }

  void CheckAll() {
    if (!Matches(0, model_->size)) Wrong(0, model_->size);
  }

  [[noreturn]] void Wrong(uint64_t offset, uint64_t length) {
    uint64_t at = 0;
    while (at < length && buffer_[at] == model_->bytes()[offset + at]) ++at;
    Die(path_ + ": not what was acknowledged at " + std::to_string(offset + at) + " of " +
            std::to_string(model_->size) + ", write " + std::to_string(model_->count),
        3);
  }

  // Killed while it wrote.
  void Settle() {
    const uint64_t n = Read(0, limit_);
    model_->written().TakeIfWhole(model_->id, model_->offset, model_->length, {buffer_.data(), n});
    model_->id.store(0);
  }

  void Write(Random& random) {
    const uint64_t length = random.Length(kMaxWrite < limit_ ? kMaxWrite : limit_);
    uint64_t offset = random.Below(limit_ - length + 1);
    if (offset > model_->size) offset = model_->size;  // no holes
    const uint64_t id = Mix(seed_ ^ ++model_->count) | 1;
    const std::vector<uint8_t> bytes = kit::Content(id, length);
    model_->offset = offset;
    model_->length = length;
    model_->id.store(id);
    const ssize_t n = ::pwrite(fd_, bytes.data(), length, static_cast<off_t>(offset));
    if (n < 0) {
      CheckError("write", path_);
      model_->id.store(0);
      ++refused;
      ::usleep(1000);
      return;
    }
    model_->written().Take(id, offset, static_cast<uint64_t>(n));
    model_->id.store(0);
    ++writes;
  }

  void Sync() {
    ++syncs;
    if (::fsync(fd_) == 0) return;
    CheckError("fsync", path_);
    ++sync_errors;
  }

  std::string path_;
  uint64_t limit_;
  uint64_t seed_;
  std::vector<uint8_t> buffer_;
  Model* model_ = nullptr;
  int fd_ = -1;
};

int Main(int argc, char** argv) {
  if (argc < 5 || argc % 2 == 0) Die("SEED MODELS FILE BYTES [FILE BYTES]...", 2);
  const uint64_t seed = std::strtoull(argv[1], nullptr, 0);
  std::vector<std::thread> threads;
  for (int i = 3; i + 1 < argc; i += 2) {
    const std::string model = std::string(argv[2]) + "/" + std::to_string(i / 2 - 1);
    auto* file = new File(argv[i], std::strtoull(argv[i + 1], nullptr, 0), model,
                          seed == 0 ? 0 : Mix(seed + static_cast<uint64_t>(i)));
    threads.emplace_back([file] { file->Run(); });
  }
  char byte;
  while (seed != 0 && ::read(0, &byte, 1) > 0) {
  }
  stopping.store(true);
  for (std::thread& thread : threads) thread.join();
  std::printf("%llu writes, %llu refused, %llu syncs, %llu errors\n",
              static_cast<unsigned long long>(writes), static_cast<unsigned long long>(refused),
              static_cast<unsigned long long>(syncs), static_cast<unsigned long long>(sync_errors));
  return 0;
}

}  // namespace
}  // namespace nvcache::faults_test

int main(int argc, char** argv) { return nvcache::faults_test::Main(argc, argv); }
