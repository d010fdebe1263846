// SPDX-License-Identifier: BSD-3-Clause
#include "tests/rawcall/object.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace nvcache::rawcall {

namespace {

constexpr uintptr_t kPage = 4096;
uintptr_t Down(uintptr_t value) { return value / kPage * kPage; }
uintptr_t Up(uintptr_t value) { return Down(value + kPage - 1); }

bool IsObject(const Elf64_Ehdr& header) {
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
         header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_machine == EM_X86_64 &&
         (header.e_type == ET_EXEC || header.e_type == ET_DYN) &&
         header.e_phentsize == sizeof(Elf64_Phdr);
}

}  // namespace

bool Object::Open(const std::string& path) {
  path_ = path;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat st;
  Elf64_Ehdr header;
  bool ok = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
            pread(fd, &header, sizeof(header), 0) == static_cast<ssize_t>(sizeof(header)) &&
            IsObject(header);
  if (ok) {
    headers_.resize(header.e_phnum);
    const auto bytes = static_cast<ssize_t>(headers_.size() * sizeof(Elf64_Phdr));
    ok = pread(fd, headers_.data(), static_cast<size_t>(bytes),
               static_cast<off_t>(header.e_phoff)) == bytes &&
         MapSegments(fd, static_cast<size_t>(st.st_size));
  }
  if (fd >= 0) close(fd);
  return ok;
}

bool Object::MapSegments(int fd, size_t file_size) {
  uintptr_t begin = UINTPTR_MAX, end = 0;
  for (const Elf64_Phdr& each : headers_) {
    if (each.p_type != PT_LOAD) continue;
    if (each.p_filesz > file_size || each.p_offset > file_size - each.p_filesz) return false;
    begin = std::min(begin, Down(each.p_vaddr));
    end = std::max(end, Up(each.p_vaddr + each.p_memsz));
  }
  if (begin >= end) return false;
  span_size_ = end - begin;
  span_ = mmap(nullptr, span_size_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (span_ == MAP_FAILED) return false;
  base_ = reinterpret_cast<uintptr_t>(span_) - begin;
  for (const Elf64_Phdr& each : headers_) {
    if (each.p_type != PT_LOAD || each.p_filesz == 0) continue;
    const uintptr_t at = Down(base_ + each.p_vaddr);
    const size_t before = base_ + each.p_vaddr - at;
    if (mmap(reinterpret_cast<void*>(at), each.p_filesz + before, PROT_READ,
             MAP_PRIVATE | MAP_FIXED, fd, static_cast<off_t>(each.p_offset - before)) == MAP_FAILED)
      return false;
  }
  return true;
}

Object::~Object() {
  if (span_ != nullptr && span_ != MAP_FAILED) munmap(span_, span_size_);
}

LoadedObject Object::loaded() const {
  return {path_.c_str(), base_, headers_.data(), headers_.size(), false};
}

bool Object::IsLibc() const {
  const std::string name = path_.substr(path_.rfind('/') + 1);
  return name == "libc.so.6" || name == "ld-linux-x86-64.so.2" || name == "libc.so";
}

}  // namespace nvcache::rawcall
