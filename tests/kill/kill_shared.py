#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Several processes write to the same files, each syncs what it has written or read, and all are
killed; one of them is killed earlier, or ends, perhaps. Then the disk loses what it has not made durable, the pool in
memory stays, as NVMM would, and the next boot recovers. Whatever was synced is there.

Exit code 77 where a file system cannot be mounted and shut down."""

import functools
import struct
import sys
import time

import kit
from kit import check
from kit.disks import run_on_power_disk, strike

AGENTS = 3
LEDGERS = 2
PLACES = 4  # in a ledger
SLOT = 3000  # bytes: neither a page nor a part of one
ENTRY = 64
BLOB = 150000  # more than a segment

AGENT = """
import fcntl, mmap, os, random, signal, struct, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
seed, me, agents, odd = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
choice = random.Random(seed * 100 + me)
SLOT, ENTRY, BLOB = 3000, 64, 150000
slots = os.open('slots', os.O_RDWR)
def open_log(names=('log', 'log.1')):  # another agent may rename it just now
    try: return os.open(names[0], os.O_RDWR | os.O_APPEND)
    except FileNotFoundError: return open_log(names[::-1])
log = open_log()
turn = os.open('turn', os.O_RDWR)
big = os.open('big', os.O_RDWR | os.O_APPEND)
done = {'s': 0, 'l': 0, 'b': 0}
# Read by now, so that a kill does not lose what was said.
def say(kind, n): os.write(1, b'%s %d %d\\n' % (kind.encode(), me, n))
def slot():
    n = done['s'] = done['s'] + 1
    os.pwrite(slots, struct.pack('<Q', n) * (SLOT // 8), me * SLOT)
    os.fdatasync(slots)
    say('s', n)
def synced_slot():
    n = done['s'] = done['s'] + 1
    os.pwritev(slots, [struct.pack('<Q', n) * (SLOT // 8)], me * SLOT, os.RWF_DSYNC)
    say('s', n)
def entry():
    n = done['l'] = done['l'] + 1
    os.write(log, struct.pack('<QQ', me + 1, n) * (ENTRY // 16))
    os.fdatasync(log)
    say('l', n)
def blob():
    n = done['b'] = done['b'] + 1
    os.write(big, struct.pack('<QQ', me + 1, n) * (BLOB // 16))
    os.fdatasync(big)
    say('b', n)
def count():
    fcntl.lockf(turn, fcntl.LOCK_EX, 8)
    n = struct.unpack('<Q', os.pread(turn, 8, 0))[0] + 1
    os.pwrite(turn, struct.pack('<Q', n) * (SLOT // 8), 0)
    fcntl.lockf(turn, fcntl.LOCK_UN, 8)
    os.fdatasync(turn)
    say('t', n)
def look():
    n = struct.unpack('<Q', os.pread(turn, 8, 0))[0]
    os.fsync(turn)
    say('t', n)
def grow(): os.ftruncate(slots, max(os.fstat(slots).st_size, choice.randrange(1 << 16)))
def allocate(): os.posix_fallocate(slots, 0, choice.randrange(1, 1 << 16))
def syncs(): os.sync()
def moves():
    if me == 0 and os.path.exists('log'): os.rename('log', 'log.1')
    elif me == 0: os.rename('log.1', 'log')
mapped = None
def maps():
    global mapped
    if mapped is None: mapped = mmap.mmap(slots, 1 << 16) if os.fstat(slots).st_size >= 1 << 16 else None
    if mapped is None: return
    n = done['s'] = done['s'] + 1
    mapped[me * SLOT:(me + 1) * SLOT] = struct.pack('<Q', n) * (SLOT // 8)
    mapped.flush()
    say('s', n)
# A ledger is one agent's at a time: it becomes cached, and the next one wants it.
taken = os.open('taken', os.O_RDWR)
def put(ledger, n): os.pwrite(ledger, struct.pack('<Q', n) * (SLOT // 8), n % 4 * SLOT)
has = None
def hand():
    global has
    if has is not None:
        if choice.random() < 0.9: return
        os.close(has[0])
        fcntl.lockf(taken, fcntl.LOCK_UN, 1, has[1])
        has = None
        return
    which = choice.randrange(2)
    try: fcntl.lockf(taken, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, which)
    except OSError: return
    ledger = os.open(f'ledger.{which}', os.O_RDWR)
    has = ledger, which
    found = os.pread(ledger, 4 * SLOT, 0)
    n = max(struct.unpack(f'<{len(found) // 8}Q', found), default=0)
    # An agent may have been killed in the midst of the last one.
    for n in range(n, n + choice.randrange(2, 12)):
        put(ledger, n)
        os.fdatasync(ledger)
        say(f'h{which}', n)
# Whoever has it cached gives it back, and goes on.
def peek():
    ledger = os.open(f'ledger.{choice.randrange(2)}', os.O_RDONLY)
    os.pread(ledger, 4 * SLOT, 0)
    os.close(ledger)
def rest(): time.sleep(choice.random() * 0.02)
usual = [slot, entry, count, look]
rare = [globals()[name] for name in odd]
often = 0.95 if rest in rare else 0.02
while True:
    if choice.random() < 0.01 and os.fstat(big).st_size < 10 << 20: blob()
    choice.choice(rare if rare and choice.random() < often else usual)()
"""


def words(data):
    return struct.unpack(f"<{len(data) // 8}Q", data[:len(data) // 8 * 8])


def check_files(folder, said):
    slots = (folder / "slots").read_bytes()
    for me in range(AGENTS):
        said.check(("s", me), words(slots[me * SLOT:(me + 1) * SLOT].ljust(SLOT, b"\0")), ahead=1)
    said.check("t", words((folder / "turn").read_bytes()))
    log = words(next(path for path in (folder / "log", folder / "log.1") if path.exists()).read_bytes())
    entries = [log[at:at + ENTRY // 8] for at in range(0, len(log), ENTRY // 8)]
    for me in range(AGENTS):
        of_me = [entry[1] for entry in entries
                 if len(entry) == ENTRY // 8 and entry == (me + 1, entry[1]) * (ENTRY // 16)]
        synced = said["l", me]
        check(of_me[:synced] == list(range(1, synced + 1)),
              f"log: of agent {me}, who has synced {synced}, {len(of_me)} are there, "
              f"the last ones {of_me[-3:]}")
    check_blobs(words((folder / "big").read_bytes()), said)
    for which in range(LEDGERS):
        check_ledger(which, (folder / f"ledger.{which}").read_bytes(), said[f"h{which}"])


def check_ledger(which, data, synced):
    """The number n is in place n % PLACES. Behind the last one that was synced, one may be there."""
    for place in range(PLACES):
        last = synced - (synced - place) % PLACES
        found = set(words(data[place * SLOT:(place + 1) * SLOT].ljust(SLOT, b"\0")))
        allowed = {max(last, 0)} | ({synced + 1} if (synced + 1) % PLACES == place else set())
        check(found <= allowed, f"ledger.{which}: {sorted(found)} in place {place}, but "
                                f"{synced} was synced")


def check_blobs(found, said):
    """Each is whole, wherever it lies, but for those that were being written."""
    length = BLOB // 8
    whole, at = set(), 0
    while at + length <= len(found):
        if found[at:at + length] == found[at:at + 2] * (length // 2):
            whole.add(found[at:at + 2])
            at += length
        else:
            at += 1
    for me in range(AGENTS):
        synced = said["b", me]
        missing = [n for n in range(1, synced + 1) if (me + 1, n) not in whole]
        check(not missing, f"big: of agent {me}, who has synced {synced}, {missing} are not there, or not "
                           "in one piece")


ODD = {
    "plain": [],
    "past": ["grow", "allocate", "synced_slot"],
    "sync": ["syncs"],
    "renamed": ["moves"],
    "mapped": ["grow", "maps"],
    "handed": ["hand", "peek", *["rest"] * 8],
    "all": ["grow", "allocate", "synced_slot", "syncs", "moves", "maps", "hand", "peek"],
}


def play(bench, disk, choice, odd):
    for name, size in (("slots", AGENTS * SLOT), ("log", 0), ("turn", SLOT), ("big", 0), ("taken", LEDGERS),
                       *((f"ledger.{which}", 0) for which in range(LEDGERS))):
        (disk.folder / name).write_bytes(bytes(size))
    (disk.folder / "log.1").unlink(missing_ok=True)
    disk.sync()
    bench.pool.unlink(missing_ok=True)
    said = kit.Acknowledged()

    def hear(_, words):
        kind, me, n = words
        said.hear(kind if kind[0] in "th" else (kind, int(me)), n)

    commands = [[sys.executable, "-c", AGENT, choice.randrange(10**9), me, AGENTS, *odd] for me in range(AGENTS)]
    crowd = kit.Crowd(bench, disk.folder, commands, hear)
    time.sleep(choice.uniform(0.2, 1.5))
    one_first = choice.choice((crowd.kill_one, crowd.end_one)) if choice.random() < 0.7 else None
    segments = strike(bench, disk, crowd, choice, one_first)
    check_files(disk.folder, said)
    return segments


if __name__ == "__main__":
    run_on_power_disk(kit.arguments(__doc__, rounds=4).parse_args(),
                      {case: functools.partial(play, odd=odd) for case, odd in ODD.items()},
                      size="16M", dram="1M", write_back="auto")
