#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Disks that fail, one way at a time. No acknowledged byte is lost: the program reads it, and it is
on the disk once that works again. fsync and close say what is wrong, no call hangs where the kernel
would answer, and files on another disk do not notice.

Exit code 77 where file systems cannot be mounted; 1 if CI=true."""

import errno
import functools
import os
import shutil
import subprocess
import time

import kit
from kit import KEPT, LATE, MIB, check, command, say, until
from kit.basics import PATIENCE
from kit.disks import FaultyDisk, Mount, needs_mounts
from kit.faults import Program, failing, prepare, recover

QUICK = {"NVCACHE_BATCH_DELAY": "1"}


class Case:
    """A bad disk, a good one, and a pool of 4 MiB."""

    def __init__(self, options, **disk):
        self.options = options
        self.bench = kit.Bench(options, size="4M", dram="256k", timeout=60)
        self.bad = FaultyDisk(self.bench.folder, options.disk, **disk)
        self.good = self.bench.folder / "good"
        self.good.mkdir()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.bad.close()
        self.bench.__exit__(kind, value, trace)

    def file(self, name="a", size=MIB):
        path = self.bad.folder / name
        prepare(path, size)
        return path

    def opened(self, program, size=MIB):
        """A file on the bad disk, and its descriptor."""
        path = self.file(size=size)
        return path, program.open(path)

    def both_opened(self, program, size=MIB):
        """And one on the good disk, and its."""
        good = self.good / "c"
        return *self.opened(program, size), good, program.open(good)

    def program(self, settings):
        return Program(self.bench, **settings)

    def mend(self):
        self.bad.tell("ok")
        until(lambda: self.bench.pending() == 0, "everything on the disk")

    def recover_again(self, error="EIO", mend=lambda case: case.bad.tell("ok")):
        """What cannot be recovered is kept until it can."""
        recover(self.bench, KEPT, error)
        mend(self)
        recover(self.bench, 0)


def on_bad_disk(settings, **disk):
    """A case with a program that has these settings. In the end, the disk has what was acknowledged."""
    def wrap(body):
        @functools.wraps(body)
        def run(options):
            with Case(options, **disk) as case, case.program(settings) as program:
                body(case, program)
                case.bad.again()
                program.check_disk()
        return run
    return wrap


def until_failing(case, path, error="EIO"):
    until(lambda: failing(case.bench).get(str(path), {}).get("error") == error, f"{error} in status")


def refuses(case, program, what):
    """The disk refuses and works again; who has the file open hears it, once each, and others do
    not."""
    bad, other, good = case.file("a"), case.file("b"), case.good / "c"
    a, b, c = program.open(bad), program.open(other), program.open(good)
    twin = program.open(bad)
    for fd in (a, b, c, twin):
        program.expect(0, "fsync", fd)
    case.bad.tell(f"{what} 5")
    program.must_write(bad, a, 5000, 100000)
    until_failing(case, bad)
    for i in range(20):
        program.must_write(good, c, i * 5000, 5000)
        program.must_write(bad, a, i * 4096 + 100, 3000)
    program.check_reads(bad, twin)
    shown = failing(case.bench)[str(bad)]
    check(shown["error_since_ns"] > 0 and shown["bytes"] >= 160000, f"status: {shown}")
    check("(EIO for " in case.bench.without(case.bench.nvcache, "status", case.bench.pool).stdout,
          "status does not tell")
    program.expect("EIO", "fdatasync", a)
    program.expect("EIO", "sync_range", twin)
    program.expect(0, "fsync", b)
    program.expect(0, "fsync", c)
    case.mend()
    program.call("fsync", a)  # a retry may have failed after the last one
    program.call("fsync", twin)
    late = program.open(bad)  # the kernel tells whoever opens a file of what nobody has heard yet
    for fd in (a, twin, late):
        program.expect(0, "fsync", fd)
        program.expect(0, "close", fd)
    check(failing(case.bench) == {}, "status still calls it failing")
    program.end()


@on_bad_disk(QUICK)
def write_eio(case, program):
    refuses(case, program, "write")


@on_bad_disk(QUICK)
def flush_eio(case, program):
    refuses(case, program, "flush")


@on_bad_disk(LATE)
def program_hears_first(case, program):
    """The program's own fsync meets the error, after which the kernel calls the pages clean."""
    path, fd = case.opened(program)
    program.must_write(path, fd, 8192, 200000)
    program.call("utime", path)  # so the fsync is real
    program.call("size", path)  # the kernel gets the bytes
    case.bad.tell("write 5")
    program.expect("EIO", "fsync", fd)
    case.bad.tell("ok")
    program.end()


@on_bad_disk(QUICK)
def close_reports(case, program):
    path = case.file()
    fd, twin = program.open(path), program.open(path)
    program.expect(0, "fsync", fd)
    case.bad.tell("write 5")
    program.must_write(path, fd, 0, 50000)
    until_failing(case, path)
    program.expect("EIO", "close", twin)
    again = program.open(path)  # the error is known by now
    case.mend()
    program.expect(0, "fsync", again)
    program.expect("EIO", "close", fd)
    program.end()


@on_bad_disk(LATE)
def cannot_be_read(case, program):
    """Nor can what is not in memory; but what is pending can."""
    path, fd = case.opened(program)
    program.must_write(path, fd, 0, MIB)
    case.bad.tell("read 5")
    program.check_reads(path, fd)
    case.bad.tell("ok")
    program.end()


@on_bad_disk(QUICK)
def full_log(case, program):
    """More than the log holds, while one disk refuses for ever: writes to it are refused, and the
    other disk's go on, on the cache."""
    path, fd, good, other = case.both_opened(program, size=4 * MIB)
    program.expect(0, "fsync", fd)
    case.bad.tell("write 5")
    program.must_write(path, fd, 0, 4096)
    until_failing(case, path)
    done, why = program.burst(path, fd, 0, 16384, 200)
    check(why == "EIO" and 16 <= done < 128, f"{done} writes to the bad disk, then {why}")
    for i in range(8):
        count, why = program.burst(good, other, i * 100, 16384, 200)
        check(count == 200, f"{count} writes to the good disk, then {why}")
        program.expect(0, "fsync", other)
    check(case.bench.counter("records_kept") > 0, "nothing was kept")
    program.check_reads(path, fd)
    program.check_reads(good, other)
    program.expect("EIO", "fsync", fd)
    case.mend()
    program.must_write(path, fd, 0, 100000)
    program.end()


@on_bad_disk(QUICK)
def overwritten(case, program):
    """The same bytes again and again, on a disk that refuses, need no more room than once."""
    path, fd = case.opened(program)
    case.bad.tell("write 5")
    for i in range(12):
        done, why = program.burst(path, fd, i * 512, 20000, 25)
        check(done == 25, f"round {i}: {done} writes, then {why}")
    program.check_reads(path, fd)
    case.bad.tell("ok")
    program.end()


@on_bad_disk(LATE)
def full_at_once(case, program):
    """The log is full of a file before its disk is found to fail: other files are the kernel's."""
    path, fd, good, other = case.both_opened(program, size=8 * MIB)
    program.expect(0, "fsync", fd)  # the first write need not
    program.must_write(good, other, 0, 1000)
    case.bad.tell("write 5")
    done, why = program.burst(path, fd, 0, 65536, 128)
    check(why == "EIO" and done > 20, f"{done} writes to the bad disk, then {why}")
    count, why = program.burst(good, other, 500, 65536, 200)
    check(count == 200, f"{count} writes to the good disk, then {why}")
    program.check_reads(path, fd)
    program.check_reads(good, other)
    program.kill()
    recover(case.bench, KEPT, "EIO")
    program.check_disk(good)
    case.bad.tell("ok")
    case.bad.again()
    recover(case.bench, 0)


def everything_kept(options):
    """Every disk refuses, and as much is kept as ever is: writers get the disk's error, and at once,
    status says so, and nothing is lost, whether the program lives or dies."""
    for dies in (False, True):
        with Case(options) as case, FaultyDisk(case.bench.folder, options.disk, "worse") as worse:
            keep_everything(case, worse, dies)


def keep_everything(case, worse, dies):
    size, step = 2 * MIB, 16384
    paths = [case.file("a", size), case.file("b", size), worse.folder / "c", worse.folder / "d"]
    for path in paths[2:]:
        prepare(path, size)
    with case.program(QUICK) as program:
        fds = {path: program.open(path) for path in paths}
        for fd in fds.values():
            program.expect(0, "fsync", fd)
        case.bad.tell("write 5")
        worse.tell("flush 5")
        accepted = dict.fromkeys(paths, 0)
        refused = set()
        for at in range(0, size, step):
            for path in paths:
                found = program.write(path, fds[path], at, step)
                check(found in (step, "EIO"), f"write to {path.name}: {found}")
                accepted[path] += found == step
                if found != step:
                    refused.add(path)
        check(refused == set(paths), f"accepted: {sorted(accepted.values())} of {size // step}")
        shown, status = failing(case.bench), case.bench.status()
        check({path: file["error"] for path, file in shown.items()} ==
              {str(path): "EIO" for path in paths}, f"status: {shown}")
        check(status["pending_kept_bytes"] > MIB, f"{status['pending_kept_bytes']} bytes are kept")
        text = case.bench.without(case.bench.nvcache, "status", case.bench.pool).stdout
        check("kept, because a disk refuses" in text, text)
        for path, fd in fds.items():
            begin = time.monotonic()
            program.expect("EIO", "write", fd, 100, 10, 1)
            program.expect("EIO", "ftruncate", fd, 10)
            check(time.monotonic() - begin < 1, f"a write to {path.name} takes its time")
            program.check_reads(path, fd)
        if dies:
            program.kill()
        else:
            case.bad.tell("ok")
            worse.tell("ok")
            until(lambda: case.bench.pending() == 0, "everything on the disk")
            for path, fd in fds.items():
                program.must_write(path, fd, 0, 100000)
            program.end()
    if dies:
        recover(case.bench, KEPT, "EIO")
        check(case.bench.status()["pending_kept_bytes"] > MIB, "recovery has dropped what is kept")
        case.bad.tell("ok")
        recover(case.bench, KEPT, "EIO")
        worse.tell("ok")
        case.bad.again()
        worse.again()
        recover(case.bench, 0)
    case.bad.again()
    worse.again()
    program.check_disk()


@on_bad_disk(LATE)
def ends(case, program):
    """The program's end does not wait for a disk that refuses; its exit code is its own."""
    path, fd, good, other = case.both_opened(program)
    program.must_write(path, fd, 0, 300000)
    program.must_write(good, other, 0, 300000)
    case.bad.tell("flush 5")
    text = program.end(code=7, lines=1)
    check("refuses" in text and "recover" in text, text)
    program.check_disk(good)
    check(case.bench.status()["state"] == "dirty", "the pool is not dirty")
    for _ in range(2):
        recover(case.bench, KEPT, "EIO")
    for required, code in (("1", 125), ("0", 0)):
        done = case.bench.with_cache("true", may_fail=True, env={"NVCACHE_REQUIRED": required})
        check(done.returncode == code and "EIO" in done.stderr and "recover" in done.stderr,
              f"run: exit code {done.returncode}: {done.stderr}")
    case.bad.tell("ok")
    recover(case.bench, 0)
    recover(case.bench, 0)


@on_bad_disk(QUICK)
def killed(case, program):
    """In the middle of it, after records were kept; and recovery fails in the middle, too."""
    path, second, good = case.file(), case.file("b"), case.good / "c"
    fd, b, other = program.open(path), program.open(second), program.open(good)
    program.expect(0, "fsync", fd)  # the first write need not
    program.expect(0, "fsync", b)
    case.bad.tell("write 5")
    for i in range(20):
        program.must_write(path, fd, i * 7000, 20000)
        program.must_write(second, b, i * 9000, 9500)
        check(program.burst(good, other, i * 64000, 64000, 4)[0] == 4, "the good disk")
    check(case.bench.counter("records_kept") > 0, "nothing was kept")
    program.check_reads(path, fd)
    program.kill()
    recover(case.bench, KEPT, "EIO")
    case.bad.tell("ok")
    case.bad.again()
    case.bad.tell("flush 5 1")  # one of the two
    recover(case.bench, KEPT, "EIO")
    recover(case.bench, 0)


@on_bad_disk(QUICK)
def names(case, program):
    """Calls that want a file on its disk first fail, or go on; for the other disk's file they work."""
    path, fd, good, other = case.both_opened(program)
    program.expect(0, "fsync", fd)
    case.bad.tell("write 5")
    program.must_write(path, fd, 0, 300000)
    until_failing(case, path)
    program.must_write(good, other, 0, 300000)
    program.expect("EIO", "rename", path, case.bad.folder / "b")
    program.expect("EIO", "unlink", path)
    program.expect("EIO", "ftruncate", fd, 10)
    program.expect("EIO", "truncate", path, 10)
    program.expect("EIO", "open", path, os.O_RDWR | os.O_TRUNC)
    program.expect(MIB, "size", path)
    program.expect(5, "fork")
    program.expect(0, "spawn")
    program.must_rename(good, case.good / "d")
    good = case.good / "d"
    program.must_write(good, other, 300000, 5000)
    program.expect(0, "ftruncate", other, 200000)
    del program.files[good][200000:]
    program.check_reads(path, fd)
    program.check_reads(good, other)
    program.expect(0, "unlink", good)
    del program.files[good]
    case.mend()
    program.end()


@on_bad_disk(QUICK)
def others(case, program):
    """Other processes that want the file, and a program in place of this one, get an answer."""
    path = case.file()
    with kit.Bench(case.options, size="1M") as other:
        fd = program.open(path)
        program.must_write(path, fd, 0, 300000)
        until(lambda: case.bench.pending() == 0, "everything on the disk")
        case.bad.tell("write 5")
        program.must_write(path, fd, 1000, 300000)
        until_failing(case, path)
        begin = time.monotonic()
        done = other.run(["cat", path], True, may_fail=True)
        check(done.returncode == 1 and "Input/output error" in done.stderr,
              f"another process: exit code {done.returncode}: {done.stderr}")
        other.run(["cp", path, other.folder / "copy"], False)
        done = other.run(["sh", "-c", f"echo >> {path}"], True, may_fail=True)
        check(done.returncode != 0, "another process may write")
        check(time.monotonic() - begin < PATIENCE, "others wait long")
        program.check_reads(path, fd)
        program.tell('["exec", "true"]')
        until(lambda: program.process.poll() is not None, "exec")
        check(program.process.returncode == 0, "the new program failed")
    case.recover_again()


@on_bad_disk(QUICK)
def slow(case, program):
    """A disk a hundred times slower costs time, and nothing else."""
    path, fd = case.opened(program, size=6 * MIB)
    program.expect(0, "fsync", fd)
    case.bad.tell("delay 50000")
    for at in range(0, 6 * MIB, 1 << 17):
        program.must_write(path, fd, at, 1 << 17)
    program.check_reads(path, fd)
    program.expect(0, "fsync", fd)
    check(failing(case.bench) == {}, "slow is not failing")
    check(case.bench.counter("write_back_errors") == 0, "there were errors")
    check(case.bench.counter("full_waits") > 0, "the log was never full")
    case.bad.tell("ok")
    program.end()


@on_bad_disk(QUICK, make=(), mount_options="errors=remount-ro,commit=1")
def read_only(case, program):
    """ext4 gives up its journal and is read-only until it is mounted again."""
    path, fd, good, other = case.both_opened(program)
    program.must_write(path, fd, 0, 100000)
    until(lambda: case.bench.pending() == 0, "everything on the disk")
    case.bad.tell("write 5")
    program.must_write(path, fd, MIB - 100, 4000)
    until(lambda: failing(case.bench) != {}, "an error")
    until(lambda: case.bad.shown_read_only(), "read-only")
    case.bad.tell("ok")
    until(lambda: failing(case.bench)[str(path)]["error"] == "EROFS", "EROFS")
    # What the log has room for is taken; then it is as without us.
    done, why = program.burst(path, fd, 0, 16384, 200)
    check(why in ("EROFS", "EIO"), f"{done} writes, then {why}")
    check(program.call("fsync", fd) in ("EROFS", "EIO"), "fsync says nothing")
    check(program.burst(good, other, 0, 16384, 400)[0] == 400, "the good disk")
    program.check_reads(path, fd)
    program.end(lines=1)
    recover(case.bench, KEPT, "EROFS")
    case.bad.unmount()
    recover(case.bench, KEPT)
    case.bad.mount()
    command("mount", "-o", "remount,ro", case.bad.folder)
    recover(case.bench, KEPT, "EROFS", "see to the disk")
    case.bad.again()
    recover(case.bench, 0)


@on_bad_disk(LATE, make=())
def journal(case, program):
    """A commit of ext4's journal fails, and another program hears of it. The kernel has written the
    bytes, and says that they are durable; but nobody finds them when it is mounted again."""
    path, others = case.file(), os.open(case.file("b"), os.O_RDWR)
    fd = program.open(path)
    program.must_write(path, fd, MIB, 200000)
    program.expect(MIB + 200000, "size", path)  # the kernel gets the bytes
    case.bad.write_out(path)
    os.fchmod(others, 0o600)
    case.bad.tell("write 5")
    refused(os.fsync, others)
    case.bad.tell("ok")
    program.end(lines=1)
    os.close(others)
    case.recover_again("EROFS", mend=lambda case: case.bad.again())


def refused(call, *words):
    try:
        call(*words)
    except OSError as error:
        check(error.errno == errno.EIO, str(error))
        return
    check(False, "the disk refuses nothing")


@on_bad_disk(QUICK, make=())
def shut_down(case, program):
    """ext4 stops at once, and answers everything with an error until it is mounted again."""
    path, fd, good, other = case.both_opened(program)
    program.must_write(path, fd, 0, MIB)
    case.bad.shut_down()
    program.must_write(path, fd, 100, 5000)
    until_failing(case, path)
    program.must_write(good, other, 0, 300000)
    program.expect("EIO", "fsync", fd)
    program.expect("EIO", "rename", path, case.bad.folder / "b")
    program.must_rename(good, case.good / "d")
    count, why = program.burst(path, fd, 0, 16384, 300)
    check(why == "EIO", f"{count} writes, then {why}")
    program.end(lines=1)
    case.recover_again("EIO", mend=lambda case: case.bad.again())


def fill(folder):
    with open(folder / "ballast", "wb") as ballast:
        room = os.statvfs(folder)
        os.posix_fallocate(ballast.fileno(), 0, room.f_bavail * room.f_bsize - 65536)
        for size in (65536, 4096, 1):
            try:
                while True:
                    ballast.seek(0, 2)
                    ballast.write(bytes(size))
                    ballast.flush()
                    os.fsync(ballast.fileno())
            except OSError:
                try:
                    ballast.close()
                except OSError:
                    pass
                ballast = open(folder / "ballast", "ab")


def remove_ballast(case):
    (case.bad.folder / "ballast").unlink()


@on_bad_disk(LATE, size=160 * MIB)
def full_disk(case, program):
    """Somebody else takes the room that was there at the write."""
    path, other = case.bad.folder / "a", case.good / "c"
    fd, good = program.open(path), program.open(other)
    program.must_write(path, fd, 0, 1000000)
    fill(case.bad.folder)
    program.must_write(other, good, 0, 1000000)
    program.expect("ENOSPC", "rename", path, case.bad.folder / "b")
    check(failing(case.bench)[str(path)]["error"] == "ENOSPC", "status does not tell")
    program.expect("ENOSPC", "fsync", fd)
    for i in range(3):
        found = program.write(path, fd, 1000000 + i * 5000, 5000)
        check(found == "ENOSPC", f"a write to a full disk: {found}")
    program.check_reads(path, fd)
    program.must_rename(other, case.good / "d")
    program.kill()
    case.recover_again("ENOSPC", mend=remove_ballast)


@on_bad_disk(LATE, size=160 * MIB)
def emptied(case, program):
    """As a shell's `>` does, which goes on with other files while its disk stays full: the truncation that
    the disk does not take, and the records after it, are kept aside."""
    path, other = case.file(), case.good / "c"
    case.bad.sync()
    fd = program.open(path, os.O_RDWR | os.O_TRUNC)
    good = program.open(other)
    program.files[path] = bytearray()
    program.must_write(path, fd, 5000, 1000000)
    fill(case.bad.folder)
    for i in range(20):
        program.must_write(other, good, i * 300000, 300000)
    program.must_rename(other, case.good / "d")
    check(failing(case.bench)[str(path)]["error"] == "ENOSPC", "status does not tell")
    check(case.bench.counter("records_kept") > 0, "nothing was kept")
    program.check_reads(path, fd)
    program.kill()
    case.recover_again("ENOSPC", mend=remove_ballast)


def limit_folder(disk, folder, size):
    """Btrfs counts what is in the folder from now on, and takes no more."""
    command("btrfs", "quota", "enable", disk.folder)
    command("btrfs", "quota", "rescan", "-w", disk.folder)
    command("btrfs", "qgroup", "limit", str(size), folder)


def quota(options):
    """Switched on when the file is cached: it counts the blocks that others have of the same folder, and says so at
    write-back."""
    with kit.Bench(options, size="4M", dram="256k") as bench:
        with Mount(bench.folder / "image", bench.folder / "mounted", "btrfs", ("-f",), size=256 * MIB) as disk:
            folder = disk.folder / "volume"
            command("btrfs", "subvolume", "create", folder)
            path, ballast = folder / "a", folder / "ballast"
            with Program(bench, **LATE) as program:
                fd = program.open(path)
                program.must_write(path, fd, 0, 1000000)
                limit_folder(disk, folder, 8 * MIB)
                subprocess.run(["dd", "if=/dev/zero", f"of={ballast}", "bs=64k", "conv=fsync"],
                               check=False, stderr=subprocess.DEVNULL)
                program.expect("EDQUOT", "rename", path, folder / "b")
                program.expect("EDQUOT", "fsync", fd)
                found = program.write(path, fd, 1000000, 100000)
                check(found == "EDQUOT", f"a write beyond the quota: {found}")
                program.check_reads(path, fd)
                ballast.unlink()
                disk.sync()
                until(lambda: bench.pending() == 0, "everything on the disk")
                program.must_write(path, fd, 1000000, 10000)
                program.end()
            disk.again()
            program.check_disk()


def quota_at_once(options):
    """The write that the quota does not take fails, for a file that is written by many small ones and for bytes that
    replace others; what has returned is in the file, whatever the quota."""
    block, most = 4096, 2000
    for rule in ("auto", "always"):
        with kit.Bench(options, size="16M", dram="256k") as bench:
            with Mount(bench.folder / "image", bench.folder / "mounted", "btrfs", ("-f",), size=256 * MIB) as disk:
                folder = disk.folder / "volume"
                command("btrfs", "subvolume", "create", folder)
                limit_folder(disk, folder, 3 * MIB)
                path = folder / "a"
                with Program(bench, NVCACHE_WRITE_BACK=rule, **LATE) as program:
                    fd = program.open(path)
                    for _ in range(70):
                        program.must_write(path, fd, 0, block)
                        program.expect(0, "fsync", fd)
                    for number in range(most):
                        found = program.write(path, fd, number * block, block)
                        if found != block:
                            break
                        program.expect(0, "fsync", fd)
                    check(found == "EDQUOT", f"{rule}, the last of {number + 1} writes: {found}")
                    program.end()
                disk.again()
                program.check_disk()
                check(bench.pending() == 0, f"{rule}: records are left")


@on_bad_disk(QUICK)
def gone(case, program):
    """The folder is removed, and the file system detached, while files in it are written."""
    (case.bad.folder / "sub").mkdir()
    removed, kept = case.file("sub/a"), case.file("b")
    a, b = program.open(removed), program.open(kept)
    program.must_write(removed, a, 0, 100000)
    program.must_write(kept, b, 0, 100000)
    shutil.rmtree(case.bad.folder / "sub")
    for i in range(10):
        program.must_write(removed, a, i * 50000, 60000)
    program.expect(0, "fsync", a)
    program.check_reads(removed, a)
    del program.files[removed]
    case.bad.unmount("-l")
    for i in range(10):
        program.must_write(kept, b, i * 50000, 60000)
    program.expect(0, "fsync", b)
    program.check_reads(kept, b)
    program.end()
    case.bad.await_end()
    case.bad.mount()
    program.check_disk()
    # Recovery that finds no disk.
    with case.program(LATE) as another:
        b = another.open(kept)
        another.must_write(kept, b, 0, 100000)
        another.kill()
    case.bad.unmount()
    recover(case.bench, KEPT, "bring the files back")
    case.bad.mount()
    recover(case.bench, 0)
    another.check_disk()
    program.files = another.files


def programs(options):
    """sqlite3 and dd, as packaged."""
    with Case(options) as case:
        base = case.bad.folder / "db"
        rows = 3000

        def sql(text, cached=True):
            return case.bench.run(["sqlite3", base, text], cached, may_fail=True)

        made = sql("PRAGMA journal_mode=WAL; CREATE TABLE t(x)")
        check(made.returncode == 0, made.stderr)
        prepare(case.bad.folder / "room", 8 * MIB)
        (case.bad.folder / "room").unlink()
        case.bad.sync()
        case.bad.tell("write 5")
        inserts = "".join(f"INSERT INTO t VALUES({i});" for i in range(rows))
        done = sql("PRAGMA synchronous=FULL;" + inserts + "SELECT count(*) FROM t")
        say(f"sqlite3: exit code {done.returncode}: {done.stdout.strip()} {done.stderr.strip()[-200:]}")
        case.bad.tell("ok")
        recover(case.bench, 0)
        case.bad.again()
        found = sql("PRAGMA integrity_check; SELECT count(*) FROM t", False).stdout.split()
        check(found[0] == "ok", f"sqlite3: {found}")
        acknowledged = done.stdout.split()
        check(not acknowledged or int(found[1]) >= int(acknowledged[-1]),
              f"{found[1]} rows of {acknowledged}")
        target = case.file("copy", 2 * MIB)
        case.bad.tell("write 5")
        source = case.bench.folder / "source"
        source.write_bytes(os.urandom(2 * MIB))
        # dd syncs at once: everything is in the log.
        done = case.bench.run(["dd", f"if={source}", f"of={target}", "bs=64k", "conv=notrunc,fsync"],
                              True, may_fail=True)
        check(done.returncode in (0, 1), done.stderr)
        case.bad.tell("ok")
        recover(case.bench, 0)
        case.bad.again()
        if done.returncode == 0:
            check(target.read_bytes() == source.read_bytes(), "dd: another copy")


@on_bad_disk(QUICK)
def gives_up_rights(case, program):
    """The pool goes before the rights do, though the disk refuses: what it refuses is kept in it, and
    the program hears EIO of such a file, not its old bytes."""
    bad, good, cut, pool = case.file(), case.good / "c", case.file("cut"), str(case.bench.pool)
    a, c = program.open(bad), program.open(good)
    for fd in (a, c):
        program.expect(0, "fsync", fd)
    case.bad.tell("write 5")
    program.must_write(bad, a, 5000, 100000)
    until_failing(case, bad)
    program.must_write(good, c, 0, 5000)
    check(program.call("mapped", pool) > 0, "the pool is not mapped from the start")
    program.expect(0, "seteuid", 54321)
    program.expect(0, "mapped", pool)
    program.check_reads(good, c)
    program.must_write(good, c, 5000, 5000)
    for call in (("read", a, 0, 100), ("write", a, 0, 100, 1), ("fsync", a), ("ftruncate", a, 0),
                 ("sync_range", a)):
        program.expect("EIO", *call)
    program.expect(0, "seteuid", 0)
    program.expect("EIO", "close", a)
    again = program.call("open", bad, os.O_RDWR)
    program.expect("EIO", "read", again, 0, 100)
    b = program.open(cut)
    program.expect(0, "mapped", pool)
    program.check_reads(cut, b)
    program.call("close", again)
    check("they stay in the pool" in program.end(lines=1), "the line does not say where they are")
    case.recover_again()


REMOVED = " was removed, or another file has its name: all of it is on the disk now"


def loses_its_name(case, program, take_away):
    """Nobody can recover such a pool: so a kill loses nothing that was acknowledged before the program says so, nor
    after that; and so it is with a second program on that pool, which has its bytes in it, too."""
    second = case.program(LATE)
    with second:
        users = [(program, *(lambda path: (path, program.open(path)))(case.file("a"))),
                 (second, *(lambda path: (path, second.open(path)))(case.file("b")))]
        for user, path, fd in users:
            user.must_write(path, fd, 0, 100000)
            user.expect(0, "fsync", fd)
        check(case.bench.pending() > 0, "nothing is pending in the pool")
        take_away()
        for user, path, fd in users:
            user.must_write(path, fd, 50000, 100000)
            user.expect(0, "fsync", fd)
            until(lambda user=user: REMOVED in user.said(), "a word on the pool that has no name")
            user.check_reads(path, fd)
            user.must_write(path, fd, 120000, 50)
            user.expect(0, "fsync", fd)
            user.kill()
            user.check_disk()
            check(user.said().count(REMOVED) == 1, f"once is enough: {user.said()}")


@on_bad_disk(LATE)
def pool_removed(case, program):
    loses_its_name(case, program, case.bench.pool.unlink)


@on_bad_disk(LATE)
def pool_replaced(case, program):
    def replace():
        other = case.bench.pools / "other"
        case.bench.without(case.bench.nvcache, "create", other, "--size", "4M", "--emulate")
        other.rename(case.bench.pool)
    loses_its_name(case, program, replace)
    check(case.bench.pending() == 0, "something is in the new pool")


@on_bad_disk(LATE)
def pool_removed_of_idle(case, program):
    """A program that has nothing pending looks when it writes next. Names are in the log, too."""
    path, fd = case.opened(program)
    program.must_write(path, fd, 0, 5000)
    program.expect(0, "fsync", fd)
    program.expect(0, "rename", path, case.bad.folder / "b")
    program.files[case.bad.folder / "b"] = program.files.pop(path)
    path = case.bad.folder / "b"
    until(lambda: case.bench.pending() == 0, "everything on the disk")
    case.bench.pool.unlink()
    program.must_write(path, fd, 2000, 5000)
    until(lambda: REMOVED in program.said(), "a word on the pool that has no name")
    program.kill()


CASES = {case.__name__: case for case in
         (write_eio, flush_eio, program_hears_first, close_reports, cannot_be_read, full_log,
          overwritten, full_at_once, everything_kept, ends, killed, names, others, slow, read_only, journal,
          shut_down, full_disk, emptied, quota, quota_at_once, gone, programs, gives_up_rights, pool_removed, pool_replaced,
          pool_removed_of_idle)}


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--disk", required=True, help="the faulty_disk to use")
    parser.add_argument("--writer", help="the faults_writer; not needed here")
    options = parser.parse_args()
    needs_mounts()

    def timed(case):
        begin = time.monotonic()
        case(options)
        say(f"         {time.monotonic() - begin:.1f} s")

    kit.main(options, {name: lambda case=case: timed(case) for name, case in CASES.items()})


if __name__ == "__main__":
    main()
