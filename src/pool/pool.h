// SPDX-License-Identifier: BSD-3-Clause
//
// A pool: opening, creating and checking it; its state and its tail. Holds what recovery needs and
// no more.
#ifndef NVCACHE_POOL_POOL_H_
#define NVCACHE_POOL_POOL_H_

#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/pmem/persist.h"
#include "src/pmem/region.h"
#include "src/pool/format.h"
#include "src/sys/text.h"

namespace nvcache::pool {

// What went wrong: one line that names the pool, what is wrong and what to do.
struct Problem {
  int error = 0;  // errno, for programs
  sys::Text<480> text;
};

// A mapped pool whose superblock is valid. Pointers into it; copies are cheap.
struct View {
  uint8_t* base = nullptr;
  const Superblock* superblock = nullptr;

  uint64_t salt() const { return superblock->salt; }
  uint64_t log_units() const { return superblock->log_units; }
  uint8_t* log() const { return base + superblock->log_offset; }
  FileRecord* file(uint32_t slot) const {
    return reinterpret_cast<FileRecord*>(base + kFileTableOffset) + slot;
  }
  TailRecord* tail_record(uint64_t i) const {  // 0 or 1
    return reinterpret_cast<TailRecord*>(base + kTailOffset + i * kTailDistance);
  }
  StateRecord* state() const { return reinterpret_cast<StateRecord*>(base + kStateOffset); }
  Statistics* statistics() const { return reinterpret_cast<Statistics*>(base + kStatisticsOffset); }
  LastWords* last_words() const { return reinterpret_cast<LastWords*>(base + kLastWordsOffset); }
};

// A counter of Statistics.
inline void Count(uint64_t& counter, uint64_t n = 1) { pmem::Add(counter, n); }
inline void Note(uint64_t& counter, uint64_t value) { pmem::Note(counter, value); }
template <typename Integer>
inline Integer Peek(const Integer& counter) {
  return std::atomic_ref(const_cast<Integer&>(counter)).load(std::memory_order_relaxed);
}

// The newest valid tail record. False when both are damaged; `records_valid` says how many are
// whole (a freshly created pool has two).
bool ReadTail(const View& view, uint64_t* tail, int* records_valid);

// A record of the file table is whole and belongs to `incarnation`.
bool FileRecordValid(const FileRecord& record, uint32_t incarnation);
uint32_t FileRecordCrc(const FileRecord& record);
// A copy of it to be used: what lies in a pool may change while we look. False if it is not whole.
bool CopyFileRecord(const FileRecord& record, FileRecord* copy);

// Fills what names the open file `fd` and makes it known again: everything but incarnation, crc and
// path. 0, or a negated errno.
long Identify(int fd, FileRecord* record);
// Both records name one file: the same inode, and not one that was freed and used again.
bool SameFile(const FileRecord& a, const FileRecord& b);
// Of what SameFile compares; never 0.
uint64_t Fingerprint(const FileRecord& record);
// `found` is the file that recovery created in place of the lost one that `record` names.
bool IsSuccessor(const FileRecord& found, const FileRecord& record);

// Durable when they return.
void SettleName(FileRecord* record);
void StoreSuccessor(FileRecord* record, const FileRecord& created);
// `position` below 2^kCutBits; 0: no cut.
void StoreCut(FileRecord* record, uint64_t position);
uint64_t CutWord(uint64_t position, uint32_t incarnation);

struct CreateOptions {
  uint64_t size = 0;     // bytes; rounded down to a whole page
  bool emulate = false;  // accept memory that is not persistent
};

enum class Access {
  kExclusive,  // locked; for use and for recovery. Only for the pool's owner
  kRecovery,   // the same, but root may have another user's pool: with that user's rights
  kInspect,    // read-only and not locked: contents may change while they are read
  kSalvage,    // as kInspect; state and tail may be damaged
};

class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Makes a pool at `path`, mode 0600, all blocks allocated. Never overwrites: an existing file is
  // an error (a devdax device is initialised, all of it, unless it holds a pool, damaged or not).
  static bool Create(const char* path, const CreateOptions& options, const pmem::Libpmem* libpmem,
                     Problem* problem);

  // Opens and checks. kExclusive fails when another process has the pool, when another user owns it
  // or may write to it, and, unless `emulate`, when the mapping is not persistent memory.
  bool Open(const char* path, Access access, bool emulate, const pmem::Libpmem* libpmem,
            Problem* problem);
  // Unlocks and unmaps, if it is open. The state on the medium stays as it is.
  void Close();

  bool is_open() const { return view_.base != nullptr; }
  const View& view() const { return view_; }
  const char* path() const { return path_.c_str(); }
  pmem::Durability durability() const { return region_.durability; }
  uint64_t device() const { return device_; }  // of the pool's own file, which is never cached
  uint64_t inode() const { return inode_; }
  uint32_t owner() const { return owner_; }  // of the pool's own file
  bool is_device() const { return is_device_; }
  bool others_may_write() const { return (mode_ & (S_IWGRP | S_IWOTH)) != 0; }
  int fd() const { return fd_; }
  // The program wants the descriptor's number: it gets another.
  void Renumber();

  // Pending entries may be there: the last user did not close it.
  bool dirty() const;
  // One of the two superblocks is.
  bool superblock_damaged() const;

  // Durable when they return. kExclusive only.
  void MarkInUse();
  void MarkClean();
  // The superblocks from the one that is whole, the tail of a clean pool. MarkInUse does it, too.
  void Repair();
  // I5: called before any unit below `tail` is used again. Never goes back, and never by more than
  // the log's units, so that the record before it is a bound, too; a jump is stored twice.
  void StoreTail(uint64_t tail, pmem::Step step = pmem::Step::kTail,
                 pmem::Step durable = pmem::Step::kTailDurable);

 private:
  bool OpenFile(Access access, Problem* problem);
  bool MapFile(Access access, bool emulate, const pmem::Libpmem* libpmem, Problem* problem);
  bool CheckOwner(Access access, Problem* problem) const;
  void ChooseSuperblock(const Superblock& first, const Superblock& copy);
  bool CheckSuperblock(uint64_t size, Problem* problem) const;
  bool CheckContents(Problem* problem);
  bool InUse(Problem* problem) const;
  void SecureSeen();
  void RepairTail();

  View view_;
  pmem::Region region_;
  const pmem::Libpmem* libpmem_ = nullptr;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  uint32_t owner_ = 0;
  uint32_t mode_ = 0;
  int fd_ = -1;
  void* lock_page_ = nullptr;  // mapped
  bool is_device_ = false;
  uint64_t sequence_ = 0;       // of the newest tail record
  uint64_t tail_ = 0;           // what it says
  Superblock superblock_ = {};  // checked copy: a later flip in the mapping cannot move our bounds
  sys::Text<512> path_;
};

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_POOL_H_
