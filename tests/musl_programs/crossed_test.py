#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""One front end leaves a pool behind, the other one recovers it: sqlite3 of each libc is killed with
rows that are in the log only, and sqlite3 of the other one, started on the pool, has every row."""

import os
import pathlib
import re
import subprocess

import kit
from kit import LATE, check
from kit.bench import ROWS


def value_of(row):
    return f"row {row} " * (1 + row % 90)


class Crossing:
    def __init__(self, bench):
        self.bench = bench
        self.rows = 0
        bench.without("sqlite3", "db", "PRAGMA journal_mode=wal;"
                      "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT); CREATE INDEX i ON t(v);")

    def insert_and_die(self, front_end, program, count):
        """Killed after `count` rows were acknowledged, while it inserts more."""
        script = self.bench.folder / "script"
        with open(script, "w", encoding="ascii") as file:
            # One lock for a life: else the files are write-through, and every row is on the disk. A checkpoint
            # of the WAL would bring it there, too.
            file.write(".bail on\nPRAGMA locking_mode=EXCLUSIVE;\nPRAGMA wal_autocheckpoint=0;\n"
                       "PRAGMA synchronous=FULL;\n")
            for row in range(self.rows + 1, self.rows + count + 1000):
                file.write(f"INSERT INTO t VALUES({row}, '{value_of(row)}');\n"
                           f"SELECT 'committed', {row};\n")
        self.bench.front_end = front_end
        with open(script, "rb") as file, subprocess.Popen(
                self.bench.cached([program, "-interactive", "db"]), cwd=self.bench.folder,
                stdin=file, stdout=subprocess.PIPE,
                env=dict(os.environ, LC_ALL="C", NVCACHE_NOTICE="0", **LATE)) as killed:
            for line in killed.stdout:
                answer = re.search(rb"committed\|(\d+)\n", line)
                if not answer:
                    continue
                self.rows = int(answer.group(1))
                count -= 1
                if count == 0:
                    killed.kill()
            status = killed.wait()
        check(status == -9, f"{program}: exit code {status} instead of being killed")

    def on_disk(self):
        """How many rows there are without the pool."""
        copy = self.bench.folder / "copy"
        self.bench.without("bash", "-ec", "rm -rf copy; mkdir copy; cp db* copy")
        answer = self.bench.without("sqlite3", "db", "SELECT count(*) FROM t;", cwd=copy).stdout
        return int(answer)

    def recover(self, front_end, program):
        """The program's first call finds the files as they should be; so does Debian's sqlite3,
        without the cache, when it has ended."""
        self.bench.front_end = front_end
        found = self.bench.count_rows(self.bench.with_cache(program, "db", ROWS), self.rows, value_of)
        check(self.bench.counter("state") == "clean", "the pool is not clean after the recovery")
        self.bench.check_drained()
        check(self.bench.check_rows(self.rows, value_of) == found, "a row is there with the cache only")
        self.rows = found

    def cross(self, killed, recovers, count):
        self.insert_and_die(*killed, count)
        check(self.bench.counter("state") == "dirty", "the pool is not dirty after the kill")
        pending = self.bench.pending()
        on_disk = self.on_disk()
        kit.say(f"         {' '.join(map(str, killed))}: {self.rows} rows, {on_disk} on disk, "
                    f"{pending} records for {recovers[0]} {recovers[1]}")
        check(on_disk < self.rows, "all rows are on disk: nothing is left to recover")
        self.recover(*recovers)


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", action="append", required=True, type=pathlib.Path,
                        help="sqlite3 with the cache built in; may be given more than once")
    options = parser.parse_args()

    def one():
        with kit.Bench(options, size="32M", dram="8M") as bench:
            crossing = Crossing(bench)
            glibc = ("preload", "sqlite3")
            for program in options.program:
                musl = ("built-in", program.resolve())
                crossing.cross(musl, glibc, 300)
                crossing.cross(glibc, musl, 300)

    kit.main(options, {"crossed": one})


if __name__ == "__main__":
    main()
