// SPDX-License-Identifier: BSD-3-Clause
//
// What is done around ioctl.
//
// There is no list of all controls: a driver or a file system has whichever it likes. On a cached
// file, one that is known is done as it needs; what only reads (its number says so) is published;
// and any other may change the file, so that is the kernel's from then on.
#ifndef NVCACHE_LIBC_SHIM_CALLS_CONTROL_H_
#define NVCACHE_LIBC_SHIM_CALLS_CONTROL_H_

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>

#include <cstdint>

#include "libc-shim/calls/attributes.h"
#include "libc-shim/calls/calls.h"

namespace nvcache::calls {

// Numbers of the kernel's that its headers keep to themselves, or that not every version of them
// has. A structure is named by its size alone.
template <size_t size>
struct Bytes {
  char bytes[size];
};
inline constexpr unsigned kMoveExtents = _IOWR('f', 15, Bytes<40>);  // ext4
inline constexpr unsigned kSetVersion = _IOW('f', 4, long);          // ext4
inline constexpr unsigned kMoveRange = _IOWR(0xf5, 9, Bytes<32>);    // F2FS
inline constexpr unsigned kGetExtents = _IOWR('X', 38, Bytes<32>);   // XFS, and the next two
inline constexpr unsigned kGetAttributeExtents = _IOWR('X', 44, Bytes<32>);
inline constexpr unsigned kGetMoreExtents = _IOWR('X', 56, Bytes<48>);
inline constexpr unsigned kSwapExtents = _IOWR('X', 109, Bytes<192>);  // XFS
inline constexpr unsigned kExchangeRange = _IOW('X', 129, Bytes<40>);  // XFS
inline constexpr unsigned kSnapshot = _IOW(0x94, 1, Bytes<4096>);      // Btrfs, and the next four
inline constexpr unsigned kSyncAll = _IO(0x94, 8);
inline constexpr unsigned kSnapshotAs = _IOW(0x94, 23, Bytes<4096>);
inline constexpr unsigned kBeginSync = _IOR(0x94, 24, uint64_t);
inline constexpr unsigned kSendVolume = _IOW(0x94, 38, Bytes<72>);
inline constexpr unsigned kAddDescriptor = _IOW('!', 3, Bytes<24>);  // seccomp
inline constexpr unsigned kOpenBacking = _IOW(229, 1, Bytes<16>);    // FUSE

// A descriptor that lies in a control's structure, of a file that the control uses besides its own.
struct Lent {
  unsigned request;
  unsigned offset;  // bytes
  bool forever;     // its user stays when the descriptor is closed
};
inline constexpr Lent kLent[] = {
    {FICLONERANGE, 0, false},  {kMoveExtents, 4, false},   {kMoveRange, 0, false},
    {kSwapExtents, 16, false}, {kExchangeRange, 0, false}, {kSendVolume, 0, false},
    {LOOP_CONFIGURE, 0, true}, {kAddDescriptor, 12, true}, {kOpenBacking, 0, true},
};

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

// What a control does to the file that it is called on.
enum class Effect {
  kNone,
  kReads,  // its bytes, its size, its blocks
  kSetsAttributes,
  kFreezes,  // its file system
  kThaws,
  kSyncsAll,  // of its file system
  kUnknown,
};

// Numbers of terminals, disks, SCSI devices and sockets, which programs try on whatever they have;
// no file system has made one of these its own.
inline bool IsOfDevice(unsigned request) {
  switch (_IOC_TYPE(request)) {
    case 'T':
    case 0x03:
    case 0x12:
    case 0x22:
    case 0x53:
    case 0x89:
      return true;
    default:
      return false;
  }
}

inline Effect EffectOf(unsigned request) {
  switch (request) {
    case FS_IOC_FIEMAP:
    case FIBMAP:
    case FIONREAD:  // size minus offset
    case FIOQSIZE:
    case kGetExtents:
    case kGetAttributeExtents:
    case kGetMoreExtents:
      return Effect::kReads;
    case FS_IOC_SETFLAGS:
    case FS_IOC_FSSETXATTR:
    case FS_IOC_SETVERSION:
    case kSetVersion:
      return Effect::kSetsAttributes;
    case FIFREEZE:
      return Effect::kFreezes;
    case FITHAW:
      return Effect::kThaws;
    case kSnapshot:
    case kSnapshotAs:
    case kSyncAll:
    case kBeginSync:
    case kSendVolume:
      return Effect::kSyncsAll;
    case FIGETBSZ:
    case FITRIM:
      return Effect::kNone;
    default:
      if (IsOfDevice(request)) return Effect::kNone;
      return _IOC_DIR(request) == _IOC_READ ? Effect::kReads : Effect::kUnknown;
  }
}

// Flags with which a file may not be written any more, or at its end alone: what is pending then
// could not be written back.
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

// Whoever has frozen a file system must not be made to wait for it (vfs::BeforeFreeze).
template <typename RealCall>
inline int Freeze(RealCall real) {
  if (FromAnswer(vfs::BeforeFreeze()) < 0) return -1;
  const auto result = real();
  vfs::AfterFreeze(result == 0);
  return static_cast<int>(result);
}

template <typename RealCall>
inline int Ioctl(int fd, unsigned long wide_request, long argument, RealCall real_call) {
  const auto request = static_cast<unsigned>(wide_request);
  const auto real = [&] { return static_cast<int>(real_call(fd, wide_request, argument)); };
  if (IsHidden(fd) || !LendOthers(request, argument)) return -1;
  if (request == FIONCLEX) vfs::NoteKeptOnExec(fd);
  switch (EffectOf(request)) {
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
      return real();
    case Effect::kUnknown:
      break;
  }
  return ToKernel(fd) ? real() : -1;
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_CONTROL_H_
