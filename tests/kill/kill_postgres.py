#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""PostgreSQL at work, one backend of it killed, perhaps, and then all of its processes. The disk loses
what it has not made durable, the pool in memory stays, as NVMM would, and the next boot recovers. Every
transaction that was acknowledged is there, and pg_amcheck finds nothing.

Exit code 77 where a file system cannot be mounted and shut down."""

import ctypes
import os
import random
import shutil
import signal
import sys
import time

sys.path.append(sys.path[0] + "/../programs")

import kit
import postgres_test
from kit import check, say
from kit.disks import PowerDisk, needs_power_failures
from postgres_test import BIN, USER, Cluster, UserBench

IMAGE = 1 << 30


def kill_one(cluster, choice):
    """The server ends the other backends, and recovers by its own log."""
    server = int((cluster.data / "postmaster.pid").read_text().split()[0])
    os.kill(choice.choice(kit.children(server)), signal.SIGKILL)
    time.sleep(choice.uniform(0.1, 3))


def play(cluster, disk, choice, number):
    """A run, and its end; the number of acknowledged transactions."""
    one = choice.random() < 0.5
    power = choice.random() < 0.75

    def end():
        if one:
            kill_one(cluster, choice)
        cluster.kill()

    acknowledged = cluster.bench_for(number, choice.uniform(1, 5), end)
    if power:
        disk.fail(cluster.bench.pool)
    cluster.bench.recover()
    say(f"  {acknowledged} transactions, {'one killed, then ' if one else ''}all killed"
        f"{', power failed' if power else ''}")
    return acknowledged


def run(options):
    choice = random.Random(options.seed)
    rounds = 200 if options.long else options.rounds
    with UserBench(options, "auto") as bench, PowerDisk(bench, IMAGE) as disk:
        cluster = Cluster(bench, True)
        cluster.data = disk.folder / "data"
        try:
            shutil.chown(disk.folder, "postgres", "postgres") if USER else None
            cluster.create()
            cluster.start(True)
            cluster.run([BIN / "pgbench", "-i", "-q", "-s", "2", "-h", cluster.sockets, "-U", "test",
                         "postgres"])
            acknowledged = 0
            for number in range(rounds):
                acknowledged += play(cluster, disk, choice, number)
                cluster.start(True)
                cluster.check(acknowledged)
            cluster.stop("fast")
            bench.check_drained()
        finally:
            cluster.end()
    check(acknowledged > 100 * rounds, f"only {acknowledged} transactions were done")
    say(f"{rounds} rounds, {acknowledged} transactions")


def main():
    options = kit.arguments(__doc__, rounds=3).parse_args()
    needs_power_failures(options)
    # The server leaves its parent. It becomes our child, so that we know when it is gone.
    ctypes.CDLL(None).prctl(postgres_test.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    kit.main(options, {"postgres": lambda: run(options)})


if __name__ == "__main__":
    main()
