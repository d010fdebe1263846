#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A file in other hands: programs map it, inherit it, or have it with a child, and each syncs what it
writes; or a program that knows nothing of NVCache gets it, and writes. All are killed, and the disk loses
what it has not made durable, perhaps. The pool in memory stays, as NVMM would, and recovery brings back
what was synced, and nothing older.

Exit code 77 where a file system cannot be mounted and shut down."""

import struct
import sys
import time

import kit
from kit import check
from kit.disks import run_on_power_disk, strike

PYTHON = "/usr/bin/python3"  # Debian's, which has lmdb
SLOT = 3000  # bytes: neither a page nor a part of one
SLOTS = 4
STRANGERS = 100  # what a stranger begins to count with

# What each program begins with: go_on() fills slot `me` of the file again and again, and says so when
# that is synced.
COMMON = """
import ctypes, mmap, os, random, socket, struct, subprocess, sys, time
SLOT, SLOTS = 3000, 4
def words(n): return struct.pack('<Q', n) * (SLOT // 8)
SAYS = 9  # a program's output, whatever it gives to others as theirs
def say(who, n): os.write(SAYS, b'%d %d\\n' % (who, n))
def put(fd, me, n):
    os.pwrite(fd, words(n), me * SLOT)
    os.fdatasync(fd)
    say(me, n)
def go_on(fd, me, n=0, pause=0):
    while True:
        n += 1
        put(fd, me, n)
        time.sleep(pause)
"""

# case: how many programs, and what each does. `me`: which one it is.
PROGRAMS = {
    "mapped": (2, """
fd = os.open('file', os.O_RDWR)
at = mmap.mmap(fd, SLOT * SLOTS, prot=mmap.PROT_READ)
for n in range(1, 1 << 30):
    put(fd, me, n)
    assert at[me * SLOT:(me + 1) * SLOT] == words(n)
"""),
    # The last bytes that the log has are overwritten by way of the mapping.
    "mapped_and_written": (1, """
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
fd, length = os.open('file', os.O_RDWR), ctypes.c_size_t(SLOT * SLOTS)
at = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0))
for n in range(20): put(fd, 0, n)
os.pwrite(fd, words(20), 0)
libc.mprotect(ctypes.c_void_p(at), length, mmap.PROT_READ | mmap.PROT_WRITE)
for n in range(21, 1 << 30):
    ctypes.memmove(at, words(n), SLOT)
    os.fdatasync(fd)
    say(0, n)
"""),
    "promised": (2, """
fd = os.open('file', os.O_WRONLY | os.O_DSYNC)
for n in range(1, 1 << 30):
    os.pwrite(fd, words(n), me * SLOT)
    say(me, n)
"""),
    "forked": (1, """
fd = os.open('file', os.O_RDWR)
for child in range(1, 4):
    if os.fork() == 0: go_on(fd, child)
go_on(fd, 0)
"""),
    "started": (1, """
if len(sys.argv) == 2:
    os.dup2(os.open('file', os.O_RDWR), 7)
    os.execv(sys.executable, [sys.executable, '-c', os.environ['SELF'], sys.argv[1], 'again'])
go_on(7, me)
"""),
}

# Gives the file to STRANGER, in one of these ways, when the log has something of both slots. Either that
# one syncs what it writes, or the program does, and says so.
WAYS = ("spawned", "executed_by_a_child", "passed", "output", "sent")
GIVING = """
way, lent, syncs = sys.argv[2], sys.argv[3] == 'True', sys.argv[4] == 'True'
fd = os.open('file', os.O_RDWR)
if lent: at = mmap.mmap(fd, SLOT * SLOTS, prot=mmap.PROT_READ)
for n in range(1, 10):
    for slot in (0, 1): put(fd, slot, n)
os.set_inheritable(fd, way in ('spawned', 'executed_by_a_child'))
plain = {'QUIET': str(syncs)}
stranger = [sys.executable, '-c', os.environ['STRANGER']]
if way == 'spawned':
    os.posix_spawn(sys.executable, stranger + [str(fd)], plain)
elif way == 'executed_by_a_child':
    if os.fork() == 0: os.execve(sys.executable, stranger + [str(fd)], plain)
elif way == 'passed':
    subprocess.Popen(stranger + [str(fd)], env=plain, pass_fds=[fd, SAYS])
elif way == 'output':
    subprocess.Popen(stranger + ['1'], env=plain, stdout=fd, pass_fds=[SAYS])
elif way == 'sent':
    ours, theirs = socket.socketpair()
    subprocess.Popen(stranger + [str(theirs.fileno()), 'sent'], env=plain,
                     pass_fds=[theirs.fileno(), SAYS])
    ours.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack('i', fd))])
while True:
    n += 1
    put(fd, 0, n)
    if not syncs: continue
    seen = {struct.unpack('<Q', os.pread(fd, 8, at))[0] for at in (SLOT, 2 * SLOT - 8)}
    os.fdatasync(fd)
    if len(seen) == 1: say(1, *seen)
"""
STRANGER = COMMON + """
fd = int(sys.argv[1])
if len(sys.argv) > 2:
    rights = socket.socket(fileno=fd).recvmsg(1, socket.CMSG_SPACE(4))[1]
    fd = struct.unpack('i', rights[0][2])[0]
n = 100
while os.environ['QUIET'] == 'True':
    n += 1
    os.pwrite(fd, words(n), SLOT)
    time.sleep(0.001)
go_on(fd, 1, n, 0.001)
"""

KEYS = 5
LMDB = """
import lmdb
env = lmdb.open('database', map_size=1 << 24)
for n in range(1, 1 << 30):
    with env.begin(write=True) as change:
        for key in range(5): change.put(b'%d %d' % (me, key), b'%d ' % n * (100 * key + 1))
    say(me, n)
"""
LOOK = """
import lmdb
with lmdb.open('database', map_size=1 << 24).begin() as look:
    for key, value in look.cursor():
        print(key.decode(), *sorted(set(value.decode().split())), len(value.split()))
"""


def check_slots(folder, said):
    data = (folder / "file").read_bytes()
    for me in range(SLOTS):
        said.check(me, struct.unpack(f"<{SLOT // 8}Q", data[me * SLOT:(me + 1) * SLOT]))


def play(bench, disk, choice, programs, enough, check_files):
    """`programs`: how many, their code, and with which arguments. enough(said) is true when they may be killed."""
    (disk.folder / "file").write_bytes(bytes(SLOT * SLOTS))
    disk.sync()
    bench.pool.unlink(missing_ok=True)
    said = kit.Acknowledged()
    count, code, *arguments = programs
    code = COMMON + "os.dup2(1, SAYS)\nme = int(sys.argv[1])\n" + code
    crowd = kit.Crowd(bench, disk.folder, [[PYTHON, "-c", code, me, *arguments] for me in range(count)],
                      lambda _, words: said.hear(int(words[0]), words[1]),
                      SELF=code, STRANGER=STRANGER)
    crowd.await_words(lambda: enough(said), "they have said enough")
    time.sleep(choice.uniform(0, 0.5))
    segments = strike(bench, disk, crowd, choice)
    check_files(disk.folder, said)
    return segments


def in_hands(case):
    speakers = SLOTS if case == "forked" else PROGRAMS[case][0]

    def one(bench, disk, choice):
        return play(bench, disk, choice, PROGRAMS[case],
                    lambda said: len(said) == speakers and min(said.values()) > 25, check_slots)
    return one


def given(way):
    def one(bench, disk, choice):
        programs = (1, GIVING, way, choice.random() < 0.5, choice.random() < 0.5)
        return play(bench, disk, choice, programs, lambda said: said[1] > STRANGERS + 1, check_slots)
    return one


def check_database(bench, folder, said):
    """Each change is there whole, and none is lost that was acknowledged."""
    found = {}
    for line in bench.without(PYTHON, "-c", LOOK, cwd=folder).stdout.splitlines():
        me, key, *values, count = map(int, line.split())
        check(len(values) == 1 and count == 100 * key + 1, f"a torn value: {line[:200]}")
        found.setdefault(me, []).append(values[0])
    for me in said:
        check(len(found[me]) == KEYS and len(set(found[me])) == 1, f"of {me}: {found[me]}")
        said.check(me, found[me], ahead=1)


def lmdb(count):
    def one(bench, disk, choice):
        for old in disk.folder.glob("database/*"):
            old.unlink()
        bench.without(PYTHON, "-c", "import lmdb; lmdb.open('database', map_size=1 << 24)",
                      cwd=disk.folder)
        return play(bench, disk, choice, (count, LMDB),
                    lambda said: len(said) == count and min(said.values()) > 10,
                    lambda folder, said: check_database(bench, folder, said))
    return one


CASES = {name: in_hands(name) for name in PROGRAMS} | {f"given_{way}": given(way) for way in WAYS} | {
    "lmdb": lmdb(1), "lmdb_of_three": lmdb(3)}


if __name__ == "__main__":
    run_on_power_disk(kit.arguments(__doc__, rounds=2).parse_args(), CASES, size="16M", dram="1M", write_back="auto")
