// SPDX-License-Identifier: BSD-3-Clause
//
// What the file systems have done that the logs do not know of yet: of a pool that comes from a
// mirror or a journal, the last calls may be missing, and a file system commits a rename by itself.
//
// A file with a name that no log knows has got it later, if it had no others than the logs know.
// So its old name is not given to it again, and what the logs had under the new one has lost that;
// if it is nowhere, it is gone. This does not change when recovery, which was killed, begins anew.
// A folder's times would: so a file that is nowhere counts as removed only where another one, which
// is younger than all that the logs know of, has its name.
#ifndef NVCACHE_REPLAY_MOVED_H_
#define NVCACHE_REPLAY_MOVED_H_

#include <cstdint>

#include "src/pool/format.h"
#include "src/replay/found_names.h"

namespace nvcache::replay {

class MovedNames : public FoundNames {
 public:
  MovedNames(const nvlog::Reader& reader, bool journal) : FoundNames(reader), journal_(journal) {}

  // A file that no name record tells of, and that was not found: a file has its name now that has
  // got it later than the logs know. But it may have others, where no handle tells that it is
  // nowhere: at level `disk` the journal would say so.
  bool WasReplaced(const pool::FileRecord& record) const;

 protected:
  // Finds the files in folders that the logs know. All is folded but what was announced last.
  void FindMoved();
  // Then, of that: the call was made, for what came after it, which the logs lack, is there.
  bool WasMade(const pool::NameRecord& announcement) const;
  // Then all is folded. The names are as the file systems have them.
  void FoldMoved();
  // It is nowhere, and the logs have nothing of it but names: the call that took one away may be
  // missing there, and nothing waits for the file.
  bool MayBeGone(uint32_t who) const;

 private:
  bool AnyElsewhere() const;
  bool NoteInodes();
  void KnowAnnounced();
  bool IsAnnounced(uint32_t who) const;
  bool SearchFolder(uint32_t folder);
  bool SearchEntries(uint32_t folder, int fd, const uint8_t* entries, long size);
  bool NoteEntry(uint32_t folder, int fd, const char* name);
  bool IsNoted(uint64_t inode) const;
  bool HasCome(uint32_t who, uint32_t spot) const;
  bool IsTakenLater(uint32_t spot, uint32_t who) const;
  void FoldMove(uint32_t tie);
  void FoldReplaced(uint32_t spot);
  bool IsElsewhere(uint32_t who) const;
  void Lose(uint32_t spot);
  bool IsLost(uint32_t who) const;

  const bool journal_;
  sys::Table<uint64_t> inodes_;  // hashed
  uint32_t moved_ = 0;
  int64_t newest_ = 0;  // the last birth that the logs tell of
};

}  // namespace nvcache::replay

#endif  // NVCACHE_REPLAY_MOVED_H_
