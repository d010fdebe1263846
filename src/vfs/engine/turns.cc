// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/turns.h"

#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/vfs/engine/checkpoint.h"
#include "src/vfs/engine/outside.h"
#include "src/vfs/engine/states.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/engine/through_file.h"

namespace nvcache::vfs {

namespace {

using lease::Coverage;
using lease::FileEntry;
using lease::FileTable;

// A descriptor of the program's; -1: none. Table lock.
int DescriptorOf(const File& file) {
  const Description* hinted = engine.descriptors.Of(file.turn_fd.load());
  if (IsDescription(hinted) && hinted->file.load() == &file) return file.turn_fd.load();
  for (const Description* d = file.descriptions; d != nullptr; d = d->next) {
    if (const int fd = engine.descriptors.NumberOf(*d); fd >= 0) return fd;
  }
  return -1;
}

}  // namespace

void Turns::End() {
  NVCACHE_CHECK(engine.table_lock.IsLocked());
  // Files of the first turn were not listed: no process has to list what it writes that never lets
  // go of a lock.
  if (turn_.fetch_add(1) == 0) {
    for (int fd = 0; fd < static_cast<int>(engine.descriptors.end()); ++fd) {
      const Description* description = engine.descriptors.Of(fd);
      if (IsDescription(description)) description->file.load()->turn_fd.store(fd);
    }
    engine.files.ForEach([this](File& file) {
      if (IsKernels(file.state.load()) && file.said_open) Keep(file);
    });
    return;
  }
  for (File* file = listed_.exchange(nullptr); file != nullptr;) {
    File* const next = file->turn_next;
    file->in_turn.store(false);
    Keep(*file);
    file = next;
  }
}

// The numbers of groups and bypasses are read first. A call of ours that comes later than the look
// at the file changes them, or is seen to be in flight.
void Turns::Keep(File& file) {
  if (!engine.leases.is_open() || !IsKernels(file.state.load())) return;
  FileEntry* entry = engine.file_table.Find(TagOf(file));
  const int fd = entry != nullptr ? DescriptorOf(file) : -1;
  if (fd < 0) return;
  const Coverage now = FileTable::CoverageOf(*entry);
  const uint32_t stamped_at = FileTable::Progress(*entry);
  struct stat st;
  if (now.tag != TagOf(file) || sys::Fstat(fd, &st) < 0) return;
  // Another thread is at a call: it does not wait for the lock that is let go of.
  if (engine.file_table.AnybodyChanges(now.tag, 0)) {
    file.turn.store(turn_.load());
    List(file);
    return;
  }
  if (file.turn.load() == 0) file.turn.store(~uint64_t{0});
  file.bytes_stamp = BytesStamp(st);
  FileTable::CarryCloseStamp(
      *entry, now.known ? StampOf(st.st_ctim, static_cast<uint64_t>(st.st_size)) : 0, stamped_at);
}

void Turns::List(File& file) {
  if (file.in_turn.exchange(true)) return;
  File* head = listed_.load();
  do {
    file.turn_next = head;
  } while (!listed_.compare_exchange_weak(head, &file));
}

// Somebody without NVCache, for sure, has changed the file's bytes since it was left. `changed`: it
// is not as it was, by whom ever.
bool Turns::WasWrittenOutside(const File& file, int fd, const FileEntry& entry, uint32_t in_flight,
                              bool* changed) {
  const uint64_t stamp = entry.close_stamp.load();
  const uint32_t stamped_at = entry.stamped_at.load();
  struct stat st;
  *changed = sys::Fstat(fd, &st) == 0 && !MatchesCloseStamp(entry, st);
  if (!*changed) return false;
  const bool ours = stamp == 0 || entry.close_stamp.load() != stamp ||
                    engine.file_table.AnybodyChanges(TagOf(file), in_flight) ||
                    FileTable::Progress(entry) != stamped_at;
  return !ours && file.bytes_stamp != BytesStamp(st);
}

// What the log has by now is soon on the disk, and void. Of a write there is a pin only later.
void Turns::NoteOutsider() {
  if (with_outsider_.exchange(true)) return;
  const PoolPin pin;
  if (pin.ok()) engine.checkpoint.MoveSoonAbove(engine.log.newest());
}

void Turns::LookAtOpened(const FileEntry& entry, const struct stat& st) {
  const bool ours =
      entry.close_stamp.load() == 0 || FileTable::Progress(entry) != entry.stamped_at.load();
  if (turn_.load() > 0 && !ours && HasOtherBytes(entry, st)) NoteOutsider();
}

// A file that was opened in this turn was looked at then.
void Turns::Look(File& file, int fd, FileEntry& entry, uint32_t in_flight) {
  const uint64_t turn = turn_.load();
  const bool opened_since = file.turn.load() == 0;
  file.turn_fd.store(fd);
  if (!engine.leases.RemembersHandOn(file.device, file.inode)) {
    bool forgets = false;
    if (!opened_since && !with_outsider() &&
        WasWrittenOutside(file, fd, entry, in_flight, &forgets)) {
      NoteOutsider();
    }
    if (with_outsider()) {
      WrittenOutside(file, fd);
      forgets = true;
    }
    if (forgets) {
      const EntryLock lock(entry);
      if (FileTable::CoverageOf(entry).tag == TagOf(file)) FileTable::Forget(entry);
    }
  }
  file.turn.store(turn);
  List(file);
}

}  // namespace nvcache::vfs
