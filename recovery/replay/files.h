// SPDX-License-Identifier: BSD-3-Clause
//
// The files that a replay writes to, by slot of the pool's file table. Few are open at a time.
#ifndef NVCACHE_RECOVERY_REPLAY_FILES_H_
#define NVCACHE_RECOVERY_REPLAY_FILES_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "src/nvlog/entry.h"
#include "src/pool/pool.h"

namespace nvcache::recovery {

// What became of a file. All zero: no entry was met that names it.
struct File {
  enum State : uint32_t {
    kUnknown,
    kGood,        // its entries were applied
    kUnresolved,  // not found, or not the one: its entries cannot be applied
    kRefused,     // the file system took not all of them
  };
  State state;
  int error;  // errno, if not good
  bool is_open;
  bool recreated;    // or would be, in a dry run
  bool unopened;     // refused when it was to be opened: none of its entries was applied
  bool is_unsynced;  // written to since it was opened
  int fd;
  uint64_t last_use;
  uint64_t entries;  // all that name it
  uint64_t bytes;
  nvlog::Position cut;  // entries before it are nothing; 0: all count
};

class Files {
 public:
  Files() = default;
  ~Files();
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  // False without memory. A `dry_run` creates nothing. The log is read from `begin` on.
  bool Open(const pool::View& view, nvlog::Position begin, bool dry_run);

  File& operator[](uint32_t slot) { return files_[slot]; }
  uint32_t slots() const { return slots_; }

  // Finds the file of `slot`, which must hold `incarnation`, or creates it again if the file system
  // may have lost it; and cuts it, if that may be undone. Its state is kUnknown no more.
  void Resolve(uint32_t slot, uint32_t incarnation);
  // Writes the `bytes` of these pieces, which it uses up, to a good file; to one that was refused
  // nothing more. The file is refused if that fails. The disk gets to work at once.
  void Write(uint32_t slot, iovec* pieces, int n, size_t bytes, uint64_t offset);

  // Starts the write-out of what is left of it.
  void StartSync() { StartPiece(); }
  // fsync of one file that was written to, and of its name if that is new; the file is refused if
  // that fails. False if none was left.
  bool SyncNext();
  uint32_t open() const { return open_; }

  // What the record says of a cut counts.
  bool IsCut(uint32_t slot) const { return CutOf(slot) >= begin_; }
  // The file was cut and synced, and no entry before the cut is left.
  void ForgetCut(uint32_t slot);

  void MakeUnresolved(uint32_t slot, int error);

 private:
  // A stretch of a file that was written to.
  struct Piece {
    uint32_t slot;
    uint64_t begin;
    uint64_t end;
    uint64_t bytes;  // written within; 0: none
  };
  static constexpr uint32_t kInFlight = 4;

  nvlog::Position CutOf(uint32_t slot) const {
    return pool::CutPosition(pool::Peek(view_.file(slot)->cut));
  }
  void Cut(uint32_t slot);
  void Refuse(File& file, int error);
  bool EnsureOpen(uint32_t slot);
  long OpenNow(uint32_t slot);
  long FindOrRecreate(uint32_t slot);
  void SyncAndClose(uint32_t slot);
  void CloseOldest();
  void WriteOut(uint32_t slot, uint64_t offset, size_t bytes);
  void StartPiece();
  void AwaitPiece(const Piece& piece);

  pool::View view_;
  nvlog::Position begin_ = 0;
  bool dry_run_ = false;
  File* files_ = nullptr;
  uint32_t slots_ = 0;
  uint32_t open_ = 0;
  uint64_t uses_ = 0;
  uint64_t size_limit_ = 0;
  uint32_t next_to_sync_ = 0;
  Piece filling_ = {};             // what the disk was not told of yet
  Piece started_[kInFlight] = {};  // what it may be at
  uint32_t oldest_ = 0;            // of these
};

}  // namespace nvcache::recovery

#endif  // NVCACHE_RECOVERY_REPLAY_FILES_H_
