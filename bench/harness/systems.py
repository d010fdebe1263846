# SPDX-License-Identifier: BSD-3-Clause
"""Where a program runs: on the disk, on tmpfs, under NVCache, ..."""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import time

# What each is called in a report. The suites of the guest have their own.
SYSTEMS = {
    "limit": "persist limit (copy and fences, no file)",
    "through": "NVCache",
    "nvcache": "NVCache, exclusive",
    "disk": "NVCache, its journal on the disk",
    "output": "NVCache, exclusive, commit at output",
    "inpool": "NVCache, exclusive, frames in the pool",
    "inslowpool": "NVCache, exclusive, frames in a pool of slower memory",
    "passthrough": "under NVCache, file not cached",
    "tmpfs": "tmpfs",
    "pagecache": "disk, never synced",
    "fsync": "disk, synced",
    "eatmydata": "libeatmydata on the disk",
    "fsync1000": "disk, synced every 1,000 writes",
}
# Of the files of a program that syncs: as a user has it who names them all.
EXCLUSIVE = {"WRITE_BACK": "auto", "EXCLUSIVE": "*"}
# Beside a line in a figure.
SHORT = {"limit": "persist limit", "passthrough": "file not cached", "eatmydata": "libeatmydata",
         "fsync1000": "synced every 1,000", "inpool": "frames in pool",
         "inslowpool": "the same, slower"}
UNDER_NVCACHE = ("through", "nvcache", "disk", "output", "inpool", "inslowpool", "passthrough")
JOURNALS = ("disk", "output")  # their pools are journals on a disk
IN_MEMORY = ("tmpfs", "limit")
MEMORY = pathlib.Path("/dev/shm")
PREFIX = "nvcache-test-bench-"
# Of a checkpointer.
READY_SECONDS, END_SECONDS = 10, 60
# <linux/fs.h>: folders below this one are spread over the disk, as far as the file system knows it.
FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_TOPDIR_FL = 0x80086601, 0x40086602, 0x00020000


def went_round(status):
    """Of `nvcache status`: more segments were taken than there are, so some were used again."""
    return status["statistics"]["segments_taken"] > status["segments"]


class Broken(Exception):
    """A run has not measured what it should, or a program has failed. One line."""


@dataclasses.dataclass
class Place:
    """One run's own: an empty folder, and the environment in which programs have the system."""
    system: str
    folder: pathlib.Path
    environment: dict
    pool: pathlib.Path | None = None

    def run(self, command, **options):
        """The program's output; Broken if it fails. `command` is a list, `options` are those of
        subprocess.run."""
        options = {"env": self.environment, "cwd": self.folder, "stdin": subprocess.DEVNULL, **options}
        done = subprocess.run([str(word) for word in command], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        if done.returncode != 0:
            raise Broken(f"{command[0]} on {self.system}: exit status {done.returncode}: "
                         + (done.stderr.strip().splitlines() or ["nothing said"])[-1])
        return done.stdout

    def fresh(self):
        """A folder of which no neighbour was removed a moment ago: for a minute ext4 does not use an
        inode again, and looks at each of them whenever it wants a new one. Without this, a turn would
        pay for the files of the turns before: 4 s for 10,000 files instead of 0.3 s."""
        parent = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            flags = struct.unpack_from("I", fcntl.ioctl(parent, FS_IOC_GETFLAGS, bytes(8)))[0]
            fcntl.ioctl(parent, FS_IOC_SETFLAGS, struct.pack("Q", flags | FS_TOPDIR_FL))
        except OSError:
            pass  # not ext4
        finally:
            os.close(parent)
        # Its name, which is random, decides where it lies.
        return pathlib.Path(tempfile.mkdtemp(dir=self.folder))


class Checkpointer:
    """Of a place's pool, as `nvcache run` leaves one behind: it brings to the disk what programs leave at
    their end. A place without a pool has none."""

    def __init__(self, program, place, user):
        self.command = [program, "checkpointer", "--stay", str(place.pool)] if place.pool else None
        self.options = {"env": place.environment | {"LD_PRELOAD": ""}, **user}
        self.process = None

    def __enter__(self):
        if self.command:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                            stderr=subprocess.PIPE, text=True, **self.options)
            limit = time.monotonic() + READY_SECONDS
            while not self._has_pool() and self.process.poll() is None:
                if time.monotonic() > limit:
                    self.__exit__(None)
                    raise Broken(f"nvcache checkpointer does not have the pool after {READY_SECONDS} s")
                time.sleep(0.001)
        return self

    def _has_pool(self):
        folder = pathlib.Path("/proc") / str(self.process.pid) / "fd"
        with contextlib.suppress(OSError):
            return any(os.readlink(link) == self.command[-1] for link in folder.iterdir())
        return False

    def __exit__(self, kind, *_):
        if not self.process:
            return
        process, self.process = self.process, None
        process.terminate()
        said = process.communicate(timeout=END_SECONDS)[1]
        if process.returncode != 0 and kind is None:
            raise Broken(f"nvcache checkpointer: {' '.join(said.split())}")

    @contextlib.contextmanager
    def paused(self):
        """It has ended, so the pool is nobody's. One that was not there is not there afterwards."""
        runs = self.process is not None
        self.__exit__(None)
        yield
        if runs:
            self.__enter__()


class Bench:
    """What suites get: the built programs, the disk, and places on systems."""

    def __init__(self, build, folder, pools=MEMORY, emulate=True):
        self.build = pathlib.Path(build).resolve()
        self.folder = pathlib.Path(folder).resolve()  # on a disk file system
        self.pools = pathlib.Path(pools).resolve()
        self.emulate = emulate  # the pools are not persistent memory

    def is_journal_apart(self):
        """The pools of JOURNALS lie on another disk than the files."""
        return not self.emulate and self.pools.stat().st_dev != self.folder.stat().st_dev

    def program(self, name):
        path = self.build / name
        if not path.exists():
            raise Broken(f"{path} is not there: build it first (cmake --build {self.build})")
        return path

    @contextlib.contextmanager
    def place(self, system, pool="1G", dram="256M", settings=None, commit=None):
        """`with bench.place("nvcache", pool="64M") as place:`. `dram`: None if `settings` say where
        page frames are. `settings`: more variables of docs/settings.md, without their prefix. "through"
        and JOURNALS have the default rule; the others under NVCache cache each file from the start, synced or not. The pools of
        JOURNALS lie on the disk that is measured, or on the one where the pools are. `commit`: the pool is mirrored.
        Records still in the log at the end are recovered to nowhere: pool and folder are removed."""
        parent = MEMORY if system in IN_MEMORY else self.folder
        folder = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        journal = system in JOURNALS
        emulate = self.emulate and not journal
        pools = self.folder if journal and self.emulate else self.pools
        memory = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX, dir=pools))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NVCACHE_")}
        place = Place(system, folder, environment)
        if system == "eatmydata":
            environment["LD_PRELOAD"] = "libeatmydata.so"
        elif system in UNDER_NVCACHE:
            place.pool = memory / "pool"
            environment |= {"LD_PRELOAD": str(self.program("libnvcache.so")),
                            "NVCACHE_POOL": str(place.pool),
                            "NVCACHE_DRAM": dram or "", "NVCACHE_EMULATE": str(int(emulate)),
                            "NVCACHE_REQUIRED": "1", "NVCACHE_NOTICE": "0",
                            "NVCACHE_WRITE_BACK": "auto" if journal or system == "through" else "always"}
            if system == "passthrough":
                environment["NVCACHE_EXCLUDE"] = "/*"
            environment |= {f"NVCACHE_{k}": str(v) for k, v in (settings or {}).items()}
        try:
            if place.pool:
                self._make_pool(place.pool, pool, emulate, "output" if system == "output" else commit)
            yield place
        finally:
            if journal and place.pool.exists():
                self._remove_memory(place.pool)
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(memory, ignore_errors=True)

    @staticmethod
    def _remove_memory(journal):
        st = journal.stat()
        for path in MEMORY.glob(f"nvcache-*-{st.st_dev:08x}-{st.st_ino:016x}"):
            path.unlink()

    def _make_pool(self, path, size, emulate, commit=None):
        """Beforehand: its memory has to be zeroed, which is no program's time."""
        options = (["--emulate"] if emulate else []) + (["--commit", commit] if commit else [])
        made = subprocess.run([self.program("nvcache"), "create", path, "--size", size, *options],
                              check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if made.returncode != 0:
            raise Broken(made.stderr.strip())

    def checkpointer(self, place, user):
        """`with bench.checkpointer(place, {}):`. `user`: whom it runs as, as options of subprocess.run."""
        return Checkpointer(self.program("nvcache") if place.pool else None, place, user)

    def logged(self, place):
        """At most so many bytes went through the place's log: no counter has the records of write-through, but they
        fill segments."""
        status = self.counters(place)
        return status["statistics"]["segments_taken"] * status["segment_size"]

    def counters(self, place):
        """What `nvcache status --json` says of the place's pool."""
        import json  # pylint: disable=import-outside-toplevel
        return json.loads(subprocess.run(
            [self.program("nvcache"), "status", "--json", place.pool],
            check=True, stdout=subprocess.PIPE, text=True).stdout)
