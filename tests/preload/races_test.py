#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""helgrind and drd with packaging/nvcache.supp: they say nothing of NVCache, and what the program does wrong they still
say.

Exit code 77 without valgrind."""

import pathlib
import re
import shutil
import subprocess
import sys

import kit
from kit import Failure, check, skip

SUPPRESSIONS = pathlib.Path(__file__).resolve().parents[2] / "packaging" / "nvcache.supp"


def found_by(bench, tool, *words):
    """How many errors it counts, and all that it says."""
    environment = {**kit.without_nvcache(), **bench.settings(), "NVCACHE_NOTICE": "0"}
    done = subprocess.run(["valgrind", f"--tool={tool}", f"--suppressions={SUPPRESSIONS}", bench.program, bench.folder,
                           *words], env=environment, check=False, capture_output=True, text=True, timeout=120)
    check(done.returncode == 0, f"{tool}: {done.returncode}\n{done.stderr}")
    said = re.search(r"ERROR SUMMARY: (\d+) errors", done.stderr)
    check(said, done.stderr)
    return int(said.group(1)), done.stderr


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", required=True)
    options = parser.parse_args()
    if not shutil.which("valgrind"):
        skip("there is no valgrind")
    for rule in ("auto", "always"):
        for tool in ("helgrind", "drd"):
            with kit.Bench(options, size="16M", dram="1M", write_back=rule) as bench:
                bench.program = options.program
                count, text = found_by(bench, tool)
                check(count == 0, f"{rule}, {tool}: {count} errors\n{text[:4000]}")
                check(bench.pool.exists(), f"{rule}, {tool}: it was without the cache")
                count, text = found_by(bench, tool, "race")
                check(count > 0 and ": use (" in text, f"{rule}, {tool}: it does not see the program's race")
    sys.exit(0)


try:
    main()
except Failure as failure:
    sys.exit(str(failure))
