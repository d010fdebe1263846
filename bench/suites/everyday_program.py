# SPDX-License-Identifier: BSD-3-Clause
"""What the programs of the suite `everyday` have in common."""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import time

from harness import model, systems

SECONDS = 600  # that a program may take
MOST = 1.05  # of its time without NVCache, whatever it does
# The time of every file that is prepared: a program that keeps times keeps this one.
OLD = 1600000000


@dataclasses.dataclass
class Turn:
    """One run of one program on one system."""
    bench: systems.Bench
    place: systems.Place
    scale: model.Scale
    checkpointer: systems.Checkpointer

    def __post_init__(self):
        self.work = self.place.fresh()
        temporary = self.place.folder / "tmp"
        temporary.mkdir()
        # Nothing of this user's settings, and temporary files on the system that is measured.
        self.place.environment |= {"LC_ALL": "C.UTF-8", "TZ": "UTC", "HOME": str(temporary),
                                   "TMPDIR": str(temporary)}
        self.plain = {name: value for name, value in self.place.environment.items()
                      if name != "LD_PRELOAD" and not name.startswith("NVCACHE_")}

    def run(self, command, **options):
        """On the system, in the folder that is compared. The program's output."""
        return self.place.run(command, **{"cwd": self.work, "timeout": SECONDS, **options})

    def without(self, command, **options):
        """The same without NVCache, and without libeatmydata."""
        return self.run(command, **{"env": self.plain, **options})

    def quiet(self):
        # A smoke run does not wait for what others have written.
        if self.scale.name != "smoke":
            os.sync()

    def timed(self, command, **options):
        """Its seconds, when the disk has nothing else to do."""
        self.quiet()
        begin = time.perf_counter()
        self.run(command, **options)
        return time.perf_counter() - begin

    def spawned(self, commands):
        """The mean of short programs, which are spawned from here: no time of Python's is in it. Their
        paths are absolute, and they say nothing."""
        actions = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", flags, 0)
                   for number, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY))]
        self.quiet()
        begin = time.perf_counter()
        for command in commands:
            child = os.posix_spawn(command[0], [str(word) for word in command], self.place.environment,
                                   file_actions=actions)
            if os.waitpid(child, 0)[1] != 0:
                raise systems.Broken(f"{command[0]} on {self.place.system} has failed")
        return (time.perf_counter() - begin) / len(commands)

    def settle(self):
        """The files have all that was written."""
        if not self.place.pool:
            return
        with self.checkpointer.paused():
            if self.bench.counters(self.place)["state"] == "clean":
                return
            recovered = subprocess.run([self.bench.program("nvcache"), "recover", self.place.pool], check=False,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if recovered.returncode != 0:
                raise systems.Broken(f"nvcache recover: {' '.join(recovered.stderr.split())}")

    def check_library(self, **options):
        """The measured program has NVCache in it."""
        if self.place.pool and "libnvcache.so" not in self.run(["cat", "/proc/self/maps"], **options):
            raise systems.Broken("a program does not have the library")

    def check_log(self):
        """Of the last process that had the pool."""
        if self.bench.counters(self.place)["statistics"]["segments_taken"] == 0:
            raise systems.Broken("nothing went through the log")


@dataclasses.dataclass(frozen=True)
class Program:
    """One case of the suite."""
    name: str
    titles: dict  # what is timed -> its row
    compared: str  # of what it leaves, for the table
    needs: dict  # program -> Debian's package
    kind: str = "files"  # or databases: in which figure it is
    # Some of its bytes go through the log: it syncs a file more than once.
    logged: bool = False
    slow: bool = False
    # It can leave out its own syncs, which is run as well, without NVCache.
    yardstick: bool = False
    seconds: tuple = (0.2, 0.5, 2)  # of one run, by scale
    pools: tuple = ("256M", "256M", "256M")  # by scale
    # What NVCache must reach: what is timed -> ((against which system, at most), ...). A ratio, or with
    # `added` seconds more.
    goals: dict = dataclasses.field(default_factory=dict)
    added: bool = False

    def missing(self, bench):  # pylint: disable=unused-argument
        """A sentence on what must be installed first, or None."""
        for program, package in self.needs.items():
            if not shutil.which(program):
                return f"{program} is missing: install {package}"
        return None

    def user(self):
        """The user that it runs as, as options of subprocess.run; empty: the one that we are."""
        return {}

    def run(self, turn):
        """(what is timed -> seconds, what is left as harness/leavings.py has it)"""
        raise NotImplementedError


def write_file(path, data, mode=0o644):
    """With the time of all that is prepared."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)
    os.utime(path, (OLD, OLD))
