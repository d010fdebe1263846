// SPDX-License-Identifier: BSD-3-Clause
//
// The files that a replay changes, by their numbers in nvlog::GroupWalk. Few are open at a time.
#ifndef NVCACHE_REPLAY_FILES_H_
#define NVCACHE_REPLAY_FILES_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "src/nvlog/walk.h"
#include "src/pool/pool.h"
#include "src/replay/names.h"

namespace nvcache::replay {

// The fate of a file. All zero: no record was met that changes it.
struct File {
  enum State : uint32_t {
    kUnknown,
    kGood,        // its records were applied
    kUnresolved,  // not found, or not the one: its records cannot be applied
    kRefused,     // the file system took not all of them
    kRemoved,     // not found, and the program had removed it: they are nothing
  };
  State state;
  int error;  // errno, if not good
  bool is_open;
  bool unopened;     // refused when it was to be opened: none of its records was applied
  bool is_unsynced;  // changed since it was opened
  bool sought;       // for its write-through groups, that the kernel has
  bool by_last;      // found by its last record of all, not by the newest one that the walk has met
  bool through;      // one of its records is of write-through, and applied
  bool is_born;      // its creation is in the logs' names
  int fd;
  uint32_t newer, older;  // open files, in the order of their last use
  uint32_t epoch;         // in the window: truncations and erasures until now
  uint64_t records;       // all that change it
  nvlog::Lsn changed;     // the last group that changes it
  nvlog::Lsn settled;     // its write-through groups below that are void
  // Its write-back groups below that are void. And when it was handed over: last, and before that.
  nvlog::Lsn settled_back, handed_over, handed_over_before;
  uint64_t bytes;
};

class Files {
 public:
  Files(const nvlog::Reader& reader, const nvlog::GroupWalk& walk, const Names& names)
      : reader_(reader), walk_(walk), names_(names), ahead_(reader) {}
  ~Files();
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  // False without memory. A `dry_run` changes nothing.
  bool Open(bool dry_run);

  // kNoFile has one, too: for the records whose file record is damaged.
  File& operator[](uint32_t file) { return file == nvlog::kNoFile ? nameless_ : files_[file]; }

  // Finds the file. Its state is kUnknown no more.
  void Resolve(uint32_t file);
  // These change a good file; one that was refused, not any more. The file is refused if that
  // fails. Writes the `bytes` of these pieces, which it uses up. The disk gets to work at once.
  void Write(uint32_t file, iovec* pieces, int n, size_t bytes, uint64_t offset);
  void Truncate(uint32_t file, uint64_t size);
  // Makes a range zero, as far as the file goes.
  void Erase(uint32_t file, uint64_t offset, uint64_t length);

  // A good file is synced with the others, though nothing was changed here.
  void Touch(uint32_t file);

  // Starts the write-out of what is left of it.
  void StartSync() { StartPiece(); }
  // fsync of one file that was changed; the file is refused if that fails. False if none was left.
  bool SyncNext();
  // A negated errno: of the first one that has failed; 0: none.
  long sync_error() const { return sync_error_; }
  uint32_t open() const { return open_; }

  // The record by which the file was looked for. False if it is damaged.
  bool CopyRecord(uint32_t file, pool::FileRecord* record) const;

 private:
  // A stretch of a file that was written to.
  struct Piece {
    uint32_t file;
    uint64_t begin;
    uint64_t end;
    uint64_t bytes;  // written within; 0: none
  };
  static constexpr uint32_t kInFlight = 4;

  void Refuse(File& file, long error);
  bool EnsureOpen(uint32_t file);
  long OpenNow(uint32_t file);
  long Find(uint32_t file);
  bool LookAhead();
  void SyncAndClose(uint32_t file);
  void AddToOpen(uint32_t file);
  void TakeFromOpen(uint32_t file);
  long SizeOf(const File& file, uint64_t* size) const;
  void WriteZeros(uint32_t file, uint64_t offset, uint64_t length);
  void WriteOut(uint32_t file, uint64_t offset, size_t bytes);
  void StartPiece();
  void AwaitPiece(const Piece& piece);

  const nvlog::Reader& reader_;
  const nvlog::GroupWalk& walk_;
  const Names& names_;
  nvlog::GroupWalk ahead_;  // was at the end of the logs, if a file could not be found else
  bool is_ahead_ = false;
  bool dry_run_ = false;
  long sync_error_ = 0;  // the first failed sync's
  File* files_ = nullptr;
  File nameless_ = {};
  uint64_t max_files_ = 0;
  uint32_t open_ = 0;
  uint32_t newest_ = nvlog::kNoFile;  // the open file that was used last
  uint32_t oldest_ = nvlog::kNoFile;
  uint64_t size_limit_ = 0;
  Piece filling_ = {};             // bytes that the disk was not told of yet
  Piece started_[kInFlight] = {};  // pieces that it may be at
  uint32_t next_piece_ = 0;        // the oldest of these
};

}  // namespace nvcache::replay

#endif  // NVCACHE_REPLAY_FILES_H_
