// SPDX-License-Identifier: BSD-3-Clause
#include "tests/differential/tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>

namespace nvcache::differential {
namespace {

constexpr size_t kBlock = 4096;

// Holes and blocks of zeros are the same.
uint64_t HashOfFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOATIME);
  if (fd < 0) return 0;
  static const uint8_t kZeros[kBlock] = {};
  uint64_t hash = 1;
  off_t at = 0;
  while ((at = ::lseek(fd, at, SEEK_DATA)) >= 0) {
    at -= at % static_cast<off_t>(kBlock);
    const off_t end = ::lseek(fd, at, SEEK_HOLE);
    for (; at < end; at += static_cast<off_t>(kBlock)) {
      uint8_t block[kBlock] = {};
      if (::pread(fd, block, kBlock, at) <= 0) break;
      if (std::memcmp(block, kZeros, kBlock) == 0) continue;
      hash = (hash ^ static_cast<uint64_t>(at)) * 0x9e3779b97f4a7c15;
      for (size_t i = 0; i < kBlock; i += 8) {
        uint64_t word;
        std::memcpy(&word, block + i, 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15;
        hash ^= hash >> 29;
      }
    }
    at = std::max(at, end);
  }
  ::close(fd);
  return hash;
}

std::string Describe(const std::filesystem::path& path) {
  struct stat st;
  if (::lstat(path.c_str(), &st) != 0) return "?";
  std::string text = fmt::format("mode={:o} nlink={}", st.st_mode, st.st_nlink);
  if (S_ISLNK(st.st_mode)) text += " -> " + std::filesystem::read_symlink(path).string();
  if (S_ISREG(st.st_mode)) {
    text += fmt::format(" size={} content={:016x}", st.st_size, HashOfFile(path));
  }
  return text;
}

}  // namespace

Tree ReadTree(const std::string& root) {
  Tree tree;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    tree[entry.path().string().substr(root.size())] = Describe(entry.path());
  }
  return tree;
}

std::string CompareTrees(const Tree& expected, const Tree& found) {
  std::string text;
  int differences = 0;
  const auto report = [&](const std::string& path, const std::string& a, const std::string& b) {
    if (++differences <= 5) text += fmt::format("  {}\n    {}\n    {}\n", path, a, b);
  };
  for (const auto& [path, what] : expected) {
    const auto other = found.find(path);
    if (other == found.end()) {
      report(path, what, "(missing)");
    } else if (other->second != what) {
      report(path, what, other->second);
    }
  }
  for (const auto& [path, what] : found) {
    if (expected.count(path) == 0) report(path, "(missing)", what);
  }
  return text;
}

}  // namespace nvcache::differential
