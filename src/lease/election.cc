// SPDX-License-Identifier: BSD-3-Clause
#include "src/lease/election.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>

#include "src/lease/format.h"
#include "src/sys/arena.h"
#include "src/sys/kernel.h"
#include "src/sys/lock.h"
#include "src/sys/scratch.h"

namespace nvcache::lease {

namespace {

// For another process that is at it; each holds the locks for some hundred microseconds.
constexpr uint64_t kPatienceNs = 10ull * 1000 * 1000 * 1000;
constexpr uint64_t kPauseNs = 500 * 1000;

constexpr char kNoDescriptor[] =
    "too many files are open for the file of leases: raise the limit (ulimit -n)";
constexpr char kOthersMayOpen[] = "others may open the file of leases";

void Pause() {
  sys::Word word{0};
  sys::FutexWait(&word, 0, kPauseNs);
}

bool SameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// "-" and 16 digits, which nobody guesses.
template <typename Name>
void AppendRandom(Name* name) {
  uint64_t number = 0;
  sys::Getrandom(&number, sizeof(number));
  name->Append("-");
  for (int shift = 60; shift >= 0; shift -= 4) {
    const char digit[] = {"0123456789abcdef"[(number >> shift) % 16], '\0'};
    name->Append(digit);
  }
}

}  // namespace

// ----------------------------------------------------------------------------------------- A list

Election::List::~List() {
  for (uint32_t i = 0; i < count; ++i) sys::Close(candidates[i].fd);
  if (elected >= 0) sys::Close(elected);
  if (candidates != nullptr) sys::Munmap(candidates, kMaxCandidates * sizeof(Candidate));
}

bool Election::List::Add(int fd, uint64_t inode, const char* name) {
  if (candidates == nullptr) {
    candidates = static_cast<Candidate*>(sys::Reserve(kMaxCandidates * sizeof(Candidate)));
  }
  // Others may have given it one more name, where the system lets them (fs.protected_hardlinks).
  bool known = false;
  for (uint32_t i = 0; i < count; ++i) known |= candidates[i].inode == inode;
  const bool full = count == kMaxCandidates;
  if (candidates == nullptr || known || full) {
    sys::Close(fd);
    more |= full;
    return candidates != nullptr;
  }
  uint32_t at = count++;
  for (; at > 0 && candidates[at - 1].inode > inode; --at) candidates[at] = candidates[at - 1];
  candidates[at] = {fd, inode, {}};
  candidates[at].name.Append(name);
  return true;
}

// Both are of one file system, and all of these files are open: a number stands for one file.
bool Election::List::SameAs(const List& other) const {
  if (more || other.more || count != other.count) return false;
  for (uint32_t i = 0; i < count; ++i) {
    if (candidates[i].inode != other.candidates[i].inode) return false;
  }
  return true;
}

// -------------------------------------------------------------------------------------- The files

Election::Election(const char* folder) : path_(folder) {
  name_.Append(kFilePrefix).AppendNumber(static_cast<uint64_t>(sys::Geteuid()));
}

Election::~Election() {
  if (folder_ >= 0) sys::Close(folder_);
}

// Hands on what an open has said.
int Election::Noted(long fd) {
  out_of_descriptors_ = out_of_descriptors_ || fd == -EMFILE || fd == -ENFILE;
  return static_cast<int>(fd);
}

// -1: it is not ours, or there is none, or it cannot be opened.
int Election::Open(int folder, const char* name, struct stat* st) {
  const auto ours = [st] {
    return S_ISREG(st->st_mode) && st->st_uid == static_cast<uid_t>(sys::Geteuid());
  };
  if (sys::Fstatat(folder, name, st, AT_SYMLINK_NOFOLLOW) < 0 || !ours()) return -1;
  const int fd =
      Noted(sys::Openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (fd < 0) return -1;
  if (sys::Fstat(fd, st) == 0 && ours()) return fd;
  sys::Close(fd);
  return -1;
}

// Nothing that others can change counts: all of us see the same.
Election::FileKind Election::FileKindOf(int fd, const struct stat& st) {
  uint64_t format = 0;
  sys::Pread(fd, &format, sizeof(format), offsetof(Shared, format));
  if (format >> kVersionBits != kFormat >> kVersionBits) return FileKind::kIsStranger;
  if (format != kFormat && format != kCandidate) return FileKind::kIsOutdated;
  // One that is elected may have grown since. A candidate of another version has another size.
  if (format == kFormat && st.st_size >= off_t{kFirstSize}) return FileKind::kIsElected;
  const bool candidate = format == kCandidate && st.st_size == off_t{kFirstSize};
  return candidate ? FileKind::kIsCandidate : FileKind::kIsStranger;
}

// Adds the file to the list, if it belongs there.
Election::Step Election::Look(const char* name, List* list) {
  struct stat st;
  const int fd = Open(folder_, name, &st);
  // One that cannot be looked at may be what all others have agreed on.
  if (fd < 0) return out_of_descriptors_ ? Step::kFailed : Step::kDone;
  switch (FileKindOf(fd, st)) {
    case FileKind::kIsCandidate:
      if (list->Add(fd, st.st_ino, name)) return Step::kDone;
      why_ = "there is no room for the file of leases";
      return Step::kFailed;
    case FileKind::kIsElected:
      if ((st.st_mode & 07777 & ~0600u) != 0) {
        why_ = kOthersMayOpen;
        break;
      }
      if (list->elected >= 0) sys::Close(list->elected);
      list->elected = fd;
      return Step::kDone;
    case FileKind::kIsOutdated: {
      why_ = "the file of leases is of another version, and processes use it: end them";
      const bool removed = RemoveOutdated(fd, name);
      sys::Close(fd);
      return removed ? Step::kAgain : Step::kFailed;
    }
    case FileKind::kIsStranger:
      sys::Close(fd);
      return Step::kDone;
  }
  sys::Close(fd);
  return Step::kFailed;
}

Election::Step Election::Collect(List* list) {
  sys::Scratch<char[sys::kScratchSize]> scratch;
  const char* buffer = scratch.get();
  sys::Lseek(folder_, 0, SEEK_SET);
  for (;;) {
    const long n =
        sys::Call(SYS_getdents64, folder_, sys::Address(buffer), long{sys::kScratchSize});
    if (n < 0) return Step::kFailed;
    if (n == 0) return Step::kDone;
    for (long at = 0; at < n;) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
      at += entry->d_reclen;
      size_t same = 0;
      while (same < name_.size() && entry->d_name[same] == name_.c_str()[same]) ++same;
      const char next = same == name_.size() ? entry->d_name[same] : 'x';
      if (next != '\0' && next != '-') continue;
      const Step step = Look(entry->d_name, list);
      if (step != Step::kDone) return step;
    }
  }
}

// ------------------------------------------------------------------------------------- One attempt

int Election::Run(const char** why) {
  why_ = "the file of leases cannot be opened";
  struct stat st;
  const uint64_t end = sys::Now(CLOCK_MONOTONIC) + kPatienceNs;
  sys::Text<512> plain;
  plain.Append(path_).Append("/").Append(name_.c_str());
  int fd = Open(AT_FDCWD, plain.c_str(), &st);
  if (fd >= 0) {
    const bool elected = FileKindOf(fd, st) == FileKind::kIsElected && (st.st_mode & 07177) == 0;
    if (elected) return fd;
    sys::Close(fd);
    fd = -1;
  }
  folder_ = Noted(sys::Openat(AT_FDCWD, path_, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder_ >= 0) out_of_descriptors_ = false;
  Step step = folder_ >= 0 ? Step::kAgain : Step::kFailed;
  while (step == Step::kAgain || step == Step::kLater) {
    step = Try(&fd);
    if (step == Step::kLater) Pause();
    const bool waits = step == Step::kAgain || step == Step::kLater;
    if (waits && sys::Now(CLOCK_MONOTONIC) >= end) {
      why_ = "other processes do not agree on a file of leases: end them, or remove these files";
      break;
    }
  }
  Withdraw();
  *why = out_of_descriptors_ ? kNoDescriptor : why_;
  return fd;
}

Election::Step Election::Try(int* fd) {
  List first, second;
  Step step = Collect(&first);
  if (step != Step::kDone) return step;
  if (first.elected >= 0) {
    *fd = first.elected;
    first.elected = -1;
    return Step::kDone;
  }
  if (first.more) {
    Withdraw();
    return Step::kLater;
  }
  if (first.count == 0) return Make() ? Step::kAgain : Step::kFailed;
  if (!LockAll(first)) return Step::kLater;
  step = Collect(&second);
  if (step != Step::kDone) return step;
  if (second.elected >= 0 || !first.SameAs(second)) return Step::kAgain;
  return Elect(first, fd);
}

// In their order, so that of two that want the same ones, one gets all. Closing them unlocks.
bool Election::LockAll(const List& list) {
  for (uint32_t i = 0; i < list.count; ++i) {
    if (sys::Flock(list.candidates[i].fd, LOCK_EX | LOCK_NB) < 0) return false;
  }
  return true;
}

// All are locked.
Election::Step Election::Elect(const List& list, int* fd) {
  why_ = "there is no room for the file of leases";
  Candidate& winner = list.candidates[0];
  const uint64_t format = kFormat;
  if (sys::Pwrite(winner.fd, &format, sizeof(format), offsetof(Shared, format)) < 0) {
    return Step::kFailed;
  }
  for (uint32_t i = 1; i < list.count; ++i) {
    Remove(list.candidates[i].fd, list.candidates[i].name.c_str());
  }
  *fd = Noted(sys::Fcntl(winner.fd, F_DUPFD_CLOEXEC, 0));
  sys::Flock(winner.fd, LOCK_UN);  // the copy has the same lock
  why_ = "the file of leases cannot be opened";
  return *fd >= 0 ? Step::kDone : Step::kFailed;
}

// A candidate of our own. It is one when it is whole: until then it is a stranger to all.
bool Election::Make() {
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  own_ = name_;
  int fd = Noted(sys::Openat(folder_, own_.c_str(), kFlags, 0600));
  if (fd == -EEXIST) {
    AppendRandom(&own_);
    fd = Noted(sys::Openat(folder_, own_.c_str(), kFlags, 0600));
  }
  why_ = "the file of leases cannot be made";
  if (fd < 0) return false;
  const bool ready = Prepare(fd);
  if (!ready) Remove(fd, own_.c_str());
  sys::Close(fd);
  return ready;
}

bool Election::Prepare(int fd) {
  why_ = "there is no room for the file of leases";
  const uint64_t format = kCandidate;
  // To grow beyond the limit would be a signal. And a umask may have taken the owner's rights.
  return sys::SoftLimit(RLIMIT_FSIZE) >= kFirstSize && sys::Fchmod(fd, 0600) == 0 &&
         sys::Ftruncate(fd, kFirstSize) == 0 && sys::Fallocate(fd, 0, 0, kPage) == 0 &&
         sys::Pwrite(fd, &format, sizeof(format), offsetof(Shared, format)) == sizeof(format);
}

// ---------------------------------------------------------------------------------------- Removing

// A process that waited for the lock meanwhile finds another file under the name, or none.
void Election::Remove(int fd, const char* name) const {
  struct stat named, open;
  if (sys::Fstatat(folder_, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && sys::Fstat(fd, &open) == 0 &&
      SameFile(named, open)) {
    sys::Unlinkat(folder_, name, 0);
  }
}

// Removes a file of another version, if no process uses it: each that does has a record lock.
bool Election::RemoveOutdated(int fd, const char* name) const {
  struct flock all = {};
  all.l_type = F_WRLCK;
  if (sys::Fcntl(fd, F_SETLK, sys::Address(&all)) < 0) return false;
  Remove(fd, name);
  return true;
}

// Takes back the candidate that we have made, unless it was elected, or somebody is at it: then he
// sees to it.
void Election::Withdraw() {
  if (own_.size() == 0) return;
  struct stat st;
  const int fd = Open(folder_, own_.c_str(), &st);
  if (fd < 0) return;
  if (sys::Flock(fd, LOCK_EX | LOCK_NB) == 0 && FileKindOf(fd, st) == FileKind::kIsCandidate) {
    Remove(fd, own_.c_str());
  }
  sys::Close(fd);
}

}  // namespace nvcache::lease
