// SPDX-License-Identifier: BSD-3-Clause
//
// What kind of program a file is, whatever is in it.
#include "recovery/tool/program.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace nvcache::tool {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGlibcLinker = "/lib64/ld-linux-x86-64.so.2";

std::string Bytes(const auto& structure) {
  return {reinterpret_cast<const char*>(&structure), sizeof(structure)};
}

std::string OurNote() { return Bytes(pool::ElfNote{.content = {pool::kVersion, 1}}); }

// Another note, of 4 bytes, with a name that has to be padded.
std::string ForeignNote() {
  const Elf64_Nhdr header = {.n_namesz = 6, .n_descsz = 3, .n_type = pool::kNoteType};
  return Bytes(header) + std::string("Other\0\0\0abc\0", 12);
}

Elf64_Ehdr Start() {
  Elf64_Ehdr start = {};
  std::memcpy(start.e_ident, ELFMAG, SELFMAG);
  start.e_ident[EI_CLASS] = ELFCLASS64;
  start.e_ident[EI_DATA] = ELFDATA2LSB;
  start.e_type = ET_DYN;
  start.e_machine = EM_X86_64;
  start.e_phoff = sizeof(start);
  start.e_phentsize = sizeof(Elf64_Phdr);
  return start;
}

struct Segment {
  uint32_t type;
  std::string content;
};

// The headers, then what is in the segments.
std::string MakeElf(const std::vector<Segment>& segments, Elf64_Ehdr start = Start()) {
  start.e_phnum = static_cast<Elf64_Half>(segments.size());
  std::string headers = Bytes(start), contents;
  for (const Segment& segment : segments) {
    Elf64_Phdr header = {};
    header.p_type = segment.type;
    header.p_offset = sizeof(start) + segments.size() * sizeof(header) + contents.size();
    header.p_filesz = segment.content.size();
    headers += Bytes(header);
    contents += segment.content;
  }
  return headers + contents;
}

// What a program needs. The names are in the first segment, at `address` once that is loaded.
Segment Needs(const std::vector<uint64_t>& names, uint64_t address) {
  std::string content;
  const auto add = [&](Elf64_Sxword tag, uint64_t value) {
    Elf64_Dyn entry = {};
    entry.d_tag = tag;
    entry.d_un.d_val = value;
    content += Bytes(entry);
  };
  for (const uint64_t name : names) add(DT_NEEDED, name);
  add(DT_STRTAB, address);
  add(DT_NULL, 0);
  return {PT_DYNAMIC, content};
}

Segment Linker(const std::string& path) { return {PT_INTERP, path + '\0'}; }

class ProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/nvcache-program-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    if (const char* path = getenv("PATH")) path_ = path;
  }
  void TearDown() override {
    setenv("PATH", path_.c_str(), 1);
    fs::remove_all(folder_);
  }

  std::string Write(const std::string& name, const std::string& content, mode_t mode = 0755) {
    std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << content;
    chmod(path.c_str(), mode);
    return path;
  }
  Kind KindOf(const std::string& content) { return Examine(Write("program", content)).kind; }

  fs::path folder_;
  std::string path_;
};

TEST_F(ProgramTest, Kinds) {
  EXPECT_EQ(KindOf(MakeElf({Linker(kGlibcLinker)})), Kind::kGlibc);
  EXPECT_EQ(KindOf(MakeElf({Linker("/nix/ld-linux-x86-64.so.2")})), Kind::kGlibc);
  EXPECT_EQ(KindOf(MakeElf({Linker("/lib/ld-other.so.1")})), Kind::kOtherLinker);
  EXPECT_EQ(KindOf(MakeElf({})), Kind::kStatic);
  EXPECT_EQ(KindOf(MakeElf({{PT_NOTE, ForeignNote()}})), Kind::kStatic);
  EXPECT_EQ(KindOf(MakeElf({{PT_NOTE, OurNote()}})), Kind::kNvcache);
  EXPECT_EQ(KindOf(MakeElf({{PT_NOTE, ForeignNote()}, {PT_NOTE, ForeignNote() + OurNote()}})),
            Kind::kNvcache);
  Elf64_Ehdr start = Start();
  start.e_type = ET_EXEC;
  EXPECT_EQ(KindOf(MakeElf({}, start)), Kind::kStatic);
  start.e_type = ET_REL;
  EXPECT_EQ(KindOf(MakeElf({}, start)), Kind::kUnknown);
}

// Of another NVCache or another name, it is not ours.
TEST_F(ProgramTest, Notes) {
  pool::ElfNote note = {.content = {3, 7}};
  const auto found = ReadNote(Write("library", MakeElf({{PT_NOTE, Bytes(note)}})));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->pool_version, 3u);
  EXPECT_EQ(found->front_end_version, 7u);
  note.type = 2;
  EXPECT_FALSE(ReadNote(Write("library", MakeElf({{PT_NOTE, Bytes(note)}}))));
  note.type = pool::kNoteType;
  note.name[0] = 'n';
  EXPECT_FALSE(ReadNote(Write("library", MakeElf({{PT_NOTE, Bytes(note)}}))));
  EXPECT_FALSE(ReadNote(folder_ / "missing"));
  EXPECT_FALSE(ReadNote(folder_));
}

// AddressSanitizer ends a program in which another library is the first.
TEST_F(ProgramTest, WhatWantsToBeFirst) {
  const auto sanitizer = [&](const std::string& first, const std::string& second) {
    const std::string names = '\0' + first + '\0' + second + '\0';
    const Segment needs = Needs({1, first.size() + 2}, 0);
    return Examine(Write("program", MakeElf({{PT_LOAD, names}, needs, Linker(kGlibcLinker)})))
        .sanitizer;
  };
  EXPECT_EQ(sanitizer("libasan.so.8", "libc.so.6"), "libasan.so.8");
  EXPECT_EQ(sanitizer("libc.so.6", "libclang_rt.asan-x86_64.so"), "libclang_rt.asan-x86_64.so");
  EXPECT_EQ(sanitizer("libc.so.6", "/opt/gcc/libasan.so.9"), "/opt/gcc/libasan.so.9");
  EXPECT_EQ(sanitizer("libc.so.6", "/a folder/libasan.so.9"), "");
  EXPECT_EQ(sanitizer("libtsan.so.2", "libasan"), "");
  EXPECT_EQ(sanitizer("", ""), "");
}

TEST_F(ProgramTest, HostileNames) {
  const Segment names = {PT_LOAD, std::string("libasan.so.8")};  // without an end
  for (const uint64_t address : {uint64_t{0}, uint64_t{11}, uint64_t{12}, ~uint64_t{0}}) {
    for (const uint64_t name : {uint64_t{0}, uint64_t{1} << 40, ~uint64_t{0}}) {
      const std::string whole = MakeElf({names, Needs({name}, address), Linker(kGlibcLinker)});
      EXPECT_EQ(KindOf(whole), Kind::kGlibc);
      EXPECT_EQ(KindOf(whole.substr(0, whole.size() - 20)), Kind::kUnknown);  // the linker's name
    }
  }
  const Segment many = Needs(std::vector<uint64_t>(100000), 0);
  EXPECT_EQ(KindOf(MakeElf({names, many, Linker(kGlibcLinker)})), Kind::kGlibc);
}

TEST_F(ProgramTest, OtherMachines) {
  for (const int change : {EI_CLASS, EI_DATA}) {
    Elf64_Ehdr start = Start();
    start.e_ident[change] = change == EI_CLASS ? ELFCLASS32 : ELFDATA2MSB;
    EXPECT_EQ(KindOf(MakeElf({Linker(kGlibcLinker)}, start)), Kind::kOtherMachine);
  }
  Elf64_Ehdr start = Start();
  start.e_machine = EM_AARCH64;
  EXPECT_EQ(KindOf(MakeElf({Linker(kGlibcLinker)}, start)), Kind::kOtherMachine);
  EXPECT_EQ(KindOf(std::string(ELFMAG "\1\1\1", 7) + std::string(45, '\0')), Kind::kOtherMachine);
}

TEST_F(ProgramTest, LinkerOfNvcache) {
  const std::string linker = Write("ld-musl-x86_64.so.1", MakeElf({}));
  EXPECT_EQ(KindOf(MakeElf({Linker(linker)})), Kind::kOtherLinker);
  EXPECT_EQ(Examine(linker).kind, Kind::kOtherLinker);  // with a program as its argument
  Write("ld-musl-x86_64.so.1", MakeElf({{PT_NOTE, OurNote()}}));
  EXPECT_EQ(KindOf(MakeElf({Linker(linker)})), Kind::kNvcache);
  Write("ld-musl-x86_64.so.1", MakeElf({}));
  Write("libnvcache-musl.so", "");
  EXPECT_EQ(KindOf(MakeElf({Linker(linker)})), Kind::kNvcache);
  EXPECT_EQ(Examine(linker).kind, Kind::kNvcache);
  EXPECT_EQ(Examine(kGlibcLinker).kind, Kind::kGlibc);
}

TEST_F(ProgramTest, Scripts) {
  const std::string program = Write("static", MakeElf({}));
  EXPECT_EQ(KindOf("#!" + program + "\n"), Kind::kStatic);
  EXPECT_EQ(KindOf("#! \t" + program + " -x\nexit\n"), Kind::kStatic);
  EXPECT_EQ(KindOf("#!" + program), Kind::kStatic);
  EXPECT_EQ(Examine(folder_ / "program").path, program);
  const std::string script = Write("script", "#!" + program + "\n");
  EXPECT_EQ(KindOf("#!" + script + "\n"), Kind::kStatic);
  EXPECT_EQ(KindOf("#!" + (folder_ / "program").string() + "\n"), Kind::kUnknown);  // itself
  EXPECT_EQ(KindOf("#!\n" + program), Kind::kUnknown);
  EXPECT_EQ(KindOf("echo\n"), Kind::kUnknown);
  EXPECT_EQ(KindOf("#!" + std::string(300, '/') + "\n"), Kind::kUnknown);
}

TEST_F(ProgramTest, ScriptsThroughEnv) {
  Write("static", MakeElf({}));
  const std::string env = Write("env", MakeElf({Linker(kGlibcLinker)}));
  setenv("PATH", folder_.c_str(), 1);
  EXPECT_EQ(KindOf("#!" + env + " static\n"), Kind::kStatic);
  EXPECT_EQ(KindOf("#!" + env + " -S A=b static -x\n"), Kind::kStatic);
  EXPECT_EQ(KindOf("#!" + env + " missing\n"), Kind::kGlibc);
  EXPECT_EQ(KindOf("#!" + env + " -i static\n"), Kind::kGlibc);
  EXPECT_EQ(KindOf("#!" + env + "\n"), Kind::kGlibc);
}

TEST_F(ProgramTest, PathAsExecvp) {
  fs::create_directory(folder_ / "first");
  Write("first/program", MakeElf({}), 0644);
  Write("program", MakeElf({}));
  setenv("PATH", ("/nowhere:" + (folder_ / "first").string() + ":" + folder_.string()).c_str(), 1);
  EXPECT_EQ(Examine("program").path, folder_ / "program");
  EXPECT_EQ(Examine("missing").path, "");
  EXPECT_EQ(Examine("").path, "");
  EXPECT_EQ(Examine(folder_ / "first/program").path, "");
  EXPECT_EQ(Examine(folder_).kind, Kind::kUnknown);
}

TEST_F(ProgramTest, Privileged) {
  const std::string program = Write("program", MakeElf({Linker(kGlibcLinker)}));
  if (getuid() != 0) GTEST_SKIP() << "only root can make such a program";
  ASSERT_EQ(chown(program.c_str(), 65534, 65534), 0);
  EXPECT_EQ(Examine(program).kind, Kind::kGlibc);
  chmod(program.c_str(), 04755);
  EXPECT_EQ(Examine(program).kind, Kind::kPrivileged);
  chmod(program.c_str(), 02755);
  EXPECT_EQ(Examine(program).kind, Kind::kPrivileged);
  chmod(program.c_str(), 02745);  // the group's bit without execution is no such right
  EXPECT_EQ(Examine(program).kind, Kind::kGlibc);
  chmod(program.c_str(), 04755);
  ASSERT_EQ(chown(program.c_str(), getuid(), getgid()), 0);
  chmod(program.c_str(), 04755);  // its owner's rights are those that we have
  EXPECT_EQ(Examine(program).kind, Kind::kGlibc);
}

// Every prefix of a file, and every byte of its headers with another value: an answer, at once.
TEST_F(ProgramTest, Truncated) {
  const std::string whole = MakeElf({Linker(kGlibcLinker), {PT_NOTE, OurNote()}});
  const size_t headers = sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr);
  for (size_t size = 0; size < whole.size(); ++size) {
    const Kind kind = KindOf(whole.substr(0, size));
    const bool in_headers = size >= sizeof(Elf64_Ehdr) && size < headers;
    if (size < EI_NIDENT || in_headers) {
      EXPECT_EQ(kind, Kind::kUnknown) << size;
    }
  }
}

TEST_F(ProgramTest, HostileHeaders) {
  const std::string whole = MakeElf({{PT_NOTE, ForeignNote() + OurNote()}, {PT_NOTE, OurNote()}});
  for (size_t i = SELFMAG; i < whole.size(); ++i) {
    for (const char value : {'\0', '\x7f', '\xff'}) {
      std::string changed = whole;
      changed[i] = value;
      KindOf(changed);
    }
  }
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    std::string changed = whole;
    for (int i = 0; i < 8; ++i) {
      changed[EI_NIDENT + random() % (changed.size() - EI_NIDENT)] = static_cast<char>(random());
    }
    KindOf(changed);
  }
}

TEST_F(ProgramTest, HostileNumbers) {
  Elf64_Ehdr start = Start();
  start.e_phoff = ~uint64_t{0} - 8;
  EXPECT_EQ(KindOf(MakeElf({{PT_NOTE, OurNote()}}, start)), Kind::kUnknown);
  start.e_phoff = INT64_MAX;
  EXPECT_EQ(KindOf(MakeElf({{PT_NOTE, OurNote()}}, start)), Kind::kUnknown);
  start = Start();
  start.e_phentsize = 8;
  EXPECT_EQ(KindOf(MakeElf({{PT_NOTE, OurNote()}}, start)), Kind::kUnknown);
  EXPECT_EQ(KindOf(MakeElf(std::vector<Segment>(5000))), Kind::kUnknown);
  // Interpreters: without an end, empty, too long.
  EXPECT_EQ(KindOf(MakeElf({{PT_INTERP, kGlibcLinker}})), Kind::kUnknown);
  EXPECT_EQ(KindOf(MakeElf({Linker("")})), Kind::kUnknown);
  EXPECT_EQ(KindOf(MakeElf({Linker(std::string(5000, '/'))})), Kind::kUnknown);
  // Notes: sizes that wrap around, sizes that lead out.
  for (const uint32_t size : {~0u, ~0u - 3, 1u << 31, 64u}) {
    for (const bool name : {false, true}) {
      const Elf64_Nhdr header = {name ? size : 8, name ? 8 : size, pool::kNoteType};
      EXPECT_EQ(KindOf(MakeElf({{PT_NOTE, Bytes(header) + std::string("NVCache\0", 8)}})),
                Kind::kStatic);
    }
  }
}

}  // namespace
}  // namespace nvcache::tool
