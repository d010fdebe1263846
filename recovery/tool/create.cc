// SPDX-License-Identifier: BSD-3-Clause
//
// nvcache create: makes a pool.
#include <fmt/format.h>
#include <sys/stat.h>

#include <CLI/App.hpp>
#include <map>
#include <memory>
#include <string>

#include "recovery/tool/commands.h"
#include "recovery/tool/huge.h"
#include "recovery/tool/journaling.h"
#include "recovery/tool/open.h"
#include "recovery/tool/text.h"
#include "src/settings/settings.h"
#include "src/sys/descriptor.h"

namespace nvcache::tool {
namespace {

struct CreateArguments {
  std::string pool;
  std::string size;
  bool emulate = false;
  bool populate = false;
  uint32_t commit = pool::kCommitOwn;
};

// A device has the size that it has.
bool IsDevice(const std::string& path) {
  struct stat st = {};
  return stat(path.c_str(), &st) == 0 && S_ISCHR(st.st_mode);
}

// Its memory is made when it is first used.
bool IsJournal(const std::string& path) {
  const sys::Descriptor file(
      sys::Openat(AT_FDCWD, path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  return file.IsOpen() && pool::Journal::IsOne(file.get());
}

// The pool is right without, and slower at first.
void Populate(const pool::Pool& pool, const std::string& path) {
  const uint64_t small = MakeAllHuge(pool);
  if (small == 0) return;
  fmt::print(
      stderr,
      "nvcache: {}: {} of it stay in small pages; huge ones take Linux 6.1, a pool on tmpfs, "
      "and free memory\n",
      Printable(path), Size(small));
}

int Create(const CreateArguments& arguments) {
  if (arguments.size.empty() && !IsDevice(arguments.pool)) {
    throw Failure{kUsage,
                  "--size is required; give the new file's, as in 512M or 1G; see 'nvcache "
                  "create --help'"};
  }
  const uint64_t size = arguments.size.empty() ? 0 : SizeOf(arguments.size, "--size");
  CreatePool(arguments.pool,
             {.size = size, .emulate = arguments.emulate, .commit = arguments.commit});
  if (IsJournal(arguments.pool)) {
    if (arguments.populate) {
      throw Failure{kUsage, "--populate is not for a pool on a disk; it was made without"};
    }
    const Level level = DiskLevel(arguments.commit);
    const JournalFile file = FindJournalFile(arguments.pool);
    fmt::print("created {}: {}, durability {} ({}); its journal has {} of {}\n",
               Printable(arguments.pool), Size(size / pool::kPageSize * pool::kPageSize),
               level.name, level.meaning, Size(file.size), DiskText(file));
    FinishOutput();
    return kOk;
  }
  ScopedPool pool;
  OpenPool(&pool, arguments.pool, pool::Mode::kInspect, kAnyMemory);
  if (arguments.populate) Populate(pool, arguments.pool);
  fmt::print("created {}: {}, durability {} ({})\n", Printable(arguments.pool),
             Size(pool.view().superblock->pool_size), LevelOf(pool).name, LevelOf(pool).meaning);
  FinishOutput();
  return kOk;
}

}  // namespace

uint64_t SizeOf(const std::string& text, const char* what) {
  uint64_t bytes = 0;
  if (settings::ParseSize(text.c_str(), &bytes)) return bytes;
  throw Failure{kUsage, fmt::format("{}: '{}' is not a size; give bytes, or a number with k, m, g "
                                    "or t, as in 64k or 1G",
                                    what, Printable(text))};
}

void AddCreate(CLI::App& app, int* status) {
  auto arguments = std::make_shared<CreateArguments>();
  CLI::App* command = app.add_subcommand("create", "Make a pool. Never overwrites one.");
  command->add_option("POOL", arguments->pool, "A new file, or a devdax device")->required();
  command->add_option("--size", arguments->size, "Bytes of a new file, as 512M or 1G")
      ->type_name("SIZE");
  const std::map<std::string, uint32_t> kCommit = {{"fsync", pool::kCommitFsync},
                                                   {"write", pool::kCommitWrite},
                                                   {"output", pool::kCommitOutput}};
  command
      ->add_option(
          "--commit", arguments->commit,
          "The pool is mirrored: calls that sync wait for 'nvcache mirror', or all that change "
          "a file; output: those by which something leaves the program after a sync, so it gains "
          "with --exclusive files")
      ->transform(CLI::CheckedTransformer(kCommit));
  command->add_flag("--emulate", arguments->emulate,
                    "Accept memory that is not persistent: writes then survive the death of the\n"
                    "program, not a power failure. Not needed with --commit");
  command->add_flag(
      "--populate", arguments->populate,
      "Put all of an emulated or mirrored pool into huge pages now: some seconds for\n"
      "each GiB. Else its checkpointer does, as far as it is used");
  command->footer(
      "Examples:\n"
      "  nvcache create /mnt/pmem/pool --size 16G\n"
      "  nvcache create /dev/dax0.0\n"
      "  nvcache create /dev/shm/pool --size 1G --emulate\n"
      "  nvcache create /dev/shm/pool --size 1G --commit fsync\n");
  command->callback([arguments, status] { *status = Create(*arguments); });
}

}  // namespace nvcache::tool
