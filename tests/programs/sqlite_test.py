#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The sqlite3 shell with autocommit inserts, in every journal mode that writes a journal."""

import hashlib

import kit
from kit import check

MODES = ("wal", "delete", "truncate", "persist")


def script(mode, rows):
    """SQL that makes the same database each time: inserts, some updates and deletes."""
    lines = [f"PRAGMA journal_mode={mode};", "PRAGMA synchronous=FULL;",
             "CREATE TABLE t(id INTEGER PRIMARY KEY, k INTEGER, v TEXT);",
             "CREATE INDEX by_k ON t(k);"]
    for row in range(rows):
        value = hashlib.sha256(str(row).encode()).hexdigest() * (1 + row % 7)
        lines.append(f"INSERT INTO t(k, v) VALUES({(row * 7919) % 10007}, '{value}');")
        if row % 50 == 49:
            lines.append(f"UPDATE t SET v = 'updated ' || v WHERE id = {row - 20};")
        if row % 97 == 96:
            lines.append(f"DELETE FROM t WHERE id = {row - 10};")
    lines.append("SELECT count(*), sum(k), max(length(v)) FROM t;")
    return "\n".join(lines) + "\n"


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=0)
    kit.front_end_arguments(parser, "sqlite3")
    options = parser.parse_args()

    def one(mode, rule):
        rows = 100000 if options.long else short[mode] if rule == "always" else 2000 // options.part
        sql = script(mode, options.rows or rows)
        with kit.Bench(options, size=f"{64 // options.part}M", dram=f"{32 // options.part}M",
                       front_end=options.front_end, write_back=rule) as bench:
            plain = bench.without("sqlite3", "-batch", "-bail", "plain.db", stdin=sql)
            cached = bench.with_cache(options.program, "-batch", "-bail", "cached.db", stdin=sql)
            check(plain.stdout == cached.stdout,
                  f"another answer: {cached.stdout!r} instead of {plain.stdout!r}")
            check(bench.counter("segments_taken") > 0, "nothing went through the log")
            bench.check_drained()
            for name in ("segments_taken", "evictions"):
                kit.say(f"         {name} {bench.counter(name)}")
            want = bench.without("sqlite3", "-readonly", "plain.db", ".dump").stdout
            # From the disk, without the cache.
            verdict = bench.without("sqlite3", "cached.db", "PRAGMA integrity_check;").stdout
            check(verdict == "ok\n", f"integrity_check: {verdict}")
            check(bench.without("sqlite3", "cached.db", ".dump").stdout == want,
                  "the content on the disk differs from a database made without NVCache")
            # And opened once more, read and written through it.
            again = bench.with_cache(options.program, "cached.db", ".dump").stdout
            check(again == want, "the content read through the cache differs")
            bench.with_cache(options.program, "-batch", "-bail", "cached.db",
                             "INSERT INTO t(k, v) VALUES(-1, 'last'); VACUUM; "
                             "PRAGMA wal_checkpoint(TRUNCATE);")
            # Two transactions need not sync a file more than once.
            check(bench.counter("segments_taken") > 0 or rule == "auto", "nothing of VACUUM went through the log")
            bench.check_drained()
            answer = bench.without("sqlite3", "cached.db",
                                   "SELECT v FROM t WHERE k = -1; PRAGMA integrity_check;").stdout
            check(answer == "last\nok\n", f"after VACUUM: {answer}")

    # All but the first wait for the disk in every transaction.
    few = 3000 // options.part
    short = {"wal": 20000, "delete": few, "truncate": few, "persist": few}
    kit.main(options, kit.by_rules(one, MODES, MODES))


if __name__ == "__main__":
    main()
