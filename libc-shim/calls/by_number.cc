// SPDX-License-Identifier: BSD-3-Clause
#include "libc-shim/calls/by_number.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <sys/syscall.h>

#include <array>

#include "libc-shim/calls/async.h"
#include "libc-shim/calls/attributes.h"
#include "libc-shim/calls/control.h"
#include "libc-shim/calls/data.h"
#include "libc-shim/calls/descriptor.h"
#include "libc-shim/calls/lend.h"
#include "libc-shim/calls/memory.h"
#include "libc-shim/calls/message.h"
#include "libc-shim/calls/names.h"
#include "libc-shim/calls/open.h"
#include "libc-shim/calls/output.h"
#include "libc-shim/calls/process.h"
#include "libc-shim/calls/signal.h"
#include "libc-shim/calls/size.h"
#include "libc-shim/calls/transfer.h"

// Calls that are younger than the oldest headers that this is built with.
#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd 443
#endif
#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SYS_setxattrat
#define SYS_setxattrat 463
#define SYS_getxattrat 464
#define SYS_listxattrat 465
#define SYS_removexattrat 466
#endif
#ifndef SYS_file_setattr
#define SYS_file_setattr 469
#endif

namespace nvcache::calls {
namespace {

// ---------------------------------------------------------------------------------------------
// Calls that need a closer look.

// A structure that is not there, too short, or of a later kernel's with something in it that this
// one does not know: its own error, which opens nothing.
// The call with something else in a register.
struct ChangedCall {
  long registers[6];
  Call call;

  long operator()() const {
    Call with = call;
    with.registers = registers;
    return with();
  }
};

ChangedCall WithRegister(const Call& c, int at, long value) {
  ChangedCall changed = {{}, c};
  for (int i = 0; i < 6; ++i) changed.registers[i] = c.registers[i];
  changed.registers[at] = value;
  return changed;
}

// Opens with other flags, if they are others.
auto WithFlags(const Call& c, int at) {
  return [&c, at](int flags) { return flags == c.Int(at) ? c() : WithRegister(c, at, flags)(); };
}

long Openat2(const Call& c) {
  open_how how;
  if (c.Size(3) < sizeof(how) || !Fetch(&how, c.Buffer(2))) return c();
  const bool known = c.Size(3) == sizeof(how);
  const auto real = [&c, how, known](int flags) {
    if (!known || flags == static_cast<int>(how.flags)) return c();
    open_how with = how;
    with.flags = static_cast<uint64_t>(flags);
    return WithRegister(c, 2, reinterpret_cast<long>(&with))();
  };
  return Open(c.Int(0), c.Path(1), static_cast<int>(how.flags), static_cast<mode_t>(how.mode), real,
              c.Uncancelled(), how.resolve, false);
}

// fa_xflags is the structure's first member, and all that counts here.
long SetFileAttributes(const Call& c) {
  uint64_t flags;
  if (Fetch(&flags, c.Buffer(2)) && (flags & kForbidding) != 0) {
    const bool by_descriptor = IsByDescriptor(c.Path(1), c.Int(4));
    if (!(by_descriptor ? ToKernel(c.Int(0)) : ToKernelByPath(c.Int(0), c.Path(1)))) return -1;
  }
  return SetAttributes(c.Int(0), c.Path(1), c.Int(4), c);
}

// `copy` makes the call where the child is a copy.
long CloneWith(unsigned long flags, const Call& c, const Call& copy) {
  switch (KindOfClone(flags)) {
    case CloneKind::kProcess:
      return Fork(copy);
    case CloneKind::kDescriptors:
      return CloneSharingDescriptors(c);
    case CloneKind::kMemory:
      TurnOff(vfs::Hindrance::kTables);
      break;
    case CloneKind::kThread:
      vfs::NoteThread();
      break;
  }
  return c();
}

long Clone(const Call& c) {
  const long* r = c.registers;
  const long registers[6] = {
      static_cast<long>(WithoutWaiting(c.Size(0))), r[1], r[2], r[3], r[4], r[5]};
  return CloneWith(c.Size(0), c, {c.number, registers, c.cancellable});
}

long Clone3(const Call& c) {
  clone_args arguments = {};
  const size_t size = c.Size(1);
  // The kernel judges a structure that is longer than we know, or is not there.
  if (!Fetch(&arguments.flags, c.Buffer(0))) return c();
  if (size > sizeof(arguments) || sys::CopyFromUser(&arguments, c.Buffer(0), size) != size) {
    return CloneWith(arguments.flags, c, c);
  }
  const unsigned long flags = arguments.flags;
  arguments.flags = WithoutWaiting(flags);
  const long registers[6] = {sys::Address(&arguments), c.Long(1)};
  return CloneWith(flags, c, {c.number, registers, c.cancellable});
}

long Submit(const Call& c) {
  return BeforeSubmit(c.Long(1), c.As<struct iocb* const*>(2)) ? c() : -1;
}

long Sendmsg(const Call& c) { return BeforeSend(c.As<const msghdr*>(1)) ? c() : -1; }

long Sendmmsg(const Call& c) {
  return BeforeSendMany(c.As<const mmsghdr*>(1), c.As<unsigned>(2)) ? c() : -1;
}

long Sigaction(const Call& c) {
  long result = 0;
  const bool done = SigactionByNumber(c.Long(0), c.Buffer(1), c.Buffer(2), c.Long(3), &result);
  return done ? result : c();
}

long ExitGroup(const Call& c) { return WithRegister(c, 0, ExitStatus(c.Int(0)))(); }

// ---------------------------------------------------------------------------------------------
// The table.

struct Entry {
  long number;
  Handler handler;
};

#define NVCACHE_ON(number, handling)                                        \
  Entry {                                                                   \
    number, []([[maybe_unused]] const Call& c) -> long { return handling; } \
  }

constexpr Entry kEntries[] = {
    NVCACHE_ON(SYS_open, Open(AT_FDCWD, c.Path(0), c.Int(1), c.As<mode_t>(2), WithFlags(c, 1),
                              c.Uncancelled())),
    NVCACHE_ON(SYS_creat, Open(AT_FDCWD, c.Path(0), O_CREAT | O_WRONLY | O_TRUNC, c.As<mode_t>(1),
                               c, c.Uncancelled())),
    NVCACHE_ON(SYS_openat, Open(c.Int(0), c.Path(1), c.Int(2), c.As<mode_t>(3), WithFlags(c, 2),
                                c.Uncancelled())),
    NVCACHE_ON(SYS_openat2, Openat2(c)),
    NVCACHE_ON(SYS_open_by_handle_at, OpenByHandle(c.Int(2), c)),
    NVCACHE_ON(SYS_pidfd_getfd, Adopt(c)),

    NVCACHE_ON(SYS_close, Close(c.Int(0), c)),
    NVCACHE_ON(SYS_close_range, CloseRange(c.As<unsigned>(0), c.As<unsigned>(1), c.Int(2), c)),
    NVCACHE_ON(SYS_dup, Dup(c.Int(0), c)),
    NVCACHE_ON(SYS_dup2, Dup2(c.Int(0), c.Int(1), c)),
    NVCACHE_ON(SYS_dup3, Dup3(c.Int(0), c.Int(1), c.Int(2), c)),
    NVCACHE_ON(SYS_fcntl, Fcntl(c.Int(0), c.Int(1), c.Long(2), c)),
    NVCACHE_ON(SYS_ioctl, Ioctl(c.Int(0), c.Size(1), c.Long(2), c)),
    NVCACHE_ON(SYS_flock, Flock(c.Int(0), c.Int(1), c)),
    NVCACHE_ON(SYS_fstatfs, UnlessHidden(c.Int(0), c)),
    NVCACHE_ON(SYS_fadvise64, UnlessHidden(c.Int(0), c)),
    NVCACHE_ON(SYS_readahead, UnlessHidden(c.Int(0), c)),
    // Descriptors that are no files.
    NVCACHE_ON(SYS_socket, WithRoom(c)),
    NVCACHE_ON(SYS_socketpair, WithRoom(c)),
    NVCACHE_ON(SYS_accept, WithRoom(c)),
    NVCACHE_ON(SYS_accept4, WithRoom(c)),
    NVCACHE_ON(SYS_pipe, WithRoom(c)),
    NVCACHE_ON(SYS_pipe2, WithRoom(c)),
    NVCACHE_ON(SYS_epoll_create, WithRoom(c)),
    NVCACHE_ON(SYS_epoll_create1, WithRoom(c)),
    NVCACHE_ON(SYS_eventfd, WithRoom(c)),
    NVCACHE_ON(SYS_eventfd2, WithRoom(c)),
    NVCACHE_ON(SYS_timerfd_create, WithRoom(c)),
    NVCACHE_ON(SYS_signalfd, WithRoom(c)),
    NVCACHE_ON(SYS_signalfd4, WithRoom(c)),
    NVCACHE_ON(SYS_inotify_init, WithRoom(c)),
    NVCACHE_ON(SYS_inotify_init1, WithRoom(c)),
    NVCACHE_ON(SYS_memfd_create, WithRoom(c)),
    NVCACHE_ON(SYS_memfd_secret, WithRoom(c)),
    NVCACHE_ON(SYS_pidfd_open, WithRoom(c)),
    NVCACHE_ON(SYS_userfaultfd, WithRoom(c)),

    NVCACHE_ON(SYS_setns, Setns(c)),
    NVCACHE_ON(SYS_unshare, Unshare(c.Int(0), c)),

    // The second of an offset's two registers is for machines of 32 bits.
    NVCACHE_ON(SYS_read, Read(c.Int(0), c.Buffer(1), c.Size(2), c)),
    NVCACHE_ON(SYS_pread64, Pread(c.Int(0), c.Buffer(1), c.Size(2), c.Long(3), c)),
    NVCACHE_ON(SYS_readv, Readv(c.Int(0), c.Iov(1), c.Int(2), c)),
    NVCACHE_ON(SYS_preadv, Preadv(c.Int(0), c.Iov(1), c.Int(2), c.Long(3), c)),
    NVCACHE_ON(SYS_preadv2, Preadv2(c.Int(0), c.Iov(1), c.Int(2), c.Long(3), c.Int(5), c)),
    NVCACHE_ON(SYS_write, Write(c.Int(0), c.Buffer(1), c.Size(2), c)),
    NVCACHE_ON(SYS_pwrite64, Pwrite(c.Int(0), c.Buffer(1), c.Size(2), c.Long(3), c)),
    NVCACHE_ON(SYS_writev, Writev(c.Int(0), c.Iov(1), c.Int(2), c)),
    NVCACHE_ON(SYS_pwritev, Pwritev(c.Int(0), c.Iov(1), c.Int(2), c.Long(3), c)),
    NVCACHE_ON(SYS_pwritev2, Pwritev2(c.Int(0), c.Iov(1), c.Int(2), c.Long(3), c.Int(5), c)),
    NVCACHE_ON(SYS_lseek, Lseek(c.Int(0), c.Long(1), c.Int(2), c)),

    NVCACHE_ON(SYS_fsync, Fsync(c.Int(0), c)),
    NVCACHE_ON(SYS_fdatasync, Fsync(c.Int(0), c)),
    NVCACHE_ON(SYS_sync_file_range,
               SyncFileRange(c.Int(0), c.Long(1), c.Long(2), c.As<unsigned>(3), c)),
    NVCACHE_ON(SYS_syncfs, Syncfs(c.Int(0), c)),
    NVCACHE_ON(SYS_sync, Sync(c)),
    NVCACHE_ON(SYS_ftruncate, Ftruncate(c.Int(0), c.Long(1), c)),
    NVCACHE_ON(SYS_truncate, Truncate(c.Path(0), c)),
    NVCACHE_ON(SYS_fallocate, Fallocate(c.Int(0), c.Int(1), c.Long(2), c.Long(3), c)),

    NVCACHE_ON(SYS_stat, GetAttributes(c.As<struct stat*>(1), c)),
    NVCACHE_ON(SYS_lstat, GetAttributes(c.As<struct stat*>(1), c)),
    NVCACHE_ON(SYS_fstat, GetAttributesOf(c.Int(0), c.As<struct stat*>(1), c)),
    NVCACHE_ON(SYS_newfstatat,
               GetAttributesAt(c.Int(0), c.Path(1), c.Int(3), c.As<struct stat*>(2), c)),
    NVCACHE_ON(SYS_statx, GetExtended(c.Int(0), c.Path(1), c.Int(2), c.As<struct statx*>(4), c)),
    NVCACHE_ON(SYS_utime, SetTimes(AT_FDCWD, c.Path(0), 0, c)),
    NVCACHE_ON(SYS_utimes, SetTimes(AT_FDCWD, c.Path(0), 0, c)),
    NVCACHE_ON(SYS_futimesat, SetTimes(c.Int(0), c.Path(1), 0, c)),
    NVCACHE_ON(SYS_utimensat, SetTimes(c.Int(0), c.Path(1), c.Int(3), c)),

    NVCACHE_ON(SYS_chmod, SetAttributes(AT_FDCWD, c.Path(0), 0, c)),
    NVCACHE_ON(SYS_fchmod, SetAttributes(c.Int(0), nullptr, 0, c)),
    NVCACHE_ON(SYS_fchmodat, SetAttributes(c.Int(0), c.Path(1), 0, c)),
    NVCACHE_ON(SYS_chown, SetAttributes(AT_FDCWD, c.Path(0), 0, c)),
    NVCACHE_ON(SYS_lchown, SetAttributes(AT_FDCWD, c.Path(0), AT_SYMLINK_NOFOLLOW, c)),
    NVCACHE_ON(SYS_fchown, ChangeOwner(c.Int(0), c.As<uid_t>(1), c.As<gid_t>(2), c)),
    NVCACHE_ON(SYS_fchownat, SetAttributes(c.Int(0), c.Path(1), c.Int(4), c)),
    NVCACHE_ON(SYS_setxattr, SetExtended(AT_FDCWD, c.Path(0), 0, c)),
    NVCACHE_ON(SYS_lsetxattr, SetExtended(AT_FDCWD, c.Path(0), AT_SYMLINK_NOFOLLOW, c)),
    NVCACHE_ON(SYS_fsetxattr, SetExtended(c.Int(0), nullptr, 0, c)),
    NVCACHE_ON(SYS_removexattr, SetExtended(AT_FDCWD, c.Path(0), 0, c)),
    NVCACHE_ON(SYS_lremovexattr, SetExtended(AT_FDCWD, c.Path(0), AT_SYMLINK_NOFOLLOW, c)),
    NVCACHE_ON(SYS_fremovexattr, SetExtended(c.Int(0), nullptr, 0, c)),
    NVCACHE_ON(SYS_fchmodat2, SetAttributes(c.Int(0), c.Path(1), c.Int(3), c)),
    NVCACHE_ON(SYS_setxattrat, SetExtended(c.Int(0), c.Path(1), c.Int(2), c)),
    NVCACHE_ON(SYS_removexattrat, SetExtended(c.Int(0), c.Path(1), c.Int(2), c)),
    NVCACHE_ON(SYS_file_setattr, SetFileAttributes(c)),

    NVCACHE_ON(SYS_getxattr, ReadAttribute(AT_FDCWD, c.Path(0), 0, c.Path(1), c)),
    NVCACHE_ON(SYS_lgetxattr,
               ReadAttribute(AT_FDCWD, c.Path(0), AT_SYMLINK_NOFOLLOW, c.Path(1), c)),
    NVCACHE_ON(SYS_fgetxattr, ReadAttribute(c.Int(0), nullptr, 0, c.Path(1), c)),
    NVCACHE_ON(SYS_getxattrat, ReadAttribute(c.Int(0), c.Path(1), c.Int(2), c.Path(3), c)),
    NVCACHE_ON(SYS_listxattr, ReadAttributes(AT_FDCWD, c.Path(0), 0, c)),
    NVCACHE_ON(SYS_llistxattr, ReadAttributes(AT_FDCWD, c.Path(0), AT_SYMLINK_NOFOLLOW, c)),
    NVCACHE_ON(SYS_flistxattr, ReadAttributes(c.Int(0), nullptr, 0, c)),
    NVCACHE_ON(SYS_listxattrat, ReadAttributes(c.Int(0), c.Path(1), c.Int(2), c)),

    NVCACHE_ON(SYS_rename, Rename(AT_FDCWD, c.Path(0), AT_FDCWD, c.Path(1), 0, c)),
    NVCACHE_ON(SYS_renameat, Rename(c.Int(0), c.Path(1), c.Int(2), c.Path(3), 0, c)),
    NVCACHE_ON(SYS_renameat2,
               Rename(c.Int(0), c.Path(1), c.Int(2), c.Path(3), c.As<unsigned>(4), c)),
    NVCACHE_ON(SYS_link, Link(AT_FDCWD, c.Path(0), AT_FDCWD, c.Path(1), 0, c)),
    NVCACHE_ON(SYS_linkat, Link(c.Int(0), c.Path(1), c.Int(2), c.Path(3), c.Int(4), c)),
    NVCACHE_ON(SYS_unlink, Unlink(AT_FDCWD, c.Path(0), 0, c)),
    NVCACHE_ON(SYS_unlinkat, Unlink(c.Int(0), c.Path(1), c.Int(2), c)),
    NVCACHE_ON(SYS_rmdir, Unlink(AT_FDCWD, c.Path(0), AT_REMOVEDIR, c)),
    NVCACHE_ON(SYS_mkdir, MakeFolder(AT_FDCWD, c.Path(0), c.As<mode_t>(1), c)),
    NVCACHE_ON(SYS_mkdirat, MakeFolder(c.Int(0), c.Path(1), c.As<mode_t>(2), c)),
    NVCACHE_ON(SYS_symlink, MakeLink(c.Path(0), AT_FDCWD, c.Path(1), c)),
    NVCACHE_ON(SYS_symlinkat, MakeLink(c.Path(0), c.Int(1), c.Path(2), c)),
    NVCACHE_ON(SYS_mknod, MakeOther(AT_FDCWD, c.Path(0), c)),
    NVCACHE_ON(SYS_mknodat, MakeOther(c.Int(0), c.Path(1), c)),

    NVCACHE_ON(SYS_mmap, Map(c.Size(1), c.Int(2), c.Int(3), c.Int(4), c)),
    NVCACHE_ON(SYS_mprotect, Protect(c.Buffer(0), c.Size(1), c.Int(2), c)),
    NVCACHE_ON(SYS_pkey_mprotect, Protect(c.Buffer(0), c.Size(1), c.Int(2), c)),
    NVCACHE_ON(SYS_munmap, Unmap(c.Buffer(0), c.Size(1), c)),
    NVCACHE_ON(SYS_mremap, Remap(c.Buffer(0), c.Size(1), c.Size(2), c.Int(3), c.Buffer(4), c)),
    NVCACHE_ON(SYS_msync, SyncMapping(c.Int(2), c)),
    NVCACHE_ON(SYS_mlockall, LockAll(c.Int(0), c)),
    NVCACHE_ON(SYS_munlockall, UnlockAll(c)),
    NVCACHE_ON(SYS_sendfile, Transfer(c.Int(1), c.IsNull(2), c.Int(0), c)),
    NVCACHE_ON(SYS_copy_file_range, Transfer(c.Int(0), c.IsNull(1), c.Int(2), c)),
    NVCACHE_ON(SYS_splice, Transfer(c.Int(0), c.IsNull(1), c.Int(2), c)),
    NVCACHE_ON(SYS_io_submit, Submit(c)),
    NVCACHE_ON(SYS_io_uring_setup, MakeRing(c)),

    NVCACHE_ON(SYS_finit_module, LendOnce(c.Int(0), -1, c)),
    NVCACHE_ON(SYS_kexec_file_load, LendOnce(c.Int(0), c.Int(1), c)),
    NVCACHE_ON(SYS_swapon, LendPath(AT_FDCWD, c.Path(0), c)),
    NVCACHE_ON(SYS_acct, LendPath(AT_FDCWD, c.Path(0), c)),
    NVCACHE_ON(SYS_mount, LendPath(AT_FDCWD, c.Path(0), c)),
    NVCACHE_ON(SYS_fsconfig, ConfigureMount(c.As<unsigned>(1), c.Buffer(3), c.Int(4), c)),
    NVCACHE_ON(SYS_quotactl, Quota(c.Int(0), c.Buffer(3), c)),
    NVCACHE_ON(SYS_quotactl_fd, Quota(c.Int(1), c.Buffer(3), c)),
    NVCACHE_ON(SYS_fanotify_init, WatchFiles(c)),

    NVCACHE_ON(SYS_sendmsg, Sendmsg(c)),
    NVCACHE_ON(SYS_sendmmsg, Sendmmsg(c)),
    NVCACHE_ON(SYS_recvmsg, AfterReceiveOne(c(), c.As<msghdr*>(1))),
    NVCACHE_ON(SYS_recvmmsg, AfterReceiveMany(c(), c.As<mmsghdr*>(1))),

    // By which something leaves the program.
    NVCACHE_ON(SYS_sendto, Leave(vfs::Output::kSocket, c)),
    NVCACHE_ON(SYS_connect, Leave(vfs::Output::kSocket, c)),
    NVCACHE_ON(SYS_bind, Leave(vfs::Output::kSocket, c)),
    NVCACHE_ON(SYS_listen, Leave(vfs::Output::kSocket, c)),
    NVCACHE_ON(SYS_shutdown, Leave(vfs::Output::kSocket, c)),
    NVCACHE_ON(SYS_tee, Leave(vfs::Output::kPipe, c)),
    NVCACHE_ON(SYS_vmsplice, Leave(vfs::Output::kPipe, c)),
    NVCACHE_ON(SYS_msgsnd, Leave(vfs::Output::kOther, c)),
    NVCACHE_ON(SYS_semop, Leave(vfs::Output::kOther, c)),
    NVCACHE_ON(SYS_semtimedop, Leave(vfs::Output::kOther, c)),
    NVCACHE_ON(SYS_mq_timedsend, Leave(vfs::Output::kOther, c)),
    NVCACHE_ON(SYS_kill, Leave(vfs::Output::kOther, c)),
    NVCACHE_ON(SYS_tgkill, Leave(vfs::Output::kOther, c)),
    NVCACHE_ON(SYS_rt_sigqueueinfo, Leave(vfs::Output::kOther, c)),
    NVCACHE_ON(SYS_rt_tgsigqueueinfo, Leave(vfs::Output::kOther, c)),
    NVCACHE_ON(SYS_pidfd_send_signal, Leave(vfs::Output::kOther, c)),
    NVCACHE_ON(SYS_process_vm_writev, Leave(vfs::Output::kOther, c)),

    NVCACHE_ON(SYS_rt_sigaction, Sigaction(c)),

    NVCACHE_ON(SYS_fork, Fork(c)),
    NVCACHE_ON(SYS_vfork, Fork(Call{SYS_fork, c.registers, false})),  // vfork() does so, too
    NVCACHE_ON(SYS_clone, Clone(c)),
    NVCACHE_ON(SYS_clone3, Clone3(c)),
    NVCACHE_ON(SYS_execve, Replace([&] { return FreeProgram(AT_FDCWD, c.Path(0), 0); }, c)),
    NVCACHE_ON(SYS_execveat,
               Replace([&] { return FreeProgram(c.Int(0), c.Path(1), c.Int(4)); }, c)),
    NVCACHE_ON(SYS_setrlimit, SetLimit(0, c.Int(0), c.Buffer(1), c)),
    NVCACHE_ON(SYS_prlimit64, SetLimit(c.Int(0), c.Int(1), c.Buffer(2), c)),
    NVCACHE_ON(SYS_prctl, Prctl(c.Int(0), c.Long(1), c.Buffer(2), c)),
    NVCACHE_ON(SYS_seccomp, Seccomp(c.As<unsigned>(0), c.Buffer(2), c)),
    NVCACHE_ON(SYS_exit_group, ExitGroup(c)),

    NVCACHE_ON(SYS_setuid, SetUsers({c.Id(0)}, c)),
    NVCACHE_ON(SYS_setreuid, SetUsers({c.Id(0), c.Id(1)}, c)),
    NVCACHE_ON(SYS_setresuid, SetUsers({c.Id(0), c.Id(1), c.Id(2)}, c)),
    NVCACHE_ON(SYS_setfsuid, SetUsers({c.Id(0)}, c)),
    NVCACHE_ON(SYS_setgid, SetGroups({c.Id(0)}, c)),
    NVCACHE_ON(SYS_setregid, SetGroups({c.Id(0), c.Id(1)}, c)),
    NVCACHE_ON(SYS_setresgid, SetGroups({c.Id(0), c.Id(1), c.Id(2)}, c)),
    NVCACHE_ON(SYS_setfsgid, SetGroups({c.Id(0)}, c)),
    NVCACHE_ON(SYS_setgroups, ChangeRights(c)),
    NVCACHE_ON(SYS_capset, ChangeRights(c)),
    NVCACHE_ON(SYS_landlock_restrict_self, ChangeRights(c, true)),
};

constexpr std::array<Handler, kNumbers> ByNumber() {
  std::array<Handler, kNumbers> handlers{};
  for (const Entry& entry : kEntries) handlers[static_cast<size_t>(entry.number)] = entry.handler;
  return handlers;
}

}  // namespace

constinit const std::array<Handler, kNumbers> kHandlers = ByNumber();

}  // namespace nvcache::calls
