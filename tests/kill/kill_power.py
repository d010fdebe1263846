#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Power failures, as far as the disk goes: a program is killed, and ext4 is shut down without
writing anything more, so that it loses what it has not made durable. The pool in memory stays, as
NVMM would. Recovery brings every write back that had returned, or keeps it and says so.

Exit code 77 where a file system cannot be mounted and shut down."""

import ctypes
import fcntl
import os
import pathlib
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))

import harness  # noqa: E402
from harness import check  # noqa: E402

SKIP = 77
CLONE_NEWNS = 0x20000
IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32), of ext4 and XFS
SHUTDOWN_NOLOGFLUSH = 2
FILE_SYSTEMS = ("ext4", "xfs", "btrfs")

LATE = {"NVCACHE_BATCH_MIN": "1000", "NVCACHE_BATCH_MAX": "1000", "NVCACHE_BATCH_DELAY": "60000"}
EARLY = {"NVCACHE_BATCH_DELAY": "1"}
DATA = b"".join(b"line %d\n" % i for i in range(3000))
KEPT = 3


class Disk:
    """A file system in a file, which commits only when it is asked to."""

    def __init__(self, bench, size=64 << 20, kind="ext4"):
        self.kind = kind
        self.image = bench.folder / "image"
        self.folder = bench.folder / "mounted"
        self.device = None  # of XFS, a descriptor
        self.folder.mkdir()
        with open(self.image, "wb") as image:
            image.truncate(size if kind == "ext4" else max(size, 400 << 20))  # the others want so much
        subprocess.run([f"mkfs.{kind}", "-q", self.image], check=True, stderr=subprocess.DEVNULL)
        self.mount()

    def mount(self):
        if self.kind == "xfs":
            self.mount_xfs()
            return
        subprocess.run(["mount", "-o", "loop,commit=300", self.image, self.folder], check=True,
                       stderr=subprocess.DEVNULL)

    def mount_xfs(self):
        """On the same device each time, whoever else takes any: XFS is known by its device's number. As long as that
        is open, the kernel does not give it to others."""
        if self.device is None:
            subprocess.run(["mount", "-o", "loop", self.image, self.folder], check=True, stderr=subprocess.DEVNULL)
            found = subprocess.run(["findmnt", "-n", "-o", "SOURCE", self.folder], check=True, capture_output=True)
            self.device = os.open(found.stdout.strip(), os.O_RDONLY)
        else:
            subprocess.run(["mount", f"/proc/self/fd/{self.device}", self.folder], check=True,
                           pass_fds=[self.device], stderr=subprocess.DEVNULL)

    def sync(self):
        folder = os.open(self.folder, os.O_RDONLY)
        ctypes.CDLL(None).syncfs(folder)
        os.close(folder)

    def fail(self):
        """The power is gone, and comes back."""
        if self.kind == "btrfs":
            self.fail_by_copy()
        else:
            folder = os.open(self.folder, os.O_RDONLY)
            fcntl.ioctl(folder, IOC_SHUTDOWN, struct.pack("I", SHUTDOWN_NOLOGFLUSH))
            os.close(folder)
            subprocess.run(["umount", self.folder], check=True)
        self.mount()

    def fail_by_copy(self):
        """Btrfs has no such call. What its device has by now is a disk without power: the copy begins with
        the superblock, and no block that this one leads to is written over before the next commit."""
        copy = self.image.with_suffix(".copy")
        subprocess.run(["cp", "--sparse=always", self.image, copy], check=True)
        subprocess.run(["umount", self.folder], check=True)
        copy.rename(self.image)

    def files(self):
        return {path.relative_to(self.folder).as_posix(): path.read_bytes()
                for path in self.folder.rglob("*") if path.is_file()}


def run_and_kill(bench, disk, code, env):
    """A program that writes, then waits until it is killed: at once, or when nothing is pending."""
    program = ("import os, sys\n"
               "DATA = b''.join(b'line %d\\n' % i for i in range(3000))\n"
               f"{code}\nprint('done', flush=True)\nsys.stdin.read()\n")
    with subprocess.Popen(bench.cached([sys.executable, "-c", program]), cwd=disk.folder,
                          env=dict(os.environ, **env), stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        check(process.stdout.readline() == b"done\n", "the program failed")
        deadline = time.monotonic() + 60
        while env is EARLY and bench.counter("pending_records") > 0:
            check(time.monotonic() < deadline, "the log is never drained")
            time.sleep(0.01)
        process.kill()
        check(process.wait() == -signal.SIGKILL, "the program was not there to be killed")


def recover(bench, status=0):
    done = bench.run([bench.nvcache, "recover", bench.pool], False, may_fail=True)
    check(done.returncode == status, f"recover: exit code {done.returncode}: {done.stderr}")
    return done.stdout


def expect(found, expected):
    check(found == expected, f"{ {name: len(data) for name, data in found.items()} }, expected "
                             f"{ {name: len(data) for name, data in expected.items()} }")


CREATE = "os.umask(0); f = os.open('file', os.O_RDWR | os.O_CREAT, 0o640); os.write(f, DATA)"


def new(bench, disk):
    """The disk has the file, with its name, before the log has a byte of it."""
    run_and_kill(bench, disk, CREATE, LATE)
    disk.fail()
    expect(disk.files(), {"file": b""})
    recover(bench)
    expect(disk.files(), {"file": DATA})
    check((disk.folder / "file").stat().st_mode & 0o7777 == 0o640, "another mode")
    disk.fail()
    expect(disk.files(), {"file": DATA})


def written_back(bench, disk):
    """Nobody synced it but the cleanup thread."""
    run_and_kill(bench, disk, CREATE, EARLY)
    disk.fail()
    expect(disk.files(), {"file": DATA})
    recover(bench)
    expect(disk.files(), {"file": DATA})


def synced(bench, disk):
    run_and_kill(bench, disk, CREATE + "; os.fsync(f); os.pwrite(f, b'LINE', 0)", LATE)
    disk.fail()
    recover(bench)
    expect(disk.files(), {"file": b"LINE" + DATA[4:]})


def renamed(bench, disk):
    """The name under which records were written is not lost."""
    (disk.folder / "old").write_bytes(b"before")
    disk.sync()
    run_and_kill(bench, disk, "f = os.open('old', os.O_RDWR); os.rename('old', 'new');"
                              "os.pwrite(f, b'after', 6)", LATE)
    disk.fail()
    expect(disk.files(), {"new": b"before"})
    recover(bench)
    expect(disk.files(), {"new": b"beforeafter"})


def replaced(bench, disk):
    """The removed file does not come back under the name of the new one."""
    (disk.folder / "file").write_bytes(b"removed")
    disk.sync()
    run_and_kill(bench, disk, "os.unlink('file')\n" + CREATE, LATE)
    disk.fail()
    expect(disk.files(), {"file": b""})
    recover(bench)
    expect(disk.files(), {"file": DATA})
    disk.fail()
    expect(disk.files(), {"file": DATA})


def linked(bench, disk):
    """What lost its name had another one."""
    for link in ("before", "after"):
        (disk.folder / "file").write_bytes(b"removed")
        if link == "before":
            (disk.folder / "other").hardlink_to(disk.folder / "file")
        disk.sync()
        links = "os.link('file', 'other')\n" if link == "after" else ""
        run_and_kill(bench, disk, links + "os.unlink('file')\n" + CREATE, LATE)
        disk.fail()
        recover(bench)
        expect(disk.files(), {"file": DATA, "other": b"removed"})
        for name in ("file", "other"):
            (disk.folder / name).unlink()


def rotated(bench, disk):
    """A new file never meets the old one that had its name."""
    (disk.folder / "file").write_bytes(b"old")
    disk.sync()
    run_and_kill(bench, disk, "os.rename('file', 'file.1')\n" + CREATE, LATE)
    disk.fail()
    recover(bench)
    expect(disk.files(), {"file": DATA, "file.1": b"old"})


def taken(bench, disk):
    """Somebody has removed the file, and somebody else's has its name."""
    run_and_kill(bench, disk, CREATE, LATE)
    disk.fail()
    (disk.folder / "file").unlink()
    (disk.folder / "file").write_bytes(b"removed")
    disk.sync()
    check("another file has its name" in recover(bench, KEPT), "recovery does not say so")
    expect(disk.files(), {"file": b"removed"})
    (disk.folder / "file").unlink()
    check("No such file" in recover(bench, KEPT), "recovery does not say so")
    expect(disk.files(), {})
    bench.run([bench.nvcache, "recover", "--discard", bench.pool], False)


def folder(bench, disk):
    run_and_kill(bench, disk, "os.mkdir('sub'); os.chdir('sub')\n" + CREATE, LATE)
    disk.fail()
    expect(disk.files(), {"sub/file": b""})
    recover(bench)
    expect(disk.files(), {"sub/file": DATA})


def jail(bench, disk):
    """A path in a chroot leads elsewhere outside of it: there, nothing is touched and nothing made."""
    root, outside = disk.folder / "jail", disk.folder / "place"
    inside = root / outside.relative_to("/")  # the same path, from the other root
    for place in (root / "proc", inside, outside):
        place.mkdir(parents=True)
    # The pool is attached when the program goes to its jail; the files may be open, too.
    attach = "other = os.open('other', os.O_RDWR | os.O_CREAT); os.write(other, b'other')"
    enter = f"os.chroot('{root}'); os.chdir('{outside}')"
    create = "new, taken, old = (os.open(n, os.O_RDWR | os.O_CREAT) for n in ('new', 'taken', 'old'))"
    write = "for f in (new, taken): os.write(f, DATA)\nos.pwrite(old, b'after', 6)"
    for calls in ((attach, enter, create, write), (f"os.chdir('{inside}')", create, enter, write)):
        for place in (inside, outside):
            (place / "old").write_bytes(b"before")
        (outside / "taken").write_bytes(b"outside")
        disk.sync()
        subprocess.run(["mount", "-t", "proc", "none", root / "proc"], check=True)
        run_and_kill(bench, disk, "\n".join(calls), LATE)
        check(bench.counter("pending_records") > 2, "nothing is pending")
        subprocess.run(["umount", root / "proc"], check=True)
        disk.fail()
        bench.run([bench.nvcache, "recover", bench.pool], False, may_fail=True)
        names = {"new": DATA, "taken": DATA, "old": b"beforeafter"}
        found = {path.relative_to(disk.folder).as_posix(): path.read_bytes()
                 for place in (inside, outside) for path in place.iterdir()}
        expect(found, {"place/taken": b"outside", "place/old": b"before",
                       **{f"{inside.relative_to(disk.folder)}/{name}": data
                          for name, data in names.items()}})
        for name in names:
            (inside / name).unlink()


FALLOCATE = ("import ctypes; off = ctypes.c_int64; call = ctypes.CDLL(None).fallocate64\n"
             "def fallocate(mode, at, n): assert call(f, mode, off(at), off(n)) == 0\n")
CUTS = {
    "ftruncate": "os.ftruncate(f, 0)",
    "ftruncate shorter": "os.ftruncate(f, 5000)",
    "truncate": "os.truncate('file', 10)",
    "O_TRUNC": "g = os.open('file', os.O_RDWR | os.O_TRUNC); os.close(f); f = g",
    "O_TRUNC alone": "os.close(f); f = os.open('file', os.O_RDWR | os.O_TRUNC)",
    "punch": "fallocate(3, 4096, 8192)",
    "collapse": "fallocate(8, 4096, 8192)",
    "zero": "fallocate(16, 4000, 8192)",
    "insert": "fallocate(32, 4096, 8192)",
}


def cut(bench, disk):
    """Records from after a cut never meet the bytes that were cut off, although nobody synced."""
    plain = bench.folder / "file"
    for name, code in CUTS.items():
        # What is cut off is on the disk, or still in the log.
        for content, write in ((DATA, ""), (b"", "os.write(f, DATA)")):
            (disk.folder / "file").write_bytes(content)
            plain.write_bytes(content)
            disk.sync()
            program = (f"DATA = {DATA}\n{FALLOCATE}f = os.open('file', os.O_RDWR)\n{write}\n{code}\n"
                       "os.pwrite(f, b'after', 3)")
            bench.without(sys.executable, "-c", "import os\n" + program)
            run_and_kill(bench, disk, program, LATE)
            check(bench.counter("pending_records") > 0, f"{name}: nothing is pending")
            disk.fail()
            recover(bench)
            found, expected = (disk.folder / "file").read_bytes(), plain.read_bytes()
            check(found == expected, f"{name}: {len(found)} bytes, {found[:12]}..., "
                                     f"expected {len(expected)}, {expected[:12]}...")


def attributes(bench, disk):
    """What fsync is for when no data is pending: mode, times and more, by descriptor and by path."""
    run_and_kill(bench, disk, CREATE + """
os.fsync(f); os.sync()
os.fchmod(f, 0o600); os.fsync(f)
os.utime('file', (1, 2)); os.fsync(f)
os.setxattr(f, 'user.kept', b'1'); os.setxattr(f, 'user.gone', b'2'); os.fsync(f)
os.removexattr('file', 'user.gone'); os.fsync(f)""", EARLY)
    disk.fail()
    status = (disk.folder / "file").stat()
    check(status.st_mode & 0o7777 == 0o600, f"mode {status.st_mode:o}")
    check(status.st_mtime == 2, f"mtime {status.st_mtime}")
    names = os.listxattr(disk.folder / "file")
    check(names == ["user.kept"], f"attributes {names}")


FS_IOC_GETFLAGS = 0x80086601
# What chattr does, in its two ways. The other flags stay: they say how the file lies on the disk.
FLAGS = {
    "FS_IOC_SETFLAGS": """
old = struct.unpack("i", fcntl.ioctl(f, 0x80086601, bytes(4)))[0]
fcntl.ioctl(f, 0x40086602, struct.pack("i", old | 0x40))""",
    "FS_IOC_FSSETXATTR": """
old = fcntl.ioctl(f, 0x801C581F, bytes(28))
fcntl.ioctl(f, 0x401C5820, struct.pack("I", struct.unpack("I", old[:4])[0] | 0x80) + old[4:])""",
}


def flags(bench, disk):
    """A file that is not to be dumped (FS_NODUMP_FL), and synced, is not after a power failure."""
    for name, code in FLAGS.items():
        run_and_kill(bench, disk, "import fcntl, struct; " + CREATE + "\nos.fsync(f); os.sync()" + code +
                     "\nos.fsync(f)", LATE)
        disk.fail()
        fd = os.open(disk.folder / "file", os.O_RDONLY)
        found = struct.unpack("i", fcntl.ioctl(fd, FS_IOC_GETFLAGS, bytes(4)))[0]
        os.close(fd)
        check(found & 0x40, f"{name}: flags {found:#x} after the power failure")
        recover(bench)
        (disk.folder / "file").unlink()
        disk.sync()


CASES = {case.__name__: case
         for case in (new, written_back, synced, renamed, replaced, linked, rotated, taken, folder,
                      jail, attributes, flags, cut)}


def run(options, case):
    with harness.Bench(options.nvcache, options.scratch, size="4M", dram="1M") as bench:
        disk = Disk(bench)
        try:
            case(bench, disk)
        finally:
            subprocess.run(["umount", disk.folder], check=False)


def possible(scratch):
    """Whether a file system of our own can be had; seen by nobody else, and gone with us."""
    if ctypes.CDLL(None).unshare(CLONE_NEWNS) != 0:
        return False
    try:
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        with harness.Bench("/", scratch) as bench:
            disk = Disk(bench)
            disk.fail()
            subprocess.run(["umount", disk.folder], check=True)
        return True
    except (OSError, subprocess.CalledProcessError) as problem:
        harness.say(f"ext4 cannot be mounted and shut down here: {problem}")
        return False


if __name__ == "__main__":
    arguments = harness.arguments(__doc__).parse_args()
    if not possible(arguments.scratch):
        sys.exit(SKIP)
    harness.main(arguments, {name: lambda case=case: run(arguments, case)
                             for name, case in CASES.items()})
