// SPDX-License-Identifier: BSD-3-Clause
//
// What recovery makes of a file system after a power failure.
//
// It does not repeat one change after the other on names of which the file system may have kept
// any. It folds them into what each name leads to in the end, and makes the file system agree:
//
//   find    each file by its identity
//   make    again what was born in the log and is lost
//   place   each file at its last names; one that has to give its name away first gets a safe one
//   remove  names, from files that the log removed from them
//   write   what the log has of their bytes
//   sync    and only then free the log
#ifndef NVCACHE_TESTS_NAMES_RECOVERY_H_
#define NVCACHE_TESTS_NAMES_RECOVERY_H_

#include <functional>
#include <map>
#include <set>
#include <utility>

#include "tests/names/file_system.h"
#include "tests/names/log.h"
#include "tests/names/rules.h"
#include "tests/protocol/task.h"

namespace nvcache::names {

using protocol::Step;
using protocol::Task;

class Recovery {
 public:
  using Keeps = std::function<bool(Rule)>;
  Recovery(FileSystem* file_system, Pool* pool, Keeps keeps)
      : fs_(*file_system), pool_(*pool), keeps_(std::move(keeps)) {}

  // May end at any step, and another one begin.
  Task<void> Run();

  // Files that could not be given a name; the log keeps what it has of them.
  const std::set<File>& unresolved() const { return unresolved_; }
  // The log has bytes of these, which are nowhere, and has not removed them.
  const std::set<File>& missed() const { return missed_; }

 private:
  void Fold();
  void FoldChange(const Record& record);
  void FoldIntent(const Record& intent);
  void Give(Name name, File file);
  void Take(Name name, File file, bool gone);

  File Found(File file) const;  // what it is now, if it is there
  File OriginOf(File file) const;
  bool WasRemoved(Name name, File occupant) const;
  bool MayGive(Name name, File file) const;
  bool IsLastName(Name name, bool safe_ones_count) const;
  bool IsPlaced(File file) const;
  bool WasMoved(File file) const;
  bool Lacks(File file) const;

  Task<void> MakeLost();
  Task<void> Make(File file, Name name);
  Task<void> Secure();
  Task<void> Place();
  Task<void> RemoveNames();
  Task<void> Write();
  Task<void> RemoveSafeNames();

  FileSystem& fs_;
  Pool& pool_;
  Keeps keeps_;

  std::map<Name, File> last_;                // of each name that the log changed
  std::set<std::pair<Name, File>> removed_;  // by the log, at some time
  std::map<File, std::set<Name>> known_;     // names that the file had in the log
  std::set<File> gone_;                      // removed altogether
  std::set<File> have_others_;               // names that the log may not know
  std::set<File> born_, incomplete_;         // bytes are missing
  std::map<File, std::pair<int, Lsn>> versions_;
  std::map<File, File> now_;  // what recovery has made in its place
  std::set<File> unresolved_, missed_;
};

}  // namespace nvcache::names

#endif  // NVCACHE_TESTS_NAMES_RECOVERY_H_
