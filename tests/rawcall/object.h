// SPDX-License-Identifier: BSD-3-Clause
//
// An object file, mapped as the dynamic linker would, but not executable.
#ifndef NVCACHE_TESTS_RAWCALL_OBJECT_H_
#define NVCACHE_TESTS_RAWCALL_OBJECT_H_

#include <elf.h>

#include <cstddef>
#include <string>
#include <vector>

#include "src/sys/host.h"

namespace nvcache::rawcall {

class Object {
 public:
  // False: the file is no program or library for x86-64.
  bool Open(const std::string& path);
  ~Object();
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  LoadedObject loaded() const;
  bool IsLibc() const;  // libc, the dynamic linker, or one of their parts

 private:
  bool MapSegments(int fd, size_t file_size);

  std::string path_;
  std::vector<Elf64_Phdr> headers_;
  void* span_ = nullptr;
  size_t span_size_ = 0;
  uintptr_t base_ = 0;
};

}  // namespace nvcache::rawcall

#endif  // NVCACHE_TESTS_RAWCALL_OBJECT_H_
