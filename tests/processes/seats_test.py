#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Many processes in one pool: each has a seat, and what a dead one leaves, others bring to the files.

Programs (seat.c) write what can be computed here, and say in shared memory how much of it was
acknowledged. After each case every file has exactly these bytes; of a program that was killed, the
write that it was in may be there as well, whole.

    seats_test.py --nvcache build/nvcache --library L --seat S --scratch DIR [--seed N] [--long] [CASE ...]

Exit code 77 where a case cannot be run: strace may not be there, or the user is not root."""

import mmap
import os
import pathlib
import random
import shutil
import signal
import stat
import struct
import subprocess
import threading
import time

import kit
from kit import LATE, check, children, end_all, first_difference, say, skip, state_of

PATIENCE = 120  # seconds for an end
STOP = 0        # the word of the memory that ends the bursts
WORDS = 2048
PAGE = 4096
PROGRAM = "processes_seat"


def until(condition, what):
    kit.until(condition, what, PATIENCE)


def block(size, seed, number):
    return struct.pack("<QQ", seed, number) * (size // 16)


def describe(found, wanted):
    """The first difference."""
    sizes = "" if len(found) == len(wanted) else f"{len(found)} bytes, not {len(wanted)}; "
    at = first_difference(found, wanted)
    if at == min(len(found), len(wanted)):
        return sizes + "what both have is the same"

    def pair(content):
        start = at // 16 * 16
        return struct.unpack("<QQ", content[start:start + 16].ljust(16, b"\0"))
    count = sum(x != y for x, y in zip(found, wanted))
    return (f"{sizes}{count} bytes differ, the first one at {at}: (seed, number) is "
            f"{pair(found)}, not {pair(wanted)}")


def check_same(found, wanted, what):
    if found != wanted:
        raise kit.Failure(f"{what}: {describe(found, wanted)}")


class Content:
    """A file that bursts write, and what it has to hold after so many blocks."""

    def __init__(self, path, index, seed, size=PAGE, span=16):
        self.path, self.index, self.seed, self.size, self.span = path, index, seed, size, span
        self.base = b""
        self.start = 0

    def words(self, count):
        return f"burst {self.path} {self.index} {self.size} {self.span} {self.start} {count} {self.seed}"

    def after(self, count):
        content = bytearray(self.base)
        for i in range(max(0, count - self.span), count):
            number = self.start + i
            at = number % self.span * self.size
            if len(content) < at:
                content.extend(bytes(at - len(content)))
            content[at:at + self.size] = block(self.size, self.seed, number)
        return bytes(content)

    def check(self, found, count, killed=False):
        wanted = [self.after(count)] + ([self.after(count + 1)] if killed else [])
        if found not in wanted:
            raise kit.Failure(f"{self.path.name}, {count} writes acknowledged: "
                                  f"{describe(found, wanted[0])}")

    def check_disk(self, count, killed=False):
        self.check(self.path.read_bytes() if self.path.exists() else b"", count, killed)

    def goes_on(self, found, count):
        """From here on, another program may write to it."""
        self.base = found
        self.start += count + 1


class Bench(kit.Bench):
    def __init__(self, options, size="16M"):
        super().__init__(options, size=size, dram="1M")
        self.preload_library = pathlib.Path(options.preload).resolve()
        self.seat = str(pathlib.Path(options.seat).resolve())
        self.memory_path = self.pools / "memory"
        self.memory_path.write_bytes(bytes(8 * WORDS))
        with open(self.memory_path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 8 * WORDS)
        self.copies = 0

    def start(self, *words, prefix=(), **settings):
        environment = self.settings(NVCACHE_NOTICE="0", **settings)
        command = [self.seat, self.memory_path, *words]
        if prefix:  # it shall not have the cache itself
            command = [*prefix, "env", *(f"{k}={v}" for k, v in environment.items()), *command]
            environment = {}
        return self.agent(command, env={**os.environ, **environment})

    def make_pool(self):
        """Beforehand: of many that come at once, each may set room aside for a pool of its own."""
        self.without(self.nvcache, "create", self.pool, "--size", self.size, "--emulate")

    def once(self, *words, **settings):
        """A short program, to its end."""
        agent = self.start(*words, **settings)
        agent.await_end()
        return agent

    def acknowledged(self, index):
        return struct.unpack_from("<Q", self.memory, 8 * index)[0]

    def set(self, index, value):
        struct.pack_into("<Q", self.memory, 8 * index, value)

    def content(self, name, index, seed, **more):
        self.set(index, 0)
        return Content(self.folder / name, index, seed, **more)

    def seen_by(self, agent, path, flags=os.O_RDONLY):
        """What another program reads."""
        self.copies += 1
        to = self.pools / f"copy{self.copies}"
        answer = agent.call(f"copy {path} {to} {flags}")
        if answer.endswith("ENOENT"):
            return b""
        check(answer.isdigit(), f"copy {path.name}: {answer}")
        content = to.read_bytes()
        to.unlink()
        return content

    def seats(self):
        return self.status()["processes"]

    def pids(self):
        return set(self.states())

    def check_pids(self, wanted):
        """These processes have a seat, and no others."""
        check(self.pids() == wanted, f"seats: {self.pids()}, not {wanted}")

    def check_clean(self):
        """No seat is left. A process that does not get the gate in time leaves its seat to others."""
        if self.status()["state"] != "clean":
            say(f"         a seat was left to be found: {self.seats()}")
            self.once(f"append {self.folder / 'last'} {WORDS - 1} 16 0 1")
        super().check_clean()


def check_disks(contents, count, killed=False):
    for content in contents:
        content.check_disk(count, killed)


def write_all(agents, contents, count):
    """At the same time."""
    for agent, content in zip(agents, contents):
        agent.tell(content.words(count))
    for agent, content in zip(agents, contents):
        found = agent.answer()
        check(found == str(count), f"{content.path.name}: {found}, not {count}")


# ---------------------------------------------------------------------------------------------
# Many.


def many(options, draw):
    n = 500 if options.long else 100
    with Bench(options, size="1G" if options.long else "64M") as bench:
        bench.make_pool()
        agents = [bench.start(**LATE) for _ in range(n)]
        contents = [bench.content(f"f{i}", i + 1, draw.randrange(1 << 40), span=4) for i in range(n)]
        write_all(agents, contents, 6)
        seats = {seat["pid"]: seat for seat in bench.seats()}
        missing = [agent.pid for agent in agents if agent.pid not in seats]
        check(not missing and len(seats) == n, f"{len(seats)} seats; {len(missing)} processes have none")
        for agent, content in zip(agents, contents):
            seat = seats[agent.pid]
            check(seat["program"] == PROGRAM and seat["state"] == "alive", f"status: {seat}")
            check(seat["pending_files"] == 1 and seat["pending_records"] >= 6
                  and seat["pending_bytes"] >= 6 * PAGE, f"{content.path}: status: {seat}")
        # Half of them are killed: that what they have written was durable must show.
        dead = draw.sample(range(n), n // 2)
        for i in dead:
            agents[i].process.kill()
        for i in dead:
            agents[i].process.wait()
        alive = [i for i in range(n) if i not in dead]
        end_all([agents[i] for i in alive])
        reader = bench.start()
        for i in dead:
            contents[i].check(bench.seen_by(reader, contents[i].path), 6)
        reader.await_end()
        check_disks(contents, 6)
        bench.check_clean()


def more_than_seats(options, draw):
    with Bench(options, size="1M") as bench:
        agents = [bench.start() for _ in range(6)]
        late = [bench.start() for _ in range(4)]
        contents = [bench.content(f"f{i}", i + 1, draw.randrange(1 << 40), span=4) for i in range(14)]
        write_all(agents, contents, 6)
        write_all(late, contents[6:], 6)
        bench.check_pids({agent.pid for agent in agents})
        for content in contents[6:10]:
            content.check_disk(6)
        end_all(agents)
        write_all(late, contents[10:], 5)
        bench.check_pids({agent.pid for agent in late})
        end_all(late)
        for i, content in enumerate(contents):
            content.check_disk(6 if i < 10 else 5)
        bench.check_clean()


def come_and_go(options, draw):
    each = 750 if options.long else 75
    problems = []
    with Bench(options) as bench:
        contents = [[bench.content(f"g{loop}.{i}", loop + 1, draw.randrange(1 << 40))
                     for i in range(each)] for loop in range(4)]

        def run(loop):
            try:
                for content in contents[loop]:
                    bench.once(content.words(1))
                    content.check_disk(1)
            except (kit.Failure, OSError) as problem:
                problems.append(f"loop {loop}: {problem}")

        threads = [threading.Thread(target=run, args=(loop,)) for loop in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check(not problems, "\n".join(problems))
        check_disks(sum(contents, []), 1)
        bench.check_clean()


# ---------------------------------------------------------------------------------------------
# The dead.


def killed(options, draw):
    """One of several writers, at any moment. The others go on."""
    writers = 4
    with Bench(options, size="4M") as bench:
        def new(i, name):
            return bench.content(name, i + 1, draw.randrange(1 << 40), span=draw.choice([4, 16, 100]),
                                 size=draw.choice([PAGE, 1008, 16, 20000]))
        contents = [new(i, f"w{i}") for i in range(writers)]
        agents = [bench.start(**draw.choice([LATE, {}])) for _ in range(writers)]
        for agent, content in zip(agents, contents):
            agent.tell(content.words(0))
        reader = bench.start()
        for n in range(600 if options.long else 60):
            time.sleep(draw.random() * 0.05)
            i = draw.randrange(writers)
            agents[i].kill()
            count = bench.acknowledged(i + 1)
            # By one that is there, with the file for itself or not; or by one that comes.
            fresh = draw.random() < 0.3
            other = bench.start() if fresh else reader
            found = bench.seen_by(other, contents[i].path, draw.choice([os.O_RDONLY, os.O_RDWR]))
            try:
                contents[i].check(found, count, killed=True)
            except kit.Failure as problem:
                raise kit.Failure(f"kill {n}, read by {'a new' if fresh else 'the old'} process: "
                                      f"{problem}") from None
            # If it had nothing in its cache, nobody need look for its seat before the next one comes.
            left = [seat for seat in bench.seats() if seat["pid"] == agents[i].pid and
                    (fresh or seat["pending_records"] > 0 or count > 0)]
            check(not left, f"kill {n}, {count} writes acknowledged, read by "
                            f"{'a new' if fresh else 'the old'} process: the dead has a seat still: {left}")
            if fresh:
                other.await_end()
            if draw.random() < 0.5:
                contents[i].goes_on(found, count)
                bench.set(i + 1, 0)
            else:
                contents[i] = new(i, f"w{i}.{n}")
            agents[i] = bench.start(**draw.choice([LATE, {}]))
            agents[i].tell(contents[i].words(0))
        until(lambda: all(bench.acknowledged(i + 1) for i in range(writers)), "each has written")
        pids = bench.pids()
        check(pids >= {agent.pid for agent in agents}, "not all of those that write have a seat in the end")
        bench.set(STOP, 1)
        counts = [int(agent.answer()) for agent in agents]
        end_all([*agents, reader])
        for content, count in zip(contents, counts):
            content.check_disk(count)
        bench.check_clean()


def killed_all(options, draw):
    for n in range(60 if options.long else 6):
        with Bench(options, size=draw.choice(["1M", "4M", "16M"])) as bench:
            contents = [bench.content(f"w{i}", i + 1, draw.randrange(1 << 40),
                                      span=draw.choice([4, 100])) for i in range(4)]
            agents = [bench.start(**draw.choice([LATE, {}])) for _ in contents]
            for agent, content in zip(agents, contents):
                agent.tell(content.words(0))
            time.sleep(draw.random() * 0.3)
            for agent in agents:
                agent.process.kill()
            for agent in agents:
                agent.process.wait()
            if bench.pool.exists():
                bench.recover()
            for content in contents:
                content.check_disk(bench.acknowledged(content.index), killed=True)
            if bench.pool.exists():
                bench.check_clean()
            say(f"         round {n}: {[bench.acknowledged(c.index) for c in contents]} writes")


# ---------------------------------------------------------------------------------------------
# The stopped.


def stopped(options, draw):
    with Bench(options, size="4M") as bench:
        sleeper = bench.start(**LATE)
        own = bench.content("sleeper", 1, draw.randrange(1 << 40), span=100)
        sleeper.must(own.words(100), 100)
        sleeper.stop()
        contents = []
        rounds = 20 if options.long else 4
        for n in range(rounds):
            agents = [bench.start() for _ in range(3)]
            some = [bench.content(f"f{n}.{i}", i + 2, draw.randrange(1 << 40), span=1000) for i in range(3)]
            write_all(agents, some, 1500)
            check(bench.pids() >= {sleeper.pid, *(agent.pid for agent in agents)}, f"seats: {bench.pids()}")
            end_all(agents)
            contents += some
            check_disks(some, 1500)
        taken = bench.status()["statistics"]["segments_taken"]
        check(taken > 3 * bench.status()["segments"],
              f"{taken} segments were taken: the pool was not filled several times")
        sleeper.go_on()
        more = bench.content("more", 2, draw.randrange(1 << 40), span=50)
        sleeper.must(more.words(200), 200)
        sleeper.await_end()
        own.check_disk(100)
        more.check_disk(200)
        check_disks(contents, 1500)
        bench.check_clean()


def stopped_with_all(options, draw):
    """Those that are stopped have nearly all segments: the others do not wait for them."""
    # 64 KiB, a segment, have some 15 pages; the pool has 12 segments and 6 seats.
    for count, pages in ((3, 28), (5, 10)):
        with Bench(options, size="1M") as bench:
            def some(name, n, first, span, bench=bench):
                return [bench.content(f"{name}{i}", first + i, draw.randrange(1 << 40), span=span)
                        for i in range(n)]
            sleepers = [bench.start(**LATE) for _ in range(count)]
            owns = some("s", count, 1, 1000)
            write_all(sleepers, owns, pages)
            for agent in sleepers:
                agent.stop()
            contents = some("f", 2, 100, 500)
            agents = [bench.start() for _ in contents]
            write_all(agents, contents, 700)
            end_all(agents)
            check_disks(contents, 700)
            say(f"         {count} stopped: {bench.counter('pass_through_files')} files of others passed through")
            for agent in sleepers:
                agent.go_on()
            more = some("m", count, 200, 50)
            write_all(sleepers, more, 60)
            end_all(sleepers)
            check_disks(owns, pages)
            check_disks(more, 60)
            bench.check_clean()


# ---------------------------------------------------------------------------------------------
# Killed at bad moments.


def check_after_kills(bench, contents):
    """By one that comes, which replays what is left; and then on the disk."""
    reader = bench.start()
    for content in contents:
        found = bench.seen_by(reader, content.path, os.O_RDWR)
        content.check(found, bench.acknowledged(content.index), killed=True)
    anchor = bench.content("anchor", WORDS - 2, 7)
    reader.must(anchor.words(3), 3)
    check(reader.pid in bench.pids(), "one that comes gets no seat")
    reader.await_end()
    anchor.check_disk(3)
    anchor.path.unlink()
    for content in contents:
        content.check_disk(bench.acknowledged(content.index), killed=True)


def killed_midway(options, draw):
    """Short programs, killed after random times: while they come, write, replay or leave."""
    with Bench(options, size="4M") as bench:
        lives = bench.start(**LATE)  # so that the pool is in use, half of the time
        own = bench.content("own", 1, draw.randrange(1 << 40), span=50)
        lives.must(own.words(50), 50)
        began = time.monotonic()
        for _ in range(5):
            bench.once(f"append {bench.folder / 'measured'} 2 16 0 1")
        usual = (time.monotonic() - began) / 5
        ended = number = 0
        for n in range(400 if options.long else 40):
            some = [bench.content(f"f{number + i}", 10 + i, draw.randrange(1 << 40)) for i in range(4)]
            number += 4
            times = [draw.random() * 1.5 * usual for _ in some]
            settings = [draw.choice([LATE, {}]) for _ in some]
            counts = [draw.choice([1, 5]) for _ in some]

            def run(i, some=some, times=times, settings=settings, counts=counts):
                nonlocal ended
                agent = bench.start(some[i].words(counts[i]), **settings[i])
                time.sleep(times[i])
                ended += agent.process.poll() is not None
                agent.kill()

            threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if n % 4 == 3 or n == 20:
                check_after_kills(bench, some)
            else:
                for content in some:
                    # One that comes, and opens nothing for writing, replays as well.
                    if content.path.exists():
                        bench.once(f"copy {content.path} {bench.pools / 'copy'} {os.O_RDONLY}")
                    content.check_disk(bench.acknowledged(content.index), killed=True)
            bench.agents = [agent for agent in bench.agents if agent.process.poll() is None]
            if n == 20:
                lives.await_end()
                own.check_disk(50)
        say(f"         {ended} of {number} had ended before they were killed")
        bench.check_clean()


CALLS = "openat,fcntl,flock,mmap,munmap,fallocate,linkat,clone,futex,pwrite64,ftruncate,fsync,fdatasync,close,exit_group"


def needs_strace():
    if shutil.which("strace") is None:
        skip("there is no strace")
    done = subprocess.run(["strace", "-f", "-o", "/dev/null", "true"], check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if done.returncode != 0:
        skip("strace may not trace")


def killed_at_calls(options, draw):
    """At the nth system call of one kind: of one that comes alone, of one that comes to others, and
    of one that finds a dead one's logs."""
    needs_strace()
    most = 60 if options.long else 12
    killed_ones = 0
    for company in ("nobody", "others", "dead"):
        with Bench(options, size="4M") as bench:
            lives = None
            if company != "nobody":
                lives = bench.start(**LATE)
                own = bench.content("own", 1, draw.randrange(1 << 40), span=50)
                lives.must(own.words(50), 50)
            number = 0
            kinds = CALLS.split(",") if options.long else ["flock", "fcntl", "mmap", "pwrite64", "fdatasync,fsync"]
            for kind in kinds:
                for nth in range(1, most) if options.long else sorted(draw.sample(range(1, 25), 4)):
                    contents = []
                    if company == "dead":
                        dead = bench.start(**LATE)
                        contents.append(bench.content(f"dead{number}", 3, draw.randrange(1 << 40)))
                        dead.must(contents[0].words(5), 5)
                        dead.kill()
                    contents.append(bench.content(f"f{number}", 2, draw.randrange(1 << 40)))
                    number += 1
                    agent = bench.start(contents[-1].words(5), prefix=(
                        "strace", "-f", "-o", "/dev/null", "-e", f"trace={kind}",
                        "-e", f"inject={kind}:signal=KILL:when={nth}"))
                    agent.end()
                    agent.process.wait(PATIENCE)
                    killed_ones += agent.process.returncode != 0
                    try:
                        check_after_kills(bench, contents)
                    except kit.Failure as problem:
                        raise kit.Failure(f"{company}, killed at {kind} {nth}: {problem}") from None
            if lives:
                lives.await_end()
                own.check_disk(50)
            bench.check_clean()
    say(f"         {killed_ones} were killed")
    check(killed_ones > 10, "hardly any was killed")


REPLAY = "pwritev,fsync,close"  # of a file


def one_who_replays(bench, path, inject, **settings):
    """A program of which this becomes a call on that file, as the replay of a log makes it."""
    kind = inject.split(":")[0]
    return bench.start(prefix=("strace", "-f", "-o", "/dev/null", "-P", path, "-e", f"trace={kind}",
                               "-e", f"inject={inject}"), **settings)


def killed_at_once(options, draw):
    """Three that have logs are killed at once, one of them while it brings the logs of another to the files; one that
    comes, or that was there before, does so for all three."""
    needs_strace()
    for company in (False, True):
        for kind in REPLAY.split(","):
            with Bench(options, size="4M") as bench:
                contents = [bench.content(f"f{i}", i + 1, draw.randrange(1 << 40)) for i in range(3)]
                agents = [bench.start(**LATE) for _ in range(2)]
                agents.append(one_who_replays(bench, contents[0].path, f"{kind}:signal=KILL:when=1", **LATE))
                lives = bench.start(**LATE) if company else None
                if lives:
                    own = bench.content("own", 9, draw.randrange(1 << 40))
                    lives.must(own.words(5), 5)
                write_all(agents, contents, 5)
                for agent in agents[:2]:
                    agent.process.kill()
                for agent in agents[:2]:
                    agent.process.wait()
                agents[2].tell(f"copy {contents[0].path} {bench.pools / 'copy'} {os.O_RDONLY}")
                check(agents[2].process.wait(PATIENCE) != 0, f"{kind}: it is not killed")
                check(bench.pending() >= 5, f"{kind}: {bench.pending()} records are pending")
                check_after_kills(bench, contents)
                if lives:
                    check(bench.seen_by(lives, contents[1].path) == contents[1].after(5), "what it sees")
                    lives.await_end()
                    own.check_disk(5)
                bench.check_clean()


# ---------------------------------------------------------------------------------------------
# The gate.


def gate_holder(pool):
    """The process that has the gate, as the kernel says."""
    if not pool.exists():
        return 0
    inode = str(pool.stat().st_ino)
    for line in pathlib.Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1] == "FLOCK" and words[5].rsplit(":", 1)[1] == inode:
            return int(words[4])
    return 0


def gate(options, draw):
    """A process is stopped with the gate: the others run without the cache, and do not hang."""
    needs_strace()
    met = 0
    for nth in range(1, 7):
        with Bench(options, size="4M") as bench:
            lives = bench.start(**LATE)
            own = bench.content("own", 1, draw.randrange(1 << 40), span=50)
            lives.must(own.words(50), 50)
            content = bench.content("stops", 2, draw.randrange(1 << 40))
            stops = bench.start(content.words(5), prefix=(
                "strace", "-f", "-o", "/dev/null", "-e", "trace=flock",
                "-e", f"inject=flock:signal=STOP:when={nth}"))
            stops.end()
            until(lambda: stops.process.poll() is not None or gate_holder(bench.pool) or
                  any(state_of(pid) in "tT" for pid in children(stops.pid)), "it stops or ends")
            time.sleep(0.2)
            holder = gate_holder(bench.pool)
            met += holder != 0
            others = [bench.content(f"f{i}", 3 + i, draw.randrange(1 << 40)) for i in range(3)]
            for other in others:
                bench.once(other.words(20))
                other.check_disk(20)
            killed_one = nth % 2 == 0 and stops.process.poll() is None

            # strace counts for each thread, so another one stops the process again.
            def ended(stops=stops, killed_one=killed_one):
                for pid in children(stops.pid):
                    if killed_one or state_of(pid) in "tT":
                        os.kill(pid, signal.SIGKILL if killed_one else signal.SIGCONT)
                return stops.process.poll() is not None

            until(ended, "the stopped one ends")
            found = bench.content("after", 7, draw.randrange(1 << 40))
            agent = bench.start()
            agent.must(found.words(4), 4)
            check(agent.pid in bench.pids(), "the gate is open, and nobody gets in")
            content.check(bench.seen_by(agent, content.path) if content.path.exists() else b"",
                          bench.acknowledged(2), killed=killed_one)
            if not killed_one:
                check(bench.acknowledged(2) == 5, f"{bench.acknowledged(2)} writes of the stopped one, not 5")
            end_all([agent, lives])
            own.check_disk(50)
            found.check_disk(4)
            bench.check_clean()
            say(f"         flock {nth}: {'with' if holder else 'without'} the gate")
    check(met > 0, "none was stopped with the gate")


# ---------------------------------------------------------------------------------------------
# One file, several processes.


def to_and_fro(options, draw):
    with Bench(options) as bench:
        path = bench.folder / "log"
        agents = [bench.start(**LATE), bench.start()]
        size, seed = 1008, draw.randrange(1 << 40)
        wanted = []  # numbers
        kills = 0
        for n in range(3000 if options.long else 400):
            who = draw.randrange(2) if n % 7 == 0 else n % 2
            line = f"append {path} 1 {size} {n} {seed}"
            bench.set(1, 0)
            if draw.random() < 0.08:
                agents[who].tell(line)
                time.sleep(draw.random() * 0.002)
                agents[who].kill()
                kills += 1
                found = bench.seen_by(agents[1 - who], path)
                with_it = b"".join(block(size, seed, i) for i in [*wanted, n])
                if bench.acknowledged(1) > 0 or found != with_it[:-size]:
                    check_same(found, with_it, f"append {n}, killed, acknowledged {bench.acknowledged(1)}")
                if found == with_it:
                    wanted.append(n)
                agents[who] = bench.start(**draw.choice([LATE, {}]))
            else:
                agents[who].must(line, size)
                wanted.append(n)
            if draw.random() < 0.05:
                found = bench.seen_by(draw.choice(agents), path, draw.choice([os.O_RDONLY, os.O_RDWR]))
                expected = b"".join(block(size, seed, i) for i in wanted)
                check_same(found, expected, f"after append {n}")
        end_all(agents)
        expected = b"".join(block(size, seed, i) for i in wanted)
        check_same(path.read_bytes(), expected, "in the end")
        say(f"         {kills} kills")
        bench.check_clean()


def forks(options, draw):
    """A server and its workers. The server is killed, the workers go on."""
    for _ in range(20 if options.long else 3):
        with Bench(options) as bench:
            name, seed = bench.folder / "s", draw.randrange(1 << 40)
            owns = [bench.content(f"s.own.{i}", 2 + i, seed + i, span=50) for i in range(4)]
            mine = bench.content("server", 1, draw.randrange(1 << 40), span=50)
            server = bench.start(**draw.choice([LATE, {}]))
            server.tell(f"fork {name} 2 {PAGE} 50 {seed}")
            *workers, result = map(int, server.answer().split())
            try:
                check(result == 0 and len(workers) == 4, "no workers")
                server.tell(mine.words(0))
                until(lambda: all(bench.acknowledged(i) >= 10 for i in range(1, 6)), "all write")
                bench.check_pids({server.pid, *workers})
                time.sleep(draw.random() * 0.2)
                server.kill()
                reader = bench.start()
                mine.check(bench.seen_by(reader, mine.path), bench.acknowledged(1), killed=True)
                before = [bench.acknowledged(2 + i) for i in range(4)]
                until(lambda: all(bench.acknowledged(2 + i) > before[i] + 10 for i in range(4)), "the workers go on")
                bench.set(STOP, 1)
                until(lambda: all(state_of(pid) == "Z" for pid in workers), "the workers end")
                for i, own in enumerate(owns):
                    own.check_disk(bench.acknowledged(2 + i))
                    inherited = pathlib.Path(f"{name}.{i}").read_bytes()
                    wanted = block(PAGE, seed + i, 0) + block(PAGE, seed + i, 1)
                    check_same(inherited, wanted, f"s.{i}")
                reader.await_end()
                bench.check_clean()
            finally:
                for pid in workers:
                    if state_of(pid) != "Z":
                        os.kill(pid, signal.SIGKILL)


# ---------------------------------------------------------------------------------------------
# Bad input.


def two_writers(bench, draw):
    contents = [bench.content(f"f{i}", i + 1, draw.randrange(1 << 40), span=50) for i in range(2)]
    agents = [bench.start(**LATE) for _ in contents]
    write_all(agents, contents, 60)
    return agents, contents


REMOVED = " was removed, or another file has its name: all of it is on the disk now"


def parted(bench, draw, agents, contents):
    """The pool of these two has lost its name: they go on without the cache. Others make or find another one."""
    for agent in agents:
        until(lambda agent=agent: REMOVED in agent.said(), "a word on the pool that has no name")
    check_disks(contents, 60)
    third = bench.start()
    new = bench.content("new", 3, draw.randrange(1 << 40), span=50)
    third.must(new.words(60), 60)
    check([seat["pid"] for seat in bench.seats()] == [third.pid], f"of the pool with the name: {bench.seats()}")
    # From a process with another pool.
    contents[0].check(bench.seen_by(third, contents[0].path, os.O_RDWR), 60)
    more = [bench.content(f"more{i}", i + 4, draw.randrange(1 << 40), span=50) for i in range(2)]
    write_all(agents, more, 60)
    agents[0].kill()
    more[0].check(bench.seen_by(agents[1], more[0].path), 60)
    agents[1].end()
    check(agents[1].process.wait(PATIENCE) == 0 and agents[1].said().count(REMOVED) == 1, f"it says {agents[1].said()!r}")
    third.await_end()
    check_disks([*contents, *more, new], 60)
    bench.check_clean()


def pool_removed(options, draw):
    with Bench(options, size="4M") as bench:
        agents, contents = two_writers(bench, draw)
        bench.pool.unlink()
        parted(bench, draw, agents, contents)


def pool_replaced(options, draw):
    with Bench(options, size="4M") as bench:
        other = bench.pools / "other"
        bench.without(bench.nvcache, "create", other, "--size", "4M", "--emulate")
        agents, contents = two_writers(bench, draw)
        kept = bench.pools / "kept"
        bench.pool.rename(kept)
        other.rename(bench.pool)
        parted(bench, draw, agents, contents)
        bench.without(bench.nvcache, "recover", kept)
        check_disks(contents, 60)


def pool_truncated(options, draw):
    """Bytes may be lost, and the program may get SIGBUS; no file gets bytes that nobody wrote there."""
    for size in (0, 100 << 10, 1 << 20):
        with Bench(options, size="4M") as bench:
            agents, contents = two_writers(bench, draw)
            os.truncate(bench.pool, size)
            ends = []
            for agent, content in zip(agents, contents):
                try:
                    agent.tell(content.words(60))
                    agent.end()
                except BrokenPipeError:
                    pass  # it has died of its own cleanup thread
                ends.append(agent.process.wait(PATIENCE))
            say(f"         truncated to {size}: exit codes {ends}; {[a.said() for a in agents]}")
            for content in contents:
                found = content.path.read_bytes() if content.path.exists() else b""
                for at in range(0, len(found), PAGE):
                    piece, place = found[at:at + PAGE], at // PAGE
                    known = {block(PAGE, content.seed, n)[:len(piece)] for n in range(place, 120, content.span)}
                    if piece not in known and any(piece):
                        raise kit.Failure(f"{content.path.name}, page {place}: "
                                              f"{describe(piece, block(PAGE, content.seed, place))}")
            # Others run without it, and say so.
            new = bench.content("new", 3, draw.randrange(1 << 40), span=50)
            agent = bench.start(new.words(60))
            agent.end()
            check(agent.process.wait(PATIENCE) == 0, f"with such a pool: {agent.said()}")
            say(f"         {agent.said().strip()}")
            new.check_disk(60)


def another_user(options, draw):
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        skip("it takes root, and setpriv")
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    with Bench(options, size="4M") as bench:
        agents, contents = two_writers(bench, draw)
        open_to_all = stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO
        for path in (bench.folder, bench.pools):
            path.chmod(open_to_all)
        bench.memory_path.chmod(0o666)
        bench.seat = shutil.copy(bench.seat, bench.pools / PROGRAM)
        bench.preload_library = shutil.copy(bench.preload_library, bench.pools / "libnvcache.so")
        tool = shutil.copy(bench.nvcache, bench.pools / "nvcache")
        strange = [bench.content(f"n{i}", 3 + i, draw.randrange(1 << 40), span=50) for i in range(5)]
        for content in strange:
            agent = bench.start(content.words(60), prefix=nobody)
            agent.await_end()
            content.check_disk(60)
        for words in (("recover", bench.pool), ("status", bench.pool)):
            done = subprocess.run([*nobody, tool, *words], check=False, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            check(done.returncode != 0, f"{words[0]} by another user: {done.stdout}")
        # It may not stop those who come either.
        done = subprocess.run([*nobody, "flock", "-n", bench.pool, "true"], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        check(done.returncode != 0, "another user gets the gate")
        bench.check_pids({agent.pid for agent in agents})
        new = bench.content("new", 9, draw.randrange(1 << 40), span=50)
        third = bench.start()
        third.must(new.words(60), 60)
        check(third.pid in bench.pids(), "the owner's next process has no seat")
        agents[0].kill()
        contents[0].check(bench.seen_by(third, contents[0].path), 60)
        end_all([agents[1], third])
        check_disks([*contents, new], 60)
        bench.check_clean()


CASES = (many, more_than_seats, come_and_go, killed, killed_all, stopped, stopped_with_all, killed_at_once,
         killed_midway,
         killed_at_calls, gate, to_and_fro, forks, pool_removed, pool_truncated, pool_replaced, another_user)


def main():
    parser = kit.arguments(__doc__, seed=True)
    parser.add_argument("--library", dest="preload", required=True, help="libnvcache.so")
    parser.add_argument("--seat", required=True, help="processes_seat")
    options = parser.parse_args()
    # Each case begins with the seed, so that one alone repeats it.
    kit.main(options, {case.__name__: lambda case=case: case(options, random.Random(options.seed)) for case in CASES})


if __name__ == "__main__":
    main()
