#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A mirror without a majority of its servers makes syncs real only when the disk has what was acknowledged. Where it cannot
look at its pool, whose name is gone, it does not know that, and tries again.

    drain_test.py --nvcache COMMAND"""

import argparse
import pathlib
import shutil
import sys
import tempfile

from kit import check, say, skip, until
from etcd_servers import Cluster, free_ports
from metrics_test import Processes, run, values_of

# It syncs again and again: a mirror gives up when somebody waits.
PROGRAM = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
while True:
    os.pwrite(fd, b"x" * 100, 0)
    os.fsync(fd)
    print("synced", flush=True)
    time.sleep(0.01)
"""


def state_of(page):
    return next(name.split('"')[1] for name, value in values_of(page).items() if name.startswith("state{") and value == 1)


def play(nvcache, folder, etcd, processes):
    ports = free_ports(3)
    servers = [processes.start(f"server{port}", nvcache, "serve", "--insecure", "--listen", f"127.0.0.1:{port}", "--limit",
                               "64M") for port in ports]
    pool, page = folder / "pool", folder / "page"
    run(nvcache, "create", pool, "--size", "4M", "--commit", "fsync")
    words = [nvcache, "mirror", "--pool", pool, "--name", "drained", "--etcd", etcd.urls[0], "--insecure", "--patience", "200",
             "--metrics", page]
    for port in ports:
        words += ["--server", f"127.0.0.1:{port}"]
    mirror = processes.start("mirror", *words)
    until(lambda: "metrics are at" in processes.said("mirror"), "the mirror begins")
    until(lambda: state_of(page) == "mirrored", "the pool is mirrored", 30)
    processes.start("program", nvcache, "run", "--pool", pool, "--required", "--checkpointer", "never", "--", sys.executable, "-c",
                    PROGRAM, folder / "file")
    until(lambda: "synced" in processes.said("program"), "a program syncs", 30)
    hidden = pool.rename(folder / "hidden")
    for server in servers[1:]:
        server.kill()
        server.wait()
    until(lambda: state_of(page) == "leaving", "somebody waits for a majority", 30)
    until(lambda: state_of(page) != "leaving" or processes.said("mirror").count("cannot be looked at") >= 3, "it has tried again")
    check(state_of(page) == "leaving", f"it was never seen to be drained, and syncs are {state_of(page)}")
    hidden.rename(pool)
    until(lambda: state_of(page) == "real", "the disk has everything", 30)
    check(mirror.poll() is None, processes.said("mirror"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcache", type=pathlib.Path, required=True)
    options = parser.parse_args()
    if shutil.which("etcd") is None:
        skip("etcd is not installed")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="nvcache-test-drain-", dir="/dev/shm"))
    processes = Processes(folder)
    try:
        with Cluster() as etcd:
            play(options.nvcache, folder, etcd, processes)
    finally:
        processes.kill()
        shutil.rmtree(folder)
    say("a pool that cannot be looked at is not taken for drained")


if __name__ == "__main__":
    main()
