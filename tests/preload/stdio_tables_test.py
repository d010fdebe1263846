#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The tables of libc's streams: they are found, whatever glibc this is; and where they are not, nothing is changed,
`nvcache status` says so, and so does a line on request."""

import os
import subprocess

import kit
from kit import check


def begin(bench, program, what, **more):
    process = subprocess.Popen([program, what], cwd=bench.folder, env={**os.environ, **bench.settings(**more)},
                               text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    bench.others.append(process)
    lines = []
    while not lines or lines[-1] not in ("", "ready\n"):
        lines.append(process.stdout.readline())
    kit.say("".join(lines))
    check(lines[-1] == "ready\n", "the program failed: " + (process.stderr.read() if lines[-1] == "" else ""))
    return process


def end(process):
    """What it has said on stderr."""
    _, errors = process.communicate(timeout=60)
    check(process.returncode == 0, f"status {process.returncode}: {errors}")
    return errors


def hindered(bench):
    return [(found["pid"], found["by"]) for found in bench.status()["hindered"]]


def found(bench, program):
    process = begin(bench, program, "caught", NVCACHE_NOTICE="all")
    check(hindered(bench) == [], f"hindered: {hindered(bench)}")
    errors = end(process)
    check("streams" not in errors, errors)


def unknown(bench, program):
    process = begin(bench, program, "passed", NVCACHE_NOTICE="all", STDIO_TABLES_UNKNOWN="1")
    check(hindered(bench) == [(process.pid, ["streams"])], f"hindered: {hindered(bench)}")
    errors = end(process)
    check(errors.count("nvcache: streams: ") == 1, errors)
    check(hindered(bench) == [], f"hindered: {hindered(bench)}")


def not_wanted(bench, program):
    """With NVCACHE_STDIO=0 it is what the user wants."""
    process = begin(bench, program, "passed", NVCACHE_NOTICE="all", NVCACHE_STDIO="0")
    check(hindered(bench) == [], f"hindered: {hindered(bench)}")
    check("streams" not in end(process), "it says so")


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", required=True)
    options = parser.parse_args()

    def run(case):
        with kit.Bench(options, size="4M", dram="1M") as bench:
            # There is one before the first program says anything of it.
            bench.without(bench.nvcache, "create", bench.pool, "--size", bench.size, "--emulate")
            case(bench, options.program)

    kit.main(options, {case.__name__: lambda case=case: run(case) for case in (found, unknown, not_wanted)})


if __name__ == "__main__":
    main()
