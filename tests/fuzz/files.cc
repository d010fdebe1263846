// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fuzz/files.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace nvcache::fuzz {

namespace fs = std::filesystem;

void Die(const std::string& text) {
  fmt::print(stderr, "pool_fuzzer: {}: {}\n", text, strerror(errno));
  abort();
}

void WriteFile(const std::string& path, const std::string& content, uid_t owner, mode_t mode) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, 0) != 0 || fchown(fd, owner, owner) != 0 || fchmod(fd, mode) != 0 ||
      write(fd, content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
    Die(path);
  }
  close(fd);
}

std::string ReadFile(const std::string& path) {
  std::string content;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat st = {};
  if (fd >= 0 && fstat(fd, &st) == 0) {
    content.resize(std::min<size_t>(static_cast<size_t>(st.st_size), 1u << 20));
    const ssize_t n = read(fd, content.data(), content.size());
    content.resize(n > 0 ? static_cast<size_t>(n) : 0);
  }
  if (fd >= 0) close(fd);
  return content;
}

std::string Look(const std::string& path) {
  struct stat st = {};
  if (lstat(path.c_str(), &st) != 0) return "nothing";
  return fmt::format("inode {} mode {:o} owner {}.{} size {} links {}", st.st_ino, st.st_mode,
                     st.st_uid, st.st_gid, st.st_size, st.st_nlink);
}

std::string LookAtAll(const std::string& folder) {
  std::vector<std::string> paths = {folder};
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  std::string all;
  for (const std::string& path : paths) {
    const bool has_bytes = fs::is_regular_file(fs::symlink_status(path));
    all += fmt::format("{}: {}: {}\n", path, Look(path), has_bytes ? ReadFile(path) : "");
  }
  return all;
}

}  // namespace nvcache::fuzz
