// SPDX-License-Identifier: BSD-3-Clause
//
// Brings the logs' records of names (pool::NameRecord) to the file systems after a power failure;
// tests/names is the model, and says why.
//
// A file system may have kept any of the changes. So they are not repeated one by one, but folded
// into what each name leads to in the end (fold.h), or has come to lead to since (moved.h), and the
// file system is made to agree:
//
//   move    each folder that is there, to its last name
//   secure  a file that may have to give its names away gets a safe one
//   make    again what was born in the logs and is lost, under a safe name; the log says that it
//           goes on as that before it has a name of its own (RecordHeader::link)
//   place   each file at its last names
//   remove  names, from files that the logs removed from them
//
// then bytes (Files), the safe names go, attributes. It may end at any instruction and be done
// again (I6): nothing in the logs is void before all of it is synced. A pool that has a mirror may
// be lost meanwhile, and come from there once more as it was: what was made says so itself
// (made.h).
#ifndef NVCACHE_REPLAY_NAMES_H_
#define NVCACHE_REPLAY_NAMES_H_

#include <cstdint>

#include "src/nvlog/reader.h"
#include "src/replay/moved.h"

namespace nvcache::replay {

struct Observer;
struct Summary;

// An act on a name, done or only told: its file is made again; was there, and gets it as
// well; was there, and loses another one for it; it is taken away.
enum class NameAct { kCreate, kLink, kRename, kRemove };

class Names : private MovedNames {
 public:
  // `journal`: the pool has one (docs/disk.md).
  Names(const nvlog::Reader& reader, bool journal, const Observer& observer, Summary& summary)
      : MovedNames(reader, journal), observer_(observer), summary_(summary) {}

  using FoldedNames::any, FoldedNames::Note, FoldedNames::NoteFile, MovedNames::WasReplaced;
  // All were noted. False without memory.
  bool Fold();
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
  void FoldAnnouncement(const pool::NameRecord& record, const Change& change, nvlog::Place place);
  void FoldOpen();

  bool IsOfMirror() const;
  void FindMade();
  bool TakeMade(uint32_t folder, const char* name, uint32_t last);
  bool IsSameLink(int look, uint32_t who) const;

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

  const Observer& observer_;
  Summary& summary_;
  bool dry_run_ = false;
};

}  // namespace nvcache::replay

#endif  // NVCACHE_REPLAY_NAMES_H_
