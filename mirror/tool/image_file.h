// SPDX-License-Identifier: BSD-3-Clause
//
// A pool that a recovery writes: first beside its place, under another name, then in it.
#ifndef NVCACHE_MIRROR_TOOL_IMAGE_FILE_H_
#define NVCACHE_MIRROR_TOOL_IMAGE_FILE_H_

#include <memory>
#include <string>

#include "mirror/core/source.h"
#include "src/sys/descriptor.h"

namespace nvcache::tool {

class ImageFile {
 public:
  // `path`: of the pool.
  explicit ImageFile(std::string path) : path_(std::move(path)), beside_(path_ + ".fetched") {}
  ~ImageFile();

  // All zeros, mode 0600. A Failure if it cannot be made.
  void Begin(uint64_t size);
  void Write(uint64_t offset, const uint8_t* bytes, size_t length);
  // A cursor of the file as it is now: of all of it, and then no more, at `position`. The file
  // outlives it.
  std::unique_ptr<mirror::Cursor> NewCursor(mirror::Position position) const;
  // It takes the place of what is at `path`.
  void End();

 private:
  const std::string path_, beside_;
  sys::Descriptor file_;
  uint64_t size_ = 0;
};

}  // namespace nvcache::tool

#endif  // NVCACHE_MIRROR_TOOL_IMAGE_FILE_H_
