#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""RocksDB's db_bench writes and reads a database through the cache; ldb then looks at it without."""

import hashlib
import re

import kit
from kit import check


def scan(bench, database, cache):
    """Checksum and number of all keys and values."""
    run = bench.with_cache if cache else bench.without
    text = run("ldb", f"--db={database}", "scan", "--hex").stdout
    return hashlib.sha256(text.encode()).hexdigest(), text.count("\n")


def main():
    options = kit.arguments(__doc__).parse_args()
    num = 200000 if options.long else 20000

    def db_bench(bench, database, benchmarks, *more, cache=True):
        done = bench.run(["db_bench", f"--db={database}", f"--benchmarks={benchmarks}",
                          f"--num={num}", "--seed=7", "--compression_type=none",
                          "--write_buffer_size=1048576", "--verify_checksum=1",
                          "--histogram=0", *more], cache)
        for name in benchmarks.split(","):
            check(re.search(rf"^{name} +:.*micros/op", done.stdout, re.M),
                  f"{name} has no result:\n{done.stdout[-2000:]}")
        check("orrupt" not in done.stdout + done.stderr, f"{done.stdout}\n{done.stderr}")
        return done

    def consistent(bench, database):
        answer = bench.without("ldb", f"--db={database}", "checkconsistency").stdout
        check(answer.strip() == "OK", f"ldb checkconsistency: {answer}")

    def compare(benchmarks, *more, rule="always"):
        """With one writer and a seed, the content is the same with and without the cache."""
        with kit.Bench(options, size="128M", dram="16M", write_back=rule) as bench:
            db_bench(bench, "plain", benchmarks, *more, cache=False)
            db_bench(bench, "cached", benchmarks, *more)
            # Of a file that is write-through nothing is cleaned.
            check(bench.counter("segments_taken" if rule == "auto" else "entries_cleaned") > 0, "nothing went through the log")
            bench.check_drained()
            consistent(bench, "cached")
            through = scan(bench, "cached", True)
            disk = scan(bench, "cached", False)
            check(disk[1] > 0, "the database is empty")
            check(through == disk, f"scans differ: {through} through the cache, {disk} without")
            want = scan(bench, "plain", False)
            check(want == disk, f"content differs: {disk}, without NVCache {want}")

    def readers():
        with kit.Bench(options, size="128M", dram="16M") as bench:
            db_bench(bench, "cached", "fillrandom,readrandom,readwhilewriting", "--sync=1",
                     "--threads=2", "--reads=20000")
            bench.check_drained()
            consistent(bench, "cached")
            through = scan(bench, "cached", True)
            disk = scan(bench, "cached", False)
            check(disk[1] > 0 and through == disk, f"scans differ: {through}, {disk}")

    compared = {"fillsync": ("fillsync",), "fillrandom": ("fillrandom", "--sync=1"),
                "overwrite": ("fillrandom,overwrite,readrandom", "--sync=1")}
    some = ("fillsync", "overwrite")
    kit.main(options, {
        **kit.by_rules(lambda name, rule: compare(*compared[name], rule=rule), compared, some, some),
        "readwhilewriting": readers,
        "buffered": lambda: compare("fillrandom,compact,readrandom", "--sync=0"),
    })


if __name__ == "__main__":
    main()
