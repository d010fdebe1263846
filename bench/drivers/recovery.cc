// SPDX-License-Identifier: BSD-3-Clause
//
// suites/recovery.py runs this program. It is an ordinary one; to leave entries in a log, it runs
// under libnvcache.so.
//
//   nvcache_recovery prepare FOLDER KIND BYTES      makes the files that are there before
//   nvcache_recovery fill FOLDER KIND BYTES         writes BYTES and kills itself
//   nvcache_recovery sequential FOLDER KIND BYTES   the same bytes in one go: 1 MiB writes to one
//                                                   file, fsync; over old bytes if `fill` does so.
//                                                   Prints the seconds
//
//   overwrite    4 KiB at random places of a file of 1 GiB, or of 16 times BYTES if that is less
//   append4k     4 KiB after 4 KiB to a new file
//   append64k    64 KiB after 64 KiB
//   records      100 bytes after 100 bytes
//   files        4 KiB to the end of 500 new files in turn
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kChunk = 1u << 20;
constexpr int kFiles = 500;

uint64_t Overwritten(uint64_t bytes) { return std::min<uint64_t>(1u << 30, 16 * bytes); }

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "nvcache_recovery: %s: %s\n", what.c_str(), std::strerror(errno));
  std::_Exit(1);
}

class File {
 public:
  explicit File(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) {
    if (fd_ < 0) Die(path);
  }
  void Write(const std::vector<char>& bytes, uint64_t offset) const {
    if (::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset)) !=
        static_cast<ssize_t>(bytes.size())) {
      Die(path_);
    }
  }
  void Sequential(char fill, uint64_t bytes) const {
    const std::vector<char> chunk(kChunk, fill);
    for (uint64_t at = 0; at < bytes; at += kChunk) Write(chunk, at);
    if (::fsync(fd_) != 0) Die(path_);
  }

 private:
  std::string path_;
  int fd_;
};

// Every byte differs from what was there, and one write from the next.
std::vector<char> Content(uint64_t size) {
  std::vector<char> bytes(size);
  for (uint64_t i = 0; i < size; ++i) bytes[i] = static_cast<char>('a' + i % 23);
  return bytes;
}

void Overwrite(const std::string& folder, uint64_t bytes) {
  const File file(folder + "/file");
  std::vector<char> content = Content(kPage);
  uint64_t state = 88172645463325252u;
  for (uint64_t done = 0; done < bytes; done += kPage) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(content.data(), &done, sizeof done);
    file.Write(content, state % (Overwritten(bytes) / kPage) * kPage);
  }
}

void Append(const std::string& folder, uint64_t bytes, uint64_t size) {
  const File file(folder + "/file");
  std::vector<char> content = Content(size);
  for (uint64_t done = 0; done < bytes; done += size) {
    std::memcpy(content.data(), &done, sizeof done);
    file.Write(content, done);
  }
}

void ManyFiles(const std::string& folder, uint64_t bytes) {
  std::vector<File> files;
  for (int i = 0; i < kFiles; ++i) files.emplace_back(folder + "/file" + std::to_string(i));
  const std::vector<char> content = Content(kPage);
  for (uint64_t page = 0; page < bytes / kPage; ++page) {
    files[page % kFiles].Write(content, page / kFiles * kPage);
  }
}

int Main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: nvcache_recovery prepare|fill|sequential FOLDER KIND BYTES\n");
    return 2;
  }
  const std::string what = argv[1], folder = argv[2], kind = argv[3];
  const uint64_t bytes = std::strtoull(argv[4], nullptr, 0);
  if (what == "prepare") {
    if (kind == "overwrite") File(folder + "/file").Sequential('.', Overwritten(bytes));
    return 0;
  }
  if (what == "sequential") {
    const auto begin = std::chrono::steady_clock::now();
    File(folder + "/file").Sequential('s', bytes);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("%.6f\n", seconds.count());
    return 0;
  }
  if (kind == "overwrite") Overwrite(folder, bytes);
  if (kind == "append4k") Append(folder, bytes, kPage);
  if (kind == "append64k") Append(folder, bytes, 16 * kPage);
  if (kind == "records") Append(folder, bytes, 100);
  if (kind == "files") ManyFiles(folder, bytes);
  ::raise(SIGKILL);
  return 1;
}

}  // namespace

int main(int argc, char** argv) { return Main(argc, argv); }
