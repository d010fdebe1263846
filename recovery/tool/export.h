// SPDX-License-Identifier: BSD-3-Clause
//
// Saves records, of files that cannot be found above all: per file a sparse file that holds their
// bytes, and one manifest that says what they are.
#ifndef NVCACHE_RECOVERY_TOOL_EXPORT_H_
#define NVCACHE_RECOVERY_TOOL_EXPORT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "src/nvlog/walk.h"

namespace nvcache::tool {

// Ranges of a file, by offset: neither overlapping nor touching.
class Extents {
 public:
  void Add(uint64_t offset, uint64_t end);
  void Remove(uint64_t offset, uint64_t end);
  // Offset to end.
  const std::map<uint64_t, uint64_t>& all() const { return all_; }

 private:
  std::map<uint64_t, uint64_t> all_;
};

class Exporter {
 public:
  // A Failure unless `folder` can be made, or is there and empty: nothing is ever overwritten.
  explicit Exporter(const std::string& folder);
  ~Exporter();
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  // Says what `file` of the walk is, for the manifest; the last word counts.
  void Identify(uint32_t file, const pool::FileRecord& record);
  // Adds a record of `file`, in the order of LSNs; file records say nothing and are left out. Does
  // not throw, because it is called from inside the replay; Finish tells what went wrong.
  void Add(uint32_t file, const nvlog::Reader& reader, const nvlog::RecordHeader& header,
           nvlog::Place place) noexcept;

  // Writes the manifest and makes everything durable. A Failure when anything is missing from it.
  void Finish();

  const std::string& folder() const { return folder_; }
  uint64_t records() const { return records_; }
  uint64_t files() const { return files_.size(); }

 private:
  // A file of the walk; of one that nobody knows, the segment whose records name it, and the number
  // there.
  struct Key {
    uint32_t file;
    uint64_t segment;
    uint32_t number;
    auto operator<=>(const Key&) const = default;
  };

  struct Identity {
    std::string path;
    uint64_t inode;
    int64_t birth_seconds;
    uint32_t birth_nanoseconds;
    uint32_t mode;
    uint32_t uid;
    uint32_t gid;
  };

  struct File {
    uint64_t records = 0;
    Extents written;
    Extents erased;                        // and not written since
    std::optional<uint64_t> truncated_to;  // the shortest that the file was
    uint64_t size = 0;                     // the data file's
  };

  static std::string DataName(const Key& key);
  int OpenData(const Key& key);
  void CloseAll();
  void Check(bool ok, const std::string& name);
  bool Apply(const nvlog::Reader& reader, const nvlog::RecordHeader& header, nvlog::Place place,
             int fd, File* file);
  void WriteManifest();

  std::string folder_;
  int folder_fd_ = -1;
  std::map<Key, int> open_;  // descriptors
  std::map<Key, File> files_;
  std::map<uint32_t, Identity> identities_;
  uint64_t records_ = 0;
  std::string error_;  // the first one
};

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_EXPORT_H_
