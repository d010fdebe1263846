// SPDX-License-Identifier: BSD-3-Clause
//
// Writes the journal of a pool (docs/disk.md). Whoever waits for the journal and finds nobody at it
// leads: one round takes all marks that were set before, whoever has set them, and writes them.
//
// Those whom the round before has served come again soon, if they are threads that write and sync
// over and over: a leader waits for as many as that, for half the time of a write at most, and less
// where it was in vain (group commit; D. DeWitt et al., "Implementation Techniques for Main Memory
// Database Systems", SIGMOD 1984).
//
// A round, in this order:
//   1  `begun` goes up, and L is read: the LSN that is drawn next
//   2  the marks of the two upper levels are taken
//   3  word by word: marks of lines go into the list in shared memory; they are cleared; the lines
//      are copied. A full batch is written, and the list is empty
//   4  the same with the words of the pool's header, again until none of them is marked any more
//   5  the last batch ends the round. L and `done` are published, the lock is free, and those who
//      wait are woken
//
// So a round has no line of the header that is older than anything else in it: a line that was
// marked before another one was stored is seen after that one was copied. What is stored to the
// header one after the other is in the journal in that order, and nobody has to wait in between
// (pmem::PsyncOfHeader). Step 4 ends, for who stores to the header does so a few times before he
// waits for a round.
//
// A leader that dies leaves `leads` and the list. The next one sets the marks of the list again,
// and all of the upper levels. What batches of the round have been written stays: the next round's
// end counts for them as well.
#ifndef NVCACHE_POOL_JOURNAL_LEADER_H_
#define NVCACHE_POOL_JOURNAL_LEADER_H_

#include <atomic>
#include <cstdint>

#include "src/journal/format.h"
#include "src/pool/journal_memory.h"
#include "src/pool/mirror_words.h"

namespace nvcache::pool {

class JournalLeader {
 public:
  // `fd` is open to the journal by journal::Open, for this object alone: its locks are those of
  // the open file.
  JournalLeader(const JournalMemory& memory, int fd, const journal::Header& header);

  enum class Outcome {
    kLed,     // all that was marked before is in the journal; the caller wakes, by TakeTurn()
    kBusy,    // somebody else leads
    kFailed,  // the journal has failed, now or before
    // This process may not write so far into a file (RLIMIT_FSIZE), or the program has closed the
    // descriptor, and the number may be that of a file of its own; if since the round has begun,
    // the next leader begins it anew.
    kUnable,
  };
  Outcome Lead();
  // Leads, or waits for those who do. False: the journal has failed. One that this process could
  // not bring forward for a second, and nobody else has, has failed as well.
  bool Await();
  // That has happened.
  void GiveUp();
  // Another number of the same open file.
  void SetDescriptor(int fd);

 private:
  MirrorWords words() const { return MirrorWords(view_); }
  JournalControl& control() const { return memory_.control(); }
  const journal::Position& position() const { return control().positions[control().position]; }
  uint64_t RoomInHalf() const { return position().half_end - position().place; }
  void MoveTo(const journal::Position& next) const;

  Outcome Leave();
  bool MayWrite() const;
  void Gather();
  bool Round(Lsn* published);
  void TakeOver();
  bool HasUnended() const;
  bool GoBack();
  uint64_t MarkBatchAt(uint64_t place, journal::BatchHeader* header) const;
  bool Erase(uint64_t place);
  void MakeRoom();
  void TakeWords();
  void PutWordsBack();
  void MarkNeeded(uint64_t most);
  uint64_t NextNeeded(uint64_t line) const;
  uint64_t MarkNeededIn(uint64_t word) const;
  bool WriteWords();
  bool WriteWord(uint64_t word);
  bool WriteHeader();
  void Take(uint32_t begin, uint64_t word, uint64_t bits) const;
  bool WriteBatch(uint32_t flags);
  bool Withdraw();
  bool Fail(long error);

  const JournalMemory memory_;
  View view_;
  int fd_;
  const uint32_t seed_;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  const uint32_t how_;  // journal::Header::how
  const uint64_t half_size_;
  const uint64_t segment_lines_;
  std::atomic<bool> busy_{false};  // in this process

  // Within a round.
  journal::BatchMaker batch_;
  Lsn bound_ = 0;
  uint64_t header_ = 0;      // words of the header of which a mark was seen
  uint64_t word_count_ = 0;  // in memory_.words()
  uint64_t pages_ = 0;       // words of lines that these name
  uint64_t written_ = 0;     // bytes
  bool withdrawn_ = false;
};

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_JOURNAL_LEADER_H_
