// SPDX-License-Identifier: BSD-3-Clause
//
// Two processes that use a small pool, in one thread: all that they do can come in between any two
// steps of a cursor, and is the same for a seed. Files have pages of which each write is a version,
// its LSN; so what a recovery from an image would make of the disk can be told from LSNs.
//
//   write-back         the file's process cleans: pages to the disk, copies of what a disk refuses,
//                      the checkpoint, then segments are free: each a step of its own
//   write-through      the kernel has the bytes; a sync of all moves the checkpoint
//   a file that fails  its groups are kept; newer copies may hide older ones; some day all of it is
//                      on the disk, and copies become void, the oldest first
#ifndef NVCACHE_TESTS_MIRROR_POOL_WORLD_H_
#define NVCACHE_TESTS_MIRROR_POOL_WORLD_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mirror/core/source.h"
#include "src/nvlog/group_writer.h"
#include "src/nvlog/kept.h"
#include "src/nvlog/log.h"
#include "tests/kit/random.h"
#include "tests/mirror/pool/image.h"
#include "tests/unit/support.h"

namespace nvcache::mirror {

using nvlog::Lsn;

class World {
 public:
  World(const std::string& path, uint64_t seed, bool keeps);
  ~World();

  // One of the things that may happen.
  void Act();
  pool::Pool& pool() { return users_[0].pool; }
  // What is wrong with an image after a batch: empty, if nothing is.
  std::string Check(Image* image) const;
  // The newest group.
  size_t groups() const { return groups_.size(); }
  uint64_t voids() const { return voids_; }
  kit::Random& random() { return random_; }

 private:
  static constexpr uint32_t kFiles = 6;
  static constexpr uint64_t kPages = 8;
  enum class Stage { kLook, kClean, kCheckpoint, kForget, kVoid };
  struct Copy {
    Lsn lsn;
    uint64_t page;
    nvlog::Place place;
  };
  struct File {
    std::string path;
    uint32_t number = 0;
    bool through = false;
    bool may_fail = false;
    bool fails = false;
    uint32_t owner = 0;  // a user
    Lsn last = 0;        // of its groups
    Lsn declared_kept = 0;
    nvlog::FileTag tags[2];
    std::map<uint64_t, std::vector<Lsn>> versions;  // of pages
    std::map<uint64_t, Lsn> disk;
    std::deque<Copy> kept;  // that are not void, in the order of their LSNs
  };
  struct User {
    test::ScopedPool pool;
    nvlog::Log log;
    nvlog::Kept kept{log};
    Stage stage = Stage::kLook;
    nvlog::Log::Ends ends;
    File* file = nullptr;  // whose copies become void
  };
  struct Group {
    Lsn lsn;
    uint32_t log;
    const File* file;
    uint64_t page, pages;
  };

  void Write(File& file);
  void WriteThrough(File& file);
  void SyncStep();
  void CleanStep(User& user);
  bool CleanRecord(User& user);
  bool Keep(User& user, File& file, nvlog::Place place);
  bool BeginVoids(User& user);
  void VoidStep(User& user);
  void HandOver(File& file);
  pool::FileRecord RecordOf(const File& file) const {
    return test::RecordOfNone(file.path, file.number);
  }
  void Note(File& file, const Group& group);
  static std::string Page(Lsn lsn, uint64_t bytes);
  std::string CheckGroups(const std::vector<Seen>& seen, const std::vector<Lsn>& checkpoints,
                          Position position) const;
  std::string CheckDisk(const std::vector<Seen>& seen, Position position) const;

  kit::Random random_;
  const bool keeps_;
  User users_[2];
  std::deque<File> files_;
  std::vector<Group> groups_;
  int sync_ = 0;  // which step comes next
  Lsn sync_bound_ = 0;
  uint64_t voids_ = 0;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_TESTS_MIRROR_POOL_WORLD_H_
