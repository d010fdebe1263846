// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/tool/image_file.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "recovery/tool/commands.h"

namespace nvcache::tool {
namespace {

constexpr size_t kPiece = size_t{64} << 10;
constexpr size_t kBatch = size_t{1} << 20;

[[noreturn]] void FailAt(const std::string& path) {
  throw Failure{kFailed, fmt::format("{}: {}", path, strerror(errno))};
}

bool IsZero(const std::vector<uint8_t>& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; });
}

class FileCursor : public mirror::Cursor {
 public:
  FileCursor(int file, std::string path, uint64_t size, mirror::Position position)
      : file_(file), path_(std::move(path)), size_(size), position_(position) {}

  bool Read(mirror::Batch* batch) override {
    *batch = {};
    if (at_ == size_) return false;
    while (at_ < size_ && batch->bytes.size() < kBatch) ReadPiece(batch);
    batch->position = position_;
    batch->whole = at_ == size_;
    return true;
  }

 private:
  void ReadPiece(mirror::Batch* batch) {
    std::vector<uint8_t> piece(std::min<uint64_t>(kPiece, size_ - at_));
    const ssize_t n = pread(file_, piece.data(), piece.size(), static_cast<off_t>(at_));
    if (n != static_cast<ssize_t>(piece.size())) FailAt(path_);
    if (!IsZero(piece)) {
      batch->ranges.push_back({at_, static_cast<uint32_t>(piece.size())});
      batch->bytes.insert(batch->bytes.end(), piece.begin(), piece.end());
    }
    at_ += piece.size();
  }

  const int file_;
  const std::string path_;
  const uint64_t size_;
  const mirror::Position position_;
  uint64_t at_ = 0;
};

}  // namespace

ImageFile::~ImageFile() {
  if (file_.IsOpen()) unlink(beside_.c_str());
}

void ImageFile::Begin(uint64_t size) {
  unlink(beside_.c_str());
  file_ = sys::Descriptor(
      open(beside_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file_.IsOpen()) FailAt(beside_);
  // A pool has all of its blocks: a store into a hole could fail.
  const int error = posix_fallocate(file_.get(), 0, static_cast<off_t>(size));
  if (error != 0) {
    errno = error;
    FailAt(beside_);
  }
  size_ = size;
}

void ImageFile::Write(uint64_t offset, const uint8_t* bytes, size_t length) {
  while (length > 0) {
    const ssize_t n = pwrite(file_.get(), bytes, length, static_cast<off_t>(offset));
    if (n <= 0) FailAt(beside_);
    offset += static_cast<uint64_t>(n);
    bytes += n;
    length -= static_cast<size_t>(n);
  }
}

std::unique_ptr<mirror::Cursor> ImageFile::NewCursor(mirror::Position position) const {
  return std::make_unique<FileCursor>(file_.get(), beside_, size_, position);
}

void ImageFile::End() {
  if (fsync(file_.get()) != 0 || rename(beside_.c_str(), path_.c_str()) != 0) FailAt(beside_);
  file_ = {};
}

}  // namespace nvcache::tool
