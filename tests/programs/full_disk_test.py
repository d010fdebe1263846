# SPDX-License-Identifier: BSD-3-Clause
"""A disk that becomes full. What a write has acknowledged is readable, at once, after the end and
after kill -9 and recovery; and no more is acknowledged than the disk takes, no much less either.

Each case runs on small file systems of its own, which only root can mount; else they are skipped.
"""

import json
import os
import sys

import kit
from kit import MIB, Failure, check, say, skip
from kit.disks import Mount, own_mounts

# The writer. Prints what was acknowledged: name, offset, length of each write.
WRITER = r'''
import errno, json, os, signal, sys
case = sys.argv[1]
period = bytes((i * 7 + 13) % 251 for i in range(251)) * 4200
done = []
def put(fd, name, length, offset=None):
    at = os.lseek(fd, 0, os.SEEK_CUR) if offset is None else offset
    data = period[at % 251:at % 251 + length]
    try:
        n = os.write(fd, data) if offset is None else os.pwrite(fd, data, offset)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return 0
    done.append((name, at, n))
    return n
def create(name, size=0):
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    if size:
        os.ftruncate(fd, size)
    return fd
room = os.statvfs(".").f_bavail * os.statvfs(".").f_bsize
if case == "append":
    fd = create("a")
    while put(fd, "a", 1000):
        pass
elif case == "kill":  # nearly full
    fd = create("a")
    while len(done) < room * 0.95 / 1000 and put(fd, "a", 1000):
        pass
elif case == "large":
    fd = create("a")
    while put(fd, "a", 1000000):
        pass
elif case == "holes":
    fd = create("a", room * 4)
    at = 0
    while put(fd, "a", 4096, at):
        at += 8192
    put(fd, "a", 4096, 0)  # has its block
elif case == "holes_small":
    fd = create("a", room * 8)
    at = 0
    while put(fd, "a", 100, at):
        at += 8192
elif case == "gaps":
    fd = create("a")
    at = 0
    while put(fd, "a", 4096, at):
        at += 3 * 4096
elif case == "two":
    a, b = create("a", room * 4), create("b")
    at = 0
    while put(a, "a", 3000, at) and put(b, "b", 5000):
        at += 4096
elif case == "far":
    fd = create("a")
    if not put(fd, "a", 1, 1 << 30):
        sys.exit("a single byte does not fit")
elif case == "punched":
    fd = create("a")
    while put(fd, "a", 4096):
        pass
    os.ftruncate(fd, 4096)
    size = done[-1][1]
    del done[1:]
    os.ftruncate(fd, size)
    b = create("b")
    while put(b, "b", 100000):
        pass
    at = 4096
    while put(fd, "a", 4096, at):
        at += 4096
elif case == "goes_on":
    fd = create("a")
    while put(fd, "a", 4000):
        pass
    os.unlink("ballast")
    more = 0
    while put(fd, "a", 4000):
        more += 1
    if more < 10:
        sys.exit("it does not go on: %d" % more)
for name, at, n in done[-50:]:
    fd = os.open(name, os.O_RDONLY)
    if os.pread(fd, n, at) != period[at % 251:at % 251 + n]:
        sys.exit("%s at %d is not what was written" % (name, at))
print(json.dumps([room, done]), flush=True)
if case == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
'''

CASES = ("append", "large", "holes", "holes_small", "gaps", "two", "far", "punched", "goes_on",
         "kill")


def check_content(folder, room, done):
    """Returns the bytes that take room, in pages of 4 KiB."""
    period = bytes((i * 7 + 13) % 251 for i in range(251)) * 4200
    pages = set()
    for name, at, n in done:
        with open(folder / name, "rb") as file:
            file.seek(at)
            check(file.read(n) == period[at % 251:at % 251 + n],
                  f"{name} at {at} is not what was acknowledged")
        pages.update((name, page) for page in range(at // 4096, (at + n - 1) // 4096 + 1))
    return len(pages) * 4096


def mount(bench, kind, size):
    return Mount(bench.folder / "image", bench.folder / "mount", kind, size=size)


def run_case(bench, kind, size, case):
    taken = {}
    for cache in (False, True):
        with mount(bench, kind, size) as mounted:
            folder = mounted.folder
            with open(folder / "ballast", "wb") as ballast:
                ballast.write(bytes(size // 10))
                os.fsync(ballast.fileno())
            done = bench.run([sys.executable, "-c", WRITER, case], cache, cwd=folder, may_fail=True,
                             env={"NVCACHE_INCLUDE": f"{folder}/*"})
            wanted = -9 if case == "kill" else 0
            check(done.returncode == wanted, f"exit code {done.returncode}: {done.stderr[-2000:]}")
            if cache:
                check("refuses" not in done.stderr, done.stderr)
                if case == "kill":
                    bench.recover()
                bench.check_drained()
            taken[cache] = check_content(folder, *json.loads(done.stdout))
            mounted.unmount()
    say(f"{kind} {case}: {taken[False]} bytes without, {taken[True]} with")
    check(taken[True] >= taken[False] * 0.9, "much less was accepted")


def main():
    options = kit.arguments(__doc__).parse_args()
    if not own_mounts():
        skip("only root can mount a file system", must_run_in_ci=False)
    kind, megabytes = options.cases[0].split("_")
    size = int(megabytes) * MIB
    with kit.Bench(options, size="64M") as bench:
        try:
            mount(bench, kind, size).unmount()
        except (Failure, FileNotFoundError) as problem:
            skip(f"{kind} cannot be mounted: {problem}", must_run_in_ci=False)
        options.cases = []
        kit.main(options, {case: lambda case=case: run_case(bench, kind, size, case) for case in CASES})


main()
