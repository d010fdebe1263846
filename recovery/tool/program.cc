// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/program.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <string_view>
#include <vector>

namespace nvcache::tool {
namespace {

constexpr std::string_view kBlanks = " \t";
// The kernel looks at no more.
constexpr size_t kScriptLine = 256;
constexpr int kMostInterpreters = 5;
constexpr size_t kMostHeaders = 65536 / sizeof(Elf64_Phdr);
// Bytes of the notes of a file that are read; ours is among the first.
constexpr size_t kMostNotes = 64 * 1024;
constexpr size_t kMostDynamic = 64 * 1024;

// A regular file, read at offsets that the file itself may have named.
class File {
 public:
  explicit File(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat st = {};
    if (fd_ >= 0 && (fstat(fd_, &st) != 0 || !S_ISREG(st.st_mode))) {
      close(fd_);
      fd_ = -1;
    }
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) close(fd_);
  }

  // Up to `size` bytes, fewer at the file's end.
  std::string Read(uint64_t offset, size_t size) const {
    std::string bytes(size, '\0');
    const bool possible = fd_ >= 0 && offset <= INT64_MAX;
    const ssize_t n = possible ? pread(fd_, bytes.data(), size, static_cast<off_t>(offset)) : 0;
    bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return bytes;
  }

  template <typename Structure>
  bool Get(uint64_t offset, Structure* structure) const {
    const std::string bytes = Read(offset, sizeof(Structure));
    if (bytes.size() != sizeof(Structure)) return false;
    std::memcpy(structure, bytes.data(), sizeof(Structure));
    return true;
  }

 private:
  int fd_;
};

struct Elf {
  bool other_machine = false;
  std::string linker;
  std::string sanitizer;
  std::optional<pool::ElfNoteContent> note;
};

uint64_t RoundUp(uint64_t n) { return (n + 3) / 4 * 4; }

std::optional<pool::ElfNoteContent> FindNote(std::string_view notes) {
  Elf64_Nhdr header;
  while (notes.size() >= sizeof(header)) {
    std::memcpy(&header, notes.data(), sizeof(header));
    const std::string_view rest = notes.substr(sizeof(header));
    const uint64_t name_end = RoundUp(header.n_namesz);
    const uint64_t end = name_end + RoundUp(header.n_descsz);
    if (end > rest.size()) break;
    const std::string_view name(pool::kNoteName, sizeof(pool::kNoteName));
    if (header.n_type == pool::kNoteType && rest.substr(0, header.n_namesz) == name &&
        header.n_descsz == sizeof(pool::ElfNoteContent)) {
      pool::ElfNoteContent content;
      std::memcpy(&content, rest.data() + name_end, sizeof(content));
      return content;
    }
    notes = rest.substr(end);
  }
  return {};
}

// The kernel wants a path that ends with a zero.
bool ReadLinker(const File& file, const Elf64_Phdr& header, std::string* linker) {
  if (header.p_filesz < 2 || header.p_filesz > PATH_MAX) return false;
  *linker = file.Read(header.p_offset, header.p_filesz);
  if (linker->size() != header.p_filesz || linker->back() != '\0') return false;
  linker->resize(std::strlen(linker->c_str()));
  return !linker->empty();
}

// Where in the file a program that is loaded has this address.
std::optional<uint64_t> OffsetOf(const std::vector<Elf64_Phdr>& loaded, uint64_t address) {
  for (const Elf64_Phdr& header : loaded) {
    const uint64_t distance = address - header.p_vaddr;
    if (address >= header.p_vaddr && distance < header.p_filesz) return header.p_offset + distance;
  }
  return {};
}

// The name at an offset of the file, as long as a file's may be.
std::string ReadName(const File& file, uint64_t offset) {
  std::string name = file.Read(offset, NAME_MAX + 1);
  name.resize(std::min(name.find('\0'), name.size()));
  return name;
}

// The one of the needed libraries that wants to be the first; or empty.
std::string FindSanitizer(const File& file, const std::vector<Elf64_Phdr>& loaded,
                          const Elf64_Phdr& dynamic) {
  const std::string bytes =
      file.Read(dynamic.p_offset, std::min<uint64_t>(dynamic.p_filesz, kMostDynamic));
  std::vector<uint64_t> needed;
  std::optional<uint64_t> names;
  Elf64_Dyn entry;
  for (size_t at = 0; at + sizeof(entry) <= bytes.size(); at += sizeof(entry)) {
    std::memcpy(&entry, bytes.data() + at, sizeof(entry));
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_NEEDED) needed.push_back(entry.d_un.d_val);
    if (entry.d_tag == DT_STRTAB) names = OffsetOf(loaded, entry.d_un.d_ptr);
  }
  if (!names) return {};
  for (const uint64_t offset : needed) {
    std::string name = ReadName(file, *names + offset);
    if (WantsToBeFirst(name)) return name;
  }
  return {};
}

bool ReadHeaders(const File& file, const Elf64_Ehdr& start, Elf* elf) {
  if (start.e_phentsize != sizeof(Elf64_Phdr) || start.e_phnum > kMostHeaders) return false;
  size_t notes_left = kMostNotes;
  std::vector<Elf64_Phdr> loaded;
  Elf64_Phdr dynamic = {};
  for (unsigned i = 0; i < start.e_phnum; ++i) {
    Elf64_Phdr header;
    if (start.e_phoff > INT64_MAX || !file.Get(start.e_phoff + i * sizeof(header), &header)) {
      return false;
    }
    if (header.p_type == PT_INTERP && elf->linker.empty() &&
        !ReadLinker(file, header, &elf->linker)) {
      return false;
    }
    if (header.p_type == PT_LOAD) loaded.push_back(header);
    if (header.p_type == PT_DYNAMIC) dynamic = header;
    if (header.p_type == PT_NOTE && !elf->note) {
      const size_t size = std::min<uint64_t>(header.p_filesz, notes_left);
      notes_left -= size;
      elf->note = FindNote(file.Read(header.p_offset, size));
    }
  }
  elf->sanitizer = FindSanitizer(file, loaded, dynamic);
  return true;
}

// Nothing when the kernel would not execute it.
std::optional<Elf> ReadElf(const File& file) {
  std::array<unsigned char, EI_NIDENT> identity;
  if (!file.Get(0, &identity) || std::memcmp(identity.data(), ELFMAG, SELFMAG) != 0) return {};
  Elf elf;
  Elf64_Ehdr start;
  elf.other_machine = identity[EI_CLASS] != ELFCLASS64 || identity[EI_DATA] != ELFDATA2LSB ||
                      !file.Get(0, &start) || start.e_machine != EM_X86_64;
  if (elf.other_machine) return elf;
  if (start.e_type != ET_EXEC && start.e_type != ET_DYN) return {};
  if (!ReadHeaders(file, start, &elf)) return {};
  return elf;
}

bool IsExecutable(const std::string& path) {
  struct stat st = {};
  return stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) &&
         faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0;
}

// Finds the program as execvp does. Empty when there is none.
std::string FindInPath(const std::string& name) {
  if (name.empty()) return {};
  if (name.find('/') != std::string::npos) return IsExecutable(name) ? name : "";
  const char* const variable = std::getenv("PATH");
  std::string_view folders = variable != nullptr ? variable : "/bin:/usr/bin";
  for (;;) {
    const size_t end = folders.find(':');
    std::string path(folders.substr(0, end));
    if (!path.empty()) path += '/';
    path += name;
    if (IsExecutable(path)) return path;
    if (end == std::string_view::npos) return {};
    folders.remove_prefix(end + 1);
  }
}

// The name that "env ARGUMENTS" executes: behind -S and assignments. Nothing is known of
// other options: they are taken for names, and not found.
std::string NameForEnv(const std::string& arguments) {
  std::istringstream words(arguments);
  std::string word;
  while (words >> word) {
    if (word == "-S" || word == "--split-string") continue;
    if (word.find('=') == std::string::npos) return word;
  }
  return {};
}

// The interpreter in the first line of a script; empty when it is no script.
std::string InterpreterOf(const File& file) {
  std::string line = file.Read(0, kScriptLine);
  if (line.compare(0, 2, "#!") != 0) return {};
  line.resize(std::min(line.find_first_of(std::string_view("\n\0", 2)), line.size()));
  const size_t begin = line.find_first_not_of(kBlanks, 2);
  if (begin == std::string::npos) return {};
  const size_t end = line.find_first_of(kBlanks, begin);
  std::string interpreter = line.substr(begin, end - begin);
  if (interpreter.substr(interpreter.rfind('/') + 1) != "env" || end == std::string::npos) {
    return interpreter;
  }
  std::string found = FindInPath(NameForEnv(line.substr(end)));
  return found.empty() ? interpreter : found;
}

// The dynamic linker calls this secure execution: it ignores LD_PRELOAD.
bool GetsRights(const std::string& path) {
  struct stat st = {};
  struct statvfs fs = {};
  if (stat(path.c_str(), &st) != 0 || statvfs(path.c_str(), &fs) != 0) return false;
  if ((fs.f_flag & ST_NOSUID) != 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1) return false;
  constexpr mode_t kSetGroup = S_ISGID | S_IXGRP;
  if ((st.st_mode & S_ISUID) != 0 && st.st_uid != getuid()) return true;
  if ((st.st_mode & kSetGroup) == kSetGroup && st.st_gid != getgid()) return true;
  return getuid() != 0 && getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
}

Kind KindOfLinker(const std::string& linker) {
  const size_t slash = linker.rfind('/');
  if (linker.substr(slash + 1) == "ld-linux-x86-64.so.2") return Kind::kGlibc;
  const bool beside = slash != std::string::npos &&
                      access((linker.substr(0, slash) + "/libnvcache-musl.so").c_str(), F_OK) == 0;
  return beside || ReadNote(linker) ? Kind::kNvcache : Kind::kOtherLinker;
}

// A dynamic linker that is started as a program has none itself. Empty when it is something else.
std::string AsLinker(const std::string& path) {
  const std::unique_ptr<char, decltype(&free)> real(realpath(path.c_str(), nullptr), &free);
  const std::string resolved(real ? real.get() : "");
  for (const std::string& name : {path, resolved}) {
    std::string_view last = name;
    last.remove_prefix(last.rfind('/') + 1);
    if (last.substr(0, 3) == "ld-" && last.find(".so") != last.npos) return name;
  }
  return {};
}

Kind KindOf(const std::string& path, const Elf& elf) {
  if (elf.other_machine) return Kind::kOtherMachine;
  if (!elf.linker.empty()) return KindOfLinker(elf.linker);
  if (const std::string linker = AsLinker(path); !linker.empty()) return KindOfLinker(linker);
  return elf.note ? Kind::kNvcache : Kind::kStatic;
}

}  // namespace

std::optional<pool::ElfNoteContent> ReadNote(const std::string& path) {
  const std::optional<Elf> elf = ReadElf(File(path));
  return elf ? elf->note : std::nullopt;
}

Program Examine(const std::string& name) {
  Program program;
  program.path = FindInPath(name);
  for (int i = 0; i <= kMostInterpreters && !program.path.empty(); ++i) {
    const File file(program.path);
    const std::string interpreter = InterpreterOf(file);
    if (!interpreter.empty()) {
      program.path = interpreter;
      continue;
    }
    const std::optional<Elf> elf = ReadElf(file);
    if (elf) {
      program.linker = elf->linker;
      program.sanitizer = elf->sanitizer;
      program.kind = KindOf(program.path, *elf);
    }
    if (IsExecutable(program.path) && GetsRights(program.path)) program.kind = Kind::kPrivileged;
    break;
  }
  return program;
}

bool WantsToBeFirst(std::string_view library) {
  // LD_PRELOAD has no way to write a name with one of these.
  if (library.find_first_of(" :") != library.npos) return false;
  library.remove_prefix(library.rfind('/') + 1);  // npos + 1 is 0
  for (const std::string_view name : {"libasan.so", "libclang_rt.asan"}) {
    if (library.substr(0, name.size()) == name) return true;
  }
  return false;
}

bool CanCache(Kind kind) {
  return kind == Kind::kUnknown || kind == Kind::kGlibc || kind == Kind::kNvcache;
}

bool PassesPreload(Kind kind) { return CanCache(kind) || kind == Kind::kStatic; }

Obstacle ObstacleOf(const Program& program) {
  switch (program.kind) {
    case Kind::kStatic:
      return {"is a static program without NVCache",
              "link it with nvcache-musl-gcc, or dynamically with glibc"};
    case Kind::kOtherLinker:
      return {"has a dynamic linker of another libc, " +
                  (program.linker.empty() ? program.path : program.linker),
              "link it with nvcache-musl-gcc, or with glibc"};
    case Kind::kOtherMachine:
      return {"is not a 64-bit program for x86-64", "build it for that"};
    case Kind::kPrivileged:
      return {"gets more rights than its user has", "start nvcache as the user with these rights"};
    default:
      return {};
  }
}

}  // namespace nvcache::tool
