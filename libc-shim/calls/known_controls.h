// SPDX-License-Identifier: BSD-3-Clause
//
// The controls of ioctl that are known, and what each does to files.
#ifndef NVCACHE_LIBC_SHIM_CALLS_KNOWN_CONTROLS_H_
#define NVCACHE_LIBC_SHIM_CALLS_KNOWN_CONTROLS_H_

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>

#include <cstddef>
#include <cstdint>

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

// The effect of a control on the file that it is called on.
enum class Effect {
  kNone,
  kReads,  // its bytes, its size, its blocks
  kSetsAttributes,
  kFreezes,  // its file system
  kThaws,
  kSyncsAll,  // its file system
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

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_KNOWN_CONTROLS_H_
