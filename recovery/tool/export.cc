// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/export.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "recovery/tool/commands.h"
#include "recovery/tool/text.h"
#include "src/replay/rights.h"

namespace nvcache::tool {
namespace {

constexpr const char* kManifest = "manifest.json";
constexpr size_t kMaxOpen = 64;

// Only the user may read what another program has written.
constexpr mode_t kFileMode = 0600;
constexpr mode_t kFolderMode = 0700;

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

// [offset, end) of the data file becomes a hole; its size stays.
bool EraseIn(int fd, uint64_t offset, uint64_t end) {
  return offset >= end ||
         fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                   static_cast<off_t>(end - offset)) == 0;
}

// Where the file system has no holes.
bool WriteZeros(int fd, uint64_t offset, uint64_t end) {
  const std::string zeros(pool::kPageSize, '\0');
  for (; offset < end; offset += std::min<uint64_t>(end - offset, zeros.size())) {
    const std::string_view part(zeros.data(), std::min<uint64_t>(end - offset, zeros.size()));
    if (!WriteAll(fd, part, static_cast<off_t>(offset))) return false;
  }
  return true;
}

Json ExtentsJson(const Extents& extents) {
  Json json = Json::array();
  for (const auto& [offset, end] : extents.all()) {
    json.push_back({{"offset", offset}, {"length", end - offset}});
  }
  return json;
}

}  // namespace

void Extents::Add(uint64_t offset, uint64_t end) {
  auto next = all_.upper_bound(offset);
  if (next != all_.begin() && std::prev(next)->second >= offset) --next;
  while (next != all_.end() && next->first <= end) {
    offset = std::min(offset, next->first);
    end = std::max(end, next->second);
    next = all_.erase(next);
  }
  all_.emplace(offset, end);
}

void Extents::Remove(uint64_t offset, uint64_t end) {
  auto next = all_.upper_bound(offset);
  if (next != all_.begin() && std::prev(next)->second > offset) --next;
  while (next != all_.end() && next->first < end) {
    const auto [from, to] = *next;
    next = all_.erase(next);
    if (from < offset) all_.emplace(from, offset);
    if (to > end) all_.emplace(end, to);
  }
}

Exporter::Exporter(const std::string& folder) : folder_(folder) {
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

std::string Exporter::DataName(const Key& key) {
  if (key.file != nvlog::kNoFile) return fmt::format("{}.data", key.file);
  return fmt::format("unknown-{}-{}.data", key.segment, key.number);
}

void Exporter::Identify(uint32_t file, const pool::FileRecord& record) {
  if (file == nvlog::kNoFile) return;
  identities_[file] = {
      PathOf(record), record.inode, record.birth_seconds, record.birth_nanoseconds, record.mode,
      record.uid,     record.gid};
}

void Exporter::Add(uint32_t file, const nvlog::Reader& reader, const nvlog::RecordHeader& header,
                   nvlog::Place place) noexcept {
  const uint64_t segment = place / reader.segment_units(), unit = place % reader.segment_units();
  // A pool in use may have changed since the walk looked.
  const bool is_sane = nvlog::IsSane(header, reader.segment_units() - unit);
  if (!error_.empty() || !is_sane || header.kind == nvlog::Kind::kFile) return;
  const bool known = file != nvlog::kNoFile;
  const Key key = {file, known ? 0 : segment, known ? 0 : header.file};
  const int fd = OpenData(key);
  if (fd < 0) return;
  File& found = files_[key];
  Check(Apply(reader, header, place, fd, &found), DataName(key));
  ++found.records;
  ++records_;
}

int Exporter::OpenData(const Key& key) {
  if (const auto known = open_.find(key); known != open_.end()) return known->second;
  if (open_.size() == kMaxOpen) CloseAll();
  const replay::OwnRights rights;  // the folder is the caller's
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

bool Exporter::Apply(const nvlog::Reader& reader, const nvlog::RecordHeader& header,
                     nvlog::Place place, int fd, File* file) {
  const uint64_t offset = header.offset, end = offset + header.length;
  switch (header.kind) {
    case nvlog::Kind::kData:
      for (uint64_t page = offset / pool::kPageSize; page * pool::kPageSize < end; ++page) {
        const nvlog::Reader::Piece piece = reader.PieceAt(header, place, page);
        const auto* bytes = reinterpret_cast<const char*>(piece.bytes);
        if (!WriteAll(fd, {bytes, piece.length}, static_cast<off_t>(piece.offset))) return false;
      }
      file->written.Add(offset, end);
      file->erased.Remove(offset, end);
      file->size = std::max(file->size, end);
      return true;
    case nvlog::Kind::kTruncate:
      file->written.Remove(offset, ~uint64_t{0});
      file->erased.Remove(offset, ~uint64_t{0});
      file->truncated_to = std::min(offset, file->truncated_to.value_or(offset));
      file->size = offset;
      return ftruncate(fd, static_cast<off_t>(offset)) == 0;
    default: {
      file->written.Remove(offset, end);
      file->erased.Add(offset, end);
      const uint64_t zeros_end = std::min(end, file->size);
      return EraseIn(fd, offset, zeros_end) || WriteZeros(fd, offset, zeros_end);
    }
  }
}

void Exporter::WriteManifest() {
  Json manifest;
  manifest["files"] = Json::array();
  for (const auto& [key, file] : files_) {
    Json item = {{"data", DataName(key)}};
    // Without a whole record nobody knows whose bytes these are, but the bytes are good.
    const auto known = identities_.find(key.file);
    item["record_valid"] = known != identities_.end();
    if (known != identities_.end()) {
      const Identity& identity = known->second;
      PutPath(item, "path", identity.path);
      item["inode"] = identity.inode;
      item["birth_seconds"] = identity.birth_seconds;
      item["birth_nanoseconds"] = identity.birth_nanoseconds;
      item["mode"] = fmt::format("{:o}", identity.mode);
      item["uid"] = identity.uid;
      item["gid"] = identity.gid;
    }
    item["records"] = file.records;
    // In this order: the file is truncated to `truncated_to`, its extents and its zeros are what
    // the data file says, and it has the data file's size.
    item["truncated_to"] = file.truncated_to ? Json(*file.truncated_to) : Json();
    item["size"] = file.truncated_to ? Json(file.size) : Json();
    item["extents"] = ExtentsJson(file.written);
    item["erased"] = ExtentsJson(file.erased);
    manifest["files"].push_back(std::move(item));
  }
  const int fd = openat(folder_fd_, kManifest, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode);
  Check(fd >= 0 && WriteAll(fd, Indented(manifest) + '\n', 0) && fsync(fd) == 0, kManifest);
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
