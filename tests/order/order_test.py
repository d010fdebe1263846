#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a program outside, without NVCache, sees of a file while a program under NVCache writes it, and while
that is killed and its log is brought to the file: a beginning of the writes, in their order (order.c). With
SQLite, whose reader may itself roll a transaction back: whole transactions, and none that was seen before gone.
By default it sees more: all that it was told of, by a pipe, a socket, a name, or an exit status.

    order_test.py --nvcache N --order O --scratch DIR [--seed N] [--rounds N] [--long] [CASE...]
"""

import itertools
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import time

import kit
from kit import check

HOWS = ("pread", "map", "copy", "tar")
WAYS = ("pipe", "socket", "rename", "exit")
MUTANTS = ("file", "newest", "cut", "again")
LONG_LOOKS, LONG_TURNS = 1_000_000, 10
JOURNALS = ("delete", "truncate", "persist", "wal")

# FILE JOURNAL TRANSACTION: the same number into two tables, again and again. `half`: into the first one alone.
SQLITE_WRITER = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
db.execute("pragma synchronous = full")
assert db.execute(f"pragma journal_mode = {sys.argv[2]}").fetchone()[0] == sys.argv[2]
while True:
    db.execute("begin immediate")
    db.execute("update a set n = n + 1")
    if sys.argv[3] == "whole":
        db.execute("update b set n = n + 1")
    db.execute("commit")
    print(flush=True)
    time.sleep(0.0005)
"""

# FILE MILLISECONDS: prints what order.c prints.
SQLITE_READER = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
end = time.monotonic() + int(sys.argv[2]) / 1000
looks = changes = bad = last = 0
while time.monotonic() < (end if changes > 1 else end + 60):
    a, b = db.execute("select (select n from a), (select n from b)").fetchone()
    looks += 1
    changes += a != last
    if a != b or a < last:
        bad += 1
        if bad < 10: print(f"after {last}: {a} and {b}")
    last = max(a, last)
whole = db.execute("pragma integrity_check").fetchone()[0] == "ok"
print(f"looks {looks} changes {changes} bad {bad if whole else looks}")
"""


class Reader:
    """Looks, without NVCache."""

    def __init__(self, words):
        self.process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True,
                                        env=kit.without_nvcache())

    def works(self):
        return self.process.poll() is None

    def end(self):
        said, _ = self.process.communicate(timeout=180)
        check(self.process.returncode == 0, f"the reader has ended with {self.process.returncode}")
        found = said.splitlines()[-1].split()
        self.first = said.splitlines()[:-1]
        return {name: int(number) for name, number in zip(found[::2], found[1::2])}


class Writer:
    def __init__(self, words, env, stdout=None):
        self.process = subprocess.Popen([str(word) for word in words], env=env, stdout=stdout, stderr=subprocess.PIPE,
                                        text=True)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        _, said = self.process.communicate()
        # As, above all, that it runs without the cache.
        check(said == "", f"the writer says: {said}")

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        check(self.process.poll() is None, f"the writer has ended: {self.process.returncode}")
        self.kill()


class Test:
    def __init__(self, options):
        self.options = options

    def bench(self, rule):
        return kit.Bench(self.options, size="2M", dram="1M", write_back=rule)

    def reader(self, how, file, places, seed, milliseconds):
        return Reader([self.options.order, "read", how, file, places, seed, 10**9, milliseconds])

    def settings(self, bench):
        # Batches that follow each other, and many in each.
        return {**kit.without_nvcache(), **bench.settings(), "NVCACHE_BATCH_MIN": "100", "NVCACHE_BATCH_DELAY": "5",
                "NVCACHE_NOTICE": "0"}

    def judge(self, bench, reader, what):
        found = reader.end()
        check(bench.pool.exists(), f"{what}: there was no cache")
        check(found["changes"] > 1, f"{what}: nothing was to be seen: {found}")
        check(found["bad"] == 0, f"{what}: {found}\n" + "\n".join(reader.first))
        return found["looks"]

    def mutant(self, name):
        """The reader finds what it should."""
        with kit.Bench(self.options) as bench:
            words = [self.options.order, "play", name, bench.folder / "file", 3, 2]
            *first, last = bench.without(*words).stdout.splitlines()
        bad = int(last.removeprefix("bad "))
        check((bad == 0) == (name == "right"), f"the order {name}: {bad} bad looks\n" + "\n".join(first))

    def finds_sqlite(self):
        """Halves of transactions are found."""
        try:
            self.sqlite("half")
        except kit.Failure as failure:
            check("'bad': 0" not in str(failure) and "'bad'" in str(failure), f"another failure: {failure}")
        else:
            raise kit.Failure("no half of a transaction was found")

    def repeat(self, play):
        """In the long form, until there were so many looks."""
        rounds = itertools.count() if self.options.long else range(self.options.rounds)
        looks = 0
        for seed in (self.options.seed + i for i in rounds):
            try:
                looks += play(random.Random(seed), seed)
            except kit.Failure as failure:
                raise kit.Failure(f"--seed {seed}: {failure}") from None
            if self.options.long and looks >= LONG_LOOKS:
                break
        kit.say(f"{looks} looks")

    def live(self, how):
        def play(choice, seed):
            places = choice.randrange(2, 5)
            sync, events = choice.choice(("each", "round")), choice.choice(("events", "none"))
            rule = choice.choice(("always", "auto"))
            with self.bench(rule) as bench:
                file = bench.folder / "file"
                words = [self.options.order, "write", file, places, seed, sync, events]
                with Writer(words, self.settings(bench)):
                    reader = self.reader(how, file, places, seed, 700)
                    return self.judge(bench, reader, f"{how}, {places} places, {sync}, {events}, {rule}")
        self.repeat(play)

    def killed(self, how):
        """The next writer recovers the pool; or adopts the log, where another process uses the pool."""
        def play(choice, seed):
            places = choice.randrange(2, 5)
            sync, shared = choice.choice(("each", "round")), choice.random() < 0.5
            with self.bench("always") as bench:
                file, other = bench.folder / "file", bench.folder / "other"
                settings = self.settings(bench)
                words = [self.options.order, "write", file, places, seed, sync, "none"]
                if shared:
                    bench.others.append(subprocess.Popen(
                        [str(word) for word in [self.options.order, "write", other, 2, seed, "round", "none"]],
                        env=settings))
                reader = self.reader(how, file, places, seed, 2000)
                while reader.works():
                    with Writer(words, settings):
                        time.sleep(choice.uniform(0.05, 0.3))
                return self.judge(bench, reader, f"{how}, {places} places, {sync}, {'adopted' if shared else 'recovered'}")
        self.repeat(play)

    def tell(self, way, how, seed, settings=None):
        """One round, in which some writers may be killed; what the reader has found. Files are write-through, but for what
        the settings say."""
        choice = random.Random(f"{seed}.{way}.{how}")
        with self.bench("auto") as bench:
            places = f"{choice.randrange(2, 5)}{'/2' if settings else choice.choice(('', '/2'))}"
            kills = way != "exit" and choice.random() < 0.5
            life = {"pread": 2000, "map": 2000, "copy": 100, "tar": 10}[how] if kills else 0
            sync, events = choice.choice(("each", "round")), choice.choice(("events", "none"))
            variables = {**self.settings(bench), **{name: value.format(bench.folder) for name, value in (settings or {}).items()}}
            words = [self.options.order, "told", how, bench.folder / "file", places, seed, 10**9,
                     2000 if self.options.long else 300, way, life, sync, events,
                     *(f"{name}={value}" for name, value in variables.items() if name.startswith(("NVCACHE_", "LD_")))]
            done = bench.without(*words)
            what = f"--seed {seed}, {way}, {how}, {places} places, {sync}, {events}, killed after {life}"
            check(done.stderr == "", f"{what}: the writer says: {done.stderr}")
            # Of those that are killed, the last may have done nothing yet.
            check(life > 0 or bench.counter("segments_taken") > 0, f"{what}: nothing went through the log")
            *first, last = done.stdout.splitlines()
            found = last.split()
            return {name: int(number) for name, number in zip(found[::2], found[1::2])}, "\n".join((what, last, *first))

    def told(self, ways, hows):
        """Each way with each reader, in turn; in the long form, until there were so many looks, and some turns."""
        looks = dict.fromkeys(itertools.product(ways, hows), 0)
        rounds = itertools.count() if self.options.long else range(self.options.rounds)
        for seed in (self.options.seed + i for i in rounds):
            for way, how in looks:
                found, text = self.tell(way, how, seed)
                check(found["bad"] == 0, text)
                looks[way, how] += found["looks"]
            if self.options.long and sum(looks.values()) >= LONG_LOOKS and seed - self.options.seed >= LONG_TURNS:
                break
        kit.say(f"{sum(looks.values())} looks: " + ", ".join(f"{way} {how} {n}" for (way, how), n in looks.items()))

    def finds_cached(self):
        """Where one of two files is cached, the reader finds what is not there yet: in one of some lives, for on a slow machine one
        of few writes may end before he has looked in time."""
        for way in WAYS[:3]:
            for seed in range(self.options.seed, self.options.seed + 10):
                found, text = self.tell(way, "pread", seed, {"NVCACHE_EXCLUSIVE": "{}/file"})
                if found["bad"] > 0:
                    break
            check(found["bad"] > 0, f"one file is cached, and nothing is found in ten lives: {text}")

    def sqlite(self, transaction="whole", kills=False):
        """One journal after the other, with the default rule, for the reader's locks say nothing of cached files. Where it
        `kills`, writers follow each other, and the reader finds what they leave."""
        journals = itertools.cycle(JOURNALS)

        def play(choice, _):
            journal = next(journals)
            with self.bench("auto") as bench:
                file = bench.folder / "file"
                with sqlite3.connect(file) as made:
                    made.executescript("create table a (n); create table b (n);"
                                       "insert into a values (0); insert into b values (0)")
                made.close()
                words = [sys.executable, "-c", SQLITE_WRITER, file, journal, transaction]
                settings = self.settings(bench)
                reader = Reader([sys.executable, "-c", SQLITE_READER, file, 2000])
                while reader.works():
                    with Writer(words, settings, subprocess.PIPE) as writer:
                        transactions = choice.randrange(1, 100) if kills else sys.maxsize
                        while reader.works() and transactions > 0:
                            transactions -= len(writer.process.stdout.readline())
                return self.judge(bench, reader, f"sqlite, {journal}, {transaction}")
        self.repeat(play)

    def cases(self):
        cases = {f"finds_{name}": lambda name=name: self.mutant(name) for name in (*MUTANTS, "right")}
        cases |= {"live_sqlite": self.sqlite, "killed_sqlite": lambda: self.sqlite(kills=True),
                  "finds_sqlite": self.finds_sqlite, "finds_cached": self.finds_cached,
                  "told": lambda: self.told(WAYS, HOWS)}
        cases |= {f"told_{way}_{how}": lambda way=way, how=how: self.told((way,), (how,)) for way in WAYS for how in HOWS}
        cases |= {f"live_{how}": lambda how=how: self.live(how) for how in HOWS}
        return cases | {f"killed_{how}": lambda how=how: self.killed(how) for how in HOWS}


def main():
    parser = kit.arguments(__doc__.split("\n\n", maxsplit=1)[0], rounds=3)
    parser.add_argument("--order", required=True, type=lambda name: str(pathlib.Path(name).resolve()))
    options = parser.parse_args()
    kit.main(options, Test(options).cases())


if __name__ == "__main__":
    os.environ.pop("LD_PRELOAD", None)
    main()
