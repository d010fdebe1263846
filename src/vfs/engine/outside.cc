// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/outside.h"

#include "src/sys/check.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine/engine.h"
#include "src/vfs/engine/states.h"

namespace nvcache::vfs {

namespace {

constinit std::atomic<bool> any_to_give_back{false};

// Ours was open all the time: an even number of steps, the same as then.
bool IsOursSince(const File& file) {
  return file.changes.load() != file.written_changes ||
         file.kernel_changes.load() != file.written_kernel_changes;
}

}  // namespace

void WrittenOutside(const File& file, int fd) {
  if (!engine.leases.is_open()) return;
  engine.leases.MarkHandedOn(file.device, file.inode);
  if (engine.leases.HasSaid(lease::Hindrance::kOutsideWriter)) return;
  sys::Scratch<char[pool::kMaxPath]> scratch;
  char* const path = scratch.get();
  const long n = sys::ReadLinkTo(fd, path, pool::kMaxPath - 1);
  path[n > 0 ? n : 0] = '\0';
  const char* name = path;
  for (const char* at = path; *at != '\0'; ++at) {
    if (*at == '/') name = at + 1;
  }
  engine.notice.Hinder(lease::Hindrance::kOutsideWriter, name);
}

namespace {

// The time is read between two looks at our own changes.
bool IsAsWeLeftIt(const File& file) {
  struct stat st;
  return file.written_stamp == 0 || IsOursSince(file) || sys::Fstat(file.backing_fd, &st) < 0 ||
         IsOursSince(file) || BytesStamp(st) == file.written_stamp;
}

}  // namespace

void LookForOutsiders(File& file) {
  // It is said again of a file that the disk has refused to take back.
  if (!file.written_outside.load()) {
    if (IsAsWeLeftIt(file)) return;
    WrittenOutside(file, file.backing_fd);
    file.written_outside.store(true);
  }
  any_to_give_back.store(true);
  engine.leases.Nudge();
}

void NoteWritten(File& file) {
  struct stat st;
  file.written_changes = file.changes.load();
  file.written_kernel_changes = file.kernel_changes.load();
  const bool is_quiet = file.written_kernel_changes % 2 == 0;
  file.written_stamp = is_quiet && sys::Fstat(file.backing_fd, &st) == 0 ? BytesStamp(st) : 0;
}

void GiveBackWrittenOutside() {
  NVCACHE_CHECK(engine.table_lock.IsLocked());
  if (!any_to_give_back.exchange(false)) return;
  engine.files.ForEach([](File& file) {
    if (file.state.load() == State::kCached && file.written_outside.load()) GiveBack(file);
  });
}

}  // namespace nvcache::vfs
