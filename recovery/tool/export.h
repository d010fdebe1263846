// SPDX-License-Identifier: BSD-3-Clause
//
// Saves entries, of files that cannot be found above all: per file a sparse file that holds their
// bytes, and one manifest that says what they are.
#ifndef NVCACHE_RECOVERY_TOOL_EXPORT_H_
#define NVCACHE_RECOVERY_TOOL_EXPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "src/nvlog/reader.h"

namespace nvcache::tool {

class Exporter {
 public:
  // A Failure unless `folder` can be made, or is there and empty: nothing is ever overwritten.
  Exporter(const std::string& folder, pool::View view);
  ~Exporter();
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  // Adds an entry, in log order. Does not throw, because it is called from inside the replay; what
  // goes wrong is told by Finish.
  void Add(const nvlog::Reader& reader, const nvlog::EntryHeader& header) noexcept;

  // Writes the manifest and makes everything durable. A Failure when anything is missing from it.
  void Finish();

  const std::string& folder() const { return folder_; }
  uint64_t entries() const { return entries_; }
  uint64_t files() const { return files_.size(); }

 private:
  using Key = std::pair<uint32_t, uint32_t>;  // slot, incarnation

  struct File {
    uint64_t entries = 0;
    std::map<uint64_t, uint64_t> extents;  // offset to end; neither overlapping nor touching
  };

  void Store(const nvlog::Reader& reader, const nvlog::EntryHeader& header);
  int OpenData(const Key& key);
  void CloseAll();
  void Check(bool ok, const std::string& name);
  void WriteManifest();

  std::string folder_;
  pool::View view_;
  int folder_fd_ = -1;
  std::map<Key, int> open_;  // descriptors
  std::map<Key, File> files_;
  uint64_t entries_ = 0;
  std::string error_;  // the first one
};

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_EXPORT_H_
