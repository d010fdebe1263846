// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/files.h"

#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/states.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/engine/through_file.h"

namespace nvcache::vfs {

namespace {

// Most programs have few files open, or none: an exec should not cost mappings, nor should a fork,
// which copies them.
constexpr uint32_t kFewFiles = 128;
constexpr uint32_t kFewDescriptions = 256;

alignas(64) constinit uint8_t few_files[kFewFiles * sizeof(File)] = {};
alignas(64) constinit uint8_t few_descriptions[kFewDescriptions * sizeof(Description)] = {};
static_assert(alignof(File) <= 64 && alignof(Description) <= 64);
constinit uint32_t few_free_files[kFewFiles] = {};
constinit uint32_t few_free_descriptions[kFewDescriptions] = {};

bool IsOpenToWrite(const File& file) {
  for (const Description* d = file.descriptions; d != nullptr; d = d->next) {
    if (d->writes()) return true;
  }
  return false;
}

// Each call by which the program could put something else at its number comes to us (I17).
bool HasLeases() {
  return engine.callers.are_known() && engine.descriptors.Of(engine.leases.fd()) == Internal();
}

}  // namespace

constinit File* Files::buckets_[kFileBuckets] = {};

void Files::Open() {
  files_.Open(reinterpret_cast<File*>(few_files), few_free_files, kFewFiles, kMaxFiles);
  descriptions_.Open(reinterpret_cast<Description*>(few_descriptions), few_free_descriptions,
                     kFewDescriptions, kMaxDescriptions);
}

File*& Files::BucketOf(uint64_t device, uint64_t inode) const {
  const uint64_t mixed = (inode ^ (device << 32)) * 0x9e3779b97f4a7c15u;
  return buckets_[static_cast<uint32_t>(mixed >> 32) % bucket_count_];
}

// Most programs have few files, and each bucket that is far from the others costs them a fault.
void Files::SpreadBuckets() {
  bucket_count_ = kFileBuckets;
  for (uint32_t i = 0; i < kFewBuckets; ++i) {
    File* next = buckets_[i];
    buckets_[i] = nullptr;
    while (next != nullptr) {
      File& file = *next;
      next = file.hash_next;
      AddToBucket(file);
    }
  }
}

void Files::AddToBucket(File& file) {
  File*& bucket = BucketOf(file.device, file.inode);
  file.hash_next = bucket;
  bucket = &file;
}

File* Files::Find(uint64_t device, uint64_t inode) const {
  File* file = BucketOf(device, inode);
  while (file != nullptr && (file->inode != inode || file->device != device)) {
    file = file->hash_next;
  }
  return file;
}

File* Files::FindByPath(int dirfd, const char* path, bool follow) const {
  struct stat st;
  if (sys::Fstatat(dirfd, path, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW) < 0) return nullptr;
  return S_ISREG(st.st_mode) ? Find(st.st_dev, st.st_ino) : nullptr;
}

File* Files::New(const sys::BornStat& st) {
  const uint32_t number = files_.Allocate();
  if (number == sys::kNone) return nullptr;
  if (number == kFewFiles && bucket_count_ < kFileBuckets) SpreadBuckets();
  File& file = files_[number];
  file.Begin(st, number);
  AddToBucket(file);
  if (engine.leases.is_open()) engine.leases.AddUser(file.device, file.inode);
  return &file;
}

void Files::RemoveFromBucket(File& file) {
  File** link = &BucketOf(file.device, file.inode);
  while (*link != &file) link = &(*link)->hash_next;
  *link = file.hash_next;
}

// It is open by now. If nobody else had it open, a program without us may have written to it since
// it was closed, or it is another one with the same number.
void Files::BeginUse(File& file, const struct stat& st) {
  if (file.said_open || !engine.leases.is_open()) return;
  const uint64_t tag = TagOf(file);
  lease::FileEntry* entry = engine.file_table.Find(tag);
  if (entry == nullptr) return;
  if (!MatchesCloseStamp(*entry, st) && !engine.file_table.IsOpenElsewhere(tag)) {
    LookAtOpened(*entry, st);
  }
  SayOpen(file);
}

void Files::BeginUse(int fd) {
  const Description* description = engine.descriptors.Of(fd);
  if (!IsDescription(description) || description->writes()) return;
  TableLock lock;
  description = engine.descriptors.Of(fd);
  struct stat st;
  if (IsDescription(description) && sys::Fstat(fd, &st) == 0) {
    BeginUse(*description->file.load(), st);
  }
}

// A file without an entry was not known before we had it open.
void Files::SayOpen(File& file) {
  NVCACHE_CHECK(engine.table_lock.IsLocked());
  if (file.said_open || !engine.leases.is_open()) return;
  file.said_open = true;
  engine.file_table.SayOpen(TagOf(file), HasLeases());
}

void Files::SayClosed(File& file) {
  if (file.said_open && engine.leases.is_open()) {
    engine.file_table.SayClosed(TagOf(file), HasLeases());
  }
  file.said_open = false;
}

Description* Files::NewDescription(File& file, int flags, const struct stat& st) {
  const uint32_t number = descriptions_.Allocate();
  if (number == sys::kNone) return nullptr;
  Description& description = descriptions_[number];
  description.flags.store(flags);
  description.forks.store(engine.standing.forks());
  description.given.store(false);
  description.offset = 0;
  description.errors_heard.store(file.errors.Sample());
  description.references = 1;
  if (description.writes() && !IsOpenToWrite(file)) BeginUse(file, st);
  file.lock.Lock();
  description.next = file.descriptions;
  file.descriptions = &description;
  description.file.store(&file, std::memory_order_release);
  file.lock.Unlock();
  return &description;
}

// A thread that used the description entered with the file's lock and found the number to mean it;
// it means nothing by now, so after the exclusive lock nobody is inside.
long Files::DropReference(Description& description) {
  NVCACHE_CHECK(engine.table_lock.IsLocked() && description.references > 0);
  description.drops.fetch_add(1);
  if (--description.references > 0) return 0;
  File& file = *description.file.load();
  file.lock.Lock();
  Description** link = &file.descriptions;
  while (*link != &description) link = &(*link)->next;
  *link = description.next;
  description.file.store(nullptr, std::memory_order_release);
  if (file.descriptions == nullptr && file.state.load() == State::kCached) {
    Publish(file);
    NoteCloseStamp(file);
  }
  const int error = file.errors.Take(&description.errors_heard);
  file.lock.Unlock();
  descriptions_.Free(descriptions_.IndexOf(&description));
  if (file.descriptions == nullptr) SayClosed(file);

  if (engine.leases.IsOwnFile(file.device, file.inode)) relock_due_ = true;
  if (file.descriptions == nullptr && !file.closed) {
    file.closed = true;
    file.closed_next = closed_;
    closed_ = &file;
    lingering_.store(true);  // before the look: the cleanup thread looks at it after its work
    if (!Lingers(file)) reap_due_ = true;
  }
  return -error;
}

// Forgets what a number stood for before the kernel gave it to somebody new.
void Files::Vacate(int fd) {
  Description* old = engine.descriptors.Of(fd);
  engine.descriptors.Set(fd, kUntracked);
  if (IsDescription(old)) DropReference(*old);
  if (old == Internal()) engine.own.Lost(fd);
}

void Files::TableFull(File* file, const sys::BornStat& st) {
  if (engine.attached()) pool::Count(engine.statistics()->table_full);
  if (file == nullptr) {
    full_ = true;
    if (!engine.leases.is_open()) return;
    engine.leases.AddUser(st.st_dev, st.st_ino);  // nobody drops that
    engine.leases.MarkHandedOn(st.st_dev, st.st_ino);
  } else if (PassThrough(*file) == 0) {
    MakeLasting(*file);
  }
}

// Something of a closed file is still to be done, by the cleanup thread.
bool Files::Lingers(const File& file) { return file.pending.load() > 0 || file.forever; }

// Files that linger are looked at again when the cleanup thread has got on: a program may have
// closed thousands.
void Files::Reap() {
  if (relock_due_) engine.leases.Relock();
  relock_due_ = false;
  const nvlog::Lsn cleaned = engine.cleaner.cleaned();
  if (!reap_due_ && cleaned == reaped_to_) return;
  reap_due_ = false;
  reaped_to_ = cleaned;
  bool lingering = false;
  for (File** link = &closed_; *link != nullptr;) {
    File& file = **link;
    const bool reopened = file.descriptions != nullptr;
    if (!reopened && Lingers(file)) {
      lingering |= !file.forever;
      link = &file.closed_next;
      continue;
    }
    *link = file.closed_next;
    file.closed = false;
    if (!reopened) Destroy(file);
  }
  if (!lingering) lingering_.store(false);
}

void Files::ForgetClosed(const struct stat& st) {
  File* file = Find(st.st_dev, st.st_ino);
  if (file == nullptr || file->descriptions != nullptr || file->pending.load() > 0) return;
  if (file->state.load() != State::kCached) return;
  reap_due_ = true;
  Reap();
}

void Files::Destroy(File& file) {
  if (file.state.load() == State::kCached) LeaveKnown(file);
  vfs::Close(file);
  RemoveFromBucket(file);
  files_.Free(files_.IndexOf(&file));
}

}  // namespace nvcache::vfs
