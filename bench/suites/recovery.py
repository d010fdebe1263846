# SPDX-License-Identifier: BSD-3-Clause
"""How fast `nvcache recover` brings a full log to the disk."""

import json
import os
import pathlib
import signal
import subprocess
import threading
import time

from harness import model, systems, units

KINDS = {
    "overwrite": "4 KiB at random places of a file of 1 GiB",
    "append4k": "4 KiB appended",
    "append64k": "64 KiB appended",
    "records": "100 bytes appended",
    "files": "4 KiB appended to 500 files in turn",
}
MIB = 1 << 20
# What 1 MiB of a kind takes in the log. The cleanup thread leaves a log alone that is filled to less
# than a quarter, so the pool is more than four times as large.
LOG_SHARE = {"records": 192 / 100}
LOG_SHARE_OF_PAGES = 1.02
POOL_SHARE = 4.7
LEAST_POOL = 512 * MIB
LOG_LEFT_ALONE = {"BATCH_MIN": 1048576, "BATCH_MAX": 1048576, "BATCH_DELAY": 60000}


def _drop_page_cache():
    """With the rights for it, nothing of one run is left to the next."""
    os.sync()
    if os.geteuid() == 0:
        try:
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("1")
        except OSError:
            pass


class _Watcher(threading.Thread):
    """Looks every 10 ms at the memory that a process has for itself: `peak` is the most, in bytes."""

    def __init__(self, process):
        super().__init__()
        self.status = pathlib.Path(f"/proc/{process.pid}/status")
        self.peak = 0
        self.over = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, value, trace):
        self.over.set()
        self.join()

    def run(self):
        while not self.over.wait(0.01):
            try:
                for line in self.status.read_text().splitlines():
                    if line.startswith("RssAnon:"):
                        self.peak = max(self.peak, int(line.split()[1]) * 1024)
            except OSError:
                continue


class Recovery(model.Suite):
    name = "recovery"
    title = "Recovery"
    about = (
        "A program is killed with so many bytes in the log. `nvcache recover` is timed as a whole, "
        "from its start to its end, with all files synced; in turns with writing the same number of "
        "bytes to the same disk in one go (1 MiB writes to one file, and one fsync). The pool is "
        "nearly five times as large as what is in it, because the cleanup thread would not leave a "
        "fuller one alone. Memory is the most that was ever private to the process.")
    systems = {"sequential": "written in one go", "recover": "nvcache recover"}

    def cases(self, scale):
        for kind in KINDS:
            for mib in scale.choose((8,), (128,), (256, 1024)):
                yield model.Case(f"{kind}, {mib} MiB", ("sequential", "recover"),
                                 {"kind": kind, "bytes": mib * MIB}, seconds=0.7 + mib / 150)

    def run(self, bench, case, system, scale):
        kind, size = case.parameters["kind"], case.parameters["bytes"]
        program = bench.program("nvcache_recovery")

        def command(what, place):
            return [program, what, place.folder, kind, size]

        with bench.place("fsync") as plain:
            plain.run(command("prepare", plain))
            if system == "sequential":
                _drop_page_cache()
                metrics = {"seconds": float(plain.run(command("sequential", plain)))}
            else:
                pool = max(int(POOL_SHARE * size * LOG_SHARE.get(kind, LOG_SHARE_OF_PAGES)), LEAST_POOL)
                with bench.place("nvcache", pool=str(pool), settings=LOG_LEFT_ALONE) as cached:
                    metrics = self._recover(bench, cached, command("fill", plain), size)
        return [model.Outcome("recovery", case.parameters, metrics)]

    def _recover(self, bench, place, fill, size):
        done = subprocess.run([str(word) for word in fill], env=place.environment, check=False,
                              stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if done.returncode != -signal.SIGKILL:
            raise systems.Broken(f"the program that fills the log: exit status {done.returncode}")
        _drop_page_cache()
        begin = time.perf_counter()
        with subprocess.Popen([bench.program("nvcache"), "recover", place.pool, "--json"],
                              stdout=subprocess.PIPE) as process, _Watcher(process) as watcher:
            output = process.stdout.read()
            process.wait()
            seconds = time.perf_counter() - begin
        if process.returncode != 0 or json.loads(output)["bytes"] < size:
            raise systems.Broken(f"nvcache recover: status {process.returncode}, or less than "
                                 f"{size} bytes: the log was not left alone")
        return {"seconds": seconds, "bytes": watcher.peak}

    def _pairs(self, results):
        for kind, title in KINDS.items():
            for recovered in results.select(self.name, "recovery", "recover", kind=kind):
                plain = results.find(self.name, "recovery", "sequential", **recovered.parameters)
                if plain:
                    yield title, recovered.parameters["bytes"], plain, recovered

    def summary(self, results):
        shares = [plain.median("seconds") / recovered.median("seconds")
                  for _, _, plain, recovered in self._pairs(results)]
        return (f"`nvcache recover` reaches {min(shares):.0%} to {max(shares):.0%} of the speed of "
                "writing the same bytes to the same disk in one go.") if shares else None

    def figures(self, results):
        pairs = list(self._pairs(results))
        if not pairs:
            return []
        largest = max(size for _, size, _, _ in pairs)
        pairs = [pair for pair in pairs if pair[1] == largest]
        lines = []
        for system, title, at in (("sequential", "written in one go", 2), ("recover", "nvcache recover", 3)):
            found = [pair[at] for pair in pairs]
            spread = [result.spread("seconds") for result in found]
            lines.append(model.Line(title, [pair[0] for pair in pairs],
                                    [result.median("seconds") for result in found],
                                    [low for low, _ in spread], [high for _, high in spread],
                                    "nvcache" if system == "recover" else "fsync"))
        return [model.Figure("recovery", f"Recovery of {units.text(largest, 'B')}",
                             "Time to bring a log to the disk, and to write as many bytes in one go.",
                             [model.Panel("", "", "time", lines, bars=True, y_unit="s")])]

    def tables(self, results):
        rows = []
        for title, size, plain, recovered in self._pairs(results):
            rows.append([title, units.text(size, "B"), units.text(plain.median("seconds"), "s"),
                         units.text(recovered.median("seconds"), "s"),
                         f"{plain.median('seconds') / recovered.median('seconds'):.0%}",
                         units.text(recovered.median("bytes"), "B")])
        return [model.Table("Recovery", ["left in the log", "pending", "written in one go",
                                         "nvcache recover", "speed", "memory of its own"], rows)]
