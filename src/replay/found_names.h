// SPDX-License-Identifier: BSD-3-Clause
//
// The files and names that the logs speak of, as the file systems have them.
#ifndef NVCACHE_REPLAY_FOUND_NAMES_H_
#define NVCACHE_REPLAY_FOUND_NAMES_H_

#include <errno.h>
#include <fcntl.h>

#include <cstdint>

#include "src/replay/fold.h"
#include "src/sys/table.h"
#include "src/sys/text.h"

namespace nvcache::replay {

constexpr int64_t NsOf(int64_t seconds, uint32_t nanoseconds) {
  return seconds * 1000 * 1000 * 1000 + nanoseconds;
}

inline bool IsOutOfDescriptors(long error) { return error == -EMFILE || error == -ENFILE; }

// To look at a file: it is opened for use when it is known to be the one, so that nothing happens
// to another one by its name (a device, a fifo, the end of a symbolic link).
inline constexpr int kToLook = O_PATH | O_NOFOLLOW | O_CLOEXEC;

class FoundNames : public FoldedNames {
 protected:
  using FoldedNames::FoldedNames;

  // A file that has to give its names away, or is made, has it in each folder that it belongs to.
  using SafeName = sys::Text<40>;
  static SafeName SafeNameOf(const Who& who);

  // The file or folder that a name leads to now.
  struct Occupant {
    bool exists;
    bool is_folder;
    uint32_t who;  // or kNobody
    uint32_t links;
    int64_t born, changed;  // NsOf()
  };

  // Findings about a file, or folder, that stay so.
  struct Mark {
    int missing;        // Open()'s answer; 0: none
    uint32_t depth;     // that search's: it counts for those that are as deep
    uint64_t seen;      // the number of the last count that has seen the folder
    bool is_made;       // this run has made it
    bool is_searched;   // a folder, for files that were moved
    bool has_lost;      // a name, as the file system has it
    bool is_looked_at;  // IsToBeMade() has looked, as far as `made_depth`
    bool is_to_be_made;
    uint32_t made_depth;
  };

  // All is folded, and nothing was looked for yet. False without memory.
  bool OpenMarks() { return marks_.Open(whos_.max()); }

  // With O_PATH: by the path that it had, by a name that it had in the logs, or by a safe one, or
  // wherever it is. -ENOENT: it is nowhere; anything else: that cannot be told. Then it is not
  // looked for again before it is made: many names may be in it, and it may be in itself.
  long Open(uint32_t who, uint32_t depth = 0) const;
  bool IsFound(uint32_t who) const;
  bool IsNowhere(uint32_t who) const;
  long LookAt(int folder, const char* name, Occupant* occupant) const;
  bool LeadsTo(uint32_t spot, uint32_t who) const;
  bool WasRemoved(uint32_t spot, const Occupant& occupant) const;
  // Nobody's file has the name but one that the logs removed from it; nor a folder, but one that
  // has another name in the logs.
  bool MayGive(uint32_t spot, uint32_t who, const Occupant& occupant) const;
  // It is the last name, but for safe ones, of a file that was not removed altogether. Folders have
  // one name.
  bool IsLastName(const Occupant& occupant, uint32_t safe_names) const;
  uint32_t CountSafeNames(uint32_t who) const;
  // Somebody whom no log knows has moved it later: it is there, but not where the logs know of.
  bool WasMoved(uint32_t who) const;
  // It is at a name that the logs have had for it, or a safe one; or that was found (moved.h).
  bool HasName(uint32_t who, bool or_found) const;
  bool IsPlaced(uint32_t who) const;
  bool HasLast(uint32_t who) const;
  // A run that is no dry one will make it.
  bool IsToBeMade(uint32_t who, uint32_t depth = 0) const;

  mutable sys::Table<Mark> marks_;  // one for each of whos_

 private:
  // Folders in one another that are found by what the logs say of each, and not by their paths.
  static constexpr uint32_t kMaxDepth = 3;

  bool Is(const Who& who, const pool::Identity& identity) const;
  long LookInFolder(const Who& who, int folder, const char* name) const;
  long LookByPathOf(const Who& who) const;
  long Seek(uint32_t who, uint32_t depth) const;
  bool LooksToBeMade(uint32_t who, uint32_t depth) const;

  mutable uint64_t counts_ = 0;
};

}  // namespace nvcache::replay

#endif  // NVCACHE_REPLAY_FOUND_NAMES_H_
