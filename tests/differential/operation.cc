// SPDX-License-Identifier: BSD-3-Clause
#include "tests/differential/operation.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "tests/differential/libc.h"

namespace nvcache::differential {
namespace {

struct Symbol {
  const char* name;
  long value;
};

#define SYMBOL(name) \
  { #name, static_cast < long>(name) }
constexpr Symbol kSymbols[] = {
    SYMBOL(O_RDONLY),
    SYMBOL(O_WRONLY),
    SYMBOL(O_RDWR),
    SYMBOL(O_CREAT),
    SYMBOL(O_EXCL),
    SYMBOL(O_TRUNC),
    SYMBOL(O_APPEND),
    SYMBOL(O_SYNC),
    SYMBOL(O_DSYNC),
    SYMBOL(O_DIRECT),
    SYMBOL(O_PATH),
    SYMBOL(O_TMPFILE),
    SYMBOL(O_NOFOLLOW),
    SYMBOL(O_DIRECTORY),
    SYMBOL(O_CLOEXEC),
    SYMBOL(O_NONBLOCK),
    SYMBOL(O_NOATIME),
    SYMBOL(RESOLVE_IN_ROOT),
    SYMBOL(RESOLVE_BENEATH),
    SYMBOL(RESOLVE_NO_SYMLINKS),
    SYMBOL(RESOLVE_NO_MAGICLINKS),
    SYMBOL(RESOLVE_NO_XDEV),
    SYMBOL(RESOLVE_CACHED),
    SYMBOL(FS_NODUMP_FL),
    SYMBOL(FS_NOATIME_FL),
    SYMBOL(FS_SYNC_FL),
    SYMBOL(FS_XFLAG_NODUMP),
    SYMBOL(FS_XFLAG_NOATIME),
    SYMBOL(SEEK_SET),
    SYMBOL(SEEK_CUR),
    SYMBOL(SEEK_END),
    SYMBOL(SEEK_DATA),
    SYMBOL(SEEK_HOLE),
    SYMBOL(FD_CLOEXEC),
    SYMBOL(CLOSE_RANGE_CLOEXEC),
    SYMBOL(RWF_HIPRI),
    SYMBOL(RWF_DSYNC),
    SYMBOL(RWF_SYNC),
    SYMBOL(RWF_NOWAIT),
    SYMBOL(RWF_APPEND),
    SYMBOL(FALLOC_FL_KEEP_SIZE),
    SYMBOL(FALLOC_FL_PUNCH_HOLE),
    SYMBOL(FALLOC_FL_COLLAPSE_RANGE),
    SYMBOL(FALLOC_FL_ZERO_RANGE),
    SYMBOL(FALLOC_FL_INSERT_RANGE),
    SYMBOL(FALLOC_FL_UNSHARE_RANGE),
    SYMBOL(SYNC_FILE_RANGE_WAIT_BEFORE),
    SYMBOL(SYNC_FILE_RANGE_WRITE),
    SYMBOL(SYNC_FILE_RANGE_WAIT_AFTER),
    SYMBOL(RENAME_NOREPLACE),
    SYMBOL(RENAME_EXCHANGE),
    SYMBOL(AT_REMOVEDIR),
    SYMBOL(AT_SYMLINK_NOFOLLOW),
    SYMBOL(AT_SYMLINK_FOLLOW),
    SYMBOL(AT_EMPTY_PATH),
    SYMBOL(PROT_NONE),
    SYMBOL(PROT_READ),
    SYMBOL(PROT_WRITE),
    SYMBOL(MAP_SHARED),
    SYMBOL(MAP_PRIVATE),
    SYMBOL(MS_SYNC),
    SYMBOL(MS_ASYNC),
    SYMBOL(F_RDLCK),
    SYMBOL(F_WRLCK),
    SYMBOL(F_UNLCK),
    SYMBOL(LOCK_SH),
    SYMBOL(LOCK_EX),
    SYMBOL(LOCK_UN),
    SYMBOL(LOCK_NB),
    SYMBOL(F_LOCK),
    SYMBOL(F_TLOCK),
    SYMBOL(F_ULOCK),
    SYMBOL(F_TEST),
    SYMBOL(F_OK),
    SYMBOL(R_OK),
    SYMBOL(W_OK),
    SYMBOL(X_OK),
    SYMBOL(_IOFBF),
    SYMBOL(_IOLBF),
    SYMBOL(_IONBF),
    SYMBOL(POSIX_FADV_NORMAL),
    SYMBOL(POSIX_FADV_SEQUENTIAL),
    SYMBOL(POSIX_FADV_RANDOM),
    SYMBOL(POSIX_FADV_WILLNEED),
    SYMBOL(POSIX_FADV_DONTNEED),
};
#undef SYMBOL

[[noreturn]] void Fail(const std::string& line) {
  fprintf(stderr, "cannot read this operation: %s\n", line.c_str());
  exit(2);
}

// False: it is neither a number nor a known name.
bool OneValue(const std::string& word, long* value) {
  char* end = nullptr;
  *value = strtol(word.c_str(), &end, 0);
  if (end != word.c_str() && *end == '\0') return true;
  for (const Symbol& symbol : kSymbols) {
    if (word == symbol.name) {
      *value = symbol.value;
      return true;
    }
  }
  return false;
}

// A path has no value; nobody asks for it.
long ValueOf(const std::string& text) {
  std::istringstream words(text);
  long result = 0;
  for (std::string word; std::getline(words, word, '|');) {
    long value = 0;
    if (!OneValue(word, &value)) return 0;
    result |= value;
  }
  return result;
}

}  // namespace

Operation::Operation(const std::string& line) {
  std::istringstream words(line);
  char point = 0;
  if (!(words >> process_ >> point >> thread_ >> name_) || point != '.') Fail(line);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) Fail(line);
    const std::string text = word.substr(equals + 1);
    if (text.find('_') != std::string::npos && text[0] >= 'A' && text[0] <= 'Z') {
      std::istringstream parts(text);
      long ignored = 0;
      for (std::string part; std::getline(parts, part, '|');) {
        if (!OneValue(part, &ignored)) Fail(line);
      }
    }
    arguments_.push_back({word.substr(0, equals), text, ValueOf(text)});
  }
}

const Operation::Argument* Operation::Find(const char* key) const {
  for (const Argument& argument : arguments_) {
    if (argument.key == key) return &argument;
  }
  return nullptr;
}

long Operation::Number(const char* key, long otherwise) const {
  const Argument* argument = Find(key);
  return argument != nullptr ? argument->number : otherwise;
}

std::string Operation::Text(const char* key) const {
  const Argument* argument = Find(key);
  return argument != nullptr ? argument->text : "";
}

}  // namespace nvcache::differential
