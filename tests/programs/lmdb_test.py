#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""LMDB, killed again and again: after each start every transaction that was committed is there, whole.

Its readers have the file mapped, and its writer writes to it by calls, or by the mapping as well."""

import random
import subprocess

import kit
from kit import check

PYTHON = "/usr/bin/python3"  # Debian's, which has lmdb
PATIENCE = 60  # seconds, for a transaction
KEYS = 200  # of which each transaction sets KEYS_AT_ONCE
KEYS_AT_ONCE = 7

# Says the number of each transaction when it is committed.
WRITER = r"""
import lmdb, sys
first, keys, at_once, writemap = map(int, sys.argv[1:])
env = lmdb.open("db", map_size=64 << 20, writemap=bool(writemap))
number = first
while True:
    with env.begin(write=True) as txn:
        for key in range(number, number + at_once):
            txn.put(b"%06d" % (key * 31 % keys), (b"%09d" % number) * (1 + number * key % 300))
        txn.put(b"number", b"%d" % number)
    print(number, flush=True)
    number += 1
"""
READER = r"""
import lmdb
env = lmdb.open("db", map_size=64 << 20, readonly=True)
with env.begin() as txn:
    for key, value in txn.cursor():
        print(key.decode(), len(value), value[:9].decode(), value.count(value[:9]))
"""


def expected(number):
    """What READER prints when the transactions up to `number` are in the file."""
    lines = {}
    for n in range(1, number + 1):
        for key in range(n, n + KEYS_AT_ONCE):
            times = 1 + n * key % 300
            lines[f"{key * 31 % KEYS:06}"] = f"{9 * times} {n:09} {times}"
    lines["number"] = f"{len(str(number))} {number} 1"
    return "".join(f"{key} {value}\n" for key, value in sorted(lines.items()))


def write(bench, cache, first, count, writemap):
    """Kills the writer when it has committed `count`; the number of the last one that it has said."""
    command = [PYTHON, "-c", WRITER, first, KEYS, KEYS_AT_ONCE, int(writemap)]
    command = bench.cached(command) if cache else [str(word) for word in command]
    with open(bench.folder / "errors", "w+b") as errors, subprocess.Popen(
            command, cwd=bench.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
            text=True) as writer:
        said = first - 1
        for line in writer.stdout:
            said = int(line)
            if said - first + 1 == count:
                writer.kill()
        errors.seek(0)
        check(said - first + 1 >= count, f"the writer has ended: {errors.read().decode(errors='replace')[-2000:]}")
    return said


def check_file(bench, cache, said):
    """The number of the last transaction, which may not have been said."""
    done = bench.run([PYTHON, "-c", READER], cache)
    number = next(int(line.split()[2]) for line in done.stdout.splitlines() if line.startswith("number "))
    check(said <= number <= said + 1, f"{number} transactions are there, {said} were committed")
    check(done.stdout == expected(number), "the rows are not those of one transaction")
    return number


def killed(options, cache, rule="always", writemap=False):
    draw = random.Random(options.seed)
    with kit.Bench(options, size="32M", dram="8M", timeout=PATIENCE, write_back=rule) as bench:
        number = 0
        for _ in range(options.rounds):
            number = check_file(bench, cache, write(bench, cache, number + 1, draw.randint(50, 400), writemap))
        if cache:
            bench.recover()
        check_file(bench, False, number)
        kit.say(f"         {number} transactions")


def main():
    options = kit.arguments(__doc__, rounds=5).parse_args()
    cases = kit.by_rules(lambda name, rule: killed(options, True, rule, name == "writemap"),
                         ["cached", "writemap"], ["cached", "writemap"], ["cached"])
    kit.main(options, {"plain": lambda: killed(options, False), **cases})


if __name__ == "__main__":
    main()
