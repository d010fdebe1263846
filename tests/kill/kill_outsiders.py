#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Two programs write a SQLite database by turns, one of them without NVCache. That one is in the middle of a transaction
when it is killed: the journal is synced, and some pages of the database are on the disk. Then the power fails. After
recovery, SQLite finds the journal and takes these pages back: nothing that the other one has left in the log lies over the
journal of this one.

delete, truncate, persist   the journal
NAME_reopens                each opens the database anew for each transaction
"""

import subprocess
import sys

import kit
from kit import check
from kit.disks import PowerDisk, needs_power_failures

ROWS = 400
JOURNALS = ("delete", "truncate", "persist")

# FILE JOURNAL REOPENS: a transaction for each line, or a part of one.
WRITER = """
import sqlite3, sys

def connect():
    db = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
    db.execute("pragma synchronous = extra")
    db.execute(f"pragma journal_mode = {sys.argv[2]}")
    db.execute("pragma cache_size = 10")
    return db

db = connect()
print("ready", flush=True)
for line in sys.stdin:
    if sys.argv[3] == "True":
        db.close()
        db = connect()
    db.execute("begin immediate")
    db.execute("update t set n = n + 1")
    if line.strip() == "part":
        print("part", flush=True)
        sys.stdin.readline()
    db.execute("commit")
    print("done", flush=True)
"""


class Writer:
    def __init__(self, bench, file, journal, reopens, cached):
        words = [sys.executable, "-c", WRITER, file, journal, reopens]
        self.process = subprocess.Popen(bench.cached(words) if cached else list(map(str, words)), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        bench.others.append(self.process)
        check(self.process.stdout.readline() == "ready\n", "the writer does not begin")

    def write(self, word="whole"):
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()


def run(options, journal, reopens):
    with kit.Bench(options, size="16M", dram="1M", write_back="auto") as bench, PowerDisk(bench) as disk:
        file = disk.folder / "db"
        bench.without("sqlite3", file, f"pragma journal_mode={journal}; create table t(n, v);"
                      f"with recursive i(x) as (select 1 union all select x + 1 from i where x < {ROWS})"
                      " insert into t select 0, hex(zeroblob(400)) from i;")
        disk.sync()
        inside, outside = (Writer(bench, file, journal, reopens, cached) for cached in (True, False))
        turns = 5
        for _ in range(turns):
            for writer in (outside, inside):
                check(writer.write() == "done\n", "a transaction has failed")
        check(outside.write("part") == "part\n", "a transaction has failed")
        for writer in (outside, inside):
            writer.process.kill()
            writer.process.wait()
        disk.write_out(file)
        disk.fail(bench.pool)
        bench.recover()
        found = bench.without("sqlite3", file, "pragma integrity_check; select n, count(*) from t group by n").stdout
        check(found == f"ok\n{2 * turns}|{ROWS}\n", f"after {2 * turns} transactions of {ROWS} rows there is {found}")


def main():
    options = kit.arguments(__doc__).parse_args()
    needs_power_failures(options)
    kit.main(options, {f"{journal}{name}": lambda journal=journal, reopens=reopens: run(options, journal, reopens)
                       for name, reopens in (("", False), ("_reopens", True)) for journal in JOURNALS})


if __name__ == "__main__":
    main()
