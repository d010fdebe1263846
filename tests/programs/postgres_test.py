#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""PostgreSQL with pgbench, stopped without a shutdown and killed: after each start the balances
agree with the history, and every transaction that was acknowledged is in it.

Its processes share nearly all of their files, which are the kernel's then: what is tested is that none
of them misses anything on the way there."""

import argparse
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess

import kit
from kit import check, children

# Of the newest version that is there.
BIN = max(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
# It refuses to run as root. The Debian package makes this user.
USER = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []

PR_SET_CHILD_SUBREAPER = 36  # <sys/prctl.h>

SUMS = ("SELECT sum(abalance) FROM pgbench_accounts;", "SELECT sum(bbalance) FROM pgbench_branches;",
        "SELECT sum(tbalance) FROM pgbench_tellers;", "SELECT coalesce(sum(delta), 0) FROM pgbench_history;")


class Cluster:
    def __init__(self, bench, cache):
        self.bench = bench
        self.cache = cache
        self.data = bench.folder / "data"
        self.sockets = bench.pools  # the name of a socket has to be short
        self.log = bench.folder / "server.log"

    def run(self, command, cache=False, **options):
        command = self.bench.cached(command) if cache else command
        return self.bench.without(*USER, *command, env={"PGTZ": "UTC"}, **options)

    def create(self):
        self.run([BIN / "initdb", "-D", self.data, "-U", "test", "-A", "trust", "--data-checksums",
                  "--no-instructions"], self.cache)

    def start(self, cache):
        options = (f"-k {self.sockets} -c listen_addresses='' -c checkpoint_timeout=30s -c max_wal_size=32MB "
                   "-c min_wal_size=32MB -c shared_buffers=2MB -c bgwriter_delay=10ms -c bgwriter_lru_maxpages=1000")
        try:
            self.run([BIN / "pg_ctl", "start", "-w", "-t", "60", "-s", "-D", self.data, "-l", self.log,
                      "-o", options], cache)
        except kit.Failure as failure:
            raise kit.Failure(f"{failure}\n{self.log.read_text(errors='replace')[-3000:]}") from None

    def server(self):
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def stop(self, how):
        """And waits for the server's end: pg_ctl waits only until its file is gone."""
        server = self.server()
        self.run([BIN / "pg_ctl", "stop", "-w", "-s", "-m", how, "-D", self.data])
        os.waitpid(server, 0)

    def kill(self):
        server = self.server()
        processes = (server, *children(server))
        for pid in processes:
            os.kill(pid, signal.SIGKILL)
        for pid in processes:
            os.waitpid(pid, 0)

    def end(self):
        """Whatever state the test has left it in."""
        if (self.data / "postmaster.pid").exists():
            self.run([BIN / "pg_ctl", "stop", "-m", "immediate", "-s", "-D", self.data], may_fail=True)

    def ask(self, *questions):
        options = [word for question in questions for word in ("-c", question)]
        return self.run([BIN / "psql", "-h", self.sockets, "-U", "test", "-d", "postgres", "-X", "-A", "-t",
                         *options]).stdout.split()

    def bench_for(self, number, seconds, then):
        """pgbench, and after so many seconds `then`; the number of acknowledged transactions."""
        logs = self.bench.folder / f"log{number}"
        command = [*USER, BIN / "pgbench", "-n", "-c", "4", "-j", "2", "-T", "600", "-l",
                   f"--log-prefix={logs}", "-h", self.sockets, "-U", "test", "postgres"]
        with subprocess.Popen(list(map(str, command)), cwd=self.bench.folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as pgbench:
            try:
                pgbench.wait(seconds)
                early = True
            except subprocess.TimeoutExpired:
                early = False
            then()
            problems = pgbench.stderr.read()
        check(not early, f"pgbench ended early:\n{problems[-2000:]}")
        return sum(len(path.read_text().splitlines()) for path in self.bench.folder.glob(f"{logs.name}.*"))

    def check(self, acknowledged):
        sums = self.ask(*SUMS)
        check(len(set(sums)) == 1, "balances of accounts, branches and tellers, and the history: " + ", ".join(sums))
        count, = self.ask("SELECT count(*) FROM pgbench_history;")
        check(int(count) >= acknowledged, f"{count} transactions are there, {acknowledged} were acknowledged")
        self.run([BIN / "pg_amcheck", "-h", self.sockets, "-U", "test", "--install-missing", "--heapallindexed",
                  "-d", "postgres"])


class UserBench(kit.Bench):
    """Everything belongs to the user that PostgreSQL runs as, and is where that user can get."""

    def __init__(self, options, rule):
        scratch = pathlib.Path(options.scratch).resolve()
        scratch.mkdir(parents=True, exist_ok=True)
        if USER and subprocess.run([*USER, "test", "-x", scratch], check=False).returncode != 0:
            scratch = "/var/tmp"
        super().__init__(argparse.Namespace(nvcache=options.nvcache, scratch=scratch), size="64M", dram="16M",
                         timeout=300, write_back=rule)
        for path in (self.nvcache, self.preload_library):
            shutil.copy(path, self.folder)
        self.nvcache = str(self.folder / pathlib.Path(self.nvcache).name)
        if USER:
            for path in (self.folder, self.pools, *self.folder.iterdir()):
                shutil.chown(path, "postgres", "postgres")


def one(options, cache, rule="always"):
    seconds = 60 if options.long else 20
    with UserBench(options, rule) as bench:
        cluster = Cluster(bench, cache)
        try:
            cluster.create()
            cluster.start(cache)
            cluster.run([BIN / "pgbench", "-i", "-q", "-s", "2", "-h", cluster.sockets, "-U", "test", "postgres"])
            acknowledged = 0
            for number, how in enumerate((lambda: cluster.stop("immediate"), cluster.kill)):
                acknowledged += cluster.bench_for(number, seconds / 2, how)
                kit.say(f"         {acknowledged} transactions acknowledged")
                check(acknowledged > 100, "hardly a transaction was ever done")
                cluster.start(cache)
                cluster.check(acknowledged)
            # And from the disk, without the cache.
            cluster.stop("fast")
            if cache:
                bench.check_drained()
            cluster.start(False)
            cluster.check(acknowledged)
        finally:
            cluster.end()


def main():
    options = kit.arguments(__doc__).parse_args()
    # The server leaves its parent. It becomes our child, so that we know when it is gone.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    cached = kit.by_rules(lambda _, rule: one(options, True, rule), ["cached"], ["cached"], ["cached"])
    kit.main(options, {"plain": lambda: one(options, False), **cached})


if __name__ == "__main__":
    main()
