// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/file_record.h"

#include "src/sys/text.h"

namespace nvcache::pool {

bool IsFileRecord(const FileRecord& record, size_t size) {
  return size > offsetof(FileRecord, path) && size <= sizeof(record) &&
         record.handle_size <= kMaxHandle && record.path_length > 0 &&
         record.path_length < kMaxPath && size == FileRecordSize(record.path_length) &&
         (record.flags & ~kFileRemoved) == 0 && record.path[0] == '/' &&
         record.path[record.path_length] == '\0' && sys::Length(record.path) == record.path_length;
}

}  // namespace nvcache::pool
