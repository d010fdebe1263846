// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/journal_leader.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "src/journal/file.h"
#include "src/pool/byte_locks.h"
#include "src/sys/bits.h"
#include "src/sys/born_stat.h"
#include "src/sys/check.h"
#include "src/sys/deferral.h"
#include "src/sys/filter.h"
#include "src/sys/kernel.h"
#include "src/sys/lock.h"
#include "src/sys/size_limit.h"
#include "src/sys/text.h"

namespace nvcache::pool {

namespace {

using journal::Position;
using journal::RoundBytes;

constexpr uint64_t kLine = journal::kLine;
constexpr uint64_t kWordLines = pmem::Marks::kWordBits;
constexpr uint64_t kWordBytes = kWordLines * kLine;

// Words of marks that are the pool's header: superblock, checkpoints and state.
constexpr uint64_t kHeaderWords = kSharedOffset / kWordBytes;
static_assert(kSharedOffset % kWordBytes == 0 && kHeaderWords < kWordLines);
constexpr uint64_t kHeaderBits = (uint64_t{1} << kHeaderWords) - 1;

// A round marks so much again of what the other half has, beside what it was begun for: this, and
// so many times what the round before has written.
constexpr uint64_t kAgain = 64u << 10, kAgainTimes = 8;

// Others are waited for as long as a write takes, divided by this: at first, and at least.
constexpr uint64_t kPatience = 2, kLeastPatience = 16;

// A leader that has died wakes nobody.
constexpr uint64_t kLookNs = 10 * 1000 * 1000;
constexpr uint64_t kUnableNs = 1000 * 1000 * 1000;

template <typename Integer>
std::atomic_ref<Integer> Of(Integer& field) {
  return std::atomic_ref(field);
}

bool IsZero(const uint8_t* line) {
  const auto* words = reinterpret_cast<uint64_t*>(const_cast<uint8_t*>(line));
  return std::all_of(words, words + kLine / sizeof(uint64_t), [](const uint64_t& word) {
    return Of(const_cast<uint64_t&>(word)).load(std::memory_order_relaxed) == 0;
  });
}

}  // namespace

JournalLeader::JournalLeader(const JournalMemory& memory, int fd, const journal::Header& header)
    : memory_(memory),
      fd_(fd),
      seed_(journal::SeedOf(header.uuid)),
      how_(header.how),
      half_size_(header.half_size),
      segment_lines_(GeometryOf(header.pool_size).segment_size / kLine),
      batch_(memory.buffer(), memory.pieces()) {
  view_.base = memory.base();
  struct stat st = {};
  sys::LookUntimed(fd, &st);
  device_ = st.st_dev;
  inode_ = st.st_ino;
}

// ---------------------------------------------------------------------------------------------
// Who leads.

// The locks are free before anybody is woken: else the next one would find them taken, and sleep.
JournalLeader::Outcome JournalLeader::Lead() {
  if (busy_.exchange(true)) return Outcome::kBusy;
  if (!MayWrite()) {
    busy_.store(false);
    return Of(control().failed).load() != 0 ? Leave() : Outcome::kUnable;
  }
  const sys::SignalsBlocked blocked;  // by Ctrl-Z, a leader would stop all the others
  if (!HoldByte(fd_, kLeaderByte, false)) {
    busy_.store(false);
    return Outcome::kBusy;
  }
  Lsn published = 0;
  Gather();
  const bool done = Of(control().failed).load() == 0 && Round(&published);
  if (done) words().RaiseMirrored(published);
  ReleaseByte(fd_, kLeaderByte);
  const bool withdrawn = std::exchange(withdrawn_, false);
  busy_.store(false);
  if (withdrawn) return Outcome::kUnable;
  return done ? Outcome::kLed : Leave();
}

// By each who finds that the journal has failed: whoever failed it may have died before.
JournalLeader::Outcome JournalLeader::Leave() {
  words().ChangeState(kMirrorMirrored, kMirrorLeaving);
  return Outcome::kFailed;
}

// The kernel would not only refuse but kill the program (SIGXFSZ).
bool JournalLeader::MayWrite() const {
  struct stat st = {};
  return sys::FileSizeLimit() >= journal::kRingOffset + 2 * half_size_ &&
         sys::LookUntimed(fd_, &st) == 0 && st.st_dev == device_ && st.st_ino == inode_;
}

// A round that has begun may have taken its marks before ours were set.
bool JournalLeader::Await() {
  const uint64_t wanted = Of(control().begun).load() + 1;
  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
  for (;;) {
    const uint32_t turn = words().turn();
    if (Of(control().done).load() >= wanted) return true;
    switch (Lead()) {
      case Outcome::kLed:
        words().TakeTurn();
        break;
      case Outcome::kBusy:
        words().AwaitTurn(turn, kLookNs);
        break;
      case Outcome::kFailed:
        return false;
      case Outcome::kUnable:
        if (sys::Now(CLOCK_MONOTONIC) - begin >= kUnableNs) {
          GiveUp();
          return false;
        }
        words().AwaitTurn(turn, kLookNs);
        break;
    }
  }
}

void JournalLeader::GiveUp() {
  Fail(-EBADF);
  Leave();
}

// A round of ours ends first.
void JournalLeader::SetDescriptor(int fd) {
  while (busy_.exchange(true)) sys::Pause(kLookNs / 100);
  fd_ = fd;
  busy_.store(false);
}

// Somebody has died, and his lock is ours.
void JournalLeader::TakeOver() {
  JournalControl& c = control();
  const uint32_t taken = Of(c.taken).load();
  for (uint32_t i = 0; i < taken; ++i) {
    memory_.marks().SetLines(memory_.taken()[i].word, memory_.taken()[i].bits);
  }
  Of(c.taken).store(0);
  memory_.marks().SetAllAbove();
}

// Batches of a round that a dead leader has not ended, in a half that is not whole: they take the
// room of the next round.
bool JournalLeader::HasUnended() const {
  const Position& end = position();
  const uint64_t round = Of(control().round).load(), begin = end.half_end - half_size_;
  return end.is_whole == 0 && round >= begin && round < end.place;
}

// Marks the lines of the batch, again. Its size; or 0: there is none any more.
uint64_t JournalLeader::MarkBatchAt(uint64_t place, journal::BatchHeader* header) const {
  uint8_t* const buffer = memory_.buffer();
  const auto read = [&](uint64_t begin, uint64_t end) {
    return begin == end || sys::Pread(fd_, buffer + begin, end - begin, place + begin) ==
                               static_cast<long>(end - begin);
  };
  if (!read(0, journal::kBlock)) return 0;
  std::memcpy(header, buffer, sizeof(*header));
  if (!journal::IsHeader(*header, seed_) || header->life != control().life) return 0;
  const uint64_t size = journal::SizeOf(*header);
  if (!read(journal::kBlock, size) || !journal::IsWhole(buffer, memory_.pool_size())) return 0;
  const auto* pieces =
      reinterpret_cast<const journal::Piece*>(buffer + sizeof(*header) + header->lines * kLine);
  for (uint32_t i = 0; i < header->pieces; ++i) {
    memory_.marks().Set(pieces[i].line, pieces[i].count);
  }
  return size;
}

bool JournalLeader::Erase(uint64_t place) {
  std::memset(memory_.buffer(), 0, journal::kBlock);
  const long error = journal::Write(fd_, memory_.buffer(), journal::kBlock, place, how_);
  return error == 0 || (MayWrite() ? Fail(error) : Withdraw());
}

// To where the dead leader's round began. First its lines are marked, so whoever dies in here
// leaves no less; then its headers are erased, the last one first: one that is behind a batch that
// is torn would be a witness of damage. The first is written over by the next batch.
bool JournalLeader::GoBack() {
  const Position end = position();
  TakenMarks* const places = memory_.words();
  journal::BatchHeader header, first = {};
  uint64_t count = 0;
  for (uint64_t place = control().round, size = 0; place < end.place; place += size) {
    size = MarkBatchAt(place, &header);
    if (size == 0 || (count > 0 && header.sequence != first.sequence + count)) break;
    if (count == 0) first = header;
    NVCACHE_CHECK(count < pmem::Marks::WordWords(memory_.pool_size() / kLine));
    places[count++].word = place;
  }
  if (count == 0) return Fail(-EIO);
  if (end.place < end.half_end && !Erase(end.place)) return false;
  while (count > 1) {
    if (!Erase(places[--count].word)) return false;
  }
  Position next = end;
  next.sequence = first.sequence;
  next.previous = first.previous;
  next.place = control().round;
  MoveTo(next);
  return true;
}

// ---------------------------------------------------------------------------------------------
// A round.

// The bell before the bound: who has rung has drawn his LSN.
void JournalLeader::Gather() {
  JournalControl& c = control();
  const auto came = [&] { return words().bell() - c.bell; };
  if (c.served > 1 && came() < c.served && Of(c.failed).load() == 0) {
    const uint64_t until = sys::Now(CLOCK_MONOTONIC) + c.patience_ns;
    while (came() < c.served && sys::Now(CLOCK_MONOTONIC) < until) {
      sys::CallIfAllowed(SYS_sched_yield, 0, 0, 0);
    }
    const uint64_t less = std::max(c.patience_ns / 2, c.took_ns / kLeastPatience);
    c.patience_ns = came() < c.served ? less : c.took_ns / kPatience;
  }
  c.served = came();
  c.bell += c.served;
}

bool JournalLeader::Round(Lsn* published) {
  JournalControl& c = control();
  if (Of(c.leads).load() != 0) {
    TakeOver();
    if (HasUnended() && !GoBack()) return false;
  }
  Of(c.leads).store(1);
  const uint64_t round = Of(c.begun).fetch_add(1) + 1;
  const Lsn next = words().next(), cut = Of(c.cut).load();
  bound_ = cut != 0 ? cut : next;
  const uint64_t quiet = std::exchange(c.quiet, 0);
  written_ = 0;
  header_ = 0;
  MakeRoom();
  // Nothing that was committed by now has an LSN that the last batch's bound does not cover.
  const bool nothing = word_count_ == 0 && header_ == 0 && quiet != 0 && cut == 0;
  if (!nothing && !WriteWords()) return false;
  if (nothing || (cut == 0 && words().next() == bound_)) c.quiet = bound_;
  c.last_round = written_;
  if (!nothing) Of(c.round).store(position().place);
  Of(c.rounds).fetch_add(1, std::memory_order_relaxed);
  Of(c.done).store(round);
  Of(c.leads).store(0);
  *published = next;
  return true;
}

// What this round takes fits into the half; and so does, in a half that is not whole yet, a round
// after it that takes everything.
void JournalLeader::MakeRoom() {
  if (position().is_whole == 0) MarkNeeded(kAgain + kAgainTimes * control().last_round);
  TakeWords();
  const uint64_t wanted = RoundBytes(pages_ * kWordBytes);
  if (position().is_whole != 0 && RoomInHalf() < wanted) {
    const Position& then = position();
    MoveTo(journal::BeginHalf(1 - then.half, half_size_, then.sequence, then.previous));
    Of(control().round).store(position().place);
  }
  if (position().is_whole != 0 || RoomInHalf() >= wanted + RoundBytes(memory_.pool_size())) return;
  PutWordsBack();
  MarkNeeded(~uint64_t{0});
  TakeWords();
}

void JournalLeader::MoveTo(const Position& next) const {
  JournalControl& c = control();
  const uint32_t other = 1 - c.position;
  c.positions[other] = next;
  Of(c.position).store(other);
}

// But for the header's.
void JournalLeader::TakeWords() {
  word_count_ = 0;
  pages_ = kHeaderWords;
  memory_.marks().TakeWords([this](uint64_t index, uint64_t bits) {
    if (index == 0) header_ |= bits & kHeaderBits;
    if (index == 0) bits &= ~kHeaderBits;
    if (bits == 0) return;
    memory_.words()[word_count_++] = {index, bits};
    pages_ += sys::CountBits(bits);
  });
}

void JournalLeader::PutWordsBack() {
  for (uint64_t i = 0; i < word_count_; ++i) {
    const TakenMarks& taken = memory_.words()[i];
    for (uint64_t bits = taken.bits; bits != 0; bits &= bits - 1) {
      const auto bit = static_cast<uint64_t>(std::countr_zero(bits));
      memory_.marks().SetLines(taken.word * kWordLines + bit, 0);
    }
  }
}

// ---------------------------------------------------------------------------------------------
// Before a half is written over, what is needed of it is in the other one.

// The first line from there on that is needed: of the header page, or of a segment that somebody
// has. The shared state between them says nothing in another run of the kernel.
uint64_t JournalLeader::NextNeeded(uint64_t line) const {
  constexpr uint64_t kShared = kSharedOffset / kLine, kSegments = kSegmentsOffset / kLine;
  if (line < kShared) return line;
  line = std::max(line, kSegments);
  auto* owners = reinterpret_cast<Owner*>(memory_.base() + kOwnersOffset);
  const uint64_t count = GeometryOf(memory_.pool_size()).segment_count;
  for (uint64_t number = (line - kSegments) / segment_lines_; number < count; ++number) {
    const bool needed = control().every_line != 0 || Of(owners[number]).load() != 0;
    if (needed) return std::max(line, kSegments + number * segment_lines_);
  }
  return memory_.pool_size() / kLine;
}

// In memory that is new, all that nobody stores to is zero. Returns how many lines it has marked.
uint64_t JournalLeader::MarkNeededIn(uint64_t word) const {
  uint64_t bits = 0;
  const uint8_t* lines = memory_.base() + word * kWordBytes;
  for (uint64_t i = 0; i < kWordLines; ++i) {
    if (!IsZero(lines + i * kLine)) bits |= uint64_t{1} << i;
  }
  if (bits != 0) memory_.marks().SetLines(word, bits);
  return sys::CountBits(bits);
}

// About so many bytes; to look at a line counts as well.
void JournalLeader::MarkNeeded(uint64_t most) {
  Position next = position();
  const uint64_t end = memory_.pool_size() / kLine;
  for (uint64_t bytes = 0; bytes < most; next.next_line += kWordLines) {
    next.next_line = NextNeeded(next.next_line);
    if (next.next_line >= end) break;
    bytes += MarkNeededIn(next.next_line / kWordLines) * kLine + kWordLines;
  }
  MoveTo(next);
}

// ---------------------------------------------------------------------------------------------
// Batches.

bool JournalLeader::WriteWords() {
  batch_.Begin();
  for (uint64_t i = 0; i < word_count_; ++i) {
    const TakenMarks taken = memory_.words()[i];
    for (uint64_t bits = taken.bits; bits != 0; bits &= bits - 1) {
      const auto bit = static_cast<uint64_t>(std::countr_zero(bits));
      if (!WriteWord(taken.word * kWordLines + bit)) return false;
    }
  }
  return WriteHeader() && WriteBatch(journal::kEndsRound);
}

// The list, the marks, the lines: so none is lost with us, and none that is stored to afterwards.
bool JournalLeader::WriteWord(uint64_t word) {
  const uint64_t bits = memory_.marks().LinesOf(word);
  if (!batch_.HasRoom(sys::CountBits(bits)) && !WriteBatch(0)) return false;
  if (bits == 0) return true;
  Take(Of(control().taken).load(), word, bits);
  batch_.AddMarked(memory_.base(), word * kWordLines, bits);
  return true;
}

// Into the word's entry of those from `begin` on, or a new one.
void JournalLeader::Take(uint32_t begin, uint64_t word, uint64_t bits) const {
  JournalControl& c = control();
  TakenMarks* const list = memory_.taken();
  const uint32_t taken = Of(c.taken).load();
  uint32_t entry = begin;
  while (entry < taken && list[entry].word != word) ++entry;
  if (entry == taken) {
    list[entry] = {word, 0};
    Of(c.taken).store(taken + 1);
  }
  Of(list[entry].bits).store(list[entry].bits | bits);
  memory_.marks().ClearLines(word, bits);
}

// All of it that was taken is copied each time: so the copies are of one moment.
bool JournalLeader::WriteHeader() {
  if (!batch_.HasRoom(kHeaderWords * kWordLines) && !WriteBatch(0)) return false;
  const JournalControl& c = control();
  const uint32_t begin = c.taken;
  const auto end = batch_.end();
  const pmem::Marks marks = memory_.marks();
  for (uint64_t more = header_ | marks.TakeWord(0, kHeaderBits); more != 0;) {
    for (; more != 0; more &= more - 1) {
      const auto word = static_cast<uint64_t>(std::countr_zero(more));
      if (const uint64_t bits = marks.LinesOf(word); bits != 0) Take(begin, word, bits);
    }
    batch_.CutTo(end);
    for (uint32_t i = begin; i < c.taken; ++i) {
      const TakenMarks& taken = memory_.taken()[i];
      batch_.AddMarked(memory_.base(), taken.word * kWordLines, taken.bits);
    }
    more = marks.TakeWord(0, kHeaderBits);
  }
  return true;
}

bool JournalLeader::WriteBatch(uint32_t flags) {
  JournalControl& c = control();
  Position next = position();
  const uint64_t size = batch_.size();
  if (next.place + size > next.half_end) return Fail(-ENOSPC);
  const bool ends = (flags & journal::kEndsRound) != 0;
  if (ends && next.next_line >= memory_.pool_size() / kLine) next.is_whole = 1;
  journal::BatchHeader header = {};
  header.sequence = next.sequence;
  header.bound = bound_;
  header.flags = flags | (next.is_whole != 0 ? journal::kIsWhole : 0);
  header.previous = next.previous;
  header.life = c.life;
  batch_.End(seed_, &header);
  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
  if (const long error = journal::Write(fd_, memory_.buffer(), size, next.place, how_); error < 0) {
    return MayWrite() ? Fail(error) : Withdraw();
  }
  c.took_ns = sys::Now(CLOCK_MONOTONIC) - begin;
  ++next.sequence;
  next.place += size;
  next.previous = header.body_crc;
  MoveTo(next);
  Of(c.taken).store(0);
  written_ += size;
  Of(c.batches).fetch_add(1, std::memory_order_relaxed);
  Of(c.bytes).fetch_add(size, std::memory_order_relaxed);
  batch_.Begin();
  return true;
}

// Another thread has lowered the size limit meanwhile, or the program has the number for another
// file. The next leader finds the round as a dead one has left it.
bool JournalLeader::Withdraw() {
  withdrawn_ = true;
  sys::SignalsBlocked::Drop(SIGXFSZ);
  return false;
}

// It is not written again: nobody knows what lies there, and a second try may seem to succeed when
// the first one has taken older bytes with it.
bool JournalLeader::Fail(long error) {
  uint32_t none = 0;
  const auto number = static_cast<uint32_t>(-error);
  if (!Of(control().failed).compare_exchange_strong(none, number)) return false;
  Leave();
  sys::Text<160> text;
  text.Append("the pool's journal cannot be written, error ");
  text.AppendNumber(static_cast<uint64_t>(-error));
  text.Append(": syncs go to the disk from now on; make a new pool");
  sys::Report(text.c_str());
  return false;
}

}  // namespace nvcache::pool
