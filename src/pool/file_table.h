// SPDX-License-Identifier: BSD-3-Clause
//
// The pool's file table while the pool is in use: which slots are free, and writing them.
#ifndef NVCACHE_POOL_FILE_TABLE_H_
#define NVCACHE_POOL_FILE_TABLE_H_

#include <cstdint>

#include "src/pool/pool.h"
#include "src/sys/arena.h"

namespace nvcache::pool {

class FileTable {
 public:
  // Of a clean pool: every slot is free.
  bool Open(const View& view);
  void Close();

  // Writes the record of the file behind `fd` into a free slot; `is_new` makes its name kNameNew;
  // then `predecessor` is the fingerprint of the file that had it, or 0. `cut`: as StoreCut.
  // Durable when it returns: another thread may be the first to commit an entry that names it, and
  // no fence of that thread orders these bytes. 0; -ENFILE when all slots are taken; -ENAMETOOLONG
  // if the path does not fit; -ENOENT if no path leads to it; or what the kernel said. Any thread.
  long Allocate(int fd, bool is_new, uint64_t predecessor, uint64_t cut, uint32_t* slot,
                uint32_t* incarnation);

  // The file of the slot was synced. Durable when it returns.
  void SettleName(uint32_t slot) { pool::SettleName(view_.file(slot)); }

  // The file has lost its bytes, when the log's head was at `position`; 0: it did not. Durable when
  // it returns.
  void StoreCut(uint32_t slot, uint64_t position) { pool::StoreCut(view_.file(slot), position); }

  // No entry between tail and head names the slot.
  void Free(uint32_t slot) { slots_.Free(slot); }

  bool Low() { return slots_.Available() < slots_.capacity() / 4; }
  uint32_t capacity() const { return slots_.capacity(); }

 private:
  View view_;
  sys::Arena<uint8_t> slots_;  // gives out numbers; the objects are unused
};

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_FILE_TABLE_H_
