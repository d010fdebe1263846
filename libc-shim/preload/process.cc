// SPDX-License-Identifier: BSD-3-Clause
//
// fork, exec, spawn, exit and their names.
#include "libc-shim/calls/process.h"

#include <pthread.h>
#include <pty.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <wordexp.h>

#include <cstdarg>
#include <cstring>

#include "libc-shim/calls/descriptor.h"
#include "libc-shim/calls/output.h"
#include "libc-shim/preload/stream.h"
#include "libc-shim/preload/wrapper.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/sys/text.h"

using namespace nvcache::calls;
using namespace nvcache::preload;
namespace vfs = nvcache::vfs;

// ---------------------------------------------------------------------------------------------
// New processes.

NVCACHE_EXPORT pid_t _Fork() noexcept { return Fork(NVCACHE_REAL(_Fork)); }

namespace {

struct CloneStart {
  int (*function)(void*);
  void* argument;
};

// The first and last steps of a child with a copy of our memory, and so of its parent's stack,
// where `start` lies. Its end in libc would be that of its thread, and the engine may have another
// one by then.
template <void (*Begin)()>
int RunClone(void* start) {
  const CloneStart copy = *static_cast<const CloneStart*>(start);
  Begin();
  _exit(copy.function(copy.argument));
}

}  // namespace

NVCACHE_EXPORT int clone(int (*function)(void*), void* stack, int flags, void* argument,
                         ...) noexcept {
  va_list arguments;
  va_start(arguments, argument);
  auto* parent_id = va_arg(arguments, pid_t*);
  void* storage = va_arg(arguments, void*);
  auto* child_id = va_arg(arguments, pid_t*);
  va_end(arguments);

  const auto real = [=](int (*entry)(void*), int with, void* entry_argument) {
    return NVCACHE_REAL(clone)(entry, stack, with, entry_argument, parent_id, storage, child_id);
  };
  CloneStart start = {function, argument};
  const auto wanted = static_cast<unsigned>(flags);
  // Without a function: EINVAL, and no child.
  switch (function == nullptr ? CloneKind::kThread : KindOfClone(wanted)) {
    case CloneKind::kProcess:
      return Fork([&] {
        return real(RunClone<vfs::AfterForkInChild>, static_cast<int>(WithoutWaiting(wanted)),
                    &start);
      });
    case CloneKind::kDescriptors:
      return CloneSharingDescriptors(
          [&] { return real(RunClone<vfs::LeaveInChild>, flags, &start); });
    case CloneKind::kMemory:
      TurnOff(vfs::Hindrance::kTables);
      break;
    case CloneKind::kThread:
      vfs::NoteThread();
      break;
  }
  return real(function, flags, argument);
}
NVCACHE_EXPORT_ALIAS(__clone, clone);

// The child's standard descriptors have been replaced inside libc.
NVCACHE_EXPORT int daemon(int keep_directory, int keep_descriptors) noexcept {
  if (!MayLeave(vfs::Output::kExit)) return -1;
  vfs::Release();  // the parent ends where we cannot see
  const int result = NVCACHE_REAL(daemon)(keep_directory, keep_descriptors);
  if (keep_descriptors == 0) ReleaseStandard();
  return result;
}

NVCACHE_EXPORT int forkpty(int* terminal, char* name, const struct termios* attributes,
                           const struct winsize* size) noexcept {
  const int child = NVCACHE_REAL(forkpty)(terminal, name, attributes, size);
  if (child == 0) ReleaseStandard();
  return child;
}

// ---------------------------------------------------------------------------------------------
// Programs.

namespace {

bool FreePath(const char* path) { return vfs::FreeForExec(AT_FDCWD, path); }

// All that the name of a program may stand for: which of them libc has tried is its affair.
bool FreeFile(const char* file) {
  constexpr size_t kLongest = 4096;  // a longer name stays busy
  if (std::strchr(file, '/') != nullptr) return FreePath(file);
  bool any = false;
  const char* folder = getenv("PATH");
  while (folder != nullptr) {
    const char* end = strchrnul(folder, ':');
    nvcache::sys::Scratch<nvcache::sys::Text<kLongest>> path;
    path->Append(folder, static_cast<size_t>(end - folder));
    path->Append(end == folder ? "" : "/").Append(file);
    any |= FreePath(path->c_str());
    folder = *end == ':' ? end + 1 : nullptr;
  }
  return any;
}

}  // namespace

NVCACHE_EXPORT int posix_spawn(pid_t* child, const char* path,
                               const posix_spawn_file_actions_t* actions,
                               const posix_spawnattr_t* attributes, char* const arguments[],
                               char* const environment[]) {
  return Spawn(
      [=] {
        return UntilNotBusy(
            ETXTBSY, [=] { return FreePath(path); },
            [=] {
              return NVCACHE_REAL(posix_spawn)(child, path, actions, attributes, arguments,
                                               environment);
            });
      },
      [] { return errno; });
}

NVCACHE_EXPORT int posix_spawnp(pid_t* child, const char* file,
                                const posix_spawn_file_actions_t* actions,
                                const posix_spawnattr_t* attributes, char* const arguments[],
                                char* const environment[]) {
  return Spawn(
      [=] {
        return UntilNotBusy(
            ETXTBSY, [=] { return FreeFile(file); },
            [=] {
              return NVCACHE_REAL(posix_spawnp)(child, file, actions, attributes, arguments,
                                                environment);
            });
      },
      [] { return errno; });
}

// The new program will have the file under another number.
NVCACHE_EXPORT int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t* actions, int from,
                                                    int to) noexcept {
  if (!ToOthers(from)) return errno;
  return NVCACHE_REAL(posix_spawn_file_actions_adddup2)(actions, from, to);
}

NVCACHE_EXPORT int system(const char* command) {
  return Spawn([=] { return NVCACHE_REAL(system)(command); }, [] { return -1; });
}

NVCACHE_EXPORT FILE* popen(const char* command, const char* mode) {
  return Spawn([=] { return WithRoom([=] { return NVCACHE_REAL(popen)(command, mode); }); },
               [] { return nullptr; });
}
NVCACHE_EXPORT_ALIAS(_IO_popen, popen);

// $(command)
NVCACHE_EXPORT int wordexp(const char* words, wordexp_t* result, int flags) {
  if ((flags & WRDE_NOCMD) != 0) return NVCACHE_REAL(wordexp)(words, result, flags);
  return Spawn([=] { return NVCACHE_REAL(wordexp)(words, result, flags); },
               [] { return WRDE_NOSPACE; });
}

NVCACHE_EXPORT int execve(const char* path, char* const arguments[],
                          char* const environment[]) noexcept {
  return Replace([=] { return FreePath(path); },
                 [=] { return NVCACHE_REAL(execve)(path, arguments, environment); });
}

NVCACHE_EXPORT int execv(const char* path, char* const arguments[]) noexcept {
  return Replace([=] { return FreePath(path); },
                 [=] { return NVCACHE_REAL(execv)(path, arguments); });
}

NVCACHE_EXPORT int execvp(const char* file, char* const arguments[]) noexcept {
  return Replace([=] { return FreeFile(file); },
                 [=] { return NVCACHE_REAL(execvp)(file, arguments); });
}

NVCACHE_EXPORT int execvpe(const char* file, char* const arguments[],
                           char* const environment[]) noexcept {
  return Replace([=] { return FreeFile(file); },
                 [=] { return NVCACHE_REAL(execvpe)(file, arguments, environment); });
}

NVCACHE_EXPORT int fexecve(int fd, char* const arguments[], char* const environment[]) noexcept {
  return Replace([=] { return FreeProgram(fd, "", AT_EMPTY_PATH); },
                 [=] { return NVCACHE_REAL(fexecve)(fd, arguments, environment); });
}

NVCACHE_EXPORT int execveat(int dirfd, const char* path, char* const arguments[],
                            char* const environment[], int flags) noexcept {
  return Replace(
      [=] { return FreeProgram(dirfd, path, flags); },
      [=] { return NVCACHE_REAL(execveat)(dirfd, path, arguments, environment, flags); });
}

namespace {

// The number of arguments of an execl call, without the NULL that ends them.
size_t CountArguments(const char* first, va_list rest) {
  if (first == nullptr) return 0;
  size_t count = 1;
  while (va_arg(rest, const char*) != nullptr) ++count;
  return count;
}

void FillArguments(char** array, const char* first, size_t count, va_list rest) {
  array[0] = const_cast<char*>(first);
  for (size_t i = 1; i <= count; ++i) array[i] = va_arg(rest, char*);
}

// The arguments as an array on the caller's stack, and `rest` behind their NULL: there may be a
// hundred thousand of them, and this is no place for malloc. A macro, for the stack's sake.
#pragma GCC diagnostic ignored "-Walloca"  // libc takes as much
#define NVCACHE_ARGUMENT_ARRAY(array, rest, first)                                           \
  va_list rest;                                                                              \
  va_start(rest, first);                                                                     \
  const size_t array##_count = CountArguments(first, rest);                                  \
  va_end(rest);                                                                              \
  char** array = static_cast<char**>(__builtin_alloca((array##_count + 1) * sizeof(char*))); \
  va_start(rest, first);                                                                     \
  FillArguments(array, first, array##_count, rest)

}  // namespace

NVCACHE_EXPORT int execl(const char* path, const char* first, ...) noexcept {
  NVCACHE_ARGUMENT_ARRAY(array, rest, first);
  va_end(rest);
  return execv(path, array);
}

NVCACHE_EXPORT int execlp(const char* file, const char* first, ...) noexcept {
  NVCACHE_ARGUMENT_ARRAY(array, rest, first);
  va_end(rest);
  return execvp(file, array);
}

NVCACHE_EXPORT int execle(const char* path, const char* first, ...) noexcept {
  NVCACHE_ARGUMENT_ARRAY(array, rest, first);
  char** environment = va_arg(rest, char**);
  va_end(rest);
  return execve(path, array, environment);
}

// ---------------------------------------------------------------------------------------------
// The end. exit() runs our destructor, and quick_exit() what life.cc has registered.

NVCACHE_EXPORT __attribute__((hot)) void _exit(int status) {
  NVCACHE_REAL(_exit)(ExitStatus(status));
  __builtin_unreachable();
}
NVCACHE_EXPORT_ALIAS(_Exit, _exit);

// ---------------------------------------------------------------------------------------------
// Limits.

#define NVCACHE_DEFINE_LIMITS(suffix)                                                              \
  NVCACHE_EXPORT int setrlimit##suffix(__rlimit_resource_t resource,                               \
                                       const struct rlimit##suffix* limit) noexcept {              \
    return SetLimit(0, resource, limit,                                                            \
                    [=] { return NVCACHE_REAL(setrlimit##suffix)(resource, limit); });             \
  }                                                                                                \
  NVCACHE_EXPORT int prlimit##suffix(pid_t process, __rlimit_resource resource,                    \
                                     const struct rlimit##suffix* limit,                           \
                                     struct rlimit##suffix* old) noexcept {                        \
    return SetLimit(process, resource, limit,                                                      \
                    [=] { return NVCACHE_REAL(prlimit##suffix)(process, resource, limit, old); }); \
  }

NVCACHE_DEFINE_LIMITS()
NVCACHE_DEFINE_LIMITS(64)

// ---------------------------------------------------------------------------------------------
// Confinement.

NVCACHE_EXPORT int prctl(int option, ...) noexcept {
  unsigned long values[4];
  va_list arguments;
  va_start(arguments, option);
  for (unsigned long& value : values) value = va_arg(arguments, unsigned long);
  va_end(arguments);
  return Prctl(option, static_cast<long>(values[0]), reinterpret_cast<const void*>(values[1]), [&] {
    return NVCACHE_REAL(prctl)(option, values[0], values[1], values[2], values[3]);
  });
}

// ---------------------------------------------------------------------------------------------
// Rights. The real function, of libc, sees to all threads.

NVCACHE_EXPORT int setuid(uid_t user) noexcept {
  return SetUsers({user}, [=] { return NVCACHE_REAL(setuid)(user); });
}
NVCACHE_EXPORT int seteuid(uid_t user) noexcept {
  return SetUsers({user}, [=] { return NVCACHE_REAL(seteuid)(user); });
}
NVCACHE_EXPORT int setreuid(uid_t real, uid_t effective) noexcept {
  return SetUsers({real, effective}, [=] { return NVCACHE_REAL(setreuid)(real, effective); });
}
NVCACHE_EXPORT int setresuid(uid_t real, uid_t effective, uid_t saved) noexcept {
  return SetUsers({real, effective, saved},
                  [=] { return NVCACHE_REAL(setresuid)(real, effective, saved); });
}
NVCACHE_EXPORT int setfsuid(uid_t user) noexcept {
  return SetUsers({user}, [=] { return NVCACHE_REAL(setfsuid)(user); });
}

NVCACHE_EXPORT int setgid(gid_t group) noexcept {
  return SetGroups({group}, [=] { return NVCACHE_REAL(setgid)(group); });
}
NVCACHE_EXPORT int setegid(gid_t group) noexcept {
  return SetGroups({group}, [=] { return NVCACHE_REAL(setegid)(group); });
}
NVCACHE_EXPORT int setregid(gid_t real, gid_t effective) noexcept {
  return SetGroups({real, effective}, [=] { return NVCACHE_REAL(setregid)(real, effective); });
}
NVCACHE_EXPORT int setresgid(gid_t real, gid_t effective, gid_t saved) noexcept {
  return SetGroups({real, effective, saved},
                   [=] { return NVCACHE_REAL(setresgid)(real, effective, saved); });
}
NVCACHE_EXPORT int setfsgid(gid_t group) noexcept {
  return SetGroups({group}, [=] { return NVCACHE_REAL(setfsgid)(group); });
}

NVCACHE_EXPORT int setgroups(size_t count, const gid_t* groups) noexcept {
  return ChangeRights([=] { return NVCACHE_REAL(setgroups)(count, groups); });
}
NVCACHE_EXPORT int initgroups(const char* user, gid_t group) {
  return ChangeRights([=] { return NVCACHE_REAL(initgroups)(user, group); });
}

NVCACHE_EXPORT int capset(struct __user_cap_header_struct* header,
                          const struct __user_cap_data_struct* data) {
  return ChangeRights([=] { return NVCACHE_REAL(capset)(header, data); });
}
