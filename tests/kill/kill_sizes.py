#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Kills a program right after a call that changes a file's size, its extents or its name, with
records in the log from before and after it; after recovery the file is what it is without NVCache:
no byte that was cut off comes back, and none that was written later is lost."""

import ctypes
import itertools
import os
import signal
import sys

import kit
from kit import check

BLOCK = 4096
SIZE = 6 * BLOCK + 100
KEEP_SIZE, PUNCH_HOLE, COLLAPSE_RANGE, ZERO_RANGE, INSERT_RANGE = 1, 2, 8, 16, 32


def fallocate(fd, mode, offset, length):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate64(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def reopen(fd, flags):
    other = os.open("file", os.O_RDWR | flags, 0o600)
    os.close(fd)
    return other


def replace(fd):
    """As editors do: the descriptor's file loses its name to another one."""
    other = os.open("other", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(other, b"replacement" * 300)
    os.rename("other", "file")
    os.close(fd)
    return other


def remove(fd):
    os.unlink("file")
    return reopen(fd, os.O_CREAT | os.O_EXCL)


def move(fd):
    os.rename("file", "moved")
    os.pwrite(fd, b"under the new name", 10)
    os.rename("moved", "file")


# Each may return another descriptor to go on with.
CALLS = {
    "ftruncate_0": lambda fd: os.ftruncate(fd, 0),
    "ftruncate_shorter": lambda fd: os.ftruncate(fd, 2 * BLOCK + 50),
    "ftruncate_longer": lambda fd: os.ftruncate(fd, 9 * BLOCK + 7),
    "ftruncate_shorter_and_longer": lambda fd: [os.ftruncate(fd, n) for n in (50, SIZE)] and None,
    "truncate_shorter": lambda fd: os.truncate("file", BLOCK - 1),
    "truncate_longer": lambda fd: os.truncate("file", 9 * BLOCK + 7),
    "open_trunc": lambda fd: reopen(fd, os.O_TRUNC),
    "fallocate": lambda fd: fallocate(fd, 0, 5 * BLOCK, 4 * BLOCK),
    "posix_fallocate": lambda fd: os.posix_fallocate(fd, 5 * BLOCK, 4 * BLOCK),
    "keep_size": lambda fd: fallocate(fd, KEEP_SIZE, 5 * BLOCK, 4 * BLOCK),
    "punch": lambda fd: fallocate(fd, PUNCH_HOLE | KEEP_SIZE, BLOCK + 10, 3 * BLOCK),
    "zero": lambda fd: fallocate(fd, ZERO_RANGE, BLOCK + 10, 8 * BLOCK),
    "collapse": lambda fd: fallocate(fd, COLLAPSE_RANGE, BLOCK, 2 * BLOCK),
    "insert": lambda fd: fallocate(fd, INSERT_RANGE, BLOCK, 2 * BLOCK),
    "rename_over": replace,
    "rename_away_and_back": move,
    "unlink": remove,
}

# When the program kills itself: after the call, a write over it, or one more call and write.
MOMENTS = ("call", "write", "again")
# With these rules a file has to be hot.
HOT = {"always": False, "exclusive": True, "auto": True}


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def program(name, moment, hot):
    """What is run, in a process of its own."""
    call = CALLS[name]

    def change(fd):
        other = call(fd)
        return fd if other is None else other

    fd = os.open("file", os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(2 if hot else 0):
        os.fsync(fd)
    for block in range(7):
        os.pwrite(fd, bytes([ord("a") + block]) * min(BLOCK, SIZE - block * BLOCK), block * BLOCK)
    os.pwrite(fd, b"across two blocks", 2 * BLOCK - 5)
    fd = change(fd)
    if moment == "call":
        die()
    os.pwrite(fd, b"later" * 10, BLOCK - 20)
    os.pwrite(fd, b"later still", 3 * BLOCK + 1)
    if moment == "write":
        die()
    fd = change(fd)
    os.pwrite(fd, b"the last word", 17)
    die()


# The cleanup thread does nothing by itself, or all it can.
PACES = {"late": kit.LATE, "early": kit.EARLY}


def case(options, name, rule):
    with kit.Bench(options, size="4M", dram="1M", write_back=rule) as bench:
        for moment, (pace, env) in itertools.product(MOMENTS, PACES.items()):
            where = f"{rule}, killed after \"{moment}\", {pace} write-back"
            found = {}
            for cache in (False, True):
                folder = bench.folder / f"{moment}-{pace}-{cache}"
                folder.mkdir()
                done = bench.run([sys.executable, __file__, "--program", name, moment, *(["hot"] if HOT[rule] else [])], cache,
                                 cwd=folder, env=env, may_fail=True)
                check(done.returncode == -signal.SIGKILL,
                      f"{where}: exit code {done.returncode}: {done.stderr[-2000:]}")
                if cache and pace == "late" and moment != "call" and not HOT[rule]:
                    check(bench.pending() > 0, f"{where}: nothing was pending")
                if cache:
                    bench.recover()
                found[cache] = kit.contents(folder)
            check(sorted(found[True]) == sorted(found[False]),
                  f"{where}: {sorted(found[True])}, without NVCache {sorted(found[False])}")
            for file, expected in found[False].items():
                got = found[True][file]
                check(got == expected,
                      f"{where}: {file} has {len(got)} bytes, without NVCache {len(expected)}; "
                      f"they differ from byte {kit.first_difference(got, expected)} on")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--program"]:
        program(sys.argv[2], sys.argv[3], "hot" in sys.argv)
    arguments = kit.arguments(__doc__).parse_args()
    kit.main(arguments, {name: lambda name=name: [case(arguments, name, rule) for rule in HOT] for name in CALLS})
