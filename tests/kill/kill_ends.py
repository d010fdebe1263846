#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A process ends with bytes in its streams, in each way there is, and then the power fails. What the process or its
libc has written by then is there, as if the power had not failed: in the files, or in the log."""

import signal

import kit
from kit import check
from kit.disks import PowerDisk, needs_power_failures

# Of a process that is killed, others bring the log to the files.
ORDERLY = ("exit", "return", "last_thread", "_exit", "quick_exit", "at_quick_exit", "atexit", "destructor", "child",
           "fclose", "early_atexit", "early_destructor", "early_quick_exit")
OF_GLIBC = ("fcloseall", "early_on_exit", "early_fcloseall")
KILLED = ("abort",)
# What has been promised of "new", which was never synced, depends on the rule.
FILES = {"always": ("known", "plain", "new"), "auto": ("known", "plain"), "exclusive": ("known", "plain")}


def prepare(folder):
    for name in ("known", "plain"):
        (folder / name).write_bytes(b"before\n" * 100)
    (folder / "new").unlink(missing_ok=True)


def end(bench, disk, program, way):
    plain = bench.folder / "plain"
    plain.mkdir(exist_ok=True)
    prepare(plain)
    prepare(disk.folder)
    disk.sync()
    without = bench.without(program, way, cwd=plain, may_fail=True)
    done = bench.with_cache(program, way, cwd=disk.folder, may_fail=True)
    check(done.returncode == without.returncode, f"status {done.returncode} instead of {without.returncode}: "
                                                 f"{done.stderr}{without.stderr}")
    check((done.returncode == -signal.SIGABRT) == (way in KILLED), f"status {done.returncode}")
    if way not in KILLED:
        bench.check_clean()
    disk.fail(bench.pool)
    bench.recover()
    for name in FILES[bench.write_back]:
        # The name of a file without a byte is nobody's promise.
        expected, found = (plain / name).read_bytes(), kit.contents(disk.folder).get(name, b"")
        check(found == expected, f"{way}, {bench.write_back}, {name}: differs at byte "
                                 f"{kit.first_difference(expected, found)} of {len(expected)}")


def main():
    parser = kit.arguments(__doc__)
    kit.front_end_arguments(parser, "kill_ends")
    options = parser.parse_args()
    needs_power_failures(options)
    built_in = options.front_end == "built-in"

    def run(way):
        for rule in FILES:
            with kit.Bench(options, size="4M", dram="1M", write_back=rule, front_end=options.front_end) as bench, \
                    PowerDisk(bench) as disk:
                end(bench, disk, options.program, way)

    ways = (*ORDERLY, *KILLED) if built_in else (*ORDERLY, *OF_GLIBC, *KILLED)
    kit.main(options, {way: lambda way=way: run(way) for way in ways})


if __name__ == "__main__":
    main()
