#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""sizes.c under strace, which holds each of the kernel's answers about a file back, so that the cleanup
thread brings the last bytes to the file meanwhile: the program hears of them all the same."""

import pathlib

import kit
from kit import check

HELD_BACK = 50000  # microseconds
CALLS = "fstat,newfstatat,statx"


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", required=True, help="sizes.c, built")
    options = parser.parse_args()
    program = pathlib.Path(options.program).resolve()
    with kit.Bench(options, size="16M") as bench:
        settings = bench.settings(NVCACHE_BATCH_MIN="1", NVCACHE_BATCH_DELAY="1")
        done, _ = bench.strace(bench.folder / "trace", settings, program, bench.folder, may_fail=True,
                               options=("-e", f"trace={CALLS}", "-e", f"inject={CALLS}:delay_exit={HELD_BACK}"))
        check(done.returncode == 0, done.stdout + done.stderr)
        check(bench.counter("entries_cleaned") > 0, "nothing went through the log")
        print(done.stdout, end="")


if __name__ == "__main__":
    main()
