# SPDX-License-Identifier: BSD-3-Clause
"""Reads and writes at random, mixed, by fio."""

import contextlib
import dataclasses
import json
import os
import shutil
import threading

from harness import bars, model, systems, units

SYSTEMS = ("nvcache", "tmpfs", "pagecache", "eatmydata", "fsync")
FRAMES = ("nvcache", "inpool", "inslowpool", "pagecache")
MIXES = {100: "read", 90: "90/10", 50: "50/50", 0: "write"}  # share of reads, in percent
DISTRIBUTIONS = {"uniform": "random", "zipf": "zipf:1.2"}
BLOCK = 4096
MIB = 1 << 20
# By which a page frame in slower memory takes longer. Optane takes some 300 ns for the first line, and
# reads the rest of a page at a third of DRAM's speed.
DELAY = 1000  # ns
DROP_EVERY = 0.005  # seconds


@dataclasses.dataclass(frozen=True)
class Data:
    """A file in terms of NVCache's DRAM cache."""
    title: str
    systems: tuple
    size: int
    dram: str
    cold: bool = False

    def pool(self, scale):
        return scale.choose("128M", "512M", "2G")

    def calls(self, scale):
        return scale.choose(500, 3000, 20000) if self.cold else scale.choose(2000, 20000, 100000)

    def files(self, jobs):
        """Each job has one."""
        return {job: job for job in jobs}


@dataclasses.dataclass(frozen=True)
class Nvmm:
    """A pool in terms of the file: all of it is log, or most of it is page frames."""
    title: str
    pool_of: float  # of the file's size
    frames_of: float
    dram_of: float  # frames in DRAM, where they are not in the pool
    rounds: int  # calls for each page of the file, on average
    scarce: bool = False  # DRAM is: the page cache keeps nothing
    systems: tuple = FRAMES
    cold: bool = False

    def size_of(self, scale):
        if self.scarce:
            return scale.choose(4, 16, 64) * MIB
        return scale.choose(40, 64, 256) * MIB

    def pool(self, scale):
        return str(int(self.size_of(scale) * self.pool_of))

    def calls(self, scale):
        return self.rounds * self.size_of(scale) // BLOCK

    def files(self, jobs):
        """One for all: nothing of it is left in NVCache when a job has closed it."""
        return {job: "data" for job in jobs}


DATA = {
    "smaller": Data("smaller than the DRAM cache", SYSTEMS, 16 * MIB, "64M"),
    "larger": Data("larger than the DRAM cache, in the page cache", ("nvcache", "pagecache"),
                   32 * MIB, "8M"),
    "cold": Data("larger than the DRAM cache, cold", SYSTEMS, 32 * MIB, "8M", True),
}
NVMM = {
    "small": Nvmm("NVMM a tenth of the file", 0.1, 0.06, 0.06, 1),
    "large": Nvmm("NVMM five times the file", 5, 1.1, 1.1, 1),
    "scarce": Nvmm("data larger than DRAM", 5, 1.1, 0.125, 4, True),
}
CAPTIONS = {
    "small": "Random accesses to as many pages as the file has. The same pool is all log, with page frames "
             "in DRAM, or mostly page frames; as many of them in each case. After the thesis, figure 4.3.",
    "large": "The same with a pool that is larger than the file: there are page frames for all of it. After "
             "the thesis, figure 4.4.",
    "scarce": "Four accesses for each page of the file. DRAM has no room for it: the page cache is emptied "
              "all the time, and NVCache has frames for an eighth of it in DRAM, or for all of it in the "
              "pool.",
}


@contextlib.contextmanager
def _dropping(path):
    """Meanwhile the page cache keeps next to nothing of the file, but what is not written yet."""
    ended = threading.Event()

    def drop():
        with open(path, "rb", buffering=0) as file:
            while not ended.wait(DROP_EVERY):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    thread = threading.Thread(target=drop)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Mixed(model.Suite):
    name = "mixed"
    title = "Mixed reads and writes"
    about = (
        "fio, psync, blocks of 4 KiB at random places, uniform or with a Zipf distribution of 1.2; each "
        "mix with a file of its own. The file is opened with O_DSYNC, so that every write is "
        "durable when it returns, but for the disk that is never synced. Three sizes: a file that fits into "
        "NVCache's DRAM cache; one of four times its size that is in the kernel's page cache; and the same one "
        "when the page cache has nothing of it at the start (on tmpfs there is no such thing). The synced "
        "disk does fewer calls. Then, with one file, NVCache with its page frames in DRAM and in the pool, "
        f"which is the same size in both cases; in slower memory, each access to a frame takes {DELAY:,} ns "
        "longer.")

    def missing(self, bench):
        return None if shutil.which("fio") else "fio is missing: install fio"

    def cases(self, scale):
        for name, data in DATA.items():
            yield model.Case(data.title, data.systems, {
                "data": name, "calls": data.calls(scale), "calls_synced": scale.choose(200, 600, 5000)},
                scale.choose(1, 3 if data.cold else 1.5, 15))
        for name, data in NVMM.items():
            yield model.Case(data.title, data.systems, {"data": name, "calls": data.calls(scale)},
                             scale.choose(1, 5, 20) if data.scarce else scale.choose(1, 2, 10))

    def run(self, bench, case, system, scale):
        name = case.parameters["data"]
        data = DATA.get(name) or NVMM[name]
        calls = case.parameters["calls_synced" if system == "fsync" else "calls"]
        jobs = {f"{distribution}-{share}": (distribution, share)
                for share in MIXES for distribution in DISTRIBUTIONS}
        files = data.files(jobs)
        size, place_options = self._where(data, system, scale)
        with bench.place(system, pool=data.pool(scale), **place_options) as place:
            block = os.urandom(MIB)
            for path in {place.folder / file for file in files.values()}:
                with open(path, "wb") as file:
                    for _ in range(size // MIB):
                        file.write(block)
                    file.flush()
                    os.fsync(file.fileno())
            with _dropping(path) if name in NVMM and data.scarce else contextlib.nullcontext():
                done = json.loads(place.run(self._fio(jobs, files, size, data.cold, calls, system)))
            outcomes = [self._outcome(job, *jobs[job["jobname"]], case, calls) for job in done["jobs"]]
            if len(outcomes) != len(jobs):
                raise systems.Broken(f"fio has run {len(outcomes)} of {len(jobs)} jobs")
            if place.pool:
                self._check(bench.counters(place)["statistics"],
                            sum(job["write"]["total_ios"] for job in done["jobs"]))
        return outcomes

    @staticmethod
    def _where(data, system, scale):
        """The file's size, and where the page frames are."""
        if isinstance(data, Data):
            return data.size, {"dram": data.dram}
        size = data.size_of(scale)
        if system == "nvcache":
            return size, {"dram": str(int(size * data.dram_of))}
        settings = {"FRAMES": f"pool:{int(size * data.frames_of)}"}
        if system == "inslowpool":
            settings["FRAME_DELAY"] = DELAY
        return size, {"dram": None, "settings": settings}

    @staticmethod
    def _fio(jobs, files, size, cold, calls, system):
        """One job after the other, each by a thread: NVCache is for the process that opens a file."""
        command = ["fio", "--output-format=json", "--ioengine=psync", "--thread", f"--bs={BLOCK}",
                   f"--size={size}", f"--io_size={calls * BLOCK}", "--norandommap", "--randseed=301",
                   "--allrandrepeat=1", f"--invalidate={int(cold)}"]
        if system != "pagecache":
            command.append("--sync=dsync")
        for name, (distribution, share) in jobs.items():
            # Of 100 % as well, so that the file is opened for writing: only then it is cached.
            command += [f"--name={name}", f"--filename={files[name]}", "--stonewall", "--rw=randrw",
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
        for name, data in (DATA | NVMM).items():
            figures += bars.figure(
                f"mixed-{name}",
                f"Mixed reads and writes: data {data.title}" if name in DATA else f"Page frames: {data.title}",
                CAPTIONS.get(name, "Time for each call, reads and writes together (the idea is from the "
                             "thesis, figures 4.3 and 4.4)."),
                [bars.panel(distribution, {title: self._find(results, name, distribution, share)
                                           for share, title in MIXES.items()}, data.systems, "ns")
                 for distribution in DISTRIBUTIONS])
        return figures

    def tables(self, results):
        tables = [
            self._table(results, "Mixed reads and writes", DATA, SYSTEMS, "Time for a call."),
            self._table(results, "Page frames in DRAM, and in the pool", NVMM, FRAMES,
                        "Time for a call. The pool has the same size in each row, but frames take their part "
                        f"of it; in slower memory, each access to a frame takes {DELAY:,} ns longer.")]
        return [table for table in tables if table.rows]

    def _table(self, results, heading, all_data, columns, caption):
        rows = []
        for name, data in all_data.items():
            for distribution in DISTRIBUTIONS:
                for share, title in MIXES.items():
                    found = [self._find(results, name, distribution, share)(system) for system in columns]
                    if any(found):
                        rows.append([f"{data.title}: {title}, {distribution}",
                                     *(units.text(result.median("ns"), "ns") if result else None
                                       for result in found)])
        return model.Table(heading, ["", *(systems.SYSTEMS[s] for s in columns)], rows, caption)
