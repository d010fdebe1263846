// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/file_table.h"

#include <errno.h>

#include "src/pmem/persist.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"

namespace nvcache::pool {

namespace {

// The path by which the kernel knows the open file, if it leads there: not that of a link that was
// removed while another one stays, nor one of another root.
[[gnu::noinline]] long DescribePath(int fd, FileRecord* record) {
  sys::Text<32> link;
  link.Append(NVCACHE_DESCRIPTORS "/").AppendNumber(static_cast<uint64_t>(fd));
  const long n = sys::Readlinkat(AT_FDCWD, link.c_str(), record->path, kMaxPath);
  if (n < 0) return n;
  if (static_cast<size_t>(n) >= kMaxPath) return -ENAMETOOLONG;
  record->path[n] = '\0';
  record->path_length = static_cast<uint32_t>(n);
  struct stat st;
  const bool leads_there = sys::Fstatat(AT_FDCWD, record->path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                           st.st_ino == record->inode && st.st_dev == record->device;
  return leads_there ? 0 : -ENOENT;
}

}  // namespace

bool FileTable::Open(const View& view) {
  view_ = view;
  return slots_.Open(view.superblock->file_slots);
}

void FileTable::Close() { slots_.Close(); }

long FileTable::Allocate(int fd, bool is_new, uint64_t predecessor, uint64_t cut, uint32_t* slot,
                         uint32_t* incarnation) {
  sys::Scratch<FileRecord> scratch;
  FileRecord& record = *scratch;
  record.name = is_new ? kNameNew : kNameSettled;
  record.successor = 0;
  record.predecessor = is_new ? predecessor : 0;
  if (long error = Identify(fd, &record); error < 0) return error;
  if (long error = DescribePath(fd, &record); error < 0) return error;
  *slot = slots_.Allocate();
  if (*slot == sys::kNone) return -ENFILE;
  FileRecord* stored = view_.file(*slot);
  record.incarnation = stored->incarnation + 1;
  if (record.incarnation == 0) record.incarnation = 1;
  record.cut = CutWord(cut, record.incarnation);
  record.crc = FileRecordCrc(record);
  *incarnation = record.incarnation;
  pmem::Copy(stored, &record, offsetof(FileRecord, path) + record.path_length + 1,
             pmem::Step::kFileRecord);
  pmem::Psync(pmem::Step::kFileRecordDurable);
  return 0;
}

}  // namespace nvcache::pool
