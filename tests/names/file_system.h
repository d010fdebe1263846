// SPDX-License-Identifier: BSD-3-Clause
//
// The model's file system: two folders, names, files. The kernel has all changes at once; a power
// failure leaves some of them.
#ifndef NVCACHE_TESTS_NAMES_FILE_SYSTEM_H_
#define NVCACHE_TESTS_NAMES_FILE_SYSTEM_H_

#include <array>
#include <cstddef>
#include <random>
#include <set>
#include <vector>

namespace nvcache::names {

using Random = std::mt19937_64;

// A file, by its identity: no other one ever has the number. kNoFile: a name that is free.
using File = int;
inline constexpr File kNoFile = 0;
inline constexpr int kMostFiles = 64;  // numbers from 1 on

// A name in its folder: three that programs use, then those that recovery uses for a moment, one
// for each file and folder.
using Name = int;
inline constexpr int kFolders = 2;
inline constexpr Name kProgramNames = 3;
inline constexpr Name kNames = kProgramNames + kFolders * kMostFiles;
constexpr int FolderOf(Name name) {
  return name < kProgramNames ? name / 2 : (name - kProgramNames) % kFolders;
}
constexpr Name SafeName(File file, int folder) { return kProgramNames + file * kFolders + folder; }
constexpr bool IsSafeName(Name name) { return name >= kProgramNames; }
static_assert(SafeName(kMostFiles - 1, kFolders - 1) == kNames - 1);
static_assert(FolderOf(SafeName(5, 1)) == 1);

using Names = std::array<File, kNames>;  // the file that each leads to

// What a power failure leaves of the changes of names since they were last synced.
enum class Loss {
  kPrefix,      // some of the calls, and all before them: a journal (ext4, XFS)
  kHalves,      // the same, but a rename may be half done: both names lead to the file
  kEachFolder,  // of each folder its own first changes (Btrfs, of which a folder was synced)
};
inline constexpr Loss kLosses[] = {Loss::kPrefix, Loss::kHalves, Loss::kEachFolder};

class FileSystem {
 public:
  explicit FileSystem(Loss loss) : loss_(loss), versions_(1, {0}) {}

  // ---- What the kernel has
  File At(Name name) const { return names_[static_cast<size_t>(name)]; }
  const Names& names() const { return names_; }
  bool Exists(File file) const;  // it has a name
  std::vector<Name> NamesOf(File file) const;
  int Version(File file) const { return versions_[static_cast<size_t>(file)].back(); }
  File newest() const { return newest_; }

  // ---- Calls: false, or kNoFile, if they fail as the kernel's do
  File Create(Name name);  // O_EXCL
  bool Link(File file, Name name);
  bool Rename(Name from, Name to);
  bool Remove(Name name);
  void Write(File file, int version);

  // ---- To the disk
  void Sync();               // all
  void SyncFile(File file);  // its bytes, and the changes of its folders
  // What is left is what the kernel finds when it starts again.
  void LosePower(Random* random);
  // All that a power failure may leave, each once.
  std::vector<FileSystem> AllLeft() const;

 private:
  struct Change {
    Name name;
    File before, now;
    bool ends_call;
    bool synced = false;
  };
  using Ends = std::array<size_t, kFolders>;
  void Set(Name name, File file, bool ends_call = true);
  bool MayEnd(size_t end) const;
  Names LeftBy(const Ends& ends) const;
  Names Left(Random* random) const;
  std::set<Names> AllNamesLeft() const;
  FileSystem With(const Names& names, const std::vector<size_t>& versions) const;

  Loss loss_;
  Names names_ = {}, synced_ = {};          // when all was, last
  std::vector<Change> changes_;             // since all was synced
  std::vector<std::vector<int>> versions_;  // of each file: on the disk, then those written since
  File newest_ = kNoFile;
};

}  // namespace nvcache::names

#endif  // NVCACHE_TESTS_NAMES_FILE_SYSTEM_H_
