// SPDX-License-Identifier: BSD-3-Clause
//
// A process's use of a journal (docs/disk.md): the file on the disk, and the memory in /dev/shm
// that belongs to it, which is made from the journal when it is not there.
#ifndef NVCACHE_POOL_JOURNAL_H_
#define NVCACHE_POOL_JOURNAL_H_

#include <sys/stat.h>

#include <cstdint>
#include <optional>

#include "src/journal/file.h"
#include "src/pool/journal_leader.h"
#include "src/pool/journal_memory.h"
#include "src/pool/problem.h"
#include "src/sys/text.h"

namespace nvcache::pool {

class Journal {
 public:
  Journal() = default;
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // The file behind `fd` has a header of a journal, of whatever version.
  static bool IsOne(int fd);
  // Begins a journal in a file that is large enough and full of zeros: with a new pool, whose bytes
  // but for zeros at its end are `image`. `fd` is from journal::Open(). 0, or a negated errno.
  static long Create(int fd, const uint8_t* image, uint64_t bytes);

  // It has failed, and the files have all that was acknowledged: nothing in the ring is ever to be
  // applied. In memory that is there, the pool stays what it is. 0, or a negated errno: the ring
  // may count still.
  long MakeVoid() const;

  // The path of the memory that belongs to a journal, by uuid and file.
  using MemoryPath = sys::Text<96>;
  static MemoryPath PathOf(const journal::Header& header, const struct stat& st);
  // Opens that memory, if it is there, belongs to this run of the kernel and to the newest header.
  // `fd`: of the journal, by the page cache. A negated errno; ENOENT: its memory is gone; ESTALE:
  // it is not the journal's, but some stranger's file.
  static long OpenMemory(int fd, bool for_writing, journal::Header* header);

  // Opens the journal for use, and its memory, which is made from the journal if need be. Whoever
  // has it open keeps others from making another one. `named`: what `path` leads to, open by the
  // page cache. The memory's descriptor, or -1.
  int Open(const char* path, int named, Problem* problem);
  // The memory is mapped there from now on, by the caller.
  void Use(uint8_t* base);
  // Maps it, until Close().
  bool Map(int memory);
  // In a child of fork, or where the descriptor was lost: an open file of its own to the journal,
  // which `path` leads to, for the memory that is mapped. False: nothing has changed.
  bool Reopen(const char* path, Problem* problem);
  // A thread that led is no more, and we live: its lock goes.
  void Abandon();
  bool is_open() const { return fd_ >= 0; }
  bool is_used() const { return leader_.has_value(); }
  // PWB marks lines of it, and PSYNC waits, until Close().
  void BeginMarking();
  void Close();

  int fd() const { return fd_; }
  // The program wants the descriptor's number: it gets another one, if there is one. The old one is
  // the caller's to close, or to be taken.
  void Renumber();
  const JournalMemory& memory() const { return memory_; }
  JournalLeader::Outcome Lead() { return leader_->Lead(); }
  bool Await() { return leader_->Await(); }
  void GiveUp() { leader_->GiveUp(); }

 private:
  void CloseDescriptor();
  bool Take(const char* path, int named, long* memory, Problem* problem);
  bool Make(const char* path, int named, Problem* problem);
  bool Fill(const char* path, int memory, Problem* problem);
  bool ReadRing(const char* path, const JournalMemory& memory, Problem* problem) const;

  journal::Header header_ = {};
  int fd_ = -1;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  bool marks_ = false;
  uint64_t mapped_ = 0;  // bytes, at memory_.base(), if it is ours to unmap
  JournalMemory memory_;
  std::optional<JournalLeader> leader_;
};

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_JOURNAL_H_
