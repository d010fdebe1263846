// SPDX-License-Identifier: BSD-3-Clause
//
// An object's table of functions (.eh_frame_hdr), which compilers make for unwinding the stack.
#ifndef NVCACHE_RAWCALL_UNWIND_H_
#define NVCACHE_RAWCALL_UNWIND_H_

#include <cstdint>

#include "src/rawcall/image.h"

namespace nvcache::rawcall {

class UnwindTable {
 public:
  explicit UnwindTable(const Image& image);

  // The function around `at`. False: the table has none there; `around->begin` is the end of the
  // one before, or 0.
  bool FunctionAround(uintptr_t at, Range* around) const;
  // From the first function to the last one; empty: it has none.
  Range Functions() const;
  // Nearly all of the text is in functions of the table.
  bool Covers(const Range& text);

 private:
  bool Entry(uint32_t n, Range* function) const;

  const Image& image_;
  uintptr_t base_ = 0;
  uint32_t count_ = 0;
  Range covered_;
  bool covers_ = false;
};

}  // namespace nvcache::rawcall

#endif  // NVCACHE_RAWCALL_UNWIND_H_
