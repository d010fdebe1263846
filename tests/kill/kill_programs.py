#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Kills sqlite3 and db_bench at random moments; after recovery their databases are sound and hold
every row that was acknowledged, and at most one that was not.

`rocksdb_ext4` and `rocksdb_xfs`: power failures, as far as the disk goes: it loses what db_bench has not made durable,
which has removed the folder of the database before, and made it anew. Exit code 77 where a file system cannot be mounted
and shut down."""

import contextlib
import os
import random
import re
import shutil
import subprocess
import threading

import kit
from kit import check
from kit.disks import PowerDisk, needs_power_failures


def kill_later(process, seconds):
    """SIGKILL at a random moment: the moment is what is tested, there is nothing to wait for."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    return timer


class Bench(kit.Bench):
    """A failure leaves its files, and the pool as it was before the last recovery."""

    def __exit__(self, kind, value, trace):
        self.keep = kind is not None
        super().__exit__(kind, value, trace)


class Killer:
    def __init__(self, bench, draw):
        self.bench = bench
        self.draw = draw
        self.recoveries_killed = 0
        self.recovered = 0

    def start(self, command, folder=None, **pipes):
        return subprocess.Popen(self.bench.cached(command), cwd=folder or self.bench.folder,
                                env=dict(os.environ, LC_ALL="C"), **pipes)

    def hear(self, process, lines, pattern, seconds, number=0):
        """The last number that it says; it is killed so long after the first one, at most."""
        timer = None
        for line in lines:
            if said := re.search(pattern, line):
                number = int(said.group(1))
                timer = timer or kill_later(process, self.draw.uniform(0, seconds))
        return number

    def recover(self):
        """Half of the times killed itself, up to three times, before it may finish. Whoever was
        killed has used the pool: without the cache its files would be right as well."""
        command = [self.bench.nvcache, "recover", str(self.bench.pool)]
        pending = self.bench.counter("pending_records")
        self.recovered += pending
        check(self.bench.counter("state") == "dirty", "the pool is not dirty: nobody used it")
        check(self.bench.counter("segments_taken") > 0, "nothing went through the log")
        shutil.copyfile(self.bench.pool, f"{self.bench.pool}.before")
        if self.draw.random() < 0.5:
            for _ in range(self.draw.randint(1, 3)):
                with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
                    timer = kill_later(process, self.draw.uniform(0, 0.015))
                    status = process.wait()
                    timer.cancel()
                check(status in (0, -9), f"nvcache recover: exit code {status}")
                self.recoveries_killed += status == -9
        self.bench.without(*command)

    def report(self, rounds):
        kit.say(f"         {rounds + self.recoveries_killed} kills, {self.recoveries_killed} of "
                    f"them of recoveries; {self.recovered} records recovered")
        check(self.recovered > 0, "no kill left a record to recover")


def value_of(row):
    """A text of changing length, and how to say it in SQL: sqlite3 reads short lines faster."""
    times = 1 + row * row % 400
    return ((str(row).encode().hex().upper() + ".") * times,
            f"replace(hex(zeroblob({times})), '00', hex({row}) || '.')")


def sqlite(options, draw, mode, rule):
    with Bench(options, size="32M", dram="8M", front_end=options.front_end, write_back=rule) as bench:
        killer = Killer(bench, draw)
        bench.without("sqlite3", "db", f"PRAGMA journal_mode={mode};"
                      "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT); CREATE INDEX i ON t(v);")
        rows = 0
        for _ in range(options.rounds):
            # Interactive, so that it prints each answer at once.
            process = killer.start([options.program, "-interactive", "db"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)

            def feed(first=rows + 1, pipe=process.stdin):
                try:
                    pipe.write(b'.prompt "" ""\n.bail on\n')
                    pipe.write(b"PRAGMA synchronous=FULL;\nPRAGMA wal_autocheckpoint=50;\n")
                    for row in range(first, first + 10**6):
                        pipe.write(b"INSERT INTO t VALUES(%d, %s);\nSELECT 'committed', %d;\n"
                                   % (row, value_of(row)[1].encode(), row))
                except (BrokenPipeError, ValueError):
                    pass

            feeder = threading.Thread(target=feed)
            feeder.start()
            errors = []
            listener = threading.Thread(target=lambda: errors.append(process.stderr.read()))
            listener.start()
            acknowledged = killer.hear(process, process.stdout, rb"^committed\|(\d+)$", 0.8, rows)
            status = process.wait()
            feeder.join()
            listener.join()
            check(status == -9, f"sqlite3 ended with exit code {status}: {errors[0][-2000:]}")
            killer.recover()
            found = bench.check_rows(acknowledged, lambda row: value_of(row)[0])
            kit.say(f"         {acknowledged - rows} rows acknowledged, in all {found}")
            rows = found
        check(rows > options.rounds, "hardly a row was ever written")
        killer.report(options.rounds)


def db_bench(folder, seed, *more):
    return ["db_bench", f"--db={folder}", "--benchmarks=fillrandom", "--num=3000000",
            f"--seed={seed}", "--compression_type=none", "--threads=1", *more]


def states_around(bench, seed, count):
    """db_bench's database after the first count - 1, count and count + 1 operations."""
    bench.without(*db_bench("plain", seed, "--sync=0", f"--writes={count + 2}"))
    log, = (bench.folder / "plain").glob("*.log")
    dump = bench.without("ldb", "dump_wal", f"--walfile={log}", "--print_value").stdout
    states, content = [], {}
    for number, line in enumerate(dump.splitlines()):
        if number in (count, count + 1):
            states.append(dict(content))
        put = re.search(r"PUT\(0\) : (0x[0-9A-F]+) : (0x[0-9A-F]+)", line)
        check(put is not None, f"ldb dump_wal says {line[:200]}")
        content[put.group(1)] = put.group(2)
    bench.without("rm", "-rf", "plain")
    check(len(states) == 2, "the run for comparison is too short")
    return states


def check_database(bench, path, seed, acknowledged):
    answer = bench.without("ldb", f"--db={path}", "checkconsistency").stdout
    check(answer.strip() == "OK", f"ldb checkconsistency: {answer}")
    text = bench.without("ldb", f"--db={path}", "scan", "--hex").stdout
    found = dict(line.split(" : ") for line in text.splitlines())
    states = states_around(bench, seed, acknowledged)
    if found not in states:
        want = states[0]
        wrong = [key for key in want if found.get(key) != want[key]]
        extra = [key for key in found if key not in want]
        raise kit.Failure(
            f"seed {seed}: {acknowledged} operations acknowledged, {len(want)} keys; "
            f"{len(wrong)} of them missing or different ({wrong[:3]}), "
            f"{len(extra)} more ({extra[:3]})")


def rocksdb(options, draw, rule, power=None):
    """`power`: of which file system the disk loses its power each time."""
    with contextlib.ExitStack() as stack:
        bench = stack.enter_context(Bench(options, size="32M", dram="8M", write_back=rule))
        disk = stack.enter_context(PowerDisk(bench, 400 << 20, power)) if power else None
        folder = disk.folder if disk else bench.folder
        killer = Killer(bench, draw)
        total = 0
        for number in range(options.rounds):
            seed = draw.randrange(1, 10**6)
            # One line per operation on stderr, after it is durable. db_bench removes the database that is there.
            process = killer.start(db_bench("db", seed, "--sync=1", "--stats_interval=1",
                                            "--write_buffer_size=131072"), folder,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE)
            acknowledged = killer.hear(process, process.stderr, rb"thread 0: \(\d+,(\d+)\) ops", 0.6)
            status = process.wait()
            check(status == -9, f"db_bench ended with exit code {status}")
            if disk:
                disk.fail(bench.pool)
            killer.recover()
            check_database(bench, folder / "db", seed, acknowledged)
            kit.say(f"         {number + 1}: {acknowledged} operations acknowledged")
            total += acknowledged
            if not disk:
                bench.without("rm", "-rf", "db")
        check(total > options.rounds, "hardly an operation was ever done")
        killer.report(options.rounds)


def main():
    parser = kit.arguments(__doc__, rounds=12)
    kit.front_end_arguments(parser, "sqlite3")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    power = {"rocksdb_ext4": "ext4", "rocksdb_xfs": "xfs"}
    if not power.keys().isdisjoint(options.cases or power):
        needs_power_failures(options)
    cases = ({f"sqlite_{mode}": lambda rule, mode=mode: sqlite(options, draw, mode, rule)
              for mode in ("wal", "delete", "truncate")} | {"rocksdb": lambda rule: rocksdb(options, draw, rule)})
    by_rule = kit.by_rules(lambda name, rule: cases[name](rule), cases, cases, ["rocksdb"])
    kit.main(options, by_rule | {name: lambda kind=kind: rocksdb(options, draw, "auto", kind) for name, kind in power.items()})


if __name__ == "__main__":
    main()
