// SPDX-License-Identifier: BSD-3-Clause
//
// What the logs say of names (pool::NameRecord), brought to the file systems after a power failure;
// tests/names is the model, and says why.
//
// A file system may have kept any of the changes. So they are not repeated one by one, but folded
// into what each name leads to in the end, and the file system is made to agree:
//
//   move    each folder that is there, to its last name
//   secure  a file that may have to give its names away gets a safe one
//   make    again what was born in the logs and is lost, under a safe name; the log says that it
//           goes on as that before it has a name of its own (RecordHeader::link)
//   place   each file at its last names
//   remove  names, from files that the logs removed from them
//
// then bytes (Files), the safe names go, attributes. It may end at any instruction and be done
// again (I6): nothing in the logs is void before all of it is synced.
#ifndef NVCACHE_REPLAY_NAMES_H_
#define NVCACHE_REPLAY_NAMES_H_

#include <cstddef>
#include <cstdint>

#include "src/nvlog/reader.h"
#include "src/sys/memory.h"

namespace nvcache::recovery {

struct Observer;
struct Summary;

// What is done to a name, or would be: what it leads to is made again; was there, and gets it as
// well; was there, and loses another one for it; it is taken away.
enum class NameAct { kCreate, kLink, kRename, kRemove };

// Elements that are zero at first, in address space for so many.
template <typename T>
class Table {
 public:
  Table() = default;
  ~Table() {
    if (elements_ != nullptr) sys::UnmapUnlocked(elements_, max_ * sizeof(T));
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  bool Open(uint64_t max) {
    max_ = max;
    elements_ = static_cast<T*>(sys::Reserve(max * sizeof(T)));
    return elements_ != nullptr;
  }
  uint32_t Add(uint32_t n = 1) { return count_ += n, count_ - n; }
  uint32_t count() const { return count_; }
  uint64_t max() const { return max_; }
  T& operator[](uint64_t i) { return elements_[i]; }
  const T& operator[](uint64_t i) const { return elements_[i]; }

 private:
  T* elements_ = nullptr;
  uint64_t max_ = 0;
  uint32_t count_ = 0;
};

class Names {
 public:
  Names(const nvlog::Reader& reader, const Observer& observer, Summary& summary)
      : reader_(reader), observer_(observer), summary_(summary) {}
  Names(const Names&) = delete;
  Names& operator=(const Names&) = delete;

  // A committed record of names, in the order of their LSNs. False without memory.
  bool Note(const nvlog::RecordHeader& header, nvlog::Place place);
  bool any() const { return notes_.count() > 0; }
  // All were noted. False without memory.
  bool Fold();
  // Then, of each file: whether some of its bytes never were in a log, so that it is not made
  // again; and the last record that changes it. True: it was born in the logs. So what they have of
  // it stays as long as their names do.
  bool NoteFile(uint64_t fingerprint, bool settled, pool::Lsn changed);
  // Then: the file systems get what they lack, or it is told (`dry_run`).
  void Agree(bool dry_run);
  // The file with that fingerprint, for its records: kNotMine; or kToBeMade, but for the dry run;
  // or -ENOENT, it has no name any more; or a descriptor to look at it, and in `*successor` the
  // fingerprint of what was made in its place, or 0.
  static constexpr long kNotMine = INT64_MIN, kToBeMade = INT64_MIN + 1;
  long Look(uint64_t fingerprint, uint64_t* successor) const;
  // When the bytes are there. False: a file system cannot be synced.
  bool Finish();
  // The kernel has done it all: only to be synced. 0, or its error, which is in the summary, too.
  long Sync() const;

 private:
  static constexpr uint32_t kNobody = ~uint32_t{0};
  static constexpr uint32_t kAttributes = 3;
  // Folders in one another that are found by what the logs say of each, and not by their paths.
  static constexpr uint32_t kMaxDepth = 3;

  // A file, a folder, or a symbolic link.
  struct Who {
    pool::Identity identity;
    uint64_t file_system;
    uint64_t fingerprint;
    uint64_t successor;                    // of what was made in its place; 0: nothing
    nvlog::Place born;                     // its creation; or kNoPlace
    nvlog::Place attributes[kAttributes];  // the last record that sets them
    pool::Lsn changed;                     // the last record that changes its bytes, or its names
    uint32_t path;                         // that it had, in texts_; 0: none
    uint32_t ties;                         // the first one, plus one
    bool incomplete, gone, has_others, is_folder;
  };
  // A name in a folder.
  struct Spot {
    uint32_t folder;  // in whos_
    uint32_t name;    // in texts_
    uint32_t last;    // what it leads to, plus one; 0: nothing
    bool is_final;    // the logs say so
    bool is_told;     // that it does not
    int error;        // errno: why
  };
  // A name that a file had in the logs.
  struct Tie {
    uint32_t spot, who;
    uint32_t next;  // of the same file, plus one
    bool removed;   // the logs have taken it away, at some time
  };
  // What was found out about a file, or folder, and stays so.
  struct Mark {
    int missing;        // what Open() has said; 0: nothing
    uint32_t depth;     // of that search: it counts for those that are as deep
    uint64_t seen;      // by the last one that counts folders
    bool is_made;       // by this run
    bool is_looked_at;  // by IsToBeMade(), as far as `made_depth`
    bool is_to_be_made;
    uint32_t made_depth;
  };
  // A record in the numbers of this fold.
  struct Change {
    uint32_t who, other, spot, from;
  };
  // What a name leads to now.
  struct Occupant {
    bool exists;
    bool is_folder;
    uint32_t who;  // or kNobody
    uint32_t links;
  };

  // ---- Folding (fold.cc)
  bool OpenTables();
  uint32_t AddText(const char* text);
  uint32_t WhoIs(const pool::Identity& identity, uint64_t file_system);
  uint32_t FolderOf(const pool::Identity& identity, uint64_t file_system, const char* path);
  void SetPath(Who& who, const char* path);
  uint32_t SpotOf(uint32_t folder, const char* name);
  uint32_t TieOf(uint32_t spot, uint32_t who);
  uint32_t Find(uint64_t fingerprint) const;
  void SetSuccessor(uint32_t who, uint64_t fingerprint);
  void Give(uint32_t spot, uint32_t who);
  void Take(uint32_t spot, uint32_t who, bool gone);
  Change Resolve(const pool::NameRecord& record);
  void FoldChange(const pool::NameRecord& record, const Change& change, nvlog::Place place);
  void FoldAnnouncement(const pool::NameRecord& record, const Change& change, nvlog::Place place);
  void FoldOpen();
  bool CopyAt(nvlog::Place place, pool::NameRecord* record) const;

  // ---- Agreeing (names.cc)
  const char* NameOf(const Spot& spot) const { return &texts_[spot.name]; }
  bool Is(const Who& who, const pool::Identity& identity) const;
  long LookInFolder(const Who& who, int folder, const char* name) const;
  long LookByPathOf(const Who& who) const;
  long Open(uint32_t who, uint32_t depth = 0) const;
  long Seek(uint32_t who, uint32_t depth) const;
  bool IsFound(uint32_t who) const;
  bool IsNowhere(uint32_t who) const;
  long LookAt(int folder, const char* name, Occupant* occupant) const;
  bool LeadsTo(uint32_t spot, uint32_t who) const;
  bool WasRemoved(uint32_t spot, const Occupant& occupant) const;
  bool MayGive(uint32_t spot, uint32_t who, const Occupant& occupant) const;
  bool IsLastName(const Occupant& occupant, uint32_t safe_names) const;
  uint32_t CountSafeNames(uint32_t who) const;
  bool WasMoved(uint32_t who) const;
  bool IsPlaced(uint32_t who) const;
  bool HasLast(uint32_t who) const;
  bool IsToBeMade(uint32_t who, uint32_t depth = 0) const;
  bool LooksToBeMade(uint32_t who, uint32_t depth) const;
  bool Lacks(const Who& who) const { return who.born == nvlog::kNoPlace || who.incomplete; }

  template <typename Function>
  void ForEachFinal(Function function);
  void Tell(NameAct act, const Spot& spot) const;
  NameAct PlaceActOf(uint32_t who) const;
  void Fail(uint32_t spot, long error);
  void TellUnresolved(const char* folder, const char* name, int error);
  void TellUnresolved();
  void TellUnresolvedSpot(uint32_t spot);
  int WhyNotThere(uint32_t who) const;
  int WhyNot(uint32_t spot) const;
  void TellOfDryRun(uint32_t spot);
  void Secure(uint32_t spot, const Spot& at, int folder);
  bool MakeLost(uint32_t who);
  void MakeLost();
  long Make(uint32_t who, int folder);
  long MakeAs(const pool::NameRecord& record, uint32_t who, int folder);
  long StoreSuccessor(uint32_t who, int fd);
  long SetAsBornAgain(uint32_t who, int look) const;
  bool PlaceAt(uint32_t spot, const Spot& at, int folder);
  void MoveFolders();
  long Clear(int folder, const char* name, const Occupant& occupant) const;
  long Move(uint32_t who, int folder, const char* name) const;
  void RemoveNames();
  bool RemoveName(uint32_t spot, const Spot& at, int folder);
  bool RemoveSafeNamesOf(uint32_t who);
  void RemoveSafeNames();
  bool IsTold(uint32_t who) const;
  void TellUnresolvedAttributes(uint32_t who, int error);
  void TellUnreachableAttributes(uint32_t who);
  void SetAttributes(uint32_t who);
  void SetAttributesOf(bool folders);
  long SyncFileSystemOf(uint32_t who) const;

  const nvlog::Reader& reader_;
  const Observer& observer_;
  Summary& summary_;
  Table<nvlog::Place> notes_;
  uint64_t text_bytes_ = 1;  // 0 is no text
  Table<char> texts_;
  Table<Who> whos_;
  Table<Spot> spots_;
  Table<Tie> ties_;
  mutable Table<Mark> marks_;                                             // as whos_
  Table<uint32_t> who_slots_, successor_slots_, spot_slots_, tie_slots_;  // hashed; plus one
  nvlog::Place open_ = nvlog::kNoPlace;  // the last record announces what may not have happened
  Change open_change_ = {};
  mutable uint64_t counts_ = 0;
  bool dry_run_ = false;
};

}  // namespace nvcache::recovery

#endif  // NVCACHE_REPLAY_NAMES_H_
