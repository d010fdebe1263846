// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/export.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <string_view>

#include "recovery/replay/rights.h"
#include "recovery/tool/commands.h"
#include "recovery/tool/text.h"

namespace nvcache::tool {
namespace {

constexpr const char* kManifest = "manifest.json";
constexpr size_t kMaxOpen = 64;

// Only the user may read what another program has written.
constexpr mode_t kFileMode = 0600;
constexpr mode_t kFolderMode = 0700;

std::string DataName(const std::pair<uint32_t, uint32_t>& key) {
  return fmt::format("{}-{}.data", key.first, key.second);
}

// pwrite until all is written.
bool WriteAll(int fd, std::string_view bytes, off_t offset) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
    offset += n;
  }
  return true;
}

// Adds [offset, end) to a set of extents.
void AddExtent(std::map<uint64_t, uint64_t>* extents, uint64_t offset, uint64_t end) {
  auto next = extents->upper_bound(offset);
  if (next != extents->begin() && std::prev(next)->second >= offset) --next;
  while (next != extents->end() && next->first <= end) {
    offset = std::min(offset, next->first);
    end = std::max(end, next->second);
    next = extents->erase(next);
  }
  extents->emplace(offset, end);
}

}  // namespace

Exporter::Exporter(const std::string& folder, pool::View view) : folder_(folder), view_(view) {
  std::error_code error;
  if (mkdir(folder.c_str(), kFolderMode) != 0 && errno != EEXIST) {
    throw Failure{kFailed, fmt::format("--export {}: cannot be made: {}; give another folder",
                                       Printable(folder), strerror(errno))};
  }
  if (!std::filesystem::is_empty(folder, error) || error) {
    throw Failure{
        kFailed, fmt::format("--export {}: must be an empty or a new folder{}{}", Printable(folder),
                             error ? ": " : "", error ? error.message() : "")};
  }
  folder_fd_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd_ < 0) {
    throw Failure{kFailed, fmt::format("--export {}: cannot be opened: {}; give another folder",
                                       Printable(folder), strerror(errno))};
  }
}

Exporter::~Exporter() {
  CloseAll();
  if (folder_fd_ >= 0) close(folder_fd_);
}

void Exporter::Check(bool ok, const std::string& name) {
  if (!ok && error_.empty()) error_ = fmt::format("{}: {}", name, strerror(errno));
}

void Exporter::Add(const nvlog::Reader& reader, const nvlog::EntryHeader& header) noexcept {
  if (error_.empty()) Store(reader, header);
}

int Exporter::OpenData(const Key& key) {
  if (const auto known = open_.find(key); known != open_.end()) return known->second;
  if (open_.size() == kMaxOpen) CloseAll();
  const recovery::OwnRights rights;  // the folder is the caller's
  const int create = files_.count(key) != 0 ? 0 : O_CREAT | O_EXCL;
  const std::string name = DataName(key);
  const int fd =
      openat(folder_fd_, name.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | create, kFileMode);
  Check(fd >= 0, name);
  if (fd >= 0) open_.emplace(key, fd);
  return fd;
}

// The descriptor that wrote is the one that hears of errors: sync before it goes.
void Exporter::CloseAll() {
  for (const auto& [key, fd] : open_) {
    Check(fsync(fd) == 0, DataName(key));
    close(fd);
  }
  open_.clear();
}

void Exporter::Store(const nvlog::Reader& reader, const nvlog::EntryHeader& header) {
  const Key key = {header.file, header.incarnation};
  const int fd = OpenData(key);
  if (fd < 0) return;

  std::array<char, pool::kPageSize> payload;
  reader.Payload(header, payload.data(), header.length);
  Check(WriteAll(fd, {payload.data(), header.length}, static_cast<off_t>(header.offset)),
        DataName(key));
  File& file = files_[key];
  AddExtent(&file.extents, header.offset, header.offset + header.length);
  ++file.entries;
  ++entries_;
}

void Exporter::WriteManifest() {
  Json manifest;
  manifest["files"] = Json::array();
  for (const auto& [key, file] : files_) {
    const auto& [slot, incarnation] = key;
    const pool::FileRecord& record = *view_.file(slot);
    Json item = {{"data", DataName(key)}, {"slot", slot}, {"incarnation", incarnation}};
    // Without a whole record nobody knows whose bytes these are, but the bytes are good.
    item["record_valid"] = pool::FileRecordValid(record, incarnation);
    if (item["record_valid"]) {
      PutPath(item, "path", PathOf(record));
      item["inode"] = record.inode;
      item["birth_seconds"] = record.birth_seconds;
      item["birth_nanoseconds"] = record.birth_nanoseconds;
      item["mode"] = fmt::format("{:o}", record.mode);
      item["uid"] = record.uid;
      item["gid"] = record.gid;
    }
    item["entries"] = file.entries;
    item["extents"] = Json::array();
    for (const auto& [offset, end] : file.extents) {
      item["extents"].push_back({{"offset", offset}, {"length", end - offset}});
    }
    manifest["files"].push_back(std::move(item));
  }
  const int fd = openat(folder_fd_, kManifest, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode);
  Check(fd >= 0 && WriteAll(fd, manifest.dump(2) + '\n', 0) && fsync(fd) == 0, kManifest);
  if (fd >= 0) close(fd);
}

void Exporter::Finish() {
  CloseAll();
  if (error_.empty()) WriteManifest();
  if (error_.empty()) Check(fsync(folder_fd_) == 0, ".");
  if (error_.empty()) return;
  throw Failure{kFailed, fmt::format("--export {}: {}; the pool still has all of it: export again "
                                     "to another folder",
                                     Printable(folder_), error_)};
}

}  // namespace nvcache::tool
