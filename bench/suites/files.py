# SPDX-License-Identifier: BSD-3-Clause
"""Many small files: made, removed, unpacked."""

import hashlib
import io
import os
import random
import shutil
import tarfile
import time

from harness import model, systems, units

SYSTEMS = ("nvcache", "pagecache", "tmpfs", "fsync")
SIZE = 4096
ACTIONS = {"create": "create, write 4 KiB, close", "unlink": "unlink", "unpack": "tar -x"}
FOLDERS = 16
SMALLEST, LARGEST = 1 << 10, 20 << 10


def _content(number, size):
    """Bytes that no other file has."""
    line = hashlib.sha256(str(number).encode()).digest()
    return (line * (size // len(line) + 1))[:size]


def _sizes(count):
    draw = random.Random(count)
    return [draw.randint(SMALLEST, LARGEST) for _ in range(count)]


def _member(number):
    return f"tree/{number % FOLDERS}/{number}"


class Files(model.Suite):
    name = "files"
    title = "Many small files"
    about = (
        "A program makes 10,000 new files of 4 KiB in an empty folder; another one unlinks them; and "
        "`tar` unpacks some thousand files of 1 to 20 KiB. Timed is the program from its start to its "
        "end, at which NVCache has brought everything to the disk. The disk is synced before each. "
        "On the synced disk each new file is synced before it is closed, and after tar the file "
        "system (`sync -f`).")

    def missing(self, bench):
        return None if shutil.which("tar") else "tar is not installed"

    def cases(self, scale):
        return [model.Case("small files", SYSTEMS, {"files": scale.choose(200, 10000, 10000)},
                           seconds=scale.choose(0.3, 3, 3)),
                model.Case("unpack", SYSTEMS, {"files": scale.choose(100, 3000, 10000)},
                           seconds=scale.choose(0.3, 2, 5))]

    @staticmethod
    def _time(place, command):
        os.sync()
        begin = time.perf_counter()
        place.run(command)
        return time.perf_counter() - begin

    @staticmethod
    def _check_log(bench, place, written):
        if place.system != "nvcache":
            return
        counters = bench.counters(place)
        cleaned = counters["statistics"]["bytes_cleaned"]
        if cleaned != written:
            raise systems.Broken(f"{written} bytes were written, {cleaned} went through the log")
        if counters["state"] != "clean":
            raise systems.Broken("the pool is not clean after the program's end")

    def run(self, bench, case, system, scale):
        count = case.parameters["files"]
        with bench.place(system) as place:
            if case.name == "unpack":
                return [self._unpack(bench, place, case)]
            driver, folder = bench.program("nvcache_files"), place.fresh()
            sync = ["sync"] if system == "fsync" else []
            create = self._time(place, [driver, "create", folder, count, *sync])
            self._check_log(bench, place, count * SIZE)
            place.run([driver, "check", folder, count])
            unlink = self._time(place, [driver, "unlink", folder, count])
            if os.listdir(folder):
                raise systems.Broken("files are left")
        return [model.Outcome(name, dict(case.parameters),
                              {"seconds": seconds, "rate": count / seconds})
                for name, seconds in (("create", create), ("unlink", unlink))]

    def _unpack(self, bench, place, case):
        count = case.parameters["files"]
        sizes = _sizes(count)
        folder, archive = place.fresh(), place.folder / "files.tar"
        with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
            for number, size in enumerate(sizes):
                member = tarfile.TarInfo(_member(number))
                member.size, member.mtime = size, 1
                tar.addfile(member, io.BytesIO(_content(number, size)))
        command = ["tar", "-xf", archive, "-C", folder]
        if place.system == "fsync":
            command = ["sh", "-c", 'tar -xf "$1" -C "$2" && sync -f "$2"', "sh", archive, folder]
        seconds = self._time(place, command)
        self._check_log(bench, place, sum(sizes))
        for number, size in enumerate(sizes):
            if (folder / _member(number)).read_bytes() != _content(number, size):
                raise systems.Broken(f"{_member(number)}: not the bytes of the archive")
        return model.Outcome("unpack", dict(case.parameters),
                             {"seconds": seconds, "rate": count / seconds})

    # -----------------------------------------------------------------------------------------------

    def _found(self, results, name, system):
        return next(iter(results.select(self.name, name, system)), None)

    def goals(self, results):
        return [model.ratio(f"{text} / page cache, never synced", 1.2, True,
                            self._found(results, name, "nvcache"),
                            self._found(results, name, "pagecache"), "seconds")
                for name, text in (("create", "new files of 4 KiB"), ("unlink", "unlinking them"),
                                   ("unpack", "unpacking small files"))]

    def figures(self, results):
        lines = []
        for system in SYSTEMS:
            found = {text: self._found(results, name, system) for name, text in ACTIONS.items()}
            found = {text: result for text, result in found.items() if result}
            if found:
                spread = [r.spread("rate") for r in found.values()]
                lines.append(model.Line(
                    systems.SYSTEMS[system], list(found), [r.median("rate") for r in found.values()],
                    [low for low, _ in spread], [high for _, high in spread], system))
        return [model.Figure(
            "files", "Small files",
            "Files per second, the program's end included.",
            [model.Panel("small files", "", "files per second", lines, bars=True, log_y=True,
                         y_unit="1/s")], columns=1)]

    def tables(self, results):
        rows = []
        for name, text in ACTIONS.items():
            found = [self._found(results, name, system) for system in SYSTEMS]
            if any(found):
                count = next(filter(None, found)).parameters["files"]
                rows.append([f"{text}: {count:,} files",
                             *(units.text(r.median("seconds"), "s") if r else None for r in found)])
        head = ["", *(systems.SYSTEMS[system] for system in SYSTEMS)]
        return [model.Table("Many small files", head, rows)] if rows else []
