# SPDX-License-Identifier: BSD-3-Clause
"""NVCache beside what needs NVMM in the kernel, in a virtual machine with an NVDIMM."""

import contextlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from harness import model, systems, units

# The guest is that of the tests of power failures.
TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests"
sys.path += [str(TESTS / "power"), str(TESTS)]
# pylint: disable=wrong-import-position,import-error
import disk
import guest_image
import life
import machine

systems.SYSTEMS |= {
    "ext4-dax": "ext4-DAX: data on the NVDIMM",
    "dm-writecache": "dm-writecache: NVDIMM before the disk",
}
SYSTEMS = ("nvcache", "ext4-dax", "dm-writecache", "fsync")
WORKLOADS = {
    "overwrite": "4 KiB at random, fsync",
    "append": "4 KiB appended, fsync",
    "replace": "file replaced",
    "sqlite": "SQLite, one row",
}
# How each has the NVDIMM: NVCache's pool is the device itself, as it is dm-writecache's cache.
MEDIA = {"nvcache": "devdax", "ext4-dax": "fsdax", "dm-writecache": "fsdax", "fsync": "fsdax"}
DRAM = "32M"
DISK_SIZE = 128 << 20
# One instruction of the guest takes 1 ns of its time, always. Its clock goes on at the host's pace
# while its processor waits for the disk.
COUNT_INSTRUCTIONS = ("-icount", "shift=0")
GUEST_SECONDS = 300
CACHE = "power-guest"  # in the build folder; shared with the tests of power failures
POINT = re.compile(r"@point (\S+) (\d+) (\d+) (\d+)")
CAVEAT = ("In an emulated machine: one instruction takes 1 ns, and memory and NVDIMM cost nothing "
          "else. Times are not those of real memory.")


def job(system, operations):
    """The script that the guest runs."""
    folder = "/p" if system == "ext4-dax" else "/d"
    prefix, drain = "", "sync"
    yield "mount -t tracefs trace /sys/kernel/tracing"
    if system == "ext4-dax":
        yield "pool_up fsdax"
    elif system == "dm-writecache":
        yield "dd if=/dev/zero of=/dev/pmem0 bs=4096 count=1"
        yield ("dmsetup create cache --noudevsync --table "
               "\"0 $(blockdev --getsz /dev/vda) writecache p /dev/vda /dev/pmem0 4096 0\"")
        yield "dmsetup mknodes"
        yield "disk_up /dev/mapper/cache noinit_itable"
        drain += "; dmsetup message cache 0 flush"
    else:
        yield "disk_up /dev/vda noinit_itable"
    if system == "nvcache":
        yield "pool_up devdax"
        yield "step create nvcache create $POOL"
        prefix = f"nvcache run --pool $POOL --required --checkpointer never --dram {DRAM} --"
    for workload in WORKLOADS:
        arguments = f"{workload} {folder}/{workload} {operations}"
        yield f"mkdir {folder}/{workload}"
        yield f"step prepare agent prepare {arguments}"
        yield drain
        yield f"step run {prefix} agent run {arguments}"
        yield drain
        yield f"agent point {workload}"
        if system == "nvcache":
            yield "nvcache status --json $POOL >/tmp/status"
            # By write-back, or by write-through, whose checkpoint begins at 1.
            yield ("step logged grep -E '\"entries_cleaned\": [1-9]|\"checkpoint\": ([2-9]|1[0-9])' "
                   "/tmp/status")
        yield f"step check agent check {arguments}"


def outcomes(lines, marks, operations):
    """What was counted between the points of each workload, for one operation. `marks`: the disk's
    counts at all points."""
    found, begin, acknowledged = [], {}, {}
    points = [match.groups() for line in lines if (match := POINT.fullmatch(line))]
    if len(points) != len(marks):
        raise systems.Broken(f"{len(points)} points, and {len(marks)} marks of the disk")
    for (name, time, busy, calls), mark in zip(points, marks):
        now = {"ns": int(time), "instructions": int(busy), "calls": int(calls),
               "disk_writes": mark["writes"], "disk_flushes": mark["flushes"]}
        if name == "begin":
            begin = now
        elif name == "acknowledged":
            acknowledged = now
        else:
            del now["calls"]  # those of the shell and its tools are not of interest
            for until, end in (("acknowledged", acknowledged), ("drained", now)):
                found.append(model.Outcome(name, {"until": until}, {
                    metric: (end[metric] - begin[metric]) / operations for metric in end}))
    return found


class Guest(model.Suite):
    name = "guest"
    title = "Beside systems in the kernel (virtual machine with an NVDIMM)"
    about = (
        "A virtual machine with an emulated NVDIMM and a disk with a volatile cache. "
        "NVCache has its pool on the NVDIMM and its files on ext4 on the disk; ext4-DAX has the "
        "files on the NVDIMM; dm-writecache caches the disk's blocks there; ext4 on the disk alone "
        "is the fourth. The program is the same everywhere, syncs each operation, and is durable "
        "with each. Neither log nor cache gets full. Counted is until the last operation was "
        "acknowledged, and until everything has reached the disk (ext4-DAX has none). "
        + CAVEAT + " What counts are the counts: instructions of programs and kernel together, "
        "system calls, requests that reach the disk.")

    def missing(self, bench):
        if not (bench.build / "nvcache_guest").exists():
            return "nvcache_guest is not built"
        try:
            for program in ("qemu-system-x86_64", *guest_image.TOOLS):
                guest_image.find(program)
            guest_image.path_of_library(guest_image.LIBPMEM)
            cache = bench.build / CACHE
            cache.mkdir(exist_ok=True)
            guest_image.kernel(cache)
        except guest_image.Missing as problem:
            return str(problem).splitlines()[0]
        return None

    def cases(self, scale):
        # A run is one start of the guest with all workloads.
        return [model.Case("workloads", scale.choose(("nvcache",), SYSTEMS, SYSTEMS),
                           seconds=scale.choose(8, 18, 30), repetitions=scale.choose(1, 1, 3))]

    def run(self, bench, case, system, scale):
        operations = scale.choose(30, 300, 1000)
        with self._guest(bench, MEDIA[system]) as (image, folder, nvdimm, device):
            text = "\n".join(job(system, operations)) + "\n"
            with machine.Machine(image, text, folder, nvdimm, device,
                                 options=COUNT_INSTRUCTIONS) as guest:
                guest.finish(GUEST_SECONDS)
        lines = guest.texts()
        bad = [line for line in lines if re.match(r"@bad|@end \S+ [^0]", line)]
        found = outcomes(lines, device.marks, operations)
        if bad or len(found) != 2 * len(WORKLOADS):
            raise systems.Broken(f"{bad or 'not all was run'}: {' | '.join(lines[-6:])}")
        return found

    @contextlib.contextmanager
    def _guest(self, bench, media):
        """What it is started with: a new NVDIMM and a new disk."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix=systems.PREFIX, dir=bench.folder))
        memory = pathlib.Path(tempfile.mkdtemp(prefix=systems.PREFIX, dir=systems.MEMORY))
        device = disk.Disk(memory / "disk", DISK_SIZE)
        try:
            image = guest_image.Image(bench.build / CACHE, folder, bench.build,
                                      bench.program("nvcache_guest"))
            nvdimm = memory / "nvdimm"
            life.copy_sparse(life.prepare_nvdimm(image, media, folder), nvdimm)
            content = folder / "disk"
            with open(content, "wb") as file:
                file.truncate(DISK_SIZE)
            # Nothing is left to be done in the background; dm-writecache wants whole pages.
            subprocess.run([guest_image.find("mkfs.ext4"), "-q", "-F", "-b", "4096", "-E",
                            "lazy_itable_init=0,lazy_journal_init=0", content], check=True)
            device.load(content)
            yield image, folder, nvdimm, device
        finally:
            device.close()
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(memory, ignore_errors=True)

    def _bars(self, results, metric, until, title):
        shown = [(system, [results.find(self.name, workload, system, until=until)
                           for workload in WORKLOADS]) for system in SYSTEMS]
        lines = [model.Line(systems.SYSTEMS[system], list(WORKLOADS.values()),
                            [result.median(metric) for result in found],
                            [result.spread(metric)[0] for result in found],
                            [result.spread(metric)[1] for result in found], system)
                 for system, found in shown if all(found)]
        unit = model.METRICS[metric].unit
        return model.Panel(title, "", model.METRICS[metric].title, lines, bars=True, y_unit=unit)

    def figures(self, results):
        if not results.select(self.name):
            return []
        return [
            model.Figure("guest-operations", "One operation, until it is acknowledged", CAVEAT, [
                self._bars(results, "instructions", "acknowledged", "Instructions"),
                self._bars(results, "calls", "acknowledged", "System calls"),
                self._bars(results, "ns", "acknowledged", "Guest time"),
                self._bars(results, "ns", "drained", "Guest time until all is on the disk")]),
            model.Figure("guest-disk", "What reaches the disk for one operation",
                         "ext4-DAX has no disk. " + CAVEAT, [
                self._bars(results, metric, until, f"{what}, {when}")
                for metric, what in (("disk_writes", "Writes"), ("disk_flushes", "Flushes"))
                for until, when in (("acknowledged", "until the last acknowledgement"),
                                    ("drained", "until all is on the disk"))])]

    def tables(self, results):
        rows = []
        for result in results.select(self.name, until="acknowledged"):
            drained = results.find(self.name, result.name, result.system, until="drained")
            rows.append([f"{WORKLOADS[result.name]}: {systems.SYSTEMS[result.system]}"] + [
                units.text(which.median(metric), model.METRICS[metric].unit) for which, metric in (
                    (result, "instructions"), (drained, "instructions"), (result, "calls"),
                    (result, "disk_writes"), (drained, "disk_writes"), (result, "disk_flushes"),
                    (drained, "disk_flushes"), (result, "ns"), (drained, "ns"))])
        rows.sort(key=lambda row: [row[0].startswith(f"{name}:") for name in WORKLOADS.values()],
                  reverse=True)
        return [model.Table(
            "One operation in the guest",
            ["", "instructions", "… drained", "system calls", "disk writes", "… drained", "flushes",
             "… drained", "guest time", "… drained"], rows,
            "Drained: until all is on the disk, with the end of the program. " + CAVEAT)]
