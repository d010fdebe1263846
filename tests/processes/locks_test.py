#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A process that brings to the files what a dead one has left keeps its own POSIX locks of them.

Two programs (agent.c) share a file. One locks it; the other is killed, and has left records of it.

    locks_test.py --nvcache build/nvcache --agent A --scratch DIR [CASE ...]"""

import fcntl
import os
import pathlib
import struct

import kit
from kit import LATE, check, until

CREATE = os.O_RDWR | os.O_CREAT
WANTED = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class Bench(kit.Bench):
    def __init__(self, options):
        super().__init__(options, size="16M", dram="1M", write_back="auto")
        self.program = str(pathlib.Path(options.agent).resolve())

    def start(self):
        return self.agent(self.cached([self.program]), cwd=self.folder, env={**os.environ, **LATE, "NVCACHE_NOTICE": "0"})

    def owner_of_lock(self):
        """Of the file: 0 if there is none."""
        with open(self.folder / "f", "r+b") as file:
            found = struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, WANTED))
        return 0 if found[0] == fcntl.F_UNLCK else found[4]

    def check_locked(self, agent, when):
        found = self.owner_of_lock()
        check(found == agent.pid, f"{when}: the lock of process {agent.pid} is {found or 'nobody'}'s")

    def kill(self, victim):
        """With another file in its cache: whoever opens that hears of the death."""
        write(victim, 1, "cached")
        check(victim.pid in self.states() and self.pending() > 0, "nothing is in its log")
        victim.kill()

    def await_adoption(self, victim):
        until(lambda: victim.pid not in self.states(), "what the dead process has left is in the file")
        for name in ("f", "cached"):
            found = (self.folder / name).read_bytes()
            check(all(found[1000 * byte:1000 * byte + 300] == bytes([byte]) * 300 for byte in range(1, 5)),
                  f"bytes of {name} are lost")


def write(agent, slot, name):
    """Often enough that it is in the agent's log."""
    agent.must(f"open {slot} {name} {CREATE}", slot)
    for byte in range(1, 5):
        agent.must(f"pwrite {slot} {1000 * byte} 300 {byte}", "300")
        agent.must(f"fsync {slot}", "0")


def begin(bench):
    """The victim has a file in its cache, which it publishes when the other one opens it, and locks it."""
    victim, locker = bench.start(), bench.start()
    write(victim, 0, "f")
    locker.must(f"open 0 f {os.O_RDWR}", "0")
    locker.must(f"lock 0 {fcntl.F_WRLCK}", "0")
    bench.check_locked(locker, "taken")
    return locker, victim


def attached(options):
    """The locker uses the pool, and adopts the dead one's seat."""
    with Bench(options) as bench:
        locker, victim = begin(bench)
        write(locker, 2, "own")
        check(locker.pid in bench.states(), "the locker does not use the pool")
        bench.kill(victim)
        locker.must(f"open 1 cached {os.O_RDWR}", "1")
        bench.await_adoption(victim)
        bench.check_locked(locker, "adopted")
        locker.await_end()


def unattached(options):
    """The locker has used no pool yet; it recovers that of the dead one."""
    with Bench(options) as bench:
        locker, victim = begin(bench)
        bench.kill(victim)
        check(locker.pid not in bench.states(), "the locker uses the pool")
        write(locker, 2, "own")
        bench.await_adoption(victim)
        bench.check_locked(locker, "recovered")
        locker.await_end()


def executed(options):
    """POSIX locks stay when a program is replaced; the next one recovers the pool as it starts."""
    with Bench(options) as bench:
        locker, victim = begin(bench)
        bench.kill(victim)
        locker.must("exec", "0")
        bench.await_adoption(victim)
        bench.check_locked(locker, "recovered at the start")
        locker.await_end()


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--agent", required=True, help="processes_agent")
    options = parser.parse_args()
    kit.main(options, kit.cases_of((attached, unattached, executed), options))


if __name__ == "__main__":
    main()
