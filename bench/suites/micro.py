# SPDX-License-Identifier: BSD-3-Clause
"""One call: what it costs, in the middle and at worst, and how threads share."""

import json

from harness import model, systems, units

SIZES = (64, 512, 4096, 65536, 1 << 20)
NAMES = {64: "64 B", 512: "512 B", 4096: "4 KiB", 65536: "64 KiB", 1 << 20: "1 MiB"}
THREADS = (1, 2, 4, 8)
READ_AREAS = {1 << 20: "within 1 MiB (processor's caches)", 64 << 20: "within 64 MiB (memory)"}
PERCENTILES = {"p50": "p50", "p99": "p99", "p999": "p99.9", "p9999": "p99.99"}
THREADS_AREA = 16 << 20
LATENCY_SIZE = 4096
DURABLE = ("fsync", "eatmydata", "through")  # systems on which each write is followed by fdatasync
PLAIN = ("nvcache", "tmpfs", "pagecache")
# The cleanup thread does nothing until a quarter of the log is full.
HELD_BACK = {"BATCH_MIN": 1 << 20, "BATCH_MAX": 1 << 20, "BATCH_DELAY": 60000}
# The driver has parts of the engine in it, for the limit of the memory, and these call the kernel past libc: but
# never on a file.
TRUSTED = {"RAW": "trust"}
POOL, POOL_SMOKE = 1 << 30, 128 << 20

# Reads: name -> what it is, in a table and in a figure.
READS = {
    "cold": ("4 KiB pread, not in DRAM", "not in DRAM"),
    "dirty": ("4 KiB pread, not in DRAM and pending in the log", "and in the log"),
    "mixed": ("three pwrites to seven preads of 4 KiB, room for a quarter of them in DRAM",
              "with writes"),
}
KINDS = {
    "append": "append",
    "pwritev4": "pwritev of 4 pieces",
    "pwritev16": "pwritev of 16 pieces",
    "overlap": "pwrite within 4 pages",
}
# A name, its parameters, and what the driver is told.
_KINDS = (
    ("append", {"size": 64}, {"op": "append"}), ("append", {"size": 512}, {"op": "append"}),
    ("append", {"size": 4096}, {"op": "append"}), ("append", {"size": 65536}, {"op": "append"}),
    ("pwritev4", {"size": 512}, {"op": "pwritev", "buffers": 4}),
    ("pwritev4", {"size": 4096}, {"op": "pwritev", "buffers": 4}),
    ("pwritev16", {"size": 65536}, {"op": "pwritev", "buffers": 16}),
    ("overlap", {"size": 64}, {"op": "pwrite", "area": 16384}),
    ("overlap", {"size": 512}, {"op": "pwrite", "area": 16384}),
    ("overlap", {"size": 4096}, {"op": "pwrite", "area": 16384}),
)


def _calls(size, scale):
    """At most half of the log, and from 4 KiB downwards enough for p99.99."""
    if scale.name == "smoke":
        return {64: 2048, 512: 2048, 4096: 2048, 65536: 64, 1 << 20: 8}[size]
    return min(131072, (256 << 20) // size) if size > 4096 else 131072


def _writes(system, scale):
    """One call of each size, at random places of a file of which nothing is in DRAM."""
    for size in SIZES:
        spec = {"op": "pwrite", "size": size, "calls": _calls(size, scale), "percentiles": 1}
        if system == "limit":
            spec["op"] = "limit"
            yield "one fence", {"size": size}, spec | {"fences": 1, "percentiles": 0}
        elif system in DURABLE:
            spec["sync"] = 1
            if system == "fsync":
                spec["calls"] = scale.choose(10, 300, 2000)
        yield "pwrite", {"size": size}, spec
        if system == "nvcache":
            yield "pwrite hot", {"size": size}, spec | {"hot": 1}


def _kinds(system, scale):
    for name, parameters, spec in _KINDS:
        size = parameters["size"]
        calls = min(_calls(size, scale), scale.choose(1024, 32768, 32768))
        yield name, parameters, spec | {"size": size, "calls": calls}


def _threads(system, scale):
    """The same number of calls in all; less than what wakes the cleanup thread."""
    for files in ("one", "many") if system != "limit" else ("one",):
        for threads in THREADS:
            yield "threads", {"threads": threads, "files": files}, {
                "op": "limit" if system == "limit" else "pwrite", "size": 4096,
                "calls": scale.choose(2048, 57344, 57344) // threads, "area": THREADS_AREA,
                "rounds": scale.choose(1, 3, 9), "threads": threads,
                "own": int(files == "many")}


def _threads_with_cleanup(system, scale):
    for name, parameters, spec in _threads(system, scale):
        yield f"{name}, cleanup running", parameters, spec


def _hot_reads(system, scale):
    for area in READ_AREAS:
        yield "hot", {"area": area}, {"op": "pread", "area": area, "hot": 1, "percentiles": 1,
                                      "calls": scale.choose(2000, 131072, 131072)}


def _cold_reads(system, scale):
    calls = scale.choose(1024, 16384, 16384)  # of 16,384 pages
    yield "cold", {}, {"op": "pread", "calls": calls, "rounds": scale.choose(1, 4, 8),
                       "percentiles": 1}
    yield "dirty", {}, {"op": "dirty", "calls": calls, "percentiles": 1}


def _mixed(system, scale):
    yield "mixed", {}, {"op": "mixed", "calls": scale.choose(1000, 100000, 100000)}


def _first_lap(system, scale):
    """Over a pool that another process has used, and this one has not; in a small file, so that to make it meets little
    of the pool. Half of the log."""
    for size in (4096, 65536):
        yield "first lap", {"size": size}, {"op": "pwrite", "size": size, "area": 1 << 20,
                                            "calls": scale.choose(POOL_SMOKE, POOL, POOL) // 2 // size}


def _second_lap(system, scale):
    for _, parameters, spec in _first_lap(system, scale):
        yield "second lap", parameters, spec


class _Group:
    """What one run of the driver measures. `meets`: the pool's memory is met first; else by another process, and each
    spec has a process of its own."""

    def __init__(self, specs, on, seconds, dram="256M", settings=None, meets=True):
        self.specs, self.on, self.seconds = specs, on, seconds
        self.dram, self.settings, self.meets = dram, settings, meets


GROUPS = {
    "writes": _Group(_writes, ("limit", "through", "nvcache", "tmpfs", "pagecache", "passthrough", "eatmydata",
                               "fsync"), 2),
    "first lap": _Group(_first_lap, ("nvcache",), 3, settings=HELD_BACK, meets=False),
    "second lap": _Group(_second_lap, ("nvcache",), 2, settings=HELD_BACK),
    "kinds of writes": _Group(_kinds, PLAIN, 1.5),
    "threads": _Group(_threads, ("limit", *PLAIN), 2.5, settings=HELD_BACK),
    "threads, cleanup running": _Group(_threads_with_cleanup, ("nvcache",), 3),
    "hot reads": _Group(_hot_reads, PLAIN, 1),
    "cold reads": _Group(_cold_reads, PLAIN, 1, dram="1M", settings=HELD_BACK),
    "mixed": _Group(_mixed, PLAIN, 1, dram="16M"),
}


def _check(system, name, spec, line):
    """Broken, unless the driver has measured what the case says."""
    calls = spec["calls"] * spec.get("threads", 1) * (spec.get("rounds", 1)
                                                      + spec.get("percentiles", 0))
    counters = line.get("counters", {})
    wrong = None
    if system == "passthrough":
        if counters["bytes_cleaned"]:
            wrong = "went through the log"
    elif system == "nvcache":
        if counters["bytes_cleaned"] != line["written"]:
            wrong = (f"{line['written']} bytes were written, {counters['bytes_cleaned']} went "
                     "through the log")
        elif counters["full_waits"]:
            wrong = "the log was full"
        elif name == "hot" and counters["misses"]:
            wrong = f"{counters['misses']} pages were not in DRAM"
        elif name == "cold" and counters["misses"] < 0.9 * calls:
            wrong = f"only {counters['misses']} of {calls} pages were not in DRAM"
        elif name == "dirty" and counters["dirty_misses"] < 0.9 * calls:
            wrong = f"only {counters['dirty_misses']} of {calls} were dirty misses"
    if wrong:
        raise systems.Broken(f"{name} {spec}: {wrong}")


class Micro(model.Suite):
    name = "micro"
    title = "One call"
    about = (
        "A small program times its own calls; each file has 64 MiB, is on disk and in the page cache, "
        "and offsets are random multiples of the size. The time of a call is the median of batches; "
        "percentiles are of calls that were timed one by one, less what timing nothing takes. Of "
        "NVCache, one lap of the log was written before, the log is empty when a measurement begins, "
        "and does not fill. The persist limit is what durability costs on the same memory without any "
        "file: copy the payload around the cache, write the header back, fence, commit word, write it "
        "back, fence; with one fence, a checksum would have to tell whether all of it arrived. Threads "
        "share 16 MiB, in one file or in one each, and write less than what wakes the cleanup thread, "
        "which would take a processor of its own. Every byte that was written is read again, and must "
        "have gone through the log.")

    def cases(self, scale):
        return [model.Case(name, group.on, seconds=scale.choose(0.2, 1, 1.5) * group.seconds)
                for name, group in GROUPS.items()]

    def run(self, bench, case, system, scale):
        group = GROUPS[case.name]
        specs = list(group.specs(system, scale))
        pool = scale.choose(POOL_SMOKE, POOL, POOL)
        settings = {**(group.settings or {}), **TRUSTED}
        with bench.place(system, pool=str(pool), dram=group.dram, settings=settings) as place:
            command = [bench.program("nvcache_micro"), place.folder]
            warm = [f"--warm={pool}"] if system in ("nvcache", "through") else []
            words = [",".join(f"{word}={value}" for word, value in spec.items()) for _, _, spec in specs]
            if group.meets:
                said = place.run([*command, *warm, *words])
            else:
                with bench.checkpointer(place, {}):  # which has the pool in huge pages, if that is wanted
                    place.run([*command, *warm])
                    said = "".join(place.run([*command, word]) for word in words)
            lines = [json.loads(line) for line in said.splitlines()]
            for (_, _, spec), line in zip(specs, lines):
                line["faults"] /= spec["calls"] * spec.get("threads", 1) * (spec.get("rounds", 1) + spec.get("percentiles", 0))
            if len(lines) != len(specs):
                raise systems.Broken(f"{len(specs)} measurements, {len(lines)} results")
            if system == "nvcache":
                status = bench.counters(place)
                counters = status["statistics"]
                if not systems.went_round(status):
                    raise systems.Broken("the log was not warm: it was never written as a whole")
                if counters["bytes_cleaned"] < sum(line["written"] for line in lines):
                    raise systems.Broken("the pool has not counted all that was written")
        for (name, _, spec), line in zip(specs, lines):
            _check(system, name, spec, line)
        return [model.Outcome(name, parameters,
                              {metric: value for metric, value in line.items()
                               if metric in model.METRICS})
                for (name, parameters, _), line in zip(specs, lines)]

    # -----------------------------------------------------------------------------------------------

    def goals(self, results):
        def find(name, system, **parameters):
            return results.find(self.name, name, system, **parameters)

        goals = []
        for size, limit in ((64, 1.2), (512, 1.2), (4096, 1.4), (65536, 1.3)):
            goals.append(model.ratio(
                f"{NAMES[size]} pwrite / persist limit", limit, True,
                find("pwrite", "nvcache", size=size), find("pwrite", "limit", size=size), "ns"))
        goals.append(model.ratio(
            "4 KiB pwrite / tmpfs pwrite", 1.0, True, find("pwrite", "nvcache", size=4096),
            find("pwrite", "tmpfs", size=4096), "ns"))
        goals.append(model.ratio(
            "99.9th percentile of 4 KiB pwrite / that of tmpfs", 2.0, True,
            find("pwrite", "nvcache", size=4096), find("pwrite", "tmpfs", size=4096), "p999",
            note="the log does not fill"))
        beside = model.ratio("", 0, False, find("hot", "pagecache", area=64 << 20),
                             find("hot", "nvcache", area=64 << 20), "ns").measured
        goals.append(model.ratio(
            "page cache / NVCache, hot 4 KiB pread", 4.0, False,
            find("hot", "pagecache", area=1 << 20), find("hot", "nvcache", area=1 << 20), "ns",
            note="within 1 MiB" + (f"; within 64 MiB: {units.text(beside, 'x')}" if beside else "")))
        for name, what in (("cold", "cold 4 KiB pread / page cache"),
                           ("mixed", "mixed reads and writes / page cache")):
            goals.append(model.ratio(what, 1.1, True, find(name, "nvcache"),
                                     find(name, "pagecache"), "ns"))
        for files, what in (("one", "one file, disjoint pages"), ("many", "a file each")):
            goals.append(model.ratio(
                f"two threads / one thread, {what}", 1.8, False,
                find("threads", "nvcache", threads=2, files=files),
                find("threads", "nvcache", threads=1, files=files), "rate",
                note="calls per second; cleanup held back"))
        return goals

    def summary(self, results):
        ours, limit, synced = (results.find(self.name, "pwrite", system, size=4096)
                               for system in ("nvcache", "limit", "fsync"))
        if not (ours and limit and synced):
            return None
        return (f"A durable write of 4 KiB takes {units.text(ours.median('ns'), 'ns')}, "
                f"{ours.median('ns') / limit.median('ns'):.2f} times what the memory asks for; "
                f"with fdatasync it takes {units.text(synced.median('ns'), 'ns')}.")

    # -----------------------------------------------------------------------------------------------

    def _bars(self, results, title, groups, metric="ns", y_title="time per call", log_y=False):
        """`groups`: title -> (name, parameters); a bar for each system."""
        lines = []
        for system in PLAIN:
            found = {text: results.find(self.name, name, system, **parameters)
                     for text, (name, parameters) in groups.items()}
            found = {text: result for text, result in found.items() if result}
            if found:
                spread = [result.spread(metric) for result in found.values()]
                lines.append(model.Line(
                    systems.SYSTEMS[system], list(found), [r.median(metric) for r in found.values()],
                    [low for low, _ in spread], [high for _, high in spread], system))
        return model.Panel(title, "", y_title, lines, bars=True, log_y=log_y, y_unit="ns")

    def _lines(self, results, name, on, parameter, metric, **parameters):
        lines = [model.line(systems.SYSTEMS[system],
                            results.select(self.name, name, system, **parameters), parameter, metric)
                 for system in on]
        return [line for line in lines if line.x]

    def _latencies(self, results):
        lines = []
        for system in GROUPS["writes"].on:
            result = results.find(self.name, "pwrite", system, size=LATENCY_SIZE)
            there = [metric for metric in PERCENTILES if result and result.values(metric)]
            if there:
                spread = [result.spread(metric) for metric in there]
                lines.append(model.Line(
                    systems.SYSTEMS[system], [PERCENTILES[metric] for metric in there],
                    [result.median(metric) for metric in there], [low for low, _ in spread],
                    [high for _, high in spread], system))
        return model.Panel("4 KiB pwrite", "", "latency", lines, bars=True, log_y=True, y_unit="ns")

    def figures(self, results):
        sizes = self._lines(results, "pwrite", GROUPS["writes"].on, "size", "ns")
        one_fence = results.select(self.name, "one fence", "limit")
        if one_fence:
            sizes.append(model.line("persist limit, one fence", one_fence, "size", "ns"))
        hot = results.select(self.name, "pwrite hot", "nvcache")
        if hot:
            sizes.append(model.line("NVCache, page in DRAM", hot, "size", "ns"))
        threads = [
            model.Panel(title, "threads", "calls per second",
                        self._lines(results, name, on, "threads", "rate", files=files),
                        log_x=True, y_unit="1/s")
            for title, name, on, files in (
                ("one file, disjoint pages", "threads", GROUPS["threads"].on, "one"),
                ("a file each", "threads", PLAIN, "many"),
                ("one file, cleanup running", "threads, cleanup running", ("nvcache",), "one"),
                ("a file each, cleanup running", "threads, cleanup running", ("nvcache",), "many"))]
        return [
            model.Figure(
                "micro-sizes", "Time of one write",
                "A line of NVCache that follows the persist limit does little besides. Systems that "
                "are synced sync after each write.",
                [model.Panel("pwrite", "size", "time per call", sizes, log_x=True, log_y=True,
                             x_unit="B", y_unit="ns")], columns=1),
            model.Figure(
                "micro-kinds", "Other writes",
                "Appends to an empty file, vectors, and the same four pages again and again.",
                [self._bars(results, NAMES[size],
                            {KINDS[name]: (name, parameters) for name, parameters, _ in _KINDS
                             if parameters["size"] == size})
                 for size in SIZES if any(p["size"] == size for _, p, _ in _KINDS)]),
            model.Figure(
                "micro-threads", "Threads",
                "4 KiB writes. Threads that have disjoint pages share the log's head and nothing else, "
                "as long as there are processors for them; the cleanup thread wants one, too.",
                threads),
            model.Figure(
                "micro-latency", "Latency",
                "How long the slowest of a hundred, a thousand, ten thousand calls take.",
                [self._latencies(results)], columns=1),
            model.Figure(
                "micro-reads", "Reads",
                "From DRAM, from the kernel's page cache, and put together with what is pending in the "
                "log.",
                [self._bars(results, "hot 4 KiB pread",
                            {f"within {area >> 20} MiB": ("hot", {"area": area}) for area in READ_AREAS}),
                 self._bars(results, "other 4 KiB reads",
                            {text: (name, {}) for name, (_, text) in READS.items()})]),
        ]

    # -----------------------------------------------------------------------------------------------

    def _row(self, results, title, columns, metric="ns"):
        """`columns`: (name, system, parameters) for each. None if nothing was measured."""
        found = [results.find(self.name, name, system, **parameters)
                 for name, system, parameters in columns]
        if not any(found):
            return None
        unit = model.METRICS[metric].unit
        return [title, *(units.text(r.median(metric), unit) if r and r.values(metric) else None
                         for r in found)]

    def _ratios(self, results, title, over, under, metric="ns"):
        """Each a list of (name, system, parameters)."""
        cells = []
        for a, b in zip(over, under):
            goal = model.ratio("", 0, True, results.find(self.name, a[0], a[1], **a[2]),
                               results.find(self.name, b[0], b[1], **b[2]), metric)
            cells.append(None if goal.measured is None else f"{goal.measured:.2f}")
        return [f"*{title}*", *cells] if any(cells) else None

    def _one_call(self, results):
        def at(name, system):
            return [(name, system, {"size": size}) for size in SIZES]

        rows = [self._row(results, title, at(name, system)) for title, name, system in (
            ("persist limit, one fence", "one fence", "limit"),
            ("persist limit (copy and two fences)", "pwrite", "limit"),
            ("**NVCache pwrite**, exclusive, durable", "pwrite", "nvcache"),
            ("NVCache pwrite, exclusive, page in the DRAM cache", "pwrite hot", "nvcache"),
            ("tmpfs pwrite", "pwrite", "tmpfs"),
            ("page cache pwrite, not durable", "pwrite", "pagecache"),
            ("page cache pwrite under NVCache, file not cached", "pwrite", "passthrough"),
            ("**NVCache pwrite + fdatasync**, default rule, durable", "pwrite", "through"),
            ("pwrite + fdatasync under libeatmydata, not durable", "pwrite", "eatmydata"),
            ("pwrite + fdatasync, durable", "pwrite", "fsync"))]
        rows += [self._ratios(results, title, at(*over), at(*under)) for title, over, under in (
            ("exclusive / persist limit", ("pwrite", "nvcache"), ("pwrite", "limit")),
            ("exclusive / tmpfs", ("pwrite", "nvcache"), ("pwrite", "tmpfs")),
            ("exclusive, page in DRAM / tmpfs", ("pwrite hot", "nvcache"), ("pwrite", "tmpfs")),
            ("default rule / libeatmydata", ("pwrite", "through"), ("pwrite", "eatmydata")),
            ("pwrite + fdatasync / exclusive", ("pwrite", "fsync"), ("pwrite", "nvcache")),
            ("pwrite + fdatasync / default rule", ("pwrite", "fsync"), ("pwrite", "through")))]
        return "One call", ["one call", *NAMES.values()], rows

    def _laps(self, results):
        rows = []
        for size in (4096, 65536):
            found = [results.find(self.name, name, "nvcache", size=size) for name in ("first lap", "second lap")]
            if all(found):
                first, second = found
                rows.append([NAMES[size], units.text(first.median("ns"), "ns"), units.text(second.median("ns"), "ns"),
                             units.text(first.median("ns") / second.median("ns"), "x"),
                             *(f"{each.median('faults'):.2f}" for each in found)])
        return "First lap", ["pwrite, exclusive", "pool used by others", "pool met", "ratio", "faults a call", "faults, pool met"], rows

    def _reads(self, results):
        def at(system):
            return [("hot", system, {"area": area}) for area in READ_AREAS]

        rows = [self._row(results, title, at(system)) for title, system in (
            ("NVCache", "nvcache"), ("page cache", "pagecache"), ("tmpfs", "tmpfs"))]
        rows.append(self._ratios(results, "page cache / NVCache", at("pagecache"), at("nvcache")))
        return "Hot reads", ["hot 4 KiB pread", *READ_AREAS.values()], rows

    def tables(self, results):
        where = [systems.SYSTEMS[system] for system in PLAIN]
        tables = [self._one_call(results), self._laps(results), self._reads(results)]
        tables.append(("Other reads", ["one call", *where], [
            self._row(results, text, [(name, system, {}) for system in PLAIN])
            for name, (text, _) in READS.items()]))
        tables.append(("Other writes", ["one call", *where], [
            self._row(results, f"{KINDS[name]}, {NAMES[parameters['size']]}",
                      [(name, system, parameters) for system in PLAIN])
            for name, parameters, _ in _KINDS]))
        tables.append(("Latency of a 4 KiB write", ["", *PERCENTILES.values()], [
            self._percentiles(results, system) for system in GROUPS["writes"].on]))
        tables.append(("Threads: calls per second", [
            "4 KiB writes", *(f"{n} thread{'s' * (n > 1)}" for n in THREADS)], [
            self._row(results, text, [(name, system, {"threads": n, "files": files})
                                      for n in THREADS], "rate")
            for text, name, system, files in (
                ("persist limit", "threads", "limit", "one"),
                ("NVCache, one file", "threads", "nvcache", "one"),
                ("NVCache, a file each", "threads", "nvcache", "many"),
                ("NVCache, one file, cleanup running", "threads, cleanup running", "nvcache", "one"),
                ("NVCache, a file each, cleanup running", "threads, cleanup running", "nvcache",
                 "many"),
                ("tmpfs, one file", "threads", "tmpfs", "one"),
                ("tmpfs, a file each", "threads", "tmpfs", "many"),
                ("page cache, one file", "threads", "pagecache", "one"),
                ("page cache, a file each", "threads", "pagecache", "many"))]))
        return [model.Table(title, head, [row for row in rows if row])
                for title, head, rows in tables if any(rows)]

    def _percentiles(self, results, system):
        result = results.find(self.name, "pwrite", system, size=LATENCY_SIZE)
        if not result:
            return None
        return [systems.SYSTEMS[system],
                *(units.text(result.median(metric), "ns") if result.values(metric) else None
                  for metric in PERCENTILES)]
