#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the patches cost a program without a pool: system calls in a loop on the patched musl and on
the same source built with `build-musl --plain`, in turns.

  measure_plain.py PATCHED_TREE PLAIN_TREE
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

TURNS = 21
COUNT = {"getppid": 200000, "pread": 100000, "write": 200000, "stat": 50000}


def main():
    trees = dict(zip(("patched", "plain"), map(pathlib.Path, sys.argv[1:3]), strict=True))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("NVCACHE_", "LD_"))}
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(__file__).resolve().with_suffix(".c")
        program = f"{folder}/program"
        subprocess.run([trees["patched"] / "bin/nvcache-musl-gcc", "-O2", f"-I{source.parents[2]}", source,
                        "-o", program], check=True)
        for call, count in COUNT.items():
            times = {name: [] for name in trees}
            for turn in range(TURNS):
                for name in sorted(trees, reverse=turn % 2):
                    command = [trees[name] / "lib/libc.so", program, call, str(count)]
                    output = subprocess.run(command, check=True, capture_output=True, env=clean).stdout
                    times[name].append(float(output))
            patched, plain = (statistics.median(times[name]) for name in ("patched", "plain"))
            print(f"{call:8} patched {patched:7.1f} ns, plain {plain:7.1f} ns, {patched / plain - 1:+.1%}")


if __name__ == "__main__":
    main()
