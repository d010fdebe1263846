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

#include "recovery/tool/commands.h"
#include "recovery/tool/text.h"

namespace nvcache::tool {
namespace {

constexpr const char* kManifest = "manifest.json";

// Only the user may read what another program has written.
constexpr mode_t kFileMode = 0600;
constexpr mode_t kFolderMode = 0700;

std::string DataName(uint32_t slot, uint32_t incarnation) {
  return fmt::format("{}-{}.data", slot, incarnation);
}

// write or pwrite until all is written.
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
  if (data_fd_ >= 0) close(data_fd_);
  if (folder_fd_ >= 0) close(folder_fd_);
}

void Exporter::Check(bool ok, const std::string& name) {
  if (!ok && error_.empty()) error_ = fmt::format("{}: {}", name, strerror(errno));
}

void Exporter::Add(const nvlog::Reader& reader, const nvlog::EntryHeader& header) noexcept {
  if (error_.empty()) Store(reader, header);
}

void Exporter::OpenData(const Key& key) {
  if (data_fd_ >= 0 && open_ == key) return;
  // One descriptor, whatever the number of files; what is written so far must be durable before
  // its descriptor goes, or an error would be lost.
  const std::string name = DataName(key.first, key.second);
  if (data_fd_ >= 0) {
    Check(fsync(data_fd_) == 0, DataName(open_.first, open_.second));
    close(data_fd_);
  }
  const bool known = files_.count(key) != 0;
  const int create = known ? 0 : O_CREAT | O_EXCL;
  data_fd_ =
      openat(folder_fd_, name.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | create, kFileMode);
  open_ = key;
  Check(data_fd_ >= 0, name);
}

void Exporter::Store(const nvlog::Reader& reader, const nvlog::EntryHeader& header) {
  const Key key = {header.file, header.incarnation};
  OpenData(key);
  if (!error_.empty()) return;

  std::array<char, pool::kPageSize> payload;
  reader.Payload(header, payload.data(), header.length);
  Check(WriteAll(data_fd_, {payload.data(), header.length}, static_cast<off_t>(header.offset)),
        DataName(key.first, key.second));
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
    Json item = {
        {"data", DataName(slot, incarnation)}, {"slot", slot}, {"incarnation", incarnation}};
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
  if (data_fd_ >= 0) Check(fsync(data_fd_) == 0, DataName(open_.first, open_.second));
  if (error_.empty()) WriteManifest();
  if (error_.empty()) Check(fsync(folder_fd_) == 0, ".");
  if (error_.empty()) return;
  throw Failure{kFailed, fmt::format("--export {}: {}; the pool still has all of it: export again "
                                     "to another folder",
                                     Printable(folder_), error_)};
}

}  // namespace nvcache::tool
