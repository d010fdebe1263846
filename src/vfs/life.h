// SPDX-License-Identifier: BSD-3-Clause
//
// Start, stop, fork, exec, and the other events of a process as a whole.
#ifndef NVCACHE_VFS_LIFE_H_
#define NVCACHE_VFS_LIFE_H_

#include <cstdint>

#include "src/lease/hindrances.h"
#include "src/settings/settings.h"
#include "src/sys/host.h"

namespace nvcache::vfs {

using lease::Hindrance;

// Reads the settings from `environment` (NULL-terminated "NAME=value"), registers the descriptors
// that the program inherited, and recovers a dirty pool. Called once, before any other thread
// exists. False, as without NVCACHE_POOL: every other call answers kNotOurs from then on.
// Prints at most one line on stderr; exits with status 125 if NVCACHE_REQUIRED is set and the
// cache cannot be had.
// `rule`: which files are cached where NVCACHE_WRITE_BACK is not set.
bool Start(const Host& host, char** environment,
           settings::WriteBack rule = settings::WriteBack::kAuto);

// In place of Start, for a front end that cannot do its work here: the same line and the same exit
// if a pool is named, and else nothing. `text` says what is wrong and what to do; the program's
// fate is added.
void Refuse(char** environment, const char* text);

// Code has come into the process (docs/limits.md, "Calls past libc"): the dynamic linker has loaded
// some; or the program has made memory executable, of which `filled` says that there is something
// in it; or there will be some that nobody can look at. Any time, also before Start.
void CodeLoaded();
// It has to be told of that: something may be cached by now.
bool LooksAtLoaded();
void CodeMapped(const void* address, size_t n, bool filled);
void CodeUnseen(const char* culprit);

// False before Start, and if it was: no descriptor is tracked, no file cached.
bool IsActive();

// NVCACHE_STDIO: whether the front end shall bring the streams of libc here, if it can. Where it
// cannot, it says so.
bool WantsStreams();
void SayStreamsPass();

// Brings the log to the files (unless NVCACHE_DRAIN_AT_EXIT=0): to the disk, or to the kernel where
// another process will see to the rest. Every file is the kernel's then, and the pool is released.
// The program's exit; calls that come later go to the kernel. With commit at output, it waits until
// others may hear that the program has ended; false: they must not, for what it was told of its
// syncs cannot be kept.
bool Stop();

// mlockall and munlockall: the program's memory is locked, and not the engine's tables.
long LockMemory(int flags);
long UnlockMemory();

// Around fork. Cached files stay in the parent's cache; the child asks for a file when it uses one.
// A file that is the kernel's and open stays so, in both. One of the latter two is called in each.
void BeforeFork();
void AfterForkInParent();
void AfterForkInChild();

// Around vfork, in the parent's thread, all of whose signals are blocked. False: some file is
// cached, so the child must have memory of its own, as one of fork. The second one needs the value
// that the first leaves in `depth`; it must not be in memory, which the child may write over.
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

// Around a call that freezes a file system (FIFREEZE): a process that writes to it from then on
// waits for the end of that, and a program that is to end it must not be made to wait by us. So
// nothing is cached in the meantime. 0, and AfterFreeze is called next; or the error of the file
// system that refuses the pending bytes: then the call must fail. AfterThaw: a call that ends it
// has succeeded.
long BeforeFreeze();
void AfterFreeze(bool frozen);
void AfterThaw();

// Release, and nothing is cached any more: our picture of the process cannot be kept right from now
// on, for that reason.
void Retire(Hindrance why);

// In a child that has a copy of our memory, but shares its parent's descriptors, after the parent
// has retired: every call answers kNotOurs from now on. No locks are taken.
void LeaveInChild();
// The program makes a thread that libc knows nothing of.
void NoteThread();

// Retire, and the engine is there no more, as before Start: nothing here makes a system call from
// then on. It comes before the program has the kernel refuse calls, or kill it for them. If the
// file system refuses bytes, these stay in the cache, and the engine with them: IsActive() tells.
void Leave();

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_LIFE_H_
