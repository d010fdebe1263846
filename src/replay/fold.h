// SPDX-License-Identifier: BSD-3-Clause
//
// The outcome of all records of names: each name, and what it leads to in the end.
#ifndef NVCACHE_REPLAY_FOLD_H_
#define NVCACHE_REPLAY_FOLD_H_

#include <algorithm>
#include <cstdint>

#include "src/nvlog/reader.h"
#include "src/pool/name_record.h"
#include "src/sys/table.h"

namespace nvcache::replay {

class FoldedNames {
 public:
  explicit FoldedNames(const nvlog::Reader& reader) : reader_(reader) {}

  // A committed record of names, in the order of their LSNs. False without memory.
  bool Note(const nvlog::RecordHeader& header, nvlog::Place place);
  bool any() const { return notes_.count() > 0; }
  // Then, of each file: the bound of its last sync that a record of kind settled tells of, or 0;
  // and the last record that changes it. Such a file is not made again, for some of its bytes may
  // never have been in a log; and what older records have set was on the disk, and may have been
  // set anew by a call that is in no log. True: it was born in the logs. So its records stay as
  // long as its names do.
  bool NoteFile(uint64_t fingerprint, pool::Lsn settled, pool::Lsn changed);

 protected:
  static constexpr uint32_t kNobody = ~uint32_t{0};
  static constexpr uint32_t kAttributes = 3;

  // A file, a folder, or a symbolic link.
  struct Who {
    pool::Identity identity;
    uint64_t file_system;
    uint64_t fingerprint;
    uint64_t successor;  // the fingerprint of what was made in its place; 0: nothing
    nvlog::Place born;   // its creation; or kNoPlace
    nvlog::Place attributes[kAttributes];  // the last record that sets them
    pool::Lsn changed;                     // the last record that changes its bytes, or its names
    uint32_t path;                         // that it had, in texts_; 0: none
    uint32_t ties;                         // the first one, plus one
    bool incomplete, gone, has_others, is_folder;
    bool is_described;  // the logs may have bytes of it
  };
  // A name in a folder.
  struct Spot {
    uint32_t folder;  // in whos_
    uint32_t name;    // in texts_
    uint32_t last;    // the file it leads to, plus one; 0: nothing
    bool is_final;    // the logs say so
    bool is_told;     // that it does not
    int error;        // errno: why
  };
  // A name that a file had in the logs.
  struct Tie {
    uint32_t spot, who;
    uint32_t next;  // the file's next one, plus one
    bool removed;   // the logs have taken it away, at some time
    int64_t came;   // the file system has it, and no log (moved.h): ns, see NoteEntry(); or 0
  };
  // A record in the numbers of this fold.
  struct Change {
    uint32_t who, other, spot, from;
  };

  // All were noted. False without memory. And how many cannot be read: a record of something that
  // no call can do does not count, for its checksum is right, so no crash has made it. There is
  // room for more() names that no log has.
  bool FoldAll(uint32_t* unreadable);
  uint32_t more() const { return std::min(notes_.count(), kMostMore); }
  void FoldChange(const pool::NameRecord& record, const Change& change, nvlog::Place place);
  void Give(uint32_t spot, uint32_t who);
  void Take(uint32_t spot, uint32_t who, bool gone);
  uint32_t TieOf(uint32_t spot, uint32_t who);
  bool HasTie(uint32_t spot, uint32_t who) const;
  uint32_t SpotOf(uint32_t folder, const char* name);
  // Or kNobody.
  uint32_t FindSpot(uint32_t folder, const char* name) const;
  // Finds it by its fingerprint alone, also by that of what was made in its place.
  uint32_t Find(uint64_t fingerprint) const;
  // Something was made in its place. One that was made in vain, before, is forgotten.
  void SetSuccessor(uint32_t who, uint64_t fingerprint);
  bool CopyAt(nvlog::Place place, pool::NameRecord* record) const;
  const char* NameOf(const Spot& spot) const { return &texts_[spot.name]; }
  bool Lacks(const Who& who) const { return who.born == nvlog::kNoPlace || who.incomplete; }

  const nvlog::Reader& reader_;
  sys::Table<char> texts_;
  sys::Table<Who> whos_;
  sys::Table<Spot> spots_;
  sys::Table<Tie> ties_;
  nvlog::Place open_ = nvlog::kNoPlace;  // the last record announces what may not have happened
  Change open_change_ = {};
  bool open_is_new_ = false;  // the file has had that name in no record before

 private:
  bool OpenTables();
  Change Resolve(const pool::NameRecord& record);
  uint32_t AddText(const char* text);
  uint32_t WhoIs(const pool::Identity& identity, uint64_t file_system);
  uint32_t FolderOf(const pool::Identity& identity, uint64_t file_system, const char* path);
  void SetPath(Who& who, const char* path);

  static constexpr uint32_t kMostMore = 1 << 16;

  sys::Table<nvlog::Place> notes_;
  uint64_t text_bytes_ = 1;                                                    // 0 is no text
  sys::Table<uint32_t> who_slots_, successor_slots_, spot_slots_, tie_slots_;  // hashed; plus one
};

}  // namespace nvcache::replay

#endif  // NVCACHE_REPLAY_FOLD_H_
