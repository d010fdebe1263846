# SPDX-License-Identifier: BSD-3-Clause
"""The parts of scripts/test: what each covers, for changes in which folders it is due, and its steps.

A folder is built once for several parts: what is there is not built again. The label of a test is its folder's name in
tests/, as a rule (tests/CMakeLists.txt)."""

import dataclasses
import os
import subprocess
from typing import Callable

import steps

# For a change of these, every part is due.
BUILD = ("CMakeLists.txt", "CMakePresets.json", "scripts/parts", "tests/CMakeLists.txt", "tests/kit")
SHIPPED = ("src", "libc-shim", "recovery")
# What our patches are for, and the compiler whose libstdc++ is built for it.
MUSL = ("musl", "1.2.3")
GCC = ("gcc-12", "12.")


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    covers: str
    due: tuple[str, ...]  # folders and files, from the root; (): for every change
    run: Callable[[steps.Run], None]

    def is_due(self, changed):
        places = (*self.due, *BUILD)
        return not self.due or any(path == place or path.startswith(place + "/") for path in changed for place in places)


def tests_of(*labels):
    """The targets of these folders of tests, and what each needs."""
    return ("libnvcache.so", "nvcache_command", *(f"tests/{label}/all" for label in labels))


def all_with(*labels, without=None):
    """The tests with one of the labels, and without another one."""
    return ("-L", f"^({'|'.join(labels)})$", *(("-LE", f"^{without}$") if without else ()))


def release(run, *targets, bench=False):
    run.build("build", "release", *targets, options=[f"-DNVCACHE_BENCH={'ON' if bench else 'OFF'}"])


def gate(run):
    run.command("sources", ["scripts/lint", "quick"])
    ours = ["nvcache_api", "crash_explorer", "differential", "differential_runner", "disk_api_syncs", "disk_leaves",
            "order_program",
            *tests_of("unit", "preload", "tool", "names", "protocol"), "tests/mirror/simulation/all", "tests/mirror/pool/all"]
    musl = run.has_source(*MUSL)
    if musl:
        ours += ["nvcache_musl", "calls_every_call.dynamic", "calls_every_call.static", "libpreload_plugin_musl.so"]
    run.build("build", "release", *ours, options=["-DNVCACHE_BENCH=OFF", f"-DNVCACHE_MUSL={'ON' if musl else 'OFF'}"])
    run.build("build-asan", "asan", "nvcache_unit_tests")
    run.ctest("build", *all_with("unit", "mirror_pool", "preload", "tool", "gate", without="slow"))
    run.ctest("build-asan", *all_with("unit"))


def sources(run):
    run.command("lint", ["scripts/lint", "quick"])


def of(*folders, labels=(), needs=()):
    """A part that is the tests of these folders, and those with these labels."""
    def run_part(run):
        release(run, *tests_of(*folders), *needs)
        run.ctest("build", *all_with(*folders, *labels))
    return run_part


def sanitized(preset, without):
    def run_part(run):
        folder = f"build-{preset}"
        run.build(folder, preset, "nvcache_unit_tests", "nvcache_mirror_pool_tests", "nvcache_stress_tests")
        # Kernels that scatter mappings widely do not leave the places free that the thread sanitizer wants.
        fixed = subprocess.run(["setarch", "-R", "true"], capture_output=True, check=False).returncode == 0
        run.ctest(folder, *all_with("unit", "unit_slow", "mirror_pool", "stress"), "-E", without, prefix=["setarch", "-R"] if fixed else [])
    return run_part


def tidy(run):
    run.build("build-clang", "clang")
    run.command("clang-tidy", ["scripts/lint", "tidy", "build-clang", *([] if run.night else [run.base])])


def musl(run):
    if not (run.has_source(*MUSL) and run.has_source(*GCC)):
        return
    run.build("build", "musl", "all", options=["-DNVCACHE_BENCH=ON"])
    run.command("symbols", ["scripts/check-symbols", "build"])
    run.ctest("build", "-L", "^musl$")


def crash(run):
    labels = ("crash", "fuzz") if run.night else ("crash",)
    release(run, *tests_of(*labels))
    run.ctest("build", *all_with(*labels))


def power(run):
    release(run, *tests_of("power"))
    run.command("kernel of the guest", ["tests/power/guest_image.py", "build/power-guest"], env=dict(os.environ, PYTHONPATH="tests"))
    run.ctest("build", *all_with("power"))


def programs(run):
    run.command("packages", ["scripts/install-packages", "programs"])
    release(run, *tests_of("programs"))
    run.ctest("build", *all_with("programs"))


def bench(run):
    release(run, "all", bench=True)
    run.ctest("build", *all_with("bench"))


def debian13(run):
    if not steps.may_mount():
        run.leave_out("everything", "this user may make no name space of mounts")
        return
    run.command("quickstart", ["scripts/in-debian", "trixie", "scripts/quickstart"])
    run.command("gate", ["scripts/in-debian", "trixie", "scripts/test"])


# Of one thread each, and so without a race.
SINGLE_THREADED = r"^(DamageTest|ReaderDamageTest|PoolTest|LargeReaderTest|NamesReplayTest)\."
PARTS = (
    Part("gate", "what has to pass before a change lands: some of all that follows but what takes minutes", (), gate),
    Part("sources", "licence lines, imports, format, shell scripts", (), sources),
    Part("unit", "the engine's functions, the documentation against the code", ("src", "mirror/pool", "docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "tests/docs", "tests/unit", "tests/stress", "tests/mirror/pool"),
         of("unit", "stress", labels=("unit_slow", "mirror_pool", "mirror_pool_slow"), needs=("tests/mirror/pool/all",))),
    Part("preload", "the preload library from outside, the C API, calls past libc, plain file system against NVCache",
         ("src", "libc-shim", "tests/preload", "tests/api", "tests/rawcall", "tests/audit", "tests/differential"),
         of("preload", "api", "rawcall", "audit", "differential")),
    Part("asan", "unit and stress tests with the address and undefined-behaviour sanitizers", ("src", "mirror/pool", "tests/unit", "tests/stress"),
         sanitized("asan", "^$")),
    Part("tsan", "unit and stress tests with the thread sanitizer", ("src", "mirror/pool", "tests/unit", "tests/stress"),
         sanitized("tsan", SINGLE_THREADED)),
    Part("tidy", "clang-tidy of what differs; by night of all", (*SHIPPED, "mirror", "tests", "bench"), tidy),
    Part("musl", "the modified musl, its front end, and programs that are built for it", ("src", "libc-shim", "tests/preload", "tests/musl", "tests/musl_calls", "tests/musl_cxx", "tests/musl_programs"), musl),
    Part("models", "the models of several processes, of names, of the mirror: runs, and each rule broken",
         ("src/vfs", "src/lease", "src/replay", "mirror/core", "tests/protocol", "tests/names", "tests/mirror/simulation"),
         of("protocol", "names", labels=("simulation",), needs=("tests/mirror/simulation/all",))),
    Part("crash", "every memory image that a crash can leave, mutants of the engine; by night, fuzzers",
         ("src", "tests/crash", "tests/fuzz"), crash),
    Part("power", "power failures of a virtual machine", (*SHIPPED, "tests/power"), power),
    Part("kill", "processes that are killed, disks that fail, in what order others see it",
         (*SHIPPED, "tests/kill", "tests/faults", "tests/order"), of("kill", "faults", "order", needs=("power_agent",))),
    Part("disk", "pools with their journal on a disk: that fails, that loses its power", (*SHIPPED, "tests/disk"),
         of("disk", needs=("power_agent", "faulty_disk"))),
    Part("programs", "databases and tools as Debian packages them", (*SHIPPED, "tests/programs"), programs),
    Part("mirror", "the mirrored log, its servers, its record in etcd", ("src/vfs", "src/pool", "mirror", "tests/mirror"), of("mirror", needs=("power_agent",))),
    Part("recovery", "recovery on its own feet, the command, several processes in one pool",
         (*SHIPPED, "tests/recovery", "tests/tool", "tests/processes"), of("recovery", "tool", "processes")),
    Part("package", "the Debian package, man pages, completion, container files", ("recovery", "packaging", "docker", "scripts", "tests/package", "tests/containers"),
         of("package", "containers")),
    Part("bench", "that benchmarks run, and measure what they are called", ("bench", "tests/bench"), bench),
    Part("debian13", "both of README's commands on Debian 13", ("scripts", "libc-shim", "packaging"), debian13),
)
