#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Two sqlite3 shells write to one database at the same time, both with NVCache and one pool: every
row that was acknowledged is there, once, and the database is sound."""

import collections
import re

import kit
from kit import check

NAMES = ("first", "second")


def session(writer, rows):
    """Autocommit inserts; each is acknowledged on stdout once it is durable."""
    yield ".bail on\n.timeout 60000\nPRAGMA synchronous=FULL;\nPRAGMA wal_autocheckpoint=20;\n"
    for row in range(rows):
        text = "x" * (row * 37 % 3000)
        yield (f"INSERT INTO t VALUES('{writer}', {row}, '{text}');\n"
               f"SELECT 'acknowledged', '{writer}', {row};\n")


def one(options, mode, rows, rule):
    with kit.Bench(options, size="32M", dram="8M", write_back=rule) as bench:
        bench.without("sqlite3", "db", f"PRAGMA journal_mode={mode};"
                      "CREATE TABLE t(writer TEXT, row INTEGER, v TEXT); CREATE INDEX i ON t(row);")
        for name in NAMES:
            (bench.folder / f"{name}.sql").write_text("".join(session(name, rows)))
        # One shell starts both; it opens nothing itself, so the pool is theirs.
        start = "".join(f"sqlite3 -batch db <{name}.sql >{name}.out 2>{name}.err & " for name in NAMES)
        ends = "for pid in $(jobs -p); do wait $pid; echo $?; done"
        done = bench.with_cache("bash", "-c", start + ends)
        status = dict(zip(NAMES, done.stdout.split()))
        acknowledged, problems = [], []
        for name in NAMES:
            output = (bench.folder / f"{name}.out").read_text()
            acknowledged += re.findall(r"^acknowledged\|(\w+)\|(\d+)$", output, re.M)
            error = (bench.folder / f"{name}.err").read_text()
            if status[name] != "0":
                problems.append(f"{name}: exit code {status[name]}: {error[-500:]}")
        # From the disk, without the cache.
        bench.recover()
        verdict = bench.without("sqlite3", "db", "PRAGMA integrity_check;", may_fail=True)
        if verdict.stdout != "ok\n":
            problems.append(f"integrity_check: {(verdict.stdout + verdict.stderr)[:500]}")
        else:
            text = bench.without("sqlite3", "db", "SELECT writer, row FROM t NOT INDEXED;").stdout
            found = collections.Counter(tuple(line.split("|")) for line in text.splitlines())
            missing = [row for row in acknowledged if row not in found]
            double = [row for row, count in found.items() if count > 1]
            if missing:
                problems.append(f"{len(missing)} of {len(acknowledged)} acknowledged rows are missing, "
                                f"such as {missing[:3]}")
            if double:
                problems.append(f"{len(double)} rows are there twice, such as {double[:3]}")
        kit.say(f"         {len(acknowledged)} rows acknowledged")
        check(not problems, "\n".join(problems))
        check(len(acknowledged) == 2 * rows, f"{len(acknowledged)} rows of {2 * rows} acknowledged")


def main():
    options = kit.arguments(__doc__).parse_args()
    rows = 20000 if options.long else 1500
    kit.main(options, kit.by_rules(lambda mode, rule: one(options, mode, rows, rule),
                                           ("wal", "delete", "truncate"), ("wal", "delete")))


if __name__ == "__main__":
    main()
