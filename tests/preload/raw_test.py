#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A program that makes calls past libc does the same with NVCache and without, and libc's sync of what such a
call has changed is a real one: by strace."""

import pathlib

import kit
from kit import check, say

SYNCS = 2  # of each program, that follow calls past libc


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", required=True, help="raw_calls.c or raw_later.c, built")
    parser.add_argument("--raw-library", required=True, help="raw_library.c, built")
    parser.add_argument("--rule", required=True, choices=("auto", "exclusive", "always"))
    options = parser.parse_args()
    program = pathlib.Path(options.program)
    with kit.Bench(options, size="16M", write_back=options.rule) as bench:
        outputs, files = [], []
        for how in ("without", "with"):
            folder = bench.folder / how
            folder.mkdir()
            settings = bench.settings(NVCACHE_NOTICE="0") if how == "with" else {}
            done, lines = bench.strace(bench.folder / f"{how}.trace", settings, program, options.raw_library,
                                       cwd=folder)
            check(done.returncode == 0, f"{how}: status {done.returncode}, {done.stderr.strip()}")
            outputs.append(done.stdout)
            files.append({str(path.relative_to(folder)): path.read_bytes()
                          for path in sorted(folder.rglob("*")) if path.is_file()})
            calls = [line.split(None, 1)[1] for line in lines]
            said = [index for index, call in enumerate(calls) if call.startswith("access(\"the sync\"")]
            check(len(said) == SYNCS, f"{how}: {len(said)} announcements of a sync")
            for index in said:
                following = [call for call in calls[index + 1:] if call.startswith(("write(1", "fsync(", "exit_group("))]
                check(following and following[0].startswith("fsync("), f"{how}: a sync made no call: {following[:1]}")
        if program.name == "preload_raw_calls":
            settings = bench.settings(NVCACHE_RAW="refuse", NVCACHE_REQUIRED="1")
            done, _ = bench.strace(bench.folder / "refused.trace", settings, program, cwd=bench.folder, may_fail=True)
            check(done.returncode == 125 and "makes system calls past libc" in done.stderr and not done.stdout,
                  f"refuse: status {done.returncode}, {done.stderr}")
        check(outputs[0] == outputs[1], f"the outputs differ:\n{outputs[0]}\n{outputs[1]}")
        check(files[0] == files[1], f"the files differ: {files[0]} {files[1]}")
        say(f"{len(outputs[0].splitlines())} lines and {len(files[0])} files the same, {len(said)} syncs are real")


if __name__ == "__main__":
    main()
