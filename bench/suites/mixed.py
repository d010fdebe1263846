# SPDX-License-Identifier: BSD-3-Clause
"""Reads and writes at random, mixed, by fio."""

import json
import os
import shutil

from harness import bars, model, systems, units

SYSTEMS = ("nvcache", "tmpfs", "pagecache", "eatmydata", "fsync")
MIXES = {100: "read", 90: "90/10", 50: "50/50", 0: "write"}  # share of reads, in percent
DISTRIBUTIONS = {"uniform": "random", "zipf": "zipf:1.2"}
BLOCK = 4096
MIB = 1 << 20


class Data:
    """A file in terms of NVCache's DRAM cache."""

    def __init__(self, title, size, dram, cold, others):
        self.title, self.size, self.dram, self.cold, self.systems = title, size, dram, cold, others


DATA = {
    "smaller": Data("smaller than the DRAM cache", 16 * MIB, "64M", False, SYSTEMS),
    "larger": Data("larger than the DRAM cache, in the page cache", 32 * MIB, "8M", False,
                   ("nvcache", "pagecache")),
    "cold": Data("larger than the DRAM cache, cold", 32 * MIB, "8M", True, SYSTEMS),
}


class Mixed(model.Suite):
    name = "mixed"
    title = "Mixed reads and writes"
    about = (
        "fio, psync, blocks of 4 KiB at random places, uniform or with a Zipf distribution of 1.2; each "
        "mix with a file of its own. The file is opened with O_DSYNC, so that every write is "
        "durable when it returns, but for the disk that is never synced. Three sizes: a file that fits into "
        "NVCache's DRAM cache; one of four times its size that is in the kernel's page cache; and the same one "
        "when the page cache has nothing of it at the start (on tmpfs there is no such thing). The synced "
        "disk does fewer calls.")

    def missing(self, bench):
        return None if shutil.which("fio") else "fio is missing: install it"

    def cases(self, scale):
        for name, data in DATA.items():
            calls = scale.choose(500, 3000, 20000) if data.cold else scale.choose(2000, 20000, 100000)
            yield model.Case(data.title, data.systems, {
                "data": name, "calls": calls, "calls_synced": scale.choose(200, 600, 5000)},
                scale.choose(1, 3 if data.cold else 1.5, 15))

    def run(self, bench, case, system, scale):
        data = DATA[case.parameters["data"]]
        calls = case.parameters["calls_synced" if system == "fsync" else "calls"]
        jobs = {f"{distribution}-{share}": (distribution, share)
                for share in MIXES for distribution in DISTRIBUTIONS}
        with bench.place(system, pool=scale.choose("128M", "512M", "2G"), dram=data.dram) as place:
            block = os.urandom(MIB)
            for job in jobs:
                with open(place.folder / job, "wb") as file:
                    for _ in range(data.size // MIB):
                        file.write(block)
                    file.flush()
                    os.fsync(file.fileno())
            done = json.loads(place.run(self._fio(jobs, data, calls, system)))
            outcomes = [self._outcome(job, *jobs[job["jobname"]], case, calls) for job in done["jobs"]]
            if len(outcomes) != len(jobs):
                raise systems.Broken(f"fio has run {len(outcomes)} of {len(jobs)} jobs")
            if place.pool:
                self._check(bench.counters(place)["statistics"],
                            sum(job["write"]["total_ios"] for job in done["jobs"]))
        return outcomes

    @staticmethod
    def _fio(jobs, data, calls, system):
        """One job after the other, each by a thread: NVCache is for the process that opens a file."""
        command = ["fio", "--output-format=json", "--ioengine=psync", "--thread", f"--bs={BLOCK}",
                   f"--size={data.size}", f"--io_size={calls * BLOCK}", "--norandommap", "--randseed=301",
                   "--allrandrepeat=1", f"--invalidate={int(data.cold)}"]
        if system != "pagecache":
            command.append("--sync=dsync")
        for name, (distribution, share) in jobs.items():
            # Of 100 % as well, so that the file is opened for writing: only then it is cached.
            command += [f"--name={name}", f"--filename={name}", "--stonewall", "--rw=randrw",
                        f"--rwmixread={share}", f"--random_distribution={DISTRIBUTIONS[distribution]}"]
        return command

    @staticmethod
    def _outcome(job, distribution, share, case, calls):
        both = [(job[way]["total_ios"], job[way]["lat_ns"]["mean"]) for way in ("read", "write")]
        if job["error"] or sum(ios for ios, _ in both) != calls:
            raise systems.Broken(f"fio, {job['jobname']}: error {job['error']}, {both}, not {calls} calls")
        metrics = {"ns": sum(ios * mean for ios, mean in both) / calls}
        outcome = model.Outcome("mixed", {"data": case.parameters["data"], "distribution": distribution,
                                          "reads": share}, metrics)
        if share:
            percentiles = job["read"]["clat_ns"]["percentile"]
            metrics |= {"seconds": both[0][1] / 1e9, "p50": percentiles["50.000000"],
                        "p99": percentiles["99.000000"]}
        return outcome

    @staticmethod
    def _check(counters, writes):
        if counters["entries_cleaned"] < writes:
            raise systems.Broken(f"{counters['entries_cleaned']} records for {writes} writes")
        if not counters["misses"]:
            raise systems.Broken("no read came through NVCache")

    def _find(self, results, data, distribution, share):
        return lambda system: results.find(self.name, "mixed", system, data=data,
                                           distribution=distribution, reads=share)

    def goals(self, results):
        goals = []
        for share in (90, 50):
            for distribution in DISTRIBUTIONS:
                find = self._find(results, "cold", distribution, share)
                goals.append(model.ratio(
                    f"mixed {MIXES[share]}, {distribution}, data cold and larger than the DRAM cache: time "
                    "of a read in terms of the page cache", 1.1, True, find("nvcache"),
                    find("pagecache"), "seconds"))
        return goals

    def figures(self, results):
        figures = []
        for name, data in DATA.items():
            figures += bars.figure(
                f"mixed-{name}", f"Mixed reads and writes: data {data.title}",
                "Time for each call, reads and writes together (the idea is from the thesis, figures 4.3 "
                "and 4.4).",
                [bars.panel(distribution, {title: self._find(results, name, distribution, share)
                                           for share, title in MIXES.items()}, data.systems, "ns")
                 for distribution in DISTRIBUTIONS])
        return figures

    def tables(self, results):
        rows = []
        for name, data in DATA.items():
            for distribution in DISTRIBUTIONS:
                for share, title in MIXES.items():
                    found = [self._find(results, name, distribution, share)(system)
                             for system in SYSTEMS]
                    if any(found):
                        rows.append([f"{data.title}: {title}, {distribution}",
                                     *(units.text(result.median("ns"), "ns") if result else None
                                       for result in found)])
        return [model.Table("Mixed reads and writes", ["", *(systems.SYSTEMS[s] for s in SYSTEMS)],
                            rows, "Time for a call.")] if rows else []
