// SPDX-License-Identifier: BSD-3-Clause
//
// Folders of a user, whose names are in the log: what the programs did there, as records, and what
// the file system has kept of it, which is next to nothing.
#ifndef NVCACHE_TESTS_FUZZ_NAME_TREE_H_
#define NVCACHE_TESTS_FUZZ_NAME_TREE_H_

#include <sys/types.h>

#include <string>

#include "src/pool/name_record.h"
#include "tests/fuzz/pool_image.h"

namespace nvcache::fuzz {

class NameTree {
 public:
  NameTree(const std::string& path, uid_t owner) : path_(path), owner_(owner) {}

  // Anew, and what was done into the image; the bytes of files have numbers from `number` on.
  void Make(PoolImage* image, uint32_t number);
  bool IsAsMade() const;
  // All is as the records say.
  bool IsRecovered() const;

 private:
  // What a record says. Names are paths below the tree; "" for none.
  struct Said {
    pool::Deed deed;
    pool::Identity file;
    std::string name = {};
    std::string from = {};
    pool::Identity other = {};
    uint32_t flags = 0;
    uint32_t set = 0;
  };

  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  pool::Identity File(const std::string& name);
  pool::Identity Folder(const std::string& name);
  pool::Identity Known(const std::string& name);
  // The same, with two records.
  void Announced(Said said);
  void Log(const Said& said, const std::string& of = "");
  void LogBirths(uint32_t number);
  void LogChanges(uint32_t number);
  void Offer();

  const std::string path_;
  const uid_t owner_;
  PoolImage* image_ = nullptr;
  std::string made_;
};

}  // namespace nvcache::fuzz

#endif  // NVCACHE_TESTS_FUZZ_NAME_TREE_H_
