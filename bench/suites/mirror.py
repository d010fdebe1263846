# SPDX-License-Identifier: BSD-3-Clause
"""The mirrored log: what a majority of three servers costs, at some delays."""

import contextlib
import json
import shutil
import statistics

from harness import mirrored, model, servers, systems, units
from suites import mirror_postgres, rocksdb

DELAYS = (0, 100, 500)  # µs, there and back
SYSTEMS = {"mirrored": "NVCache, mirrored", "plaintext": "NVCache, mirrored without TLS",
           "told": "NVCache, mirrored, exclusive, commit at output",
           "trips": "three TCP round trips, until two are back", "standby": "disk, and two standbys of its own, ANY 1"}
UNDER_MIRROR = ("mirrored", "plaintext", "told")
WRITE = 512
# What such a write is on the wire, with its record.
MESSAGE = 640
POOL = "256M"


def _times(text):
    times = sorted(int(line) for line in text.split())
    return {"p50": statistics.median(times), "p99": times[len(times) * 99 // 100]}


class Mirror(model.Suite):
    name = "mirror"
    title = "The mirrored log"
    about = (
        "A pool in memory whose log a mirror copies to three servers; a call that syncs returns when two of "
        "them have it. All of it runs on this machine, over loopback; a relay adds the delay, there and back. "
        "etcd is one node. Connections are encrypted, unless the system says otherwise. The yardstick of one "
        "write is a client that sends as many bytes to three plain servers at once, and waits until two have "
        "answered.")
    systems = SYSTEMS

    def missing(self, bench):
        return mirrored.missing()

    def left_out(self, bench):
        found = {}
        if not shutil.which("db_bench"):
            found |= {f"RocksDB, {threads}, {delay} µs": "db_bench is missing: install rocksdb-tools"
                      for threads in (1, 8) for delay in DELAYS}
        if reason := mirror_postgres.missing(bench):
            found |= {f"PostgreSQL, {delay} µs": reason for delay in DELAYS}
        return found

    def cases(self, scale):
        delays = scale.choose((100,), DELAYS, DELAYS)
        writes = scale.choose(200, 3000, 20000)
        for delay in scale.choose((0,), DELAYS, DELAYS):
            yield model.Case(f"write, {delay} µs", ("mirrored", "plaintext", "trips", "fsync", "nvcache"),
                             {"what": "write", "delay": delay, "num": writes}, 1 + writes * 1e-3)
        rows = scale.choose(500, 1500, 10000)
        for delay in delays:
            yield model.Case(f"SQLite, {delay} µs", ("mirrored", "told", "eatmydata", "fsync"),
                             {"what": "sqlite", "delay": delay, "num": rows}, 1 + rows * 1e-3)
        num = scale.choose(100, 2000, 20000)
        for delay in delays:
            for threads in (1, 8):
                yield model.Case(f"RocksDB, {threads}, {delay} µs", ("mirrored", "told", "eatmydata", "fsync"),
                                 {"what": "rocksdb", "delay": delay, "threads": threads, "num": num},
                                 1 + num * threads * 5e-4)
        transactions = scale.choose(40, 800, 10000)
        for delay in delays:
            yield model.Case(f"PostgreSQL, {delay} µs", ("mirrored", "standby", "fsync"),
                             {"what": "postgres", "delay": delay, "num": transactions}, 8 + transactions * 4e-3)
        # A program that never syncs.
        yield model.Case("never synced", ("mirrored", "nvcache"),
                         {"what": "copy", "delay": 0, "num": scale.choose(50, 400, 2000)}, 2,
                         repetitions=scale.choose(1, 7, 20))

    def run(self, bench, case, system, scale):
        what, delay, num = (case.parameters[name] for name in ("what", "delay", "num"))
        if system == "trips":
            with mirrored.echoes(bench, MESSAGE, delay) as ports, bench.place("fsync") as place:
                metrics = _times(place.run([bench.program("nvcache_mirror_bench"), "trips", "--count", num, "--size", MESSAGE,
                                            *(word for port in ports for word in ("--port", port))]))
            return [model.Outcome(what, {"delay": delay}, metrics)]
        if what == "postgres":
            return self._postgres(bench, system, delay, num)
        # As a program has it that nobody has told anything; at output, exclusive files alone gain.
        settings = systems.EXCLUSIVE if system == "told" else {"WRITE_BACK": "auto"}
        is_mirrored = system in UNDER_MIRROR
        commit = {"mirrored": "fsync", "plaintext": "fsync", "told": "output"}.get(system)
        with contextlib.ExitStack() as stack:
            place = stack.enter_context(bench.place("nvcache" if is_mirrored else system, pool=POOL, settings=settings,
                                                    commit=commit))
            if is_mirrored:
                stack.enter_context(mirrored.mirror(bench, place.pool, delay, system != "plaintext"))
            measure = {"write": self._write, "sqlite": self._sqlite, "rocksdb": self._rocksdb, "copy": self._copy}[what]
            metrics = measure(bench, place, case.parameters)
        parameters = {name: value for name, value in case.parameters.items() if name in ("delay", "threads")}
        return [model.Outcome(what, parameters, metrics)]

    @staticmethod
    def _postgres(bench, system, delay, num):
        user = servers.user(*mirror_postgres.USERS)
        is_mirrored = system == "mirrored"
        with contextlib.ExitStack() as stack:
            place = stack.enter_context(bench.place("nvcache" if is_mirrored else "fsync", pool=POOL,
                                                    settings={"WRITE_BACK": "auto"}, commit="fsync" if is_mirrored else None))
            servers.give(user, place.folder, *([place.pool.parent, place.pool] if is_mirrored else []))
            if is_mirrored:
                stack.enter_context(mirrored.mirror(bench, place.pool, delay, user=user))
            rates = mirror_postgres.measure(bench, place, user, delay, num, system == "standby")
        return [model.Outcome("postgres", {"delay": delay, "clients": clients}, {"rate": rate})
                for clients, rate in rates.items()]

    @staticmethod
    def _write(bench, place, parameters):
        path = place.folder / "file"
        metrics = _times(place.run([bench.program("nvcache_mirror_bench"), "write", "--file", path, "--count",
                                    parameters["num"], "--size", WRITE]))
        if path.stat().st_size != parameters["num"] * WRITE:
            raise systems.Broken("bytes are missing")
        return metrics

    @staticmethod
    def _sqlite(bench, place, parameters):
        report = json.loads(place.run([bench.program("nvcache_sqlite"), "--database", place.folder / "database",
                                       "--journal", "WAL", "--operations", "fillsync", "--num", parameters["num"]]))
        each = report["operations"][0]
        return {"rate": each["ops_per_second"], "p50": each["p50_micros"] * 1e3}

    @staticmethod
    def _rocksdb(_, place, parameters):
        found = rocksdb.parse(place.run(
            ["db_bench", f"--db={place.folder}/database", "--benchmarks=fillsync", f"--num={parameters['num']}",
             f"--threads={parameters['threads']}", "--sync=1", "--key_size=16", "--value_size=100",
             "--compression_type=none", "--histogram=1", "--seed=301", "--max_background_jobs=2"]))
        count, metrics, _ = found["fillsync"]
        if count <= 0:
            raise systems.Broken("db_bench has no result")
        return {"rate": metrics["rate"], **{p: metrics[p] for p in ("p50",) if p in metrics}}

    @staticmethod
    def _copy(_, place, parameters):
        source = place.folder / "source"
        source.mkdir()
        for number in range(parameters["num"]):
            (source / str(number)).write_bytes(bytes(1024 + number % 20 * 1024))
        target = place.fresh()
        seconds = float(place.run(
            ["sh", "-c", 'a=$(date +%s%N); cp -r "$1" "$2"; tar -cf "$2/tar" -C "$1" .; b=$(date +%s%N); echo $((b - a))',
             "sh", source, target])) / 1e9
        if len(list((target / "source").iterdir())) != parameters["num"]:
            raise systems.Broken("files are missing")
        return {"seconds": seconds}

    def goals(self, results):
        def find(what, system, **parameters):
            return results.find(self.name, what, system, **parameters)

        yield model.ratio("a write of 512 B to two of three servers, without delay, in terms of three TCP round trips", 1.5,
                          True, find("write", "plaintext", delay=0), find("write", "trips", delay=0), "p50",
                          "without TLS; with it: see the table")
        yield model.ratio("RocksDB, 100 µs: eight threads in terms of one", 5, False,
                          find("rocksdb", "mirrored", delay=100, threads=8),
                          find("rocksdb", "mirrored", delay=100, threads=1), "rate")
        for what, title, more in (("sqlite", "SQLite, WAL", {}), ("rocksdb", "RocksDB, one thread", {"threads": 1})):
            yield model.ratio(f"{title}, 500 µs, commit at output: a transaction in terms of libeatmydata", 1.3, True,
                              find(what, "told", delay=500, **more), find(what, "eatmydata", delay=500, **more), "p50")
        measured = {result.parameters["delay"] for result in results.select(self.name, "postgres")}
        for delay in sorted(measured):
            yield model.ratio(f"PostgreSQL, 8 clients, {delay} µs: in terms of its own standbys", 1, False,
                              find("postgres", "mirrored", delay=delay, clients=8),
                              find("postgres", "standby", delay=delay, clients=8), "rate")
        yield model.ratio("a program that never syncs: on a mirrored pool in terms of another one", 1.05, True,
                          find("copy", "mirrored", delay=0), find("copy", "nvcache", delay=0), "seconds")

    def tables(self, results):
        columns = ("mirrored", "plaintext", "told", "trips", "standby", "nvcache", "eatmydata", "fsync")
        rows = []
        for what, title, metric in (("write", "write of 512 B, and fdatasync", "p50"),
                                    ("sqlite", "SQLite, WAL, one row", "p50")):
            for delay in DELAYS:
                rows.append([f"{title}, {delay} µs", *(self._text(results.find(self.name, what, system, delay=delay), metric)
                                                       for system in columns)])
        for threads in (1, 8):
            for delay in DELAYS:
                rows.append([f"RocksDB, fillsync, {threads} threads, {delay} µs",
                             *(self._text(results.find(self.name, "rocksdb", system, delay=delay, threads=threads), "rate")
                               for system in columns)])
        for clients in mirror_postgres.CLIENTS:
            for delay in DELAYS:
                rows.append([f"PostgreSQL, pgbench, {clients} clients, {delay} µs",
                             *(self._text(results.find(self.name, "postgres", system, delay=delay, clients=clients), "rate")
                               for system in columns)])
        if not any(cell for row in rows for cell in row[1:]):
            return []
        return [model.Table(
            "The mirrored log", ["", *(SYSTEMS.get(name, systems.SYSTEMS.get(name)) for name in columns)], rows,
            "Median time of a call or transaction; of RocksDB and PostgreSQL, how many in a second.")]

    @staticmethod
    def _text(result, metric):
        if not result or not result.values(metric):
            return None
        return units.text(result.median(metric), model.METRICS[metric].unit)
