// SPDX-License-Identifier: BSD-3-Clause
//
// The bracket around ioctl.
//
// There is no list of all controls: a driver or a file system has whichever it likes. On a cached
// file, one that is known is done as it needs; one that only reads (its number says so) is
// published; and any other may change the file, so that is the kernel's from then on.
#ifndef NVCACHE_LIBC_SHIM_CALLS_CONTROL_H_
#define NVCACHE_LIBC_SHIM_CALLS_CONTROL_H_

#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>

#include "libc-shim/calls/attributes.h"
#include "libc-shim/calls/calls.h"
#include "libc-shim/calls/known_controls.h"

namespace nvcache::calls {

// False, of this and of what follows: the control must fail.
inline bool LendStructured(unsigned request, long argument) {
  for (const Lent& lent : kLent) {
    if (lent.request != request) continue;
    int fd;
    if (!Fetch(&fd, reinterpret_cast<const char*>(argument) + lent.offset)) return true;
    return lent.forever ? ToKernelForGood(fd) : ToKernel(fd);
  }
  return true;
}

inline bool BeforeDedupe(const file_dedupe_range* range) {
  file_dedupe_range wanted;  // without its targets
  if (!Fetch(&wanted, range)) return true;
  file_dedupe_range_info target;
  for (unsigned i = 0; i < wanted.dest_count && Fetch(&target, &range->info[i]); ++i) {
    if (!ToKernel(static_cast<int>(target.dest_fd))) return false;
  }
  return true;
}

// Files that the control uses besides its own.
inline bool LendOthers(unsigned request, long argument) {
  switch (request) {
    case FICLONE:
      return ToKernel(static_cast<int>(argument));
    case FIDEDUPERANGE:
      return BeforeDedupe(reinterpret_cast<const file_dedupe_range*>(argument));
    case LOOP_SET_FD:
    case LOOP_CHANGE_FD:
      return ToKernelForGood(static_cast<int>(argument));
    default:
      return LendStructured(request, argument);
  }
}

// Flags with which a file may not be written any more, or at its end alone: pending bytes could not
// be written back then.
inline constexpr unsigned kForbidding = FS_XFLAG_IMMUTABLE | FS_XFLAG_APPEND;

inline bool ForbidsWrites(unsigned request, long argument) {
  unsigned flags;  // fsxattr's first member, or all that there is
  if (!Fetch(&flags, reinterpret_cast<const void*>(argument))) return false;
  switch (request) {
    case FS_IOC_SETFLAGS:
      return (flags & (FS_IMMUTABLE_FL | FS_APPEND_FL)) != 0;
    case FS_IOC_FSSETXATTR:
      return (flags & kForbidding) != 0;
    default:
      return false;
  }
}

// A thread that has frozen a file system must not have to wait for it (vfs::BeforeFreeze).
template <typename RealCall>
inline int Freeze(RealCall real) {
  if (FromAnswer(vfs::BeforeFreeze()) < 0) return -1;
  const auto result = real();
  vfs::AfterFreeze(result == 0);
  return static_cast<int>(result);
}

// Others see what it does. What a terminal or a socket is asked is not seen.
inline bool IsSeen(Effect effect, unsigned request) {
  switch (request) {
    case TCGETS:
    case TIOCGWINSZ:
    case TIOCGPGRP:
    case TIOCGSID:
    case TIOCOUTQ:
    case FIONREAD:
    case FIONBIO:
    case FIOASYNC:
    case FIOCLEX:
    case FIONCLEX:
    case FIGETBSZ:
      return false;
    default:
      return effect != Effect::kReads;
  }
}

template <typename RealCall>
inline int Ioctl(int fd, unsigned long wide_request, long argument, RealCall real_call) {
  const auto request = static_cast<unsigned>(wide_request);
  const auto real = [&] { return static_cast<int>(real_call(fd, wide_request, argument)); };
  if (IsHidden(fd) || !LendOthers(request, argument)) return -1;
  if (request == FIONCLEX) vfs::NoteKeptOnExec(fd);
  const Effect effect = EffectOf(request);
  if (IsSeen(effect, request) && !MayLeave(vfs::Output::kOther)) return -1;
  switch (effect) {
    case Effect::kNone:
      return real();
    case Effect::kReads:
      vfs::Publish(fd);
      return real();
    case Effect::kSetsAttributes:
      if (ForbidsWrites(request, argument) && !ToKernel(fd)) return -1;
      return SetAttributes(fd, nullptr, 0, real);
    case Effect::kFreezes:
      return Freeze(real);
    case Effect::kThaws: {
      const int result = real();
      if (result == 0) vfs::AfterThaw();
      return result;
    }
    case Effect::kSyncsAll:
      vfs::DrainAll();
      return AwaitMirror(real(), vfs::AwaitMirrorOfAll);
    case Effect::kUnknown:
      break;
  }
  return ToKernel(fd) ? Changed(fd, real()) : -1;
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_CONTROL_H_
