# SPDX-License-Identifier: BSD-3-Clause
"""PostgreSQL for the suite `mirror`: on a mirrored pool, on the disk, and with two standbys of its own."""

import contextlib
import os
import signal
import subprocess
import time

from harness import mirrored, servers, systems
from suites.everyday_databases import postgres_folder

USERS = ("postgres",)
CLIENTS = (1, 8)


def missing(bench):
    if not postgres_folder():
        return "PostgreSQL is missing: install postgresql"
    try:
        return servers.unreachable(servers.user(*USERS), (bench.folder, bench.pools, bench.build / "libnvcache.so",
                                                          bench.build / "nvcache"))
    except systems.Broken as problem:
        return str(problem)


class Cluster:
    """A primary and its standbys, in the place's folder."""

    def __init__(self, bench, place, user, sockets):
        self.bench, self.place, self.user, self.sockets = bench, place, user, sockets
        self.plain = {k: v for k, v in place.environment.items() if k != "LD_PRELOAD" and not k.startswith("NVCACHE_")}
        self.bin = postgres_folder()
        self.port = mirrored.free_ports(1)[0]

    def run(self, name, *words, environment=None):
        return self.place.run([self.bin / name, *words], env=environment or self.plain, **self.user)

    def server(self, data, environment, *options, port=None):
        return servers.Server(
            [self.bin / "postgres", "-D", data, "-k", self.sockets, "-p", port or self.port, "-c", "max_wal_size=64MB", *options],
            self.place.folder / f"{data.name}.log", self.bench.build / f"mirror-{data.name}.log",
            lambda: subprocess.run([self.bin / "pg_isready", "-q", "-h", self.sockets, "-p", str(port or self.port)], check=False,
                                   env=self.plain, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0,
            signal.SIGINT, signal.SIGQUIT, env=environment, cwd=self.place.folder, **self.user)

    def names(self):
        return ["-h", self.sockets, "-p", self.port, "-U", "bench"]

    def standby(self, name, port):
        """A server that gets the log through `port`."""
        data = self.place.folder / name
        self.run("pg_basebackup", "-D", data, "-R", "-c", "fast", "-d",
                 f"host=127.0.0.1 port={port} user=bench application_name={name}")
        return self.server(data, self.plain, "-c", "listen_addresses=", port=mirrored.free_ports(1)[0])


def _in_step(cluster):
    text = cluster.run("psql", *cluster.names(), "-XAt", "-d", "postgres", "-c",
                       "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum' AND state = 'streaming'")
    return int(text) == 2


def measure(bench, place, user, delay, transactions, standbys):
    """How many transactions a second, by clients."""
    rates = {}
    with servers.short_folder(user) as sockets, contextlib.ExitStack() as stack:
        cluster = Cluster(bench, place, user, sockets)
        data = place.folder / "data"
        cluster.run("initdb", "-D", data, "-U", "bench", "-A", "trust", "--no-instructions", "--no-sync")
        os.sync()
        # What a standby has received and not yet synced is in its memory, as an image is.
        options = ["-c", "synchronous_standby_names=ANY 1 (a, b)", "-c", "synchronous_commit=remote_write"] if standbys else []
        listens = "127.0.0.1" if standbys else ""
        stack.enter_context(cluster.server(data, place.environment, "-c", f"listen_addresses={listens}", *options))
        if standbys:
            port = cluster.port
            if delay:
                port = stack.enter_context(mirrored.relay(bench, cluster.port, delay))
            for name in ("a", "b"):
                stack.enter_context(cluster.standby(name, port))
            limit = time.monotonic() + mirrored.READY_SECONDS
            while not _in_step(cluster):
                if time.monotonic() > limit:
                    raise systems.Broken("the standbys do not follow")
                time.sleep(0.1)
        cluster.run("pgbench", *cluster.names(), "-i", "-q", "-s", 4, "postgres")
        for clients in CLIENTS:
            text = cluster.run("pgbench", *cluster.names(), "-n", "-c", clients, "-j", 1, "-t", transactions // clients,
                               "--random-seed=301", "postgres")
            rates[clients] = float(text.split("tps = ")[1].split()[0])
    return rates
