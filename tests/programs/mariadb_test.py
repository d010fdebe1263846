#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""MariaDB, killed again and again while clients insert: after each start every acknowledged row is there,
and its tables are sound.

As packaged, all its files are the kernel's, for it makes a ring (io_uring), and has its own files open with
O_DIRECT. With BUFFERED they are cached."""

import os
import random
import signal
import subprocess
import threading
import time

import kit
from kit import check

PATIENCE = 120  # seconds, for a server that starts or a client that ends
CLIENTS = 3
AS_ROOT = ["--user=root"] if os.geteuid() == 0 else []
BUFFERED = ["--innodb-flush-method=fsync", "--innodb-log-file-buffering=ON",
            "--skip-innodb-use-native-aio"]


def places(bench):
    """Of its own as well: a server that starts removes the temporary tables of any other one in the same folder."""
    temporary = bench.folder / "temporary"
    temporary.mkdir(exist_ok=True)
    return [*AS_ROOT, f"--datadir={bench.folder / 'data'}", f"--tmpdir={temporary}"]


def value_of(client, row):
    return f"{client}.{row}." * (1 + row * 37 % 90)


class Server:
    """mariadbd under NVCache, or without it. The end of the `with` kills it."""

    def __init__(self, bench, cache, settings):
        self.bench = bench
        self.socket = bench.pools / "socket"  # the name of a socket has to be short
        self.client = ["mariadb", "--no-defaults", f"--socket={self.socket}", "--batch", "--skip-column-names"]
        self.log = bench.folder / "server.log"
        self.socket.unlink(missing_ok=True)
        command = ["mariadbd", "--no-defaults", *places(bench),
                   f"--socket={self.socket}", f"--pid-file={bench.pools / 'pid'}", "--skip-networking",
                   "--skip-grant-tables", "--innodb-buffer-pool-size=8M", "--innodb-log-file-size=8M", *settings]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(bench.cached(command) if cache else command, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, cwd=bench.folder, start_new_session=True)

    def __enter__(self):
        try:
            kit.until(self.answers, "an answer of mariadbd", PATIENCE)
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind, value, trace):
        self.kill()

    def answers(self):
        check(self.process.poll() is None,
              f"mariadbd does not start:\n{self.log.read_text(errors='replace')[-3000:]}")
        return self.bench.without(*self.client, "-e", "SELECT 1", may_fail=True).returncode == 0

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def ask(self, question):
        return self.bench.without(*self.client, "-e", question).stdout

    def stop(self):
        """In order, and to the end."""
        self.ask("SHUTDOWN")
        check(self.process.wait(PATIENCE) == 0, "mariadbd does not end well")


class Inserter(threading.Thread):
    """Inserts its client's rows, each of which the server acknowledges, until the server is killed."""

    def __init__(self, server, client, row):
        super().__init__()
        self.client, self.row = client, row  # row: the next one
        self.process = subprocess.Popen([*server.client, "--unbuffered"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def run(self):
        with self.process as process:
            try:
                while True:
                    process.stdin.write(f"INSERT INTO test.t VALUES ({self.client}, {self.row}, "
                                        f"'{value_of(self.client, self.row)}'); SELECT {self.row};\n")
                    process.stdin.flush()
                    if process.stdout.readline() != f"{self.row}\n":
                        break
                    self.row += 1
                process.stdin.close()
            except BrokenPipeError:
                pass


def insert(server, rows, count, seconds):
    """Until so many were acknowledged; then kills the server. The next row of each client."""
    inserters = [Inserter(server, client, row) for client, row in enumerate(rows)]
    for inserter in inserters:
        inserter.start()
    end = time.monotonic() + seconds
    while sum(inserter.row for inserter in inserters) < sum(rows) + count and time.monotonic() < end:
        time.sleep(0.01)
    server.kill()
    for inserter in inserters:
        inserter.join()
    done = sum(inserter.row for inserter in inserters) - sum(rows)
    check(done >= count, f"{done} of {count} rows in {seconds} s")
    return [inserter.row for inserter in inserters]


def check_rows(server, rows):
    """What was acknowledged is there, and of each client at most one row more. The next row of each."""
    verdict = server.ask("CHECK TABLE test.t EXTENDED")
    check(verdict.endswith("\tOK\n"), f"CHECK TABLE: {verdict}")
    found = [0] * CLIENTS
    for line in server.ask("SELECT client, row, v FROM test.t ORDER BY client, row").splitlines():
        client, row, value = line.split("\t")
        check(int(row) == found[int(client)] and value == value_of(client, int(row)), f"a row is wrong: {line[:100]}")
        found[int(client)] += 1
    for client, row in enumerate(rows):
        check(row <= found[client] <= row + 1, f"client {client}: {found[client]} rows, {row} were acknowledged")
    return found


def killed(options, cache, buffered=False, rule="always"):
    settings = BUFFERED if buffered else []
    draw = random.Random(options.seed)
    with kit.Bench(options, size="64M", dram="16M", timeout=PATIENCE, write_back=rule) as bench:
        bench.run(["mariadb-install-db", "--no-defaults", *places(bench), "--skip-test-db",
                   "--auth-root-authentication-method=normal", "--innodb-log-file-size=8M"], cache)
        rows = [0] * CLIENTS
        with Server(bench, cache, settings) as server:
            server.ask("CREATE DATABASE test; CREATE TABLE test.t (client INT, row INT, v TEXT, "
                       "PRIMARY KEY (client, row)) ENGINE=InnoDB")
            server.stop()
        for _ in range(options.rounds):
            with Server(bench, cache, settings) as server:
                rows = insert(server, check_rows(server, rows), draw.randint(200, 1500), PATIENCE)
            if buffered:
                # Records of write-through that a checkpoint has passed are counted nowhere.
                check(bench.counter("segments_taken") > 0, "nothing went through the log")
        if cache:
            bench.recover()
        with Server(bench, False, settings) as server:
            check_rows(server, rows)
            server.stop()
        kit.say(f"         {sum(rows)} rows acknowledged")


def main():
    options = kit.arguments(__doc__, rounds=3).parse_args()
    cached = kit.by_rules(lambda name, rule: killed(options, True, name == "buffered", rule),
                          ["cached", "buffered"], ["buffered"], ["buffered"])
    kit.main(options, {"plain": lambda: killed(options, False), **cached})


if __name__ == "__main__":
    main()
