// SPDX-License-Identifier: BSD-3-Clause
//
// The engine's front door: POSIX file calls on cached files.
//
// A front end (the preload library, the C API) catches a call and offers it here first.
// The answer is the call's result, a negated errno, or kNotOurs: then the front end makes
// the real call itself, and nothing has happened yet.
//
// A descriptor that we track refers to a Description (POSIX: open file description), which
// refers to a File (one per inode). A File is in one of four states:
//
//   kKernel       the kernel has every byte, and fsync is real; we only watch whether it becomes
//                 hot (heat.h). A file that is lent stays so.
//   kCached       writes go to the log, reads are served from the DRAM cache (I7).
//   kPassThrough  every call goes to the kernel, fsync is real. Never left while the file is open.
//   kForeign      in a child of fork: the parent may have it in its cache. The first call that
//                 needs it has the parent let go, and then it is the kernel's.
//
// A pointer of the program's that is bad is answered with -EFAULT or a short count, as by the
// kernel, if the front end's handler of SIGSEGV and SIGBUS asks src/sys/user_copy.h; else it ends
// the program.
//
// A signal that comes while its thread holds locks here has to wait (src/sys/deferral.h), if the
// front end sees to it; then handlers may call anything here as well. Else they must not.
//
// Any thread may call anything here, except where a comment says otherwise; and so may a child of
// vfork, between BeginSharing and EndSharing. To it, nothing is tracked and the engine not active;
// but what it opens or names, it claims from other processes.
#ifndef NVCACHE_VFS_VFS_H_
#define NVCACHE_VFS_VFS_H_

#include <fcntl.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <climits>
#include <cstddef>
#include <cstdint>

#include "src/settings/settings.h"
#include "src/sys/host.h"
#include "src/vfs/claim.h"
#include "src/vfs/name_call.h"

namespace nvcache::vfs {

// The call is not for us: make the real one.
inline constexpr long kNotOurs = LONG_MIN;

// ---------------------------------------------------------------------------------------------
// Life.

// Reads the settings from `environment` (NULL-terminated "NAME=value"), registers the descriptors
// that the program inherited, and recovers a dirty pool. Called once, before any other thread
// exists. False, as without NVCACHE_POOL: every other call answers kNotOurs from then on.
// Prints at most one line on stderr; exits with status 125 if NVCACHE_REQUIRED is set and the
// cache cannot be had.
// `rule`: which files are cached where NVCACHE_WRITE_BACK is not set.
bool Start(const Host& host, char** environment,
           settings::WriteBack rule = settings::WriteBack::kAuto);

// In place of Start, for a front end that cannot do its work here: the same line and the same exit
// if a pool is named, and else nothing. `text` says what is wrong and what to do; what becomes of
// the program is added.
void Refuse(char** environment, const char* text);

// False before Start, and if it was: no descriptor is tracked, no file cached.
bool IsActive();

// NVCACHE_STDIO: whether the front end shall bring the streams of libc here, if it can.
bool WantsStreams();

// Brings the log to the files (unless NVCACHE_DRAIN_AT_EXIT=0): to the disk, or to the kernel where
// another process will see to the rest. Every file is the kernel's then, and the pool is released.
// The program's exit; calls that come later go to the kernel.
void Stop();

// mlockall and munlockall: the program's memory is locked, and not the engine's tables.
long LockMemory(int flags);
long UnlockMemory();

// Around fork. Cached files stay in the parent's cache; the child asks for a file when it uses one.
// A file that is the kernel's and open stays so, in both. One of the latter two is called in each.
void BeforeFork();
void AfterForkInParent();
void AfterForkInChild();

// Around vfork, in the parent's thread, all of whose signals are blocked. False: some file is
// cached, so the child must have memory of its own, as one of fork. What the first leaves in
// `depth`, the second one needs; it must not be in memory, which the child may write over.
bool BeginSharing(uint32_t* depth);
void EndSharing(uint32_t depth);
// Whether the caller is a child in between.
bool IsSharing();

// Drains, has every open file be the kernel's, releases the pool. The pool is taken again for
// the next file that becomes cached.
void Release();

// Around exec in this process. Before: as Release, and nothing is cached until the exec has failed,
// for other threads may open files meanwhile. The program's fcntl locks go on with it: closing our
// own descriptors would end them. After: exec has failed.
void BeforeExec();
void AfterExec();

// Exec has failed because somebody has the program open for writing, and that may be us, or another
// process under NVCache, for the bytes that it has pending. `path` as the kernel was told. Has all
// of us let go of it. False: it is no regular file, or nothing can be done.
bool FreeForExec(int dirfd, const char* path);

// Before posix_spawn, system, popen: the new program gets the descriptors that stay open over exec,
// as by HandOn.
void BeforeSpawn();

// Around a call that may set RLIMIT_FSIZE to `soft`. A file that is cached is never larger than
// that, for then the cleanup thread could not write it; so no file is cached when it goes down.
void BeforeSizeLimit(uint64_t soft);
void AfterSizeLimit();

// Around a call that may take rights from this process (setuid, capset), which then must not have a
// pool that root, or the user whom it was, will recover: no pool is mapped when the first returns.
// Bytes that the disk refuses stay in the pool, and every later call on their files fails with EIO.
// The pool is attached again by a thread with the rights that the process began with; `for_good`:
// by none. No lock is held in between.
void BeforeRights(bool for_good = false);
void AfterRights();

// Around a call that freezes a file system (FIFREEZE): whoever writes to it from then on waits for
// the end of that, and a program that is to end it must not be made to wait by us. So nothing is
// cached in the meantime. 0, and AfterFreeze is called next; or the error of the file system that
// refuses the pending bytes: then the call must fail. AfterThaw: a call that ends it has succeeded.
long BeforeFreeze();
void AfterFreeze(bool frozen);
void AfterThaw();

// What Release does, and nothing is cached any more: when our picture of the process cannot be kept
// right from now on (a thread with descriptors of its own, io_uring).
void Retire();

// In a child that has a copy of our memory, but shares its parent's descriptors, after the parent
// has retired: every call answers kNotOurs from now on. No locks are taken.
void LeaveInChild();

// What Retire does, and the engine is there no more, as before Start: nothing here makes a system
// call from then on. Before the program has the kernel refuse calls, or kill it for them. If the
// file system refuses bytes, these stay in the cache, and the engine with them: IsActive() tells.
void Leave();

// ---------------------------------------------------------------------------------------------
// Descriptors.

// Brackets a real open() of `path`, so that O_TRUNC is ordered with the log:
//
//   OpenGuard guard(dirfd, path, flags, resolve);  // open_how::resolve of openat2, 0 of others
//   if (guard.error() < 0) ...      // fail with it instead: the file system refuses the pending
//                                   // bytes, so it must not be truncated under them
//   int fd = <real open>;           // errno is the caller's business
//   if (guard.Opened(fd) < 0) ...   // fd < 0: the open failed
//
// Opened() starts to track a regular file. What cannot be tracked is left to the kernel; but while
// another process has the file in its cache and does not let go, the answer is -EIO, and the
// descriptor must be closed again. The guard may hold locks: the real open of a tracked file must
// not be a cancellation point (`holds_locks()` tells; make the raw system call then).
class OpenGuard {
 public:
  // `plain`: Replace() knows all that the real call looks at, which is not so of openat2.
  OpenGuard(int dirfd, const char* path, int flags, mode_t mode, uint64_t resolve = 0,
            bool plain = true);
  ~OpenGuard();
  OpenGuard(const OpenGuard&) = delete;
  OpenGuard& operator=(const OpenGuard&) = delete;

  // In place of the real call, where that would cut off what the log has: opens the file and cuts
  // it by way of the log; or where the log will have the name of the file that it makes, or would
  // have to have it. A descriptor, or a negated errno; kNotOurs: make the real call.
  long Replace();
  long Opened(int fd);
  bool holds_locks() const { return locked_; }
  long error() const { return error_; }

 private:
  long OpenedInChild(int fd);
  void LockTable();
  void UnlockTable();
  void Drain();
  void PrepareToCut(uint64_t resolve, bool plain);
  long Create();
  long OpenToCut();
  long OpenThere();
  static long Cut(int fd);

  int flags_;
  const char* path_;
  NameCall names_;
  Claim by_path_;
  Claim by_descriptor_;
  long error_ = 0;
  bool locked_ = false;
  bool cuts_ = false;         // file_ has something to cut off
  bool replaces_ = false;     // by Replace()
  bool cuts_shared_ = false;  // a file of the kernel's, by way of the log
  int dirfd_;
  void* file_ = nullptr;
};

// What others do with a file where no call shows it. There are four cases, by descriptor; where the
// file system refuses the pending bytes of a cached file, the answer is its negated errno: then the
// file is still cached, and the program's call must fail. -EBADF: the descriptor is internal.
//
//   Publish      they look at its bytes once, before the program's next call is over
//   Lend         they look for as long as they like: it is the kernel's, and not cached any more
//   HandOn       they get the descriptor. If it can write, also: nobody takes the file for known as
//                long as a process has it open that has it open now (docs/write-through.md)
//   PassThrough  they change it, or who does cannot be seen: it is pass-through
//
// Each until the last close here, or `forever`, if what they do outlives that (a mapping). With the
// rule `always`, what is lent is pass-through, too.
void Publish(int fd);  // and has the kernel know the offset
long Lend(int fd, bool forever = false);
long HandOn(int fd, bool forever = false);
long PassThrough(int fd, bool forever = false);

// The same of a file that is tracked, by its name, following symbolic links: before it is opened
// where we cannot see.
long LendPath(int dirfd, const char* path, bool forever = false);
long PassThroughPath(int dirfd, const char* path);

// PassThrough, for ever, of a file that the kernel is given by its name, to use it by itself
// (swapon): no other process caches it, either.
long GiveAwayPath(int dirfd, const char* path);

// Tracks a descriptor that was opened where we could not see, and that others may have, too
// (inherited, received). It keeps the file from being cached. 0, or as Lend: then the descriptor is
// not tracked, and must be closed again.
long Adopt(int fd);

// Around a real mmap of a descriptor: lent for ever, or passed through, if it is written by the
// mapping. What is not may be later: then Protect, Unmap and Remap hear of that.
class MapGuard {
 public:
  MapGuard(int fd, bool shared, int protection);
  MapGuard(const MapGuard&) = delete;
  MapGuard& operator=(const MapGuard&) = delete;
  long error() const { return error_; }
  void Mapped(const void* address, size_t length) const;

 private:
  long error_;
  void* file_ = nullptr;
};
// Before mprotect. 0, or the error with which it must fail.
long Protect(const void* address, size_t length, int protection);
// In place of munmap and mremap.
long Unmap(void* address, size_t length);
long Remap(void* address, size_t length, size_t new_length, int flags, void* new_address);

void PublishPath(int dirfd, const char* path, bool follow);
void PublishAll();  // for calls that look at files whose names we do not learn

// After a real call that may have moved the kernel's offset of `fd` (sendfile): takes it over.
void TakeOffset(int fd);

// Stops tracking `fd`, which libc is about to close where we cannot see (fclose, closedir).
// The descriptor stays open in the kernel. For pass-through files only.
void Forget(int fd);

// True for a descriptor of a file that the engine follows, cached or not.
bool Tracks(int fd);

// The program's limit leaves no room for one more descriptor: gives up some of the engine's own.
// What they are for is done without them from then on: their files are the kernel's. False: there
// are no more to give up.
bool MakeRoom();

// True for a descriptor that the engine opened for itself. The program does not know it: the answer
// to every call on it is EBADF, and close_range() leaves it out.
bool IsInternal(int fd);

long Close(int fd);
long Dup(int fd);
long Dup2(int from, int to);  // also with an untracked `from` and a tracked `to`
long Dup3(int from, int to, int flags);
// The descriptor stays open over exec from now on (FIONCLEX; Fcntl sees F_SETFD).
void NoteKeptOnExec(int fd);
// F_DUPFD, F_DUPFD_CLOEXEC and F_SETFL; kNotOurs for every other command on a descriptor that is
// not internal. Locks (lockf, too) and leases are shown here before the real call.
long Fcntl(int fd, int command, long argument);
// Tracked descriptors in [first, last] are closed (or, with CLOSE_RANGE_CLOEXEC, marked), the
// rest as well, our own are spared. Never kNotOurs once started.
long CloseRange(unsigned first, unsigned last, int flags);

// ---------------------------------------------------------------------------------------------
// Data. I1: when a write returns n > 0, n bytes are durable.

long Read(int fd, void* buffer, size_t count);
long Pread(int fd, void* buffer, size_t count, off_t offset);
long Readv(int fd, const iovec* iov, int iov_count, int rwf_flags = 0);
long Preadv(int fd, const iovec* iov, int iov_count, off_t offset, int rwf_flags);
long Write(int fd, const void* buffer, size_t count);
long Pwrite(int fd, const void* buffer, size_t count, off_t offset);
long Writev(int fd, const iovec* iov, int iov_count, int rwf_flags = 0);
long Pwritev(int fd, const iovec* iov, int iov_count, off_t offset, int rwf_flags);
long Lseek(int fd, off_t offset, int whence);
long Fsync(int fd);      // and fdatasync: what may make a file hot
long SyncRange(int fd);  // sync_file_range, which promises less: the bytes
long Ftruncate(int fd, off_t length);
long Fallocate(int fd, int mode, off_t offset, off_t length);

// sync(), syncfs(): waits until everything acknowledged is on disk.
void DrainAll();
// Waits until everything acknowledged of this file is on disk. 0, or the write-back error.
long Drain(int fd);

// ---------------------------------------------------------------------------------------------
// Names and attributes.

// For the stat family, after a real call that has met a regular file: size, blocks and times are
// the kernel's, once it has the bytes. True: it had not, and now does; the call must be made again.
bool PublishInode(dev_t dev, ino_t ino);

// Replaces *size by the newest size when (dev, ino) is a cached file: for the second of these
// calls, in case the file system has refused the bytes.
void NewestSize(dev_t dev, ino_t ino, off_t* size);

// The same by a descriptor, without the table lock, which fork holds while it waits for the
// streams' locks.
bool PublishBytes(int fd);
void NewestSizeOf(int fd, off_t* size);

// Brackets a real call that changes names or sizes by path: rename, link, unlink, truncate.
// Each Add() drains the file that the path names (never following a last symbolic link) and keeps
// writers out until the guard goes; then its name, size and link count are read anew. What a file
// that loses its last name (Fate::kIsRemoved) has in the log stays there. 0, or the
// negated errno with which the file system refuses the pending bytes: then the call must fail.
//
//   NameGuard guard;
//   if (guard.Claim(dirfd, path) < 0) ...   // each name, before the first Add()
//   if (guard.Add(dirfd, path) < 0) ...
//   <real call, not a cancellation point>
//
// Claim() has other processes do the same that have the file in their cache.
class NameGuard {
 public:
  NameGuard() = default;
  ~NameGuard();
  NameGuard(const NameGuard&) = delete;
  NameGuard& operator=(const NameGuard&) = delete;

  // `logged`: the log has the change, so what is pending of the file may stay so; it is no folder.
  long Claim(int dirfd, const char* path, bool follow = false, bool logged = false);
  // What becomes of the name: kIsRemoved, if the call takes it from the file, and gives it to none
  // or to another one.
  enum class Fate { kStays, kIsRemoved };
  long Add(int dirfd, const char* path, bool follow = false, Fate fate = Fate::kStays,
           bool logged = false);

 private:
  // A file that is locked, and what becomes of what it has in the log.
  struct Held {
    void* file = nullptr;
    bool removes = false;  // it stays there, and the log says that the last name goes
  };
  static bool StaysInLog(void* pointer, Held* held);
  void LetGo();

  vfs::Claim claims_[2];
  int claimed_ = 0, added_ = 0;
  bool locked_ = false;
  Held held_[2];
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_VFS_H_
