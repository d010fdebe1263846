# SPDX-License-Identifier: BSD-3-Clause
"""fio: random writes to one file, with an fsync after each unless the system says otherwise."""

import json
import math
import os
import shutil
import statistics

from harness import model, series, systems, units

MIB = 1 << 20
BLOCK = 4096
# After how many writes fio syncs; 0: never.
SYNC_EVERY = {"pagecache": 0, "fsync1000": 1000}
COMPARED = ("through", "nvcache", "tmpfs", "eatmydata", "pagecache", "fsync1000", "fsync")
PERCENTILES = {"p50": "50.000000", "p99": "99.000000", "p999": "99.900000", "p9999": "99.990000"}
BATCHES = (1, 10, 100, 1000, 10000)
MORE_THAN_ALL = 300  # seconds after which a run that should have ended is taken for hanging
CHUNK = MIB
LAPS = ("first lap", "second lap")  # of one process, over a pool that another one has used
SECOND = 3  # seconds after the first has begun: the log is empty by then
WINDOWS, LEAST_WINDOW, MOST_WINDOW = 24, 0.01, 0.5  # of a run; in seconds


def _lay_out(path, size):
    """The file as it is before: all blocks there, on the disk, and in the page cache."""
    chunk = os.urandom(CHUNK)
    with open(path, "wb", buffering=0) as file:
        for _ in range(size // CHUNK):
            file.write(chunk)
        os.fsync(file.fileno())


def _job(name, path, total):
    return [f"--name={name}", f"--filename={path}", f"--size={total}", "--rw=randwrite", f"--bs={BLOCK}", "--ioengine=psync", "--thread=1",
            "--overwrite=1", "--fallocate=none", "--invalidate=0", "--percentile_list=50:99:99.9:99.99"]


def _jobs_of(text, system):
    """What fio's report says of its jobs that write."""
    jobs = [job for job in json.loads(text[text.index("{"):])["jobs"] if job["write"]["total_ios"] or job["error"]]
    if not jobs or any(job["error"] for job in jobs):
        raise systems.Broken(f"fio on {system}: {[(job['jobname'], job['error']) for job in jobs]}")
    return jobs


def _windows(path, seconds):
    """fio's log of all writes as [[end of the window in seconds, MiB/s], ...]. (fio's own averages leave
    out the windows in which nothing was written: where it waited for a full log.)"""
    width = min(MOST_WINDOW, max(LEAST_WINDOW, seconds / WINDOWS))
    counts = [0] * math.ceil(seconds / width)
    with open(path, encoding="ascii") as file:
        for line in file:
            time = int(line[:line.index(",")]) / 1000
            counts[min(int(time / width), len(counts) - 1)] += 1
    ends = [width * (i + 1) for i in range(len(counts) - 1)] + [seconds]
    begins = [0.0] + ends
    return [[end, count * BLOCK / MIB / (end - begin)]
            for begin, end, count in zip(begins, ends, counts) if end > begin], sum(counts)


class Fio(model.Suite):
    name = "fio"
    title = "Random writes with fio"
    about = (
        "fio writes 4 KiB blocks in random order over a whole file, each block once, with pwrite "
        "(psync) and one thread, and calls fsync after each write; where that is not so, the "
        "system's name says it. The file is laid out and synced before, by another program, and is "
        "in the page cache; fio does not drop it (invalidate=0), on any system. Every run has a new "
        "pool, so the time that it takes to map the log's pages for the first time is counted. What "
        "is in the log at the end is not counted. A first and a second lap of one process are told apart as well.")

    def missing(self, bench):
        return None if shutil.which("fio") else "fio is not installed"

    def cases(self, scale):
        total = scale.choose(32, 512, 2048)
        cap = scale.choose(0.5, 4, 20)
        seconds = scale.choose(0.7, 4, 15)
        yield model.Case("systems", COMPARED,
                         {"total": total * MIB, "pool": 2 * total * MIB, "cap": cap}, seconds=seconds)
        pool = scale.choose(8, 32, 128)
        yield model.Case("log full", ("nvcache", "fsync1000"),
                         {"total": total * MIB, "pool": pool * MIB, "cap": 3 * cap}, seconds=seconds)
        for pool in scale.choose((8, 64), (32, 128, 1024), (32, 128, 512, 2048)):
            yield model.Case(f"log of {units.text(pool * MIB, 'B')}", ("nvcache",),
                             {"total": total * MIB, "pool": pool * MIB, "cap": 3 * cap},
                             seconds=seconds)
        for batch in scale.choose((1, 1000), BATCHES, BATCHES):
            yield model.Case(f"batches of {batch}", ("nvcache",),
                             {"total": scale.choose(32, 384, 1024) * MIB,
                              "pool": scale.choose(8, 64, 64) * MIB, "cap": cap, "batch": batch},
                             seconds=seconds)
        total = scale.choose(8, 64, 64)
        yield model.Case("laps", ("nvcache",), {"total": total * MIB, "pool": 2 * total * MIB}, seconds=SECOND + 2)

    def run(self, bench, case, system, scale):
        return self._laps(bench, case, system) if case.name == "laps" else self._writes(bench, case, system)

    @staticmethod
    def _laps(bench, case, system):
        total = case.parameters["total"]
        with bench.place(system, pool=str(case.parameters["pool"])) as place:
            path = place.folder / "data"
            place.environment["NVCACHE_INCLUDE"] = str(path)
            _lay_out(path, total)
            one = ["--fsync=1", "--stonewall"]
            place.run(["fio", *_job("other", path, total), *one], timeout=MORE_THAN_ALL)
            text = place.run(["fio", *_job("first", path, total), *one, *_job("second", path, total), *one, f"--startdelay={SECOND}", "--output-format=json"],
                             timeout=MORE_THAN_ALL)
            writes = total // BLOCK
            return [model.Outcome(name, {"total": total}, {
                "ns": job["write"]["clat_ns"]["percentile"][PERCENTILES["p50"]], "rate": writes / (job["write"]["runtime"] / 1000),
                "faults": job["minf"] / writes}) for name, job in zip(LAPS, _jobs_of(text, system), strict=True)]

    @staticmethod
    def _writes(bench, case, system):
        settings = {"DRAIN_AT_EXIT": 0}
        batch = case.parameters.get("batch")
        if batch:
            settings |= {"BATCH_MIN": batch, "BATCH_MAX": batch}
        with bench.place(system, pool=str(case.parameters["pool"]), settings=settings) as place:
            path = place.folder / "data"
            if place.pool:
                place.environment["NVCACHE_INCLUDE"] = str(path)  # fio's logs are not cached
            _lay_out(path, case.parameters["total"])
            text = place.run(
                ["fio", *_job("w", path, case.parameters["total"]), f"--fsync={SYNC_EVERY.get(system, 1)}",
                 f"--runtime={case.parameters['cap']}s", f"--write_bw_log={place.folder}/log", "--output-format=json"],
                timeout=MORE_THAN_ALL)
            write = _jobs_of(text, system)[0]["write"]
            done, seconds = write["io_bytes"], max(1, write["runtime"]) / 1000
            windows, count = _windows(place.folder / "log_bw.1.log", seconds)
            if count != done // BLOCK:
                raise systems.Broken(f"fio on {system} logged {count} of {done // BLOCK} writes")
            metrics = {"bandwidth": done / MIB / seconds, "rate": done / BLOCK / seconds,
                       "seconds": seconds} | {
                           name: write["clat_ns"]["percentile"][key] for name, key in PERCENTILES.items()}
            if place.pool:
                room = bench.logged(place)
                if room < done:
                    raise systems.Broken(f"{done} bytes were written, {room} at most went through "
                                         "the log")
                metrics["count"] = bench.counters(place)["statistics"]["full_waits"]
        parameters = {key: case.parameters[key] for key in ("total", "pool", "batch")
                      if key in case.parameters}
        late = series.after(windows, seconds / 2)
        return [model.Outcome(case.name, parameters, metrics, {"bandwidth": windows}),
                model.Outcome(f"{case.name}, second half", parameters, {"bandwidth": late})]

    def goals(self, results):
        def find(system, name="systems"):
            return results.find(self.name, name, system)

        cached = find("nvcache")
        full = "log full, second half"
        return [
            model.ratio("fio random write 4 KiB, fsync=1, log not full, exclusive: against tmpfs", 1, False,
                        cached, find("tmpfs"), "bandwidth"),
            model.ratio("fio random write 4 KiB, fsync=1, log not full, exclusive: against the disk", 100, False,
                        cached, find("fsync"), "bandwidth"),
            model.ratio("fio random write 4 KiB, log full, exclusive: against the disk, fsync every 1,000 writes",
                        0.95, False, find("nvcache", full), find("fsync1000", full), "bandwidth",
                        note="second half of the time that the writes take"),
            model.ratio("fio p99.9 of a 4 KiB pwrite, log not full, exclusive: against tmpfs", 2, True,
                        cached, find("tmpfs"), "p999"),
            model.ratio("fio random write 4 KiB, fsync=1, log not full, default rule: against libeatmydata", 0.8, False,
                        find("through"), find("eatmydata"), "bandwidth"),
        ]

    def summary(self, results):
        found = {s: results.find(self.name, "systems", s) for s in ("through", "nvcache", "tmpfs", "fsync")}
        if not all(found.values()):
            return None
        rates = {system: result.median("bandwidth") for system, result in found.items()}
        return (f"While its log has room, NVCache takes {units.text(rates['nvcache'], 'MiB/s')} of "
                f"durable random 4 KiB writes to an exclusive file: {units.digits(rates['nvcache'] / rates['tmpfs'])} "
                f"times tmpfs, {units.digits(rates['nvcache'] / rates['fsync'])} times the disk with "
                "an fsync after each. By the default rule: "
                f"{units.text(rates['through'], 'MiB/s')}.")

    def figures(self, results):
        figures = []
        logs = sorted((r for r in results.select(self.name, system="nvcache")
                       if r.name.startswith("log of ") and "second" not in r.name),
                      key=lambda r: r.parameters["pool"])
        if logs:
            named = [(f"log of {units.text(r.parameters['pool'], 'B')}", r, None) for r in logs]
            figures.append(model.Figure(
                "fio-log-size", "Random writes while the log fills",
                "NVCache with logs of several sizes writes the same data. First it runs at the speed "
                "of memory; from the moment the log is full, at the speed of the disk. The larger "
                "the log, the later. After the thesis, figure 3.10.",
                self._over_time(named, False), columns=1))
        batches = sorted((r for r in results.select(self.name, system="nvcache")
                          if "batch" in r.parameters), key=lambda r: r.parameters["batch"])
        late = [r for r in batches if r.name.endswith("second half")]
        batches = [r for r in batches if r not in late]
        if batches:
            over_time = series.line
            figures.append(model.Figure(
                "fio-batch", "The size of a write-back batch",
                "How many log records go to the disk with one sync. While the log has room it makes "
                "no difference; once it is full, a sync for each record costs most of the disk's "
                "speed, and beyond batches of a thousand little is left to gain. After the thesis, figure 3.11.",
                [model.Panel("Bandwidth over time", "seconds", "bandwidth",
                             [over_time(units.digits(r.parameters["batch"]), r, "bandwidth")
                              for r in batches], log_y=True, y_unit="MiB/s"),
                 model.Panel("Once the log is full", "records in a batch", "bandwidth",
                             [model.line("", late, "batch", "bandwidth")], log_x=True,
                             y_unit="MiB/s")]))
        compared = [(systems.SYSTEMS[s], results.find(self.name, "systems", s), s) for s in COMPARED]
        compared = [entry for entry in compared if entry[1]]
        if compared:
            figures.append(model.Figure(
                "fio-systems", "Random writes on all systems",
                "The same writes on all systems, each with what it takes there to be safe, or "
                "without being safe. Both axes are logarithmic: each line of the grid is ten times "
                "the one before. The time per write has the fsync in it. After the thesis, figure 3.12.",
                self._over_time(compared, True), columns=1))
        return figures

    def _over_time(self, named, logarithmic):
        """Bandwidth, time per write and progress of (label, result, system)."""
        panels = []
        for title, unit, change in (("Bandwidth", "MiB/s", None),
                                    ("Time per write", "ns", series.time_per_block(BLOCK)),
                                    ("Written so far", "B", series.progress)):
            lines = [series.line(label, result, "bandwidth", system, change)
                     for label, result, system in named]
            panels.append(model.Panel(
                title, "seconds", "", lines, log_x=logarithmic,
                log_y=logarithmic or unit == "ns", y_unit=unit))
        return panels

    def tables(self, results):
        rows = []
        for system in COMPARED:
            result = results.find(self.name, "systems", system)
            if result:
                rows.append([systems.SYSTEMS[system], units.text(result.median("bandwidth"), "MiB/s"),
                             units.text(result.median("rate"), "1/s"),
                             *(units.text(result.median(p), "ns") for p in PERCENTILES)])
        tables = [model.Table(
            "fio, 4 KiB random writes, log not full",
            ["", "bandwidth", "writes", "median", "p99", "p99.9", "p99.99"], rows,
            "Percentiles are those of pwrite alone, without the fsync behind it.")] if rows else []
        laps = [results.find(self.name, name, "nvcache") for name in LAPS]
        if all(laps):
            tables.append(model.Table(
                "fio, first lap", ["exclusive, 4 KiB at random", "writes", "median", "faults a write"],
                [[title, units.text(each.median("rate"), "1/s"), units.text(each.median("ns"), "ns"), f"{each.median('faults'):.3f}"]
                 for title, each in zip(("pool used by others", "pool met"), laps)],
                "One process, over a pool that another one has used; then once more, when the log is empty. All page faults count, fio's own as well."))
        rows = []
        for result in results.select(self.name):
            if result.name.startswith(("log of", "log full", "batches of")) and "half" not in result.name:
                late = results.find(self.name, f"{result.name}, second half", result.system,
                                    **result.parameters)
                rows.append([f"{result.name}" if result.system == "nvcache" else
                             systems.SYSTEMS[result.system],
                             units.text(result.parameters["pool"], "B"),
                             units.text(result.parameters["total"], "B"),
                             units.text(statistics.median(result.values("bandwidth")), "MiB/s"),
                             units.text(late.median("bandwidth"), "MiB/s") if late else None])
        if rows:
            tables.append(model.Table("fio, 4 KiB random writes, more than the log",
                                      ["", "pool", "at most written", "on average", "second half of the time"],
                                      rows))
        return tables
