// SPDX-License-Identifier: BSD-3-Clause
//
// What bench/suites/files.py runs: many small files. An ordinary program.
//
//   nvcache_files create FOLDER COUNT [sync]   new files 0, 1, ... of 4 KiB: open, write, close;
//                                              with `sync`, fsync before close
//   nvcache_files check FOLDER COUNT           ends with status 1 unless they are there, and theirs
//   nvcache_files unlink FOLDER COUNT
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr size_t kSize = 4096;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "nvcache_files: %s: %s\n", what.c_str(), std::strerror(errno));
  std::_Exit(1);
}

void Create(const std::string& path, const std::vector<char>& bytes, bool sync) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 || ::write(fd, bytes.data(), kSize) != static_cast<ssize_t>(kSize) ||
      (sync && ::fsync(fd) != 0) || ::close(fd) != 0) {
    Die(path);
  }
}

void Check(const std::string& path, const std::vector<char>& bytes) {
  std::vector<char> found(kSize + 1);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) Die(path);
  const ssize_t n = ::read(fd, found.data(), found.size());
  if (n < 0 || ::close(fd) != 0) Die(path);
  if (n != static_cast<ssize_t>(kSize) || std::memcmp(found.data(), bytes.data(), kSize) != 0) {
    std::fprintf(stderr, "nvcache_files: %s: not the bytes that were written\n", path.c_str());
    std::_Exit(1);
  }
}

int Main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const bool sync = argc == 5 && std::strcmp(argv[4], "sync") == 0;
  if (!(argc == 4 || sync) || (what != "create" && what != "check" && what != "unlink")) {
    std::fprintf(stderr, "usage: nvcache_files create|check|unlink FOLDER COUNT [sync]\n");
    return 2;
  }
  const int count = std::atoi(argv[3]);
  std::vector<char> bytes(kSize, 'f');
  for (int i = 0; i < count; ++i) {
    const std::string path = std::string(argv[2]) + "/" + std::to_string(i);
    std::memcpy(bytes.data(), &i, sizeof i);
    if (what == "create") Create(path, bytes, sync);
    if (what == "check") Check(path, bytes);
    if (what == "unlink" && ::unlink(path.c_str()) != 0) Die(path);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return Main(argc, argv); }
