#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs with jemalloc loaded before the library, and behind it: it opens files before anybody's
constructor has run, and allocates in the first calls."""

import sys

from kit import comparison

PRELOAD = {"first": "libjemalloc.so.2:$LD_PRELOAD", "last": "$LD_PRELOAD:libjemalloc.so.2"}
SQL = ("PRAGMA journal_mode=wal; CREATE TABLE t(v); CREATE INDEX i ON t(v);"
       "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) "
       "INSERT INTO t SELECT hex(i * 7919 % 3001) FROM n; UPDATE t SET v = v || v WHERE v LIKE 'F%';"
       "SELECT count(*), min(v), max(v) FROM t; PRAGMA integrity_check;")
PYTHON = """
import re, threading
print(bool(re.search("libjemalloc", open("/proc/self/maps").read())))
def work(n):
    with open(f"thread{n}", "wb", buffering=1000) as f:
        for i in range(2000): f.write(bytes([n]) * (i % 300))
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join()
"""
CASES = {case: [f"export LD_PRELOAD={preload}", f'sqlite3 db "{SQL}"', "sqlite3 db .dump",
                "sort -S 1M --parallel=2 -T . -o sorted source/words", "tar cf a.tar source",
                "gzip -nk source/words", "cp -r --reflink=never source copy", f"{sys.executable} script.py"]
         for case, preload in PRELOAD.items()}


def prepare(folder):
    comparison.source_tree(folder / "source")
    (folder / "script.py").write_text(PYTHON)


if __name__ == "__main__":
    comparison.main(__doc__, CASES, prepare, through_the_log=PRELOAD)
