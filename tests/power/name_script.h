// SPDX-License-Identifier: BSD-3-Clause
//
// A sequence of all calls that change names, sizes, bytes and attributes, determined by a seed, and
// the tree that they make. Paths are relative to a folder with the folders in `kRoots`.
#ifndef NVCACHE_TESTS_POWER_NAME_SCRIPT_H_
#define NVCACHE_TESTS_POWER_NAME_SCRIPT_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/power/workload.h"

namespace nvcache::power_test {

inline constexpr const char* kRoots[] = {"a", "b"};

struct Node {
  enum Kind { kFile, kFolder, kSymlink } kind = kFile;
  mode_t mode = 0;
  uid_t owner = 0;
  gid_t group = 0;
  int64_t modified = 0;        // seconds, as somebody has set it; 0: not known
  std::vector<uint8_t> bytes;  // of a symbolic link: its target
};

using Names = std::map<std::string, std::shared_ptr<Node>>;

struct NameOperation {
  enum Kind {
    kCreate,     // open with O_CREAT and O_EXCL
    kWrite,      // pwrite
    kAppend,     // write with O_APPEND
    kFtruncate,  // to `offset`
    kTruncate,   // open with O_TRUNC
    kCreat,      // creat of a file that is there
    kRename,     // to `other`, which may be there; or an empty folder, to a free name
    kLink,       // `other` is the new name
    kSymlink,    // with the target `other`
    kUnlink,
    kMakeFolder,
    kRemoveFolder,
    kChmod,
    kChown,
    kUtimens,
  };
  Kind kind = kCreate;
  std::string path;
  std::string other;
  uint64_t offset = 0;
  uint64_t length = 0;
  mode_t mode = 0;
  uid_t owner = 0;
  gid_t group = 0;
  int64_t modified = 0;
  uint64_t id = 0;  // of the bytes

  // Of a file.
  bool ChangesBytes() const { return kind >= kWrite && kind <= kCreat; }
  bool ChangesAttributes() const { return kind >= kChmod; }
  std::string Text() const;
};

class NameScript {
 public:
  // All names in the roots begin with `prefix`.
  NameScript(uint64_t seed, std::string prefix) : seed_(seed), prefix_(std::move(prefix)) {}

  // Draws the next operation, and does it to the names.
  NameOperation Next();

  uint64_t number() const { return number_; }
  const Names& names() const { return names_; }
  const std::string& prefix() const { return prefix_; }
  // The folders that there are, the roots among them.
  std::vector<std::string> Folders() const;

 private:
  using Kind = NameOperation::Kind;

  // False: not possible now.
  bool Draw(Random& random, NameOperation* operation) const;
  bool DrawNew(Random& random, NameOperation* operation) const;
  bool DrawName(Random& random, NameOperation* operation) const;
  bool DrawFolder(Random& random, NameOperation* operation) const;
  bool DrawFile(Random& random, NameOperation* operation) const;
  void Apply(const NameOperation& operation);
  void ApplyToFile(const NameOperation& operation, Node* node);
  void ChangedIn(const std::string& path);  // the folder that it is in

  std::string AnyName(Random& random) const;
  std::string FolderName(Random& random) const;
  std::vector<std::string> Having(bool (*wanted)(const Node&)) const;
  bool IsEmpty(const std::string& folder) const;

  const uint64_t seed_;
  const std::string prefix_;
  uint64_t number_ = 0;
  Names names_;
};

}  // namespace nvcache::power_test

#endif  // NVCACHE_TESTS_POWER_NAME_SCRIPT_H_
