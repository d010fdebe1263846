# SPDX-License-Identifier: BSD-3-Clause
"""Servers of the suite `everyday`. Each is started on the system that is measured, and again without
NVCache on the files that it has left there: its answers are then compared. They listen on Unix
sockets only."""

import dataclasses
import pathlib
import re
import shutil
import signal
import subprocess
import time

from harness import leavings, servers, systems
from suites.everyday_program import MOST, Program


def _answers(command, environment, **options):
    """Whether the command succeeds."""
    return subprocess.run([str(word) for word in command], env=environment, check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options).returncode == 0


@dataclasses.dataclass(frozen=True)
class Database(Program):
    """What the servers have in common: the user that they run as has all files."""
    kind: str = "databases"
    slow: bool = True
    users: tuple = ()  # the first that there is; none: the one that we are

    def user(self):
        return servers.user(*self.users) if self.users else {}

    def missing(self, bench):
        try:
            return super().missing(bench) or servers.unreachable(
                self.user(), (bench.folder, bench.pools, bench.build / "libnvcache.so", bench.build / "nvcache"))
        except systems.Broken as problem:
            return str(problem)

    def run(self, turn):
        user = self.user()
        with servers.short_folder(user) as sockets:
            return self.measure(turn, user, sockets)

    def measure(self, turn, user, sockets):
        """As `run`. `sockets`: a folder for them."""
        raise NotImplementedError

    @staticmethod
    def input(turn, command, text, **options):
        """Runs a client, which has the text as its input."""
        path = turn.place.folder / "input"
        path.write_text(text, encoding="utf-8")
        with open(path, "rb") as file:
            return turn.without(command, stdin=file, **options)


# ----------------------------------------------------------------------------------------------------

# The rows that pgbench has changed, in an order that does not matter. The time of a row is left
# out.
ACCOUNTS = {
    "accounts": "SELECT aid, abalance FROM pgbench_accounts WHERE abalance <> 0 ORDER BY 1",
    "branches": "SELECT bid, bbalance FROM pgbench_branches ORDER BY 1",
    "tellers": "SELECT tid, tbalance FROM pgbench_tellers ORDER BY 1",
    "history": "SELECT tid, bid, aid, delta FROM pgbench_history ORDER BY 1, 2, 3, 4",
}


def postgres_folder():
    """That of the newest version."""
    found = [path.parent for path in pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    return max(found, key=lambda path: int(path.parent.name), default=None)


@dataclasses.dataclass(frozen=True)
class Postgres(Database):
    """initdb, and pgbench with one client and with eight."""

    def missing(self, bench):
        if not postgres_folder():
            return "PostgreSQL is missing: install postgresql"
        return super().missing(bench)

    def measure(self, turn, user, sockets):
        bin_folder, data = postgres_folder(), turn.work / "data"
        names = ["-h", sockets, "-U", "bench"]
        syncs = turn.place.system != "unsynced"

        def server(environment):
            return servers.Server(
                [bin_folder / "postgres", "-D", data, "-k", sockets, "-c", "listen_addresses=", "-c",
                 "max_wal_size=64MB", "-c", f"fsync={'on' if syncs else 'off'}"],
                turn.place.folder / "tmp/log", turn.bench.build / "everyday-postgres.log",
                lambda: _answers([bin_folder / "pg_isready", "-q", "-h", sockets], turn.plain),
                signal.SIGINT, signal.SIGQUIT, env=environment, cwd=turn.work, **user)

        seconds = {"initdb": turn.timed([bin_folder / "initdb", "-D", data, "-U", "bench", "-A", "trust",
                                         "--no-instructions", *([] if syncs else ["--no-sync"])], **user)}
        turn.settle()
        left = leavings.tree(data, contents=False)
        number = turn.scale.choose(20, 1000, 10000)
        with server(turn.place.environment):
            pgbench = [bin_folder / "pgbench", *names]
            turn.without([*pgbench, "-i", "-q", "postgres"], **user)
            for clients in (1, 8):
                command = [*pgbench, "-n", "-c", clients, "-t", number // clients, "--random-seed=301", "postgres"]
                seconds[f"{clients} clients"] = turn.timed(command, env=turn.plain, **user)
        turn.settle()
        psql = [bin_folder / "psql", *names, "-X", "-A", "-t", "-d", "postgres", "-c"]
        with server(turn.plain):
            for title, question in ACCOUNTS.items():
                left |= leavings.lines(title, turn.without([*psql, question], **user))
            schema = turn.without([bin_folder / "pg_dump", *names, "-s", "postgres"], **user)
            # These lines have a key that is another one each time.
            left |= leavings.lines("schema", re.sub(r"(?m)^\\(un)?restrict .*", "", schema))
        done = sum(name.startswith("history, line ") for name in left)
        if done != 8 * (number // 8) + number:
            raise systems.Broken(f"{done} transactions are in the history")
        return seconds, left


# ----------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Redis(Database):
    """SET by SET, each of them synced; then the file is rewritten."""

    def missing(self, bench):
        if not self._program():
            return "redis-server is missing: install redis-server, or redis-tools, which has it under another name"
        return super().missing(bench)

    @staticmethod
    def _program():
        # redis-tools has the server under another of its names, and starts nothing when installed.
        return shutil.which("redis-server") or shutil.which("redis-check-rdb")

    def measure(self, turn, user, sockets):
        program, socket = sockets / "redis-server", sockets / "socket"
        program.symlink_to(self._program())
        syncs = "no" if turn.place.system == "unsynced" else "always"
        # Binary values as text, one a line.
        client = ["redis-cli", "--no-raw", "-s", socket]

        def server(environment):
            return servers.Server(
                [program, "--port", "0", "--unixsocket", socket, "--appendonly", "yes", "--appendfsync", syncs,
                 "--save", "", "--auto-aof-rewrite-percentage", "0", "--dir", turn.work],
                turn.place.folder / "tmp/log", turn.bench.build / "everyday-redis.log",
                lambda: _answers([*client, "-e", "PING"], turn.plain),
                env=environment, cwd=turn.work, **user)

        keys = turn.scale.choose(50, 3000, 30000)
        commands = turn.place.folder / "commands"
        commands.write_text("".join(f"SET key{i % 1000} {i}.{'x' * 100}\n" for i in range(keys)))
        with server(turn.place.environment):
            with open(commands, "rb") as file:
                seconds = {"set": turn.timed(client, stdin=file, env=turn.plain)}
            begin = time.perf_counter()
            turn.without([*client, "-e", "BGREWRITEAOF"])
            while "aof_rewrite_in_progress:0" not in (said := turn.without([*client, "INFO", "persistence"])):
                time.sleep(0.001)
            seconds["rewrite"] = time.perf_counter() - begin
            if "aof_last_bgrewrite_status:ok" not in said:
                raise systems.Broken("the file was not rewritten")
        turn.settle()
        # Redis writes the time into its files.
        left = leavings.tree(turn.work, contents=False)
        with server(turn.plain):
            names = sorted(turn.without(["redis-cli", "--raw", "-s", socket, "KEYS", "*"]).split())
            for command in ("GET", "DUMP"):
                values = self.input(turn, client, "".join(f"{command} {name}\n" for name in names)).splitlines()
                left |= {f"{command} {name}": value for name, value in zip(names, values, strict=True)}
        if len(names) != min(keys, 1000):
            raise systems.Broken(f"{len(names)} keys are left")
        return seconds, left


# ----------------------------------------------------------------------------------------------------

MARIADB_QUESTIONS = ("CHECK TABLE bench.lines", "CHECKSUM TABLE bench.lines", "SHOW CREATE TABLE bench.lines",
                     "SELECT * FROM bench.lines ORDER BY id",
                     "SELECT table_schema, table_name, engine FROM information_schema.tables ORDER BY 1, 2")


@dataclasses.dataclass(frozen=True)
class MariaDb(Database):
    """Its installation, and inserts, each of which is a transaction."""

    def measure(self, turn, user, sockets):
        data, socket = turn.work / "data", sockets / "socket"
        log_size = "--innodb-log-file-size=16M"
        client = ["mariadb", "--no-defaults", f"--socket={socket}", "--user=root", "--batch", "--skip-column-names"]

        def server(environment):
            return servers.Server(
                ["mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={socket}", "--skip-networking",
                 f"--pid-file={sockets}/pid", log_size],
                turn.place.folder / "tmp/log", turn.bench.build / "everyday-mariadb.log",
                lambda: _answers([*client, "-e", "SELECT 1"], turn.plain),
                env=environment, cwd=turn.work, **user)

        seconds = {"install": turn.timed(
            ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db",
             "--auth-root-authentication-method=normal", log_size], **user)}
        turn.settle()
        rows = turn.scale.choose(20, 500, 5000)
        inserts = turn.place.folder / "inserts"
        inserts.write_text("".join(f"INSERT INTO bench.lines VALUES ({i}, 'line {i * 37} {'x' * 100}');\n"
                                   for i in range(rows)))
        with server(turn.place.environment):
            turn.without([*client, "-e", "CREATE DATABASE bench; CREATE TABLE bench.lines "
                          "(id INT PRIMARY KEY, line VARCHAR(200)) ENGINE=InnoDB"])
            with open(inserts, "rb") as file:
                seconds["inserts"] = turn.timed(client, stdin=file, env=turn.plain)
        turn.settle()
        left = {}
        with server(turn.plain):
            for question in MARIADB_QUESTIONS:
                left |= leavings.lines(question, turn.without([*client, "-e", question]))
        if sum(name.startswith("SELECT * ") for name in left) != rows:
            raise systems.Broken("rows are missing, or there are too many")
        return seconds, left


PROGRAMS = (
    Postgres("PostgreSQL", {"initdb": "PostgreSQL, `initdb`", "1 clients": "PostgreSQL, `pgbench`, 1 client",
                            "8 clients": "PostgreSQL, `pgbench`, 8 clients"},
             "after initdb names and modes; schema and rows", {}, users=("postgres",), yardstick=True,
             goals={"initdb": (("plain", MOST),), "1 clients": (("unsynced", 1 / 0.9),), "8 clients": (("unsynced", 1 / 0.9),)},
             seconds=(3, 6, 20)),
    Redis("Redis", {"set": "Redis, `SET`, `appendfsync always`", "rewrite": "Redis, `BGREWRITEAOF`"},
          "names and modes; `GET` and `DUMP` of all keys", {"redis-cli": "redis-tools"}, logged=True, yardstick=True,
          goals={"set": (("unsynced", 1 / 0.95),), "rewrite": (("plain", MOST),)}, seconds=(1, 2, 5)),
    MariaDb("MariaDB", {"install": "MariaDB, `mariadb-install-db`", "inserts": "MariaDB, an insert in a transaction"},
            "definition, rows and checksum of the table; names of all tables",
            {"mariadbd": "mariadb-server-core", "mariadb-install-db": "mariadb-server-core",
             "mariadb": "mariadb-client-core"}, users=("mysql", "nobody"),
            goals={"install": (("plain", MOST),), "inserts": (("plain", MOST),)}, seconds=(4, 6, 10)),
)
