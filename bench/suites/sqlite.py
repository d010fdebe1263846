# SPDX-License-Identifier: BSD-3-Clause
"""SQLite: LevelDB's db_bench, transactions of different sizes, the four kinds of journal."""

import contextlib
import json
import re
import shutil
import sqlite3

from harness import bars, model, systems, units

SYSTEMS = ("through", "nvcache", "tmpfs", "eatmydata", "fsync")
JOURNALS = ("WAL", "TRUNCATE", "PERSIST", "DELETE")
GOALS = ("WAL", "TRUNCATE", "PERSIST")
WRITES = ("fillseq", "fillrandom", "overwrite", "fillsync")
READS = ("readrandom", "readseq")
MIX = ("mix-insert-1", "mix-insert-10", "mix-insert-100", "mix-update", "mix-select", "mix-delete")
PERCENTILES = ("p50", "p99", "p999", "p9999")
FLUSHES = "fsync,fdatasync,sync_file_range"
TRACED = 500  # transactions that strace counts the flushes of

DATABASE_PAGE = 4096  # bytes, as SQLite makes them


class Sqlite(model.Suite):
    name = "sqlite"
    title = "SQLite"
    about = (
        "Keys of 16 bytes, values of 100, as LevelDB's db_bench has them; synchronous=FULL everywhere, so "
        "that each transaction is durable when it returns, where the system keeps that promise "
        "(tmpfs and libeatmydata do not). fillseq, fillrandom, overwrite and fillsync write one "
        "row in each transaction; fillsync is fillrandom again, and is what the kinds of journal are "
        "compared by. The mix has an index, and transactions of up to 100 rows. Reads come from "
        "SQLite's own cache of 2 MB, and from the system beyond it. Each run ends, outside of its time, "
        "with PRAGMA integrity_check and the number of rows, by the program and again without NVCache.")

    def cases(self, scale):
        rows = scale.choose(1000, 3000, 20000)
        yield model.Case("writes, WAL", SYSTEMS, {
            "journal": "WAL", "operations": ",".join(WRITES), "num": rows}, rows * 4e-4)
        rows = scale.choose(1000, 1500, 10000)
        for journal in JOURNALS[1:]:
            yield model.Case(f"fillsync, {journal}", SYSTEMS, {
                "journal": journal, "operations": "fillsync", "num": rows}, rows * 4e-4)
        yield model.Case("mix, WAL", SYSTEMS, {
            "journal": "WAL", "operations": "mix", "num": scale.choose(1000, 6000, 60000)},
            scale.choose(0.3, 0.6, 3))
        rows = scale.choose(5000, 50000, 500000)
        yield model.Case("reads, WAL", SYSTEMS, {
            "journal": "WAL", "operations": ",".join(("fillbatch", *READS)), "num": rows},
            0.3 + rows * 1e-5)
        if shutil.which("strace"):
            for journal in JOURNALS:
                yield model.Case(f"flushes, {journal}", ("through", "nvcache", "fsync"), {
                    "journal": journal, "operations": "fillsync", "num": TRACED, "flushes": True},
                    1, repetitions=1)

    def run(self, bench, case, system, scale):
        parameters = case.parameters
        journal = parameters["journal"]
        settings = systems.EXCLUSIVE if system == "nvcache" else None
        with bench.place(system, pool=scale.choose("128M", "256M", "1G"), settings=settings) as place:
            path = place.folder / "database"
            command = [bench.program("nvcache_sqlite"), "--database", path, "--journal", journal,
                       "--operations", parameters["operations"], "--num", parameters["num"]]
            if "flushes" in parameters:
                return [self._flushes(place, command, parameters)]
            report = json.loads(place.run(command))
            self._check(bench, place, path, report)
        return [model.Outcome(each["name"], {"journal": journal}, {
            "ns": each["micros_per_op"] * 1e3, "rate": each["ops_per_second"],
            **{p: each[f"{p}_micros"] * 1e3 for p in PERCENTILES if f"{p}_micros" in each}})
            for each in report["operations"]]

    def _check(self, bench, place, path, report):
        """That the disk has what was reported, and that it went through the log."""
        with contextlib.closing(sqlite3.connect(path)) as database:
            if database.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                raise systems.Broken(f"{place.system}: the database is damaged")
            for table, want in report["rows"].items():
                found = database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                if found != want:
                    raise systems.Broken(f"{place.system}: {found} rows in {table}, not {want}")
        if place.pool:
            status = bench.counters(place)
            counters = status["statistics"]
            # Every transaction writes a page at least. No counter has records of write-through, which SQLite's
            # are once it takes turns by its locks; but they fill segments.
            logged = counters["entries_cleaned"] + counters["segments_taken"] * status["segment_size"] // DATABASE_PAGE
            if logged < sum(each["count"] for each in report["operations"]
                            if each["name"] not in (*READS, "mix-select")):
                raise systems.Broken(f"only {logged} records went through the log")
            if counters["full_waits"]:
                raise systems.Broken("the log was full: its pool is too small for this")

    def _flushes(self, place, command, parameters):
        """Flushes that the kernel sees for each transaction, all of the program."""
        trace = place.folder / "trace"
        # Only the traced program is to have the library, and only these calls are to be slower.
        preload = place.environment.pop("LD_PRELOAD", None)
        with_library = ["-E", f"LD_PRELOAD={preload}"] if preload else []
        place.run(["strace", "--seccomp-bpf", "-f", "-c", "-e", f"trace={FLUSHES}", "-o", trace, *with_library, *command])
        calls = sum(int(line.split()[3]) for line in trace.read_text().splitlines()
                    if re.search(rf" ({FLUSHES.replace(',', '|')})$", line))
        return model.Outcome("flushes", {"journal": parameters["journal"]},
                             {"count": calls / parameters["num"]})

    def goals(self, results):
        return [model.ratio(f"SQLite, one row in a transaction, {journal}, exclusive: throughput in terms of tmpfs",
                            0.9, False,
                            *(results.find(self.name, "fillsync", system, journal=journal)
                              for system in ("nvcache", "tmpfs")), "rate")
                for journal in GOALS] + [
                    model.ratio("SQLite, one row in a transaction, WAL: time by the default rule / libeatmydata", 1.25, True,
                                *(results.find(self.name, "fillsync", system, journal="WAL")
                                  for system in ("through", "eatmydata")), "ns")]

    def summary(self, results):
        shares = []
        for journal in JOURNALS:
            pair = [results.find(self.name, "fillsync", system, journal=journal)
                    for system in ("through", "fsync")]
            if not all(pair):
                return None
            shares.append(f"{journal} {pair[0].median('rate') / pair[1].median('rate'):.1f}")
        return ("Small durable transactions under NVCache in terms of the plain disk: "
                + ", ".join(shares) + " times as many in a second.")

    def figures(self, results):
        def groups(names, **parameters):
            return {name: lambda system, name=name: results.find(self.name, name, system, **parameters)
                    for name in names}

        journals = {journal: lambda system, journal=journal: results.find(
            self.name, "fillsync", system, journal=journal) for journal in JOURNALS}
        return [
            *bars.figure("sqlite-writes", "SQLite: writes",
                         "Time for each operation; every transaction with synchronous=FULL (the idea is "
                         "from the thesis, figure 3.13). Right: fillsync with each kind of journal.",
                         [bars.panel("journal mode WAL", groups(WRITES, journal="WAL"), SYSTEMS, "ns"),
                          bars.panel("fillsync", journals, SYSTEMS, "ns")]),
            *bars.figure("sqlite-reads", "SQLite: reads",
                         "Time for each row read; SQLite has a cache of its own (the idea is from the "
                         "thesis, figure 3.9).",
                         [bars.panel("", groups(READS, journal="WAL"), SYSTEMS, "ns")]),
            *bars.figure("sqlite-mix", "SQLite: a mix of transactions",
                         "Time for each transaction; the number is that of its rows.",
                         [bars.panel("journal mode WAL", groups(MIX, journal="WAL"), SYSTEMS, "ns")])]

    def tables(self, results):
        rows = []
        for journal in JOURNALS:
            found = {system: results.find(self.name, "fillsync", system, journal=journal)
                     for system in SYSTEMS}
            if not (found["nvcache"] and found["tmpfs"]):
                continue
            flushes = {system: results.find(self.name, "flushes", system, journal=journal)
                       for system in ("through", "nvcache", "fsync")}
            rows.append([journal,
                         *(units.text(result.median("ns"), "ns") if result else None
                           for result in found.values()),
                         f"{found['nvcache'].median('rate') / found['tmpfs'].median('rate'):.0%}",
                         *(f"{result.median('count'):.2f}" if result else None
                           for result in flushes.values())])
        return [model.Table(
            "SQLite: one row in a transaction", ["journal", *(systems.SYSTEMS[s] for s in SYSTEMS),
                                                 "exclusive in terms of tmpfs", "flushes under NVCache", "flushes, exclusive",
                                                 "flushes on the disk"], rows,
            "Time for a transaction. Flushes: calls of fsync and fdatasync that reach the kernel, for "
            "each transaction, those of NVCache's own threads and of the end of the program included; "
            "counted by strace in a run of its own. With DELETE the journal's removal is what ends a "
            "transaction; DELETE has no goal.")] if rows else []
