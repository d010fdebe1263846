// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fuzz/name_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "src/pool/identify.h"
#include "tests/fuzz/files.h"

namespace nvcache::fuzz {

namespace fs = std::filesystem;
using pool::Deed;
using pool::Identity;
using pool::NameRecord;

namespace {

constexpr uint32_t kLog = pool::kThroughLog;
const std::string kLong(250, 'l');

Identity IdentityOf(const std::string& path, struct statx* st) {
  Identity identity;
  if (pool::IdentifyAt(AT_FDCWD, path.c_str(), &identity, st) < 0) Die(path);
  return identity;
}

std::string FolderOf(const std::string& path) { return fs::path(path).parent_path(); }
std::string NameOf(const std::string& path) { return fs::path(path).filename(); }

}  // namespace

Identity NameTree::Known(const std::string& name) {
  struct statx st;
  const Identity identity = IdentityOf(Path(name), &st);
  image_->OfferIdentity(identity);
  return identity;
}

Identity NameTree::File(const std::string& name) {
  WriteFile(Path(name), name, owner_, 0600);
  return Known(name);
}

Identity NameTree::Folder(const std::string& name) {
  if (mkdir(Path(name).c_str(), 0755) != 0 || chown(Path(name).c_str(), owner_, owner_) != 0) {
    Die(name);
  }
  return Known(name);
}

// `of`: what has its attributes now.
void NameTree::Log(const Said& said, const std::string& of) {
  NameRecord record;
  std::memset(static_cast<void*>(&record), 0, sizeof(record));
  struct statfs fs = {};
  struct statx st = {};
  if (statfs(path_.c_str(), &fs) != 0) Die(path_);
  std::memcpy(&record.file_system, &fs.f_fsid, sizeof(record.file_system));
  record.deed = said.deed;
  record.flags = said.flags;
  record.set = said.set;
  record.file = said.file;
  record.other = said.other;
  PoolImage::NameTexts texts;
  if (!of.empty()) {
    IdentityOf(Path(of), &st);
    record.mode = st.stx_mode;
    record.uid = st.stx_uid;
    record.gid = st.stx_gid;
    record.access_seconds = record.change_seconds = 1000;
    if (S_ISLNK(record.mode)) texts[2] = fs::read_symlink(Path(of));
    if (said.set != 0) texts[2] = Path(of);
  }
  if (!said.name.empty()) {
    texts[0] = NameOf(said.name);
    texts[3] = FolderOf(Path(said.name));
    record.folder = IdentityOf(texts[3], &st);
  }
  if (!said.from.empty()) {
    texts[1] = NameOf(said.from);
    texts[4] = FolderOf(Path(said.from));
    record.from_folder = IdentityOf(texts[4], &st);
  }
  image_->AddName(kLog, record, texts);
}

void NameTree::Announced(Said said) {
  Log(said);
  said.deed = static_cast<Deed>(static_cast<uint32_t>(said.deed) + 1);
  Log(said);
}

// All of them are lost.
void NameTree::LogBirths(uint32_t number) {
  Log({.deed = Deed::kCreated, .file = File("d/new"), .name = "d/new"}, "d/new");
  image_->AddFile(number, Path("d/new"));
  image_->AddWrite(kLog, number, 0, "bytes", 0);
  Log({.deed = Deed::kCreated, .file = Folder("d/sub"), .name = "d/sub"}, "d/sub");
  Log({.deed = Deed::kCreated, .file = File("d/sub/in"), .name = "d/sub/in"}, "d/sub/in");
  if (symlink("old", Path("d/link").c_str()) != 0 ||
      lchown(Path("d/link").c_str(), owner_, owner_) != 0) {
    Die("d/link");
  }
  Log({.deed = Deed::kCreated, .file = Known("d/link"), .name = "d/link"}, "d/link");
  for (const char* name : {"d/new", "d/sub", "d/link"}) fs::remove_all(Path(name));
}

// None of them was kept.
void NameTree::LogChanges(uint32_t number) {
  const Identity a = File("d/a"), b = File("e/b"), old = File("d/old");
  image_->AddFile(number, Path("d/old"));
  Announced({.deed = Deed::kRenames,
             .file = a,
             .name = "e/b",
             .from = "d/a",
             .other = b,
             .flags = pool::kNameGone});
  Announced({.deed = Deed::kLinks, .file = old, .name = "e/old", .from = "d/old"});
  image_->AddWrite(kLog, number, 0, "older", 0);
  for (const std::string& name : {std::string("d/gone"), "d/" + kLong}) {
    Announced({.deed = Deed::kRemoves, .file = File(name), .name = name, .flags = pool::kNameGone});
  }
  Announced({.deed = Deed::kRemoves,
             .file = Folder("d/empty"),
             .name = "d/empty",
             .flags = pool::kNameGone});
  if (chmod(Path("d/old").c_str(), 0640) != 0 || chmod(Path("e").c_str(), 0700) != 0) Die("chmod");
  Log({.deed = Deed::kAttributes, .file = old, .set = pool::kSetAll}, "d/old");
  Log({.deed = Deed::kAttributes, .file = Known("e"), .set = pool::kSetMode}, "e");
  if (chmod(Path("d/old").c_str(), 0600) != 0 || chmod(Path("e").c_str(), 0755) != 0) Die("chmod");
  // Announced, and not done.
  Log({.deed = Deed::kRenames,
       .file = File("d/last"),
       .name = "e/last",
       .from = "d/last",
       .other = File("e/last"),
       .flags = pool::kNameGone});
}

void NameTree::Offer() {
  for (const char* name : {"", ".", "..", "/", "a", "new", "old", "sub", "in", "b", "last", "link",
                           "empty", "x", "../x", "d/x", "wrong"}) {
    image_->OfferName(name);
  }
  image_->OfferName(std::string(256, 'n'));
  image_->OfferName(std::string("a\0b", 3));
  for (const std::string& folder :
       {path_, Path("d"), Path("e"), Path("d/sub"), Path("d/old"), Path("aside/."), Path("d/../d"),
        FolderOf(path_), FolderOf(path_) + "/outside", std::string("/mnt/others"), std::string("/"),
        std::string("/proc/self/cwd"), std::string("d"), std::string("")}) {
    image_->OfferFolder(folder);
  }
}

void NameTree::Make(PoolImage* image, uint32_t number) {
  image_ = image;
  fs::remove_all(path_);
  if (mkdir(path_.c_str(), 0755) != 0 || chown(path_.c_str(), owner_, owner_) != 0) Die(path_);
  Known(".");
  Folder("d");
  Folder("e");
  fs::create_directory_symlink("../outside", Path("aside"));
  LogBirths(number);
  LogChanges(number + 1);
  Offer();
  made_ = LookAtAll(path_);
}

bool NameTree::IsAsMade() const { return fs::exists(path_) && LookAtAll(path_) == made_; }

bool NameTree::IsRecovered() const {
  std::string names;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path_)) {
    const std::string path = entry.path().string();
    names += path.substr(path_.size()) + "\n";
  }
  for (const char* name : {"d/a", "d/gone", "d/empty", ".nvcache"}) {
    if (names.find(name) != names.npos) return false;
  }
  struct stat st = {};
  return ReadFile(Path("d/new")) == "bytes" && ReadFile(Path("d/sub/in")).empty() &&
         fs::exists(Path("d/sub/in")) && fs::exists(fs::symlink_status(Path("d/link"))) &&
         ReadFile(Path("e/b")) == "d/a" && ReadFile(Path("d/last")) == "d/last" &&
         ReadFile(Path("e/last")) == "e/last" && ReadFile(Path("d/link")) == "older" &&
         ReadFile(Path("e/old")) == "older" && stat(Path("d/old").c_str(), &st) == 0 &&
         (st.st_mode & 0777) == 0640;
}

}  // namespace nvcache::fuzz
