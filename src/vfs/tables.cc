// SPDX-License-Identifier: BSD-3-Clause
//
// Descriptor -> description -> file.
#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine.h"
#include "src/vfs/through.h"

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

}  // namespace

void Engine::OpenTables() {
  files_.Open(reinterpret_cast<File*>(few_files), few_free_files, kFewFiles, kMaxFiles);
  descriptions_.Open(reinterpret_cast<Description*>(few_descriptions), few_free_descriptions,
                     kFewDescriptions, kMaxDescriptions);
  slots_.store(few_slots_);
  slot_count_.store(kFewDescriptors, std::memory_order_release);
}

// From then on a descriptor of ours can be stored without the table lock.
bool Engine::OpenRest() {
  if (!MakeSlot(kMaxDescriptors - 1) || !sys::OpenScratch()) return false;
  if (unreadable_ != nullptr) return true;
  constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;
  const long page = sys::MapUnlocked(kUnreadable, PROT_NONE, kAnonymous, -1);
  if (sys::IsError(page)) return false;
  unreadable_ = reinterpret_cast<void*>(page);
  return true;
}

// Whoever reads a slot meanwhile reads it as it was before: the old ones do not change any more.
bool Engine::MakeSlot(uint32_t number) {
  NVCACHE_CHECK(table_lock.IsLocked());
  const uint32_t count = slot_count_.load();
  if (number < count) return true;
  if (number >= kMaxDescriptors) return false;
  using Slot = std::atomic<Description*>;
  auto* slots = static_cast<Slot*>(sys::Reserve(kMaxDescriptors * sizeof(Slot)));
  if (slots == nullptr) return false;
  const Slot* old = slots_.load();
  for (uint32_t i = 0; i < count; ++i) slots[i].store(old[i].load());
  slots_.store(slots);
  slot_count_.store(kMaxDescriptors, std::memory_order_release);
  return true;
}

void Engine::SetSlot(int fd, Description* description) {
  const auto number = static_cast<uint32_t>(fd);
  NVCACHE_CHECK(table_lock.IsLocked());
  if (description == kUntracked && number >= descriptor_end()) return;
  if (MakeSlot(number)) Store(fd, description);
}

// Without the table lock: for numbers of ours only.
void Engine::Store(int fd, Description* description) {
  const auto number = static_cast<uint32_t>(fd);
  if (number >= slot_count_.load()) return;
  uint32_t end = descriptor_end();
  while (end <= number && !descriptor_end_.compare_exchange_weak(end, number + 1)) {
  }
  slots_.load(std::memory_order_relaxed)[number].store(description, std::memory_order_seq_cst);
}

File*& Engine::BucketOf(uint64_t device, uint64_t inode) const {
  const uint64_t mixed = (inode ^ (device << 32)) * 0x9e3779b97f4a7c15u;
  return buckets_[static_cast<uint32_t>(mixed >> 32) % bucket_count_];
}

// Most programs have few files, and each bucket that is far from the others costs them a fault.
void Engine::SpreadBuckets() {
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

void Engine::AddToBucket(File& file) {
  File*& bucket = BucketOf(file.device, file.inode);
  file.hash_next = bucket;
  bucket = &file;
}

File* Engine::FindFile(uint64_t device, uint64_t inode) const {
  File* file = BucketOf(device, inode);
  while (file != nullptr && (file->inode != inode || file->device != device)) {
    file = file->hash_next;
  }
  return file;
}

File* Engine::FindByPath(int dirfd, const char* path, bool follow) const {
  struct stat st;
  if (sys::Fstatat(dirfd, path, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW) < 0) return nullptr;
  return S_ISREG(st.st_mode) ? FindFile(st.st_dev, st.st_ino) : nullptr;
}

File* Engine::NewFile(const struct stat& st) {
  const uint32_t number = files_.Allocate();
  if (number == sys::kNone) return nullptr;
  if (number == kFewFiles && bucket_count_ < kFileBuckets) SpreadBuckets();
  File& file = files_[number];
  NVCACHE_CHECK(file.descriptions == nullptr && file.pending.load() == 0 && file.pages.empty());
  file.device = st.st_dev;
  file.inode = st.st_ino;
  SetState(file, State::kKernel);
  file.backing_fd = -1;
  file.size.store(static_cast<uint64_t>(st.st_size));
  file.tag.Undeclare();  // by another file, of which this one has the number
  file.tag.number = number;
  file.failing.store(0);
  file.errors.Clear();
  file.erasures.Clear();
  file.erase_error.store(0);
  file.erased.store(false);
  file.kept_declared = 0;
  file.forever = file.lent = file.handed_on = file.closed = file.exclusive = false;
  file.said_open = false;
  file.leased = leases.is_open();
  file.syncs.store(0);
  file.synced_at.store(0);
  file.exits_seen.store(0);
  file.publishes = false;
  file.left = 0;
  file.awaited.store(0);
  file.awaited_synced.store(0);
  file.sync_refused = false;
  file.changes.store(0);
  file.changes_synced.store(0);
  file.description.store(0);
  file.locked.store(false);
  file.lost.store(false);
  AddToBucket(file);
  if (file.leased) leases.Share(file.device, file.inode);
  return &file;
}

void Engine::SetState(File& file, State state) {
  const auto held = [](State s) { return s == State::kCached || s == State::kForeign; };
  const bool before = held(file.state.load()), after = held(state);
  if (!before && after) in_caches_.fetch_add(1);
  file.state.store(state);
  if (before && !after) in_caches_.fetch_sub(1);
}

void Engine::RemoveFromBucket(File& file) {
  File** link = &BucketOf(file.device, file.inode);
  while (*link != &file) link = &(*link)->hash_next;
  *link = file.hash_next;
}

// It is open by now. If nobody else had it open, a program without us may have written to it since
// it was closed, or it is another one with the same number.
void Engine::BeginUse(File& file, const struct stat& st) {
  if (file.said_open || !leases.is_open()) return;
  const uint64_t tag = lease::TagOf(file.device, file.inode);
  lease::Tally* tally = tallies.Find(tag);
  if (tally == nullptr) return;
  if (!IsAsItWasLeft(*tally, st) && !tallies.IsOpenElsewhere(tag)) lease::Tallies::Forget(*tally);
  SayOpen(file);
}

void Engine::BeginUse(int fd) {
  const Description* description = SlotOf(fd);
  if (!IsDescription(description) || description->writes()) return;
  TableLock lock;
  description = SlotOf(fd);
  struct stat st;
  if (IsDescription(description) && sys::Fstat(fd, &st) == 0) {
    BeginUse(*description->file.load(), st);
  }
}

// What has no tally yet was not known before we had it open.
void Engine::SayOpen(File& file) {
  NVCACHE_CHECK(table_lock.IsLocked());
  if (file.said_open || !leases.is_open()) return;
  file.said_open = true;
  tallies.SayOpen(lease::TagOf(file.device, file.inode));
}

void Engine::SayClosed(File& file) {
  if (file.said_open && leases.is_open()) tallies.SayClosed(lease::TagOf(file.device, file.inode));
  file.said_open = false;
}

Description* Engine::NewDescription(File& file, int flags, const struct stat& st) {
  const uint32_t number = descriptions_.Allocate();
  if (number == sys::kNone) return nullptr;
  Description& description = descriptions_[number];
  description.flags.store(flags);
  description.forks.store(forks());
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

// Whoever used the description entered with the file's lock and found its slot in place; the slot
// is gone by now, so after the exclusive lock nobody is inside.
long Engine::DropReference(Description& description) {
  NVCACHE_CHECK(table_lock.IsLocked() && description.references > 0);
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
    NoteLeft(file);
  }
  const int error = file.errors.Take(&description.errors_heard);
  file.lock.Unlock();
  descriptions_.Free(descriptions_.IndexOf(&description));
  if (file.descriptions == nullptr) SayClosed(file);

  if (leases.IsOwnFile(file.device, file.inode)) relock_due_ = true;
  if (file.descriptions == nullptr && !file.closed) {
    file.closed = true;
    file.closed_next = closed_;
    closed_ = &file;
    lingering_.store(true);  // before the look: the cleanup thread looks at it after its work
    if (!Lingers(file)) reap_due_ = true;
  }
  return -error;
}

void Engine::TableFull(File* file) {
  if (attached()) pool::Count(statistics()->table_full);
  if (file == nullptr) {
    full_ = true;
  } else if (PassThrough(*file) == 0) {
    MakeLasting(*file);
  }
}

int Engine::DescriptorOf(const Description& description) const {
  for (uint32_t fd = 0; fd < descriptor_end(); ++fd) {
    if (SlotOf(static_cast<int>(fd)) == &description) return static_cast<int>(fd);
  }
  return -1;
}

// Something of a closed file is still to be done, by the cleanup thread.
bool Engine::Lingers(const File& file) { return file.pending.load() > 0 || file.forever; }

// Files that linger are looked at again when the cleanup thread has got on: a program may have
// closed thousands.
void Engine::Reap() {
  if (relock_due_) leases.Relock();
  relock_due_ = false;
  const nvlog::Lsn cleaned = cleaner.cleaned();
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

void Engine::ForgetClosed(const struct stat& st) {
  File* file = FindFile(st.st_dev, st.st_ino);
  if (file == nullptr || file->descriptions != nullptr || file->pending.load() > 0) return;
  if (file->state.load() != State::kCached) return;
  LeaveKnown(*file);
  if (LeaveToKernel(*file, State::kPassThrough, false) < 0) return;
  reap_due_ = true;
  Reap();
}

}  // namespace nvcache::vfs
