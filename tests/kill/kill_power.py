#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Power failures, as far as the disk goes: a program is killed, and ext4 is shut down without
writing anything more, so that it loses what it has not made durable. The pool in memory stays, as
NVMM would. Recovery brings every write back that had returned, or keeps it and says so.

Exit code 77 where a file system cannot be mounted and shut down."""

import fcntl
import os
import signal
import struct
import subprocess
import sys

import kit
from kit import KEPT, LATE, check
from kit.disks import PowerDisk, needs_power_failures

EARLY = {"NVCACHE_BATCH_DELAY": "1"}
DATA = b"".join(b"line %d\n" % i for i in range(3000))


def run_and_kill(bench, disk, code, env):
    """A program that writes, then waits until it is killed: at once, or when nothing is pending."""
    program = ("import os, sys\n"
               "DATA = b''.join(b'line %d\\n' % i for i in range(3000))\n"
               f"{code}\nprint('done', flush=True)\nsys.stdin.read()\n")
    with subprocess.Popen(bench.cached([sys.executable, "-c", program]), cwd=disk.folder,
                          env=dict(os.environ, **env), stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        check(process.stdout.readline() == b"done\n", "the program failed")
        if env is EARLY:
            kit.until(lambda: bench.pending() == 0, "the log is drained", 60)
        process.kill()
        check(process.wait() == -signal.SIGKILL, "the program was not there to be killed")


def expect(disk, expected):
    found = kit.contents(disk.folder)
    check(found == expected, f"{ {name: len(data) for name, data in found.items()} }, expected "
                             f"{ {name: len(data) for name, data in expected.items()} }")


CREATE = "os.umask(0); f = os.open('file', os.O_RDWR | os.O_CREAT, 0o640); os.write(f, DATA)"


# What is on the disk and durable at first; what the program does, and how; what the disk has after the power failure
# (None: that is not said); and what after the recovery, and after one more power failure.
STEPS = {
    # The disk has the file, with its name, before the log has a byte of it.
    "new": ({}, CREATE, LATE, {"file": b""}, {"file": DATA}),
    # Nobody synced it but the cleanup thread.
    "written_back": ({}, CREATE, EARLY, {"file": DATA}, {"file": DATA}),
    "synced": ({}, CREATE + "; os.fsync(f); os.pwrite(f, b'LINE', 0)", LATE, None, {"file": b"LINE" + DATA[4:]}),
    # The name under which records were written is not lost.
    "renamed": ({"old": b"before"}, "f = os.open('old', os.O_RDWR); os.rename('old', 'new'); os.pwrite(f, b'after', 6)",
                LATE, {"new": b"before"}, {"new": b"beforeafter"}),
    # The removed file does not come back under the name of the new one.
    "replaced": ({"file": b"removed"}, "os.unlink('file')\n" + CREATE, LATE, {"file": b""}, {"file": DATA}),
    # A new file never meets the old one that had its name.
    "rotated": ({"file": b"old"}, "os.rename('file', 'file.1')\n" + CREATE, LATE, None,
                {"file": DATA, "file.1": b"old"}),
    "folder": ({}, "os.mkdir('sub'); os.chdir('sub')\n" + CREATE, LATE, {"sub/file": b""}, {"sub/file": DATA}),
}


def steps(bench, disk, name):
    before, code, env, kept, recovered = STEPS[name]
    for path, content in before.items():
        (disk.folder / path).write_bytes(content)
    disk.sync()
    run_and_kill(bench, disk, code, env)
    disk.fail()
    if kept is not None:
        expect(disk, kept)
    bench.recover()
    for _ in range(2):
        expect(disk, recovered)
        if "file" in recovered and "file" not in before:
            check((disk.folder / "file").stat().st_mode & 0o7777 == 0o640, "another mode")
        disk.fail()


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
        bench.recover()
        expect(disk, {"file": DATA, "other": b"removed"})
        for name in ("file", "other"):
            (disk.folder / name).unlink()


def taken(bench, disk):
    """Somebody has removed the file, and somebody else's has its name."""
    run_and_kill(bench, disk, CREATE, LATE)
    disk.fail()
    (disk.folder / "file").unlink()
    (disk.folder / "file").write_bytes(b"removed")
    disk.sync()
    check("another file has its name" in bench.recover(KEPT), "recovery does not say so")
    expect(disk, {"file": b"removed"})
    (disk.folder / "file").unlink()
    check("No such file" in bench.recover(KEPT), "recovery does not say so")
    expect(disk, {})
    bench.run([bench.nvcache, "recover", "--discard", bench.pool], False)


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
        check(bench.pending() > 2, "nothing is pending")
        subprocess.run(["umount", root / "proc"], check=True)
        disk.fail()
        bench.run([bench.nvcache, "recover", bench.pool], False, may_fail=True)
        names = {"new": DATA, "taken": DATA, "old": b"beforeafter"}
        expect(disk, {"other": b"other", "place/taken": b"outside", "place/old": b"before",
                       **{f"{inside.relative_to(disk.folder)}/{name}": data
                          for name, data in names.items()}})
        for name in names:
            (inside / name).unlink()


def jail_names(bench, disk):
    """Root's names in a chroot are in the log: each sync is over at once, and recovery, which is outside, finds the
    folders by their handles. (They were in none, so each removal of a journal took a sync of the file system.)"""
    root, outside = disk.folder / "jail", disk.folder / "place"
    inside = root / outside.relative_to("/")
    for place in (root / "proc", inside, outside):
        place.mkdir(parents=True)
    (outside / "data").write_bytes(b"outside")
    disk.sync()
    code = f"""
first = os.open('first', os.O_RDWR | os.O_CREAT)  # the pool cannot be attached in there
for i in range(3):
    os.write(first, b'x'); os.fsync(first)
os.chroot('{root}'); os.chdir('{outside}')
folder, data = os.open('.', os.O_RDONLY), os.open('data', os.O_RDWR | os.O_CREAT)
for i in range(50):
    journal = os.open('journal', os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.write(journal, DATA); os.fsync(journal); os.fsync(folder); os.fsync(journal); os.close(journal)
    os.pwrite(data, b'%04d' % i, 4 * i); os.fsync(data)
    os.unlink('journal')
f = os.open('new', os.O_RDWR | os.O_CREAT); os.write(f, DATA); os.fsync(f); os.fsync(folder)
os.rename('new', 'renamed'); os.fsync(folder)"""
    subprocess.run(["mount", "-t", "proc", "none", root / "proc"], check=True)
    run_and_kill(bench, disk, code, LATE)
    status = bench.status()
    check(status["write_through"]["pending_records"] >= 50, f"names are in no log: {status['write_through']}")
    subprocess.run(["umount", root / "proc"], check=True)
    disk.fail(bench.pool)
    bench.recover()
    kept = inside.relative_to(disk.folder)
    expect(disk, {"first": b"xxx", "place/data": b"outside", f"{kept}/data": b"".join(b"%04d" % i for i in range(50)),
                  f"{kept}/renamed": DATA})


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
            check(bench.pending() > 0, f"{name}: nothing is pending")
            disk.fail()
            bench.recover()
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
        bench.recover()
        (disk.folder / "file").unlink()
        disk.sync()


def main():
    options = kit.arguments(__doc__).parse_args()
    needs_power_failures(options)

    def run(case, *more, rule="always", size="4M"):
        with kit.Bench(options, size=size, dram="1M", write_back=rule) as bench, PowerDisk(bench) as disk:
            case(bench, disk, *more)

    kit.main(options, {**{name: lambda name=name: run(steps, name) for name in STEPS},
                       **{case.__name__: lambda case=case: run(case)
                          for case in (linked, taken, jail, attributes, flags, cut)},
                       # Where a third of the segments is taken (25 are), the checkpoint moves after 0.1 s; here after 5.
                       "jail_names": lambda: run(jail_names, rule="auto", size="512M")})


if __name__ == "__main__":
    main()
