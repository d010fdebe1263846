# SPDX-License-Identifier: BSD-3-Clause
"""RocksDB, by its own db_bench."""

import re
import shutil

from harness import bars, model, systems, units

SYSTEMS = ("through", "nvcache", "tmpfs", "eatmydata", "fsync")
# fillseq last: then all keys are there, and can be counted.
WRITES = ("fillsync", "fillrandom", "overwrite", "fillseq")
READS = ("readrandom", "readseq")
VALUE = 100  # bytes
PERCENTILES = {"P50": "p50", "P99": "p99", "P99.9": "p999", "P99.99": "p9999"}


def parse(text):
    """db_bench's output: operation -> (how many, metrics)."""
    found = {}
    for match in re.finditer(r"^(\w+) +: +([\d.]+) micros/op (\d+) ops/sec [\d.]+ seconds (\d+) operations;"
                             r"(.*?)(?=^\w+ +: |\Z)", text, re.M | re.S):
        name, micros, rate, count, rest = match.groups()
        metrics = {"ns": float(micros) * 1e3, "rate": float(rate)}
        line = re.search(r"^Percentiles: (.*)", rest, re.M)
        if line:
            metrics |= {PERCENTILES[p]: float(value) * 1e3 for p, value in
                        re.findall(r"(P[\d.]+): ([\d.]+)", line[1]) if p in PERCENTILES}
        found[name] = int(count), metrics, rest
    return found


class RocksDb(model.Suite):
    name = "rocksdb"
    title = "RocksDB"
    about = (
        "Debian's db_bench, keys of 16 bytes, values of 100, no compression. Writes are synced, each "
        "of them; the memtable takes all of a run's writes, so that no flush and no compaction runs beside: "
        "what is compared is the write-ahead log. The synced disk does fewer operations. Reads are "
        "from tables after a compaction, with a block cache of 8 MiB; loading these is the only write "
        "that is not synced. At the end db_bench without NVCache counts the keys.")

    def missing(self, bench):
        return None if shutil.which("db_bench") else "db_bench is missing: install rocksdb-tools"

    def cases(self, scale):
        yield model.Case("writes", SYSTEMS, {"num": scale.choose(5000, 40000, 300000),
                                             "num_synced": scale.choose(500, 2000, 10000)},
                         scale.choose(0.6, 1.6, 8))
        yield model.Case("reads", SYSTEMS, {"num": scale.choose(20000, 200000, 2000000)},
                         scale.choose(0.6, 2, 15))

    def run(self, bench, case, system, scale):
        num = case.parameters["num"]
        synced = case.name == "writes"
        if synced and system == "fsync":
            num = case.parameters["num_synced"]
        operations = WRITES if synced else ("fillrandom", "compact", *READS)
        settings = systems.EXCLUSIVE if system == "nvcache" and synced else None
        with bench.place(system, pool=scale.choose("128M", "256M", "2G"), settings=settings) as place:
            def db_bench(names, *more, **options):
                return parse(place.run(
                    ["db_bench", f"--db={place.folder}/database", f"--benchmarks={','.join(names)}",
                     f"--num={num}", f"--sync={int(synced)}", "--key_size=16", f"--value_size={VALUE}",
                     "--compression_type=none", "--histogram=1", "--seed=301",
                     "--verify_checksum=1", "--max_background_jobs=2", *more], **options))

            found = db_bench(operations)
            missing = [name for name in operations
                       if name != "compact" and found.get(name, (0,))[0] <= 0]
            if missing:
                raise systems.Broken(f"db_bench has no result of {', '.join(missing)}")
            counters = bench.counters(place)["statistics"] if place.pool else None
            if synced and place.pool and bench.logged(place) < num * VALUE * len(WRITES):
                raise systems.Broken("not all was written to the log")
            if not synced and system == "nvcache" and counters["entries_cleaned"] < num * 0.5:
                raise systems.Broken(f"only {counters['entries_cleaned']} records went through the log")
            if counters and counters["full_waits"]:
                raise systems.Broken("the log was full: its pool is too small for this")
            place.environment.pop("LD_PRELOAD", None)
            keys = db_bench(["readseq"], "--use_existing_db=1")["readseq"][0]
            # fillrandom takes some keys twice, and reaches about 63 % of them.
            if not (num * 0.6 < keys < num * 0.66 or synced and keys == num):
                raise systems.Broken(f"{keys} keys are left of {num} that were written")
        return [model.Outcome(name, {"sync": synced}, metrics)
                for name, (_, metrics, _) in found.items() if name != "compact"]

    def goals(self, results):
        return [model.ratio("RocksDB, fillsync, exclusive: throughput in terms of tmpfs", 0.9, False,
                            *(results.find(self.name, "fillsync", system)
                              for system in ("nvcache", "tmpfs")), "rate"),
                model.ratio("RocksDB, fillsync: time by the default rule / libeatmydata", 1.25, True,
                            *(results.find(self.name, "fillsync", system)
                              for system in ("through", "eatmydata")), "ns")]

    def _groups(self, results, names, **parameters):
        return {name: lambda system, name=name: results.find(self.name, name, system, **parameters)
                for name in names}

    def figures(self, results):
        writes = ("fillseq", "fillrandom", "overwrite", "fillsync")
        return [
            *bars.figure("rocksdb-writes", "RocksDB: writes",
                         "Time for each operation (the idea is from the thesis, figure 3.13).",
                         [bars.panel("synced", self._groups(results, writes, sync=True), SYSTEMS, "ns"),
                          bars.panel("not synced", self._groups(results, ("fillrandom",), sync=False),
                                     SYSTEMS, "ns")]),
            *bars.figure("rocksdb-reads", "RocksDB: reads",
                         "Time for each row read; RocksDB has a cache of its own (the idea is from the "
                         "thesis, figure 3.9).",
                         [bars.panel("", self._groups(results, READS), SYSTEMS, "ns")])]

    def tables(self, results):
        rows = []
        for name, sync in (*((name, True) for name in WRITES), ("fillrandom", False),
                           *((name, False) for name in READS)):
            found = [results.find(self.name, name, system, sync=sync) for system in SYSTEMS]
            if found[1] and found[2]:
                rows.append([name + ("" if sync or name in READS else ", not synced"),
                             *(units.text(result.median("ns"), "ns") if result else None
                               for result in found),
                             f"{found[1].median('rate') / found[2].median('rate'):.0%}"])
        return [model.Table("RocksDB's db_bench", ["", *(systems.SYSTEMS[s] for s in SYSTEMS),
                                                   "exclusive in terms of tmpfs"], rows,
                            "Time for an operation.")] if rows else []
