// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/journaling.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "recovery/tool/mirroring.h"
#include "src/journal/file.h"
#include "src/pool/journal_memory.h"
#include "src/pool/view.h"
#include "src/sys/descriptor.h"

namespace nvcache::tool {
namespace {

// The mount that a file is reached by. An overlay's files have devices of their own, so the
// device's number does not lead there.
void FindMount(int fd, JournalFile* file) {
  struct statx of = {};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &of) != 0) return;
  if ((of.stx_mask & STATX_MNT_ID) == 0) return;
  std::ifstream mounts("/proc/self/mountinfo");
  // "36 35 98:0 /root /mount options shared:1 - ext4 /dev/root rw".
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    uint64_t id = 0;
    std::string word;
    if (!(words >> id) || id != of.stx_mnt_id) continue;
    while (words >> word && word != "-") continue;
    words >> file->file_system >> file->device;
    return;
  }
}

// A line that was stored to has a mark until a round takes it, and is in the round's list until it
// is written.
uint64_t BytesAhead(const pool::JournalMemory& memory) {
  const pmem::Marks marks = memory.marks();
  uint64_t lines = 0;
  for (uint64_t word = 0; word < marks.count() / pmem::Marks::kWordBits; ++word) {
    lines += static_cast<uint64_t>(std::popcount(marks.LinesOf(word)));
  }
  const uint64_t taken =
      std::min<uint64_t>(pool::Peek(memory.control().taken), journal::BatchMaker::kMaxPieces);
  for (uint64_t i = 0; i < taken; ++i) {
    lines += static_cast<uint64_t>(std::popcount(pool::Peek(memory.taken()[i].bits)));
  }
  return lines * journal::kLine;
}

}  // namespace

// A disk that has failed may not be readable any more.
JournalFile FindJournalFile(const std::string& path) {
  JournalFile found;
  const sys::Descriptor file(journal::Open(path.c_str(), false));
  struct stat st = {};
  if (!file.IsOpen() || fstat(file.get(), &st) != 0) return found;
  found.size = static_cast<uint64_t>(st.st_size);
  journal::Header header;
  if (journal::ReadHeaderAgain(file.get(), &header) == 0) {
    found.how = header.how;
    found.write_ns = header.write_ns;
  }
  FindMount(file.get(), &found);
  return found;
}

const char* HowName(const JournalFile& file) {
  return !file.how ? "" : *file.how == journal::kWriteThrough ? "dsync" : "flush";
}

std::string DiskText(const JournalFile& file) {
  std::string text = file.device.empty() ? "a device that is not known"
                                         : fmt::format("{} ({})", Printable(file.device),
                                                       Printable(file.file_system));
  if (!file.how) return text + ", which cannot be read";
  const bool through = *file.how == journal::kWriteThrough;
  text += fmt::format(", written with {}", through ? "RWF_DSYNC" : "a flush after each write");
  if (file.write_ns == 0) return text;
  return text +
         fmt::format(", {} each when it was made", Microseconds((file.write_ns + 500) / 1000));
}

Journaling FindJournaling(const ScopedPool& pool, const std::string& path) {
  Journaling journaling;
  journaling.there = pool.has_journal() || pool.lost;
  if (!journaling.there) return journaling;
  journaling.file = FindJournalFile(path);
  journaling.commit = pool.view().superblock->commit;
  journaling.has_memory = !pool.lost;
  if (pool.lost) return journaling;
  const pool::JournalMemory memory(pool.view().base, pool.size());
  const pool::JournalControl& control = memory.control();
  journaling.failed = pool::Peek(control.failed);
  journaling.state = pool::MirrorWords(pool.view()).state();
  journaling.ahead = BytesAhead(memory);
  journaling.batches = pool::Peek(control.batches);
  journaling.rounds = pool::Peek(control.rounds);
  journaling.bytes = pool::Peek(control.bytes);
  journaling.waits = pool::MirrorWords(pool.view()).waits();
  journaling.outputs = pool::MirrorWords(pool.view()).outputs();
  return journaling;
}

Journaling Between(const Journaling& before, const Journaling& now) {
  const auto since = [](uint64_t from, uint64_t to) { return to >= from ? to - from : to; };
  Journaling between = now;
  between.batches = since(before.batches, now.batches);
  between.rounds = since(before.rounds, now.rounds);
  between.bytes = since(before.bytes, now.bytes);
  between.waits = Between(before.waits, now.waits);
  between.outputs = Between(before.outputs, now.outputs);
  return between;
}

std::string JournalText(const Journaling& journaling) {
  if (!journaling.has_memory) {
    return "the pool has no memory now, as before its first use and after a start of the machine: "
           "the next use makes it from the journal";
  }
  const std::string done = fmt::format("{}, {}, since its memory was made; {} ahead of it",
                                       Many(journaling.batches, "write", "writes"),
                                       Size(journaling.bytes), Size(journaling.ahead));
  if (journaling.failed == 0) return done;
  const char* const meaning = journaling.state == pool::kMirrorReal ? "syncs are real"
                              : journaling.state == pool::kMirrorLeaving
                                  ? "syncs wait until all is on the disk"
                                  : "calls that wait for it fail with EIO";
  return fmt::format("has failed ({}), and {}; {}", ErrorName(static_cast<int>(journaling.failed)),
                     meaning, done);
}

Json JournalJson(const Journaling& journaling) {
  if (!journaling.there) return nullptr;
  const JournalFile& file = journaling.file;
  Json json = {
      {"commit", CommitWord(journaling.commit)},
      {"device", file.device.empty() ? Json() : Json(Printable(file.device))},
      {"file_system", file.device.empty() ? Json() : Json(Printable(file.file_system))},
      {"file_size", file.size},
      {"write", file.how ? Json(HowName(file)) : Json()},
      {"write_ns", file.write_ns != 0 ? Json(file.write_ns) : Json()},
      {"memory", journaling.has_memory},
      {"failed",
       journaling.failed != 0 ? Json(ErrorName(static_cast<int>(journaling.failed))) : Json()},
      {"batches", journaling.batches},
      {"rounds", journaling.rounds},
      {"bytes", journaling.bytes},
      {"bytes_ahead", journaling.ahead}};
  PutWaits(&json, journaling.waits);
  if (journaling.commit == pool::kCommitOutput) PutOutputs(&json, journaling.outputs);
  return json;
}

}  // namespace nvcache::tool
