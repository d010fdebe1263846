// SPDX-License-Identifier: BSD-3-Clause
//
// The brackets around calls that change names.
#ifndef NVCACHE_LIBC_SHIM_CALLS_NAMES_H_
#define NVCACHE_LIBC_SHIM_CALLS_NAMES_H_

#include <errno.h>
#include <fcntl.h>

#include <type_traits>

#include "libc-shim/calls/calls.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/vfs/name_call.h"

namespace nvcache::calls {

using Fate = vfs::NameGuard::Fate;

struct Name {
  int dirfd;
  const char* path;
  bool follow = false;
  Fate fate = Fate::kStays;
};

// Has the guard take each name. 0, or why the first one that cannot be drained cannot. `call`:
// null, if the log cannot have it.
template <typename... Names>
inline long TakeNames([[maybe_unused]] vfs::NameGuard* guard,
                      [[maybe_unused]] const vfs::NameCall* call, Names... names) {
  long error = 0;
  [[maybe_unused]] const bool logged = call != nullptr && call->logs();
  static_cast<void>(
      (((error = guard->Claim(names.dirfd, names.path, names.follow, logged,
                              logged ? call->Seen(names.path) : nullptr)) == 0) &&
       ...) &&
      (((error = guard->Add(names.dirfd, names.path, names.follow, names.fate, logged)) == 0) &&
       ...));
  return error;
}

// None of these calls is a cancellation point: the guard is never left behind.
template <typename RealCall, typename... Names>
inline auto AroundNames(RealCall real, Names... names) {
  if (!MayLeave(vfs::Output::kName)) return static_cast<decltype(real())>(-1);
  vfs::UnseenCall unseen;
  unseen.Begin();
  vfs::NameGuard guard;
  const long error = TakeNames(&guard, nullptr, names...);
  if (error < 0) return static_cast<decltype(real())>(FromAnswer(error));
  return real();
}

// AroundNames() for a call that the log can have. `prepare` says to a vfs::NameCall what the call
// does. From the outside in, these stand around it:
//
//   Removal     the whole of it: the images of a mirrored pool know that a last name goes
//   NameCall    one attempt: the folders are found, the record is prepared; past the log next time,
//               if something has come in between
//   NameGuard   Make() or the real call: nobody else has the files in a cache, none is written to
template <typename RealCall, typename Prepare, typename... Names>
inline auto ChangeNames(RealCall real, Prepare prepare, Names... names) {
  if (!MayLeave(vfs::Output::kName)) return static_cast<decltype(real())>(-1);
  vfs::Removal removal;  // one of the names at most goes
  long announced = 0;
  static_cast<void>(((names.fate == Fate::kStays ||
                      (announced = removal.Announce(names.dirfd, names.path)) == 0) &&
                     ...));
  if (announced < 0) return static_cast<decltype(real())>(FromAnswer(announced));
  for (bool past = false;; past = true) {
    vfs::NameCall call;
    prepare(call, past);
    long error = call.error();
    vfs::NameGuard guard;
    if (error == 0 && !call.is_in_vain()) error = TakeNames(&guard, &call, names...);
    if (error < 0) return static_cast<decltype(real())>(FromAnswer(error));
    const long result = call.Make();
    if (result == vfs::kBeginAnew) continue;
    if (result != vfs::kNotOurs) return static_cast<decltype(real())>(FromAnswer(result));
    const auto made = real();
    if (made >= 0) call.MadeByKernel();
    return made;
  }
}

// The last step of such a call, without the guards: `names`, whose folders it has changed.
template <typename Result, typename... Names>
inline Result Named(Result result, Names... names) {
  return AwaitMirror(result, [=] {
    long error = 0;
    static_cast<void>((((error = vfs::SyncFolderOf(names.dirfd, names.path)) == 0) && ...));
    return error < 0 ? error : vfs::AwaitMirrorOfNames();
  });
}

// The file that has the new name loses it, unless the two are exchanged.
template <typename RealCall>
inline auto Rename(int from_dirfd, const char* from, int to_dirfd, const char* to, unsigned flags,
                   RealCall real) {
  const Fate fate = flags == 0 ? Fate::kIsRemoved : Fate::kStays;
  const Name old_name{from_dirfd, from}, new_name{to_dirfd, to, false, fate};
  const auto prepare = [=](vfs::NameCall& call, bool past) {
    call.Rename(from_dirfd, from, to_dirfd, to, flags, past);
  };
  return Named(ChangeNames(real, prepare, old_name, new_name), old_name, new_name);
}

template <typename RealCall>
inline auto Unlink(int dirfd, const char* path, int flags, RealCall real) {
  const auto prepare = [=](vfs::NameCall& call, bool past) {
    call.Remove(dirfd, path, flags, past);
  };
  const Name name{dirfd, path, false, Fate::kIsRemoved};
  if ((flags & AT_REMOVEDIR) != 0) return Named(ChangeNames(real, prepare), name);
  return Named(ChangeNames(real, prepare, name), name);
}

// remove(): of a folder, as rmdir.
template <typename RealCall>
inline auto Remove(const char* path, bool is_folder, RealCall real) {
  return Unlink(AT_FDCWD, path, is_folder ? AT_REMOVEDIR : 0, real);
}

// Where paths are not seen, nothing is.
inline bool IsFolder(const char* path) {
  struct stat st;
  return vfs::SeesPaths() && sys::Fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISDIR(st.st_mode);
}

template <typename RealCall>
inline auto MakeFolder(int dirfd, const char* path, mode_t mode, RealCall real) {
  const auto prepare = [=](vfs::NameCall& call, bool past) {
    call.MakeFolder(dirfd, path, mode, past);
  };
  return Named(ChangeNames(real, prepare), Name{dirfd, path});
}

template <typename RealCall>
inline auto MakeLink(const char* target, int dirfd, const char* path, RealCall real) {
  const auto prepare = [=](vfs::NameCall& call, bool past) {
    call.MakeLink(target, dirfd, path, past);
  };
  return Named(ChangeNames(real, prepare), Name{dirfd, path});
}

template <typename RealCall>
inline auto MakeOtherHere(int dirfd, const char* path, RealCall real) {
  vfs::NameCall call;
  call.Other(dirfd, path);
  if (call.error() >= 0) {
    call.MadeByKernel();
    return real();
  }
  FromAnswer(call.error());
  return Failed<decltype(real())>();
}

// A call that makes a name for what the log has no record of, or makes it where we cannot see.
template <typename RealCall>
inline auto MakeOther(int dirfd, const char* path, RealCall real) {
  if (!MayLeave(vfs::Output::kName)) return Failed<decltype(real())>();
  return Named(MakeOtherHere(dirfd, path, real), Name{dirfd, path});
}

// The same, if there is nothing by that name: libc opens it where we cannot see.
template <typename RealCall>
inline auto MakeIfMissing(const char* path, RealCall real) {
  struct stat st;
  const bool missing =
      path != nullptr && (!vfs::SeesPaths() || sys::Fstatat(AT_FDCWD, path, &st, 0) == -ENOENT);
  return missing ? MakeOther(AT_FDCWD, path, real) : real();
}

// Only the existing name of a cached file counts: the new one must not exist. With AT_EMPTY_PATH
// the existing file is the descriptor itself.
template <typename RealCall>
inline auto Link(int dirfd, const char* path, int to_dirfd, const char* to, int flags,
                 RealCall real) {
  if (IsHiddenBeside(dirfd, path, flags)) return decltype(real()){-1};
  const auto prepare = [=](vfs::NameCall& call, bool past) {
    call.Link(dirfd, path, to_dirfd, to, flags, past);
  };
  const Name made{to_dirfd, to};
  if ((flags & AT_EMPTY_PATH) != 0 && IsEmpty(path)) {
    const sys::FdLink open = sys::LinkTo(dirfd);
    return Named(ChangeNames(real, prepare, Name{AT_FDCWD, open.c_str(), true}), made);
  }
  const bool follow = (flags & AT_SYMLINK_FOLLOW) != 0;
  return Named(ChangeNames(real, prepare, Name{dirfd, path, follow}), made);
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_NAMES_H_
