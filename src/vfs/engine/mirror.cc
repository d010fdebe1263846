// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/mirror.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "src/pool/view.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/lock.h"
#include "src/sys/memory.h"
#include "src/vfs/engine/mirror_wait.h"

namespace nvcache::vfs {

namespace {

constexpr uint64_t kSayAfterNs = 2ull * 1000 * 1000 * 1000;
// A change takes two calls of the kernel's, at most.
constexpr uint64_t kChangeNs = 10 * 1000;

bool IsChanging(uint32_t generation) { return generation % 2 != 0; }

// While it lives, the words change.
class Change {
 public:
  explicit Change(std::atomic<uint32_t>* generation) : generation_(*generation) {
    generation_.fetch_add(1);
  }
  ~Change() { generation_.fetch_add(1); }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

 private:
  std::atomic<uint32_t>& generation_;
};

static_assert(pool::kSharedOffset + sizeof(pool::SharedState) <= pool::kMinPoolSize);

}  // namespace

bool Mirror::Follow(const char* path, uint64_t id, uint32_t commit) {
  if (commit == pool::kCommitOwn) {
    if (commit_.load() != pool::kCommitOwn) Close(true);
    return true;
  }
  if (id_.load() != id && !Open(path, id)) return false;
  commit_.store(commit);
  return true;
}

// Words of a pool that another one has replaced: who waits for them syncs, and waits for these.
bool Mirror::Open(const char* path, uint64_t id) {
  const long fd = sys::Openat(AT_FDCWD, path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat st;
  const bool whole = sys::Fstat(static_cast<int>(fd), &st) == 0 &&
                     (!S_ISREG(st.st_mode) || st.st_size >= off_t{pool::kMinPoolSize});
  if (!whole) {
    sys::Close(static_cast<int>(fd));
    return false;
  }
  const long mapped =
      sys::MapUnlocked(kMapped, PROT_READ | PROT_WRITE, MAP_SHARED, static_cast<int>(fd));
  sys::Close(static_cast<int>(fd));
  if (sys::IsError(mapped)) return false;
  auto* base = reinterpret_cast<uint8_t*>(mapped);
  const auto& superblock = *reinterpret_cast<const pool::Superblock*>(base);
  if (!pool::HasMagic(superblock) || pool::IdOf(superblock) != id) {
    sys::UnmapUnlocked(base, kMapped);
    return false;
  }
  const Change change(&generation_);
  if (uint8_t* const place = place_.load(); place != nullptr) {
    const long moved = sys::Call(SYS_mremap, mapped, long{kMapped}, long{kMapped},
                                 MREMAP_MAYMOVE | MREMAP_FIXED, sys::Address(place));
    NVCACHE_CHECK(!sys::IsError(moved));
    sys::ForgetUnlocked(base);
  } else {
    place_.store(base);
  }
  id_.store(id);
  return true;
}

void Mirror::Close(bool kept) {
  const Change change(&generation_);
  if (kept) commit_.store(pool::kCommitOwn);
  if (id_.load() == 0) return;
  id_.store(0);
  uint8_t* const place = place_.load();
  constexpr int kInPlace = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
  const long address = sys::Mmap(place, kMapped, PROT_READ | PROT_WRITE, kInPlace, -1, 0);
  NVCACHE_CHECK(address == sys::Address(place));
  sys::ForgetUnlocked(place);
  sys::KeepUnlocked(place, kMapped);
}

// Nothing that was read counts unless the generation is the same afterwards. A wait may be counted
// in words that have just come; that is for people alone.
long Mirror::Await(long (*sync)(int), int argument) {
  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
  for (;;) {
    const uint32_t generation = generation_.load();
    const bool closed = id_.load() == 0, lost = closed && commit() != pool::kCommitOwn;
    if (IsChanging(generation) || generation_.load() != generation) {
      sys::Pause(kChangeNs);
      continue;
    }
    if (closed) return lost ? -EIO : sync(argument);
    pool::View view;
    view.base = place_.load();
    const pool::MirrorWords words(view);
    const auto goes_on = [&] {
      if (words.state() == pool::kMirrorNone) SayWaiting(begin);
      return generation_.load() == generation;
    };
    const long result = AwaitMirror(
        words, [&] { return sync(argument); }, goes_on);
    if (generation_.load() == generation) {
      words.CountWait(sys::Now(CLOCK_MONOTONIC) - begin, result < 0);
      return result;
    }
    if (const long error = sync(argument); error < 0) return error;
  }
}

void Mirror::SayWaiting(uint64_t since) {
  if (sys::Now(CLOCK_MONOTONIC) - since < kSayAfterNs || said_.exchange(true)) return;
  sys::Report(
      "the pool is mirrored, and no mirror has come yet: calls that sync wait for one; run "
      "'nvcache mirror'");
}

}  // namespace nvcache::vfs
