# SPDX-License-Identifier: BSD-3-Clause
"""What a part of scripts/test is made of: a command, a build, some of the tests of a build."""

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import xml.etree.ElementTree

# Many tests wait: one more at a time than there are cores.
JOBS = os.cpu_count() + 1
# What the tests of a part without a /dev/shm of their own need of the one that all have, in bytes.
SHARED_MEMORY = 1 << 30
SHOWN = 50  # one step of the compiler in so many, and one test that passes
BEGAN = time.monotonic()


class Failed(Exception):
    """What has failed, in a line; its output has been shown."""


@dataclasses.dataclass
class Test:
    name: str
    seconds: float
    result: str  # "passed", "failed", "skipped"


def say(text):
    print(text, flush=True)


def may_mount():
    """Whether this user may make a name space of mounts; else tests share one /dev/shm, and run one at a time."""
    return subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True, check=False).returncode == 0


class Run:
    """One run of a part. `base`: the commit that changes are counted from. `night`: with what takes long."""

    def __init__(self, part, base, night):
        self.part, self.base, self.night = part, base, night
        self.tests = []
        self.left_out = []
        self.began = time.monotonic()
        self.seconds = 0.0

    def step(self, title):
        say(f"\n=== {self.part}: {title} (after {time.monotonic() - BEGAN:.0f} s)")

    def leave_out(self, what, why):
        self.left_out.append(f"{what}: {why}")
        say(f"Left out: {what}, for {why}")

    def command(self, name, arguments, **options):
        """A command that counts as a test of that name."""
        self.step(name)
        began = time.monotonic()
        done = subprocess.run(arguments, stdin=subprocess.DEVNULL, check=False, **options)
        result = {0: "passed", 77: "skipped"}.get(done.returncode, "failed")
        self.tests.append(Test(f"{self.part}: {name}", time.monotonic() - began, result))
        if result == "failed":
            raise Failed(f"{name}: {' '.join(map(str, arguments))} ended with status {done.returncode}")

    def has_source(self, package, version):
        """The source of a Debian package, in build/sources. False, and a line, where it cannot be had, or is of another
        version, as on another Debian: that is no failure."""
        self.step(f"source of {package}")
        folder = pathlib.Path("build/sources") / package
        done = subprocess.run(["scripts/fetch-source", package, folder], stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            self.leave_out(f"what needs the source of {package}", "it cannot be fetched")
            return False
        found = (folder / ".fetched").read_text(encoding="utf-8").split()[1]
        if not found.startswith(version):
            self.leave_out(f"what needs the source of {package} {version}", f"this Debian has {found}")
            return False
        return True

    def build(self, folder, preset, *targets, options=()):
        """Configures the folder as CMakePresets.json says, and makes the targets, if there are any."""
        self.step(f"build of {folder}")
        pathlib.Path(folder).mkdir(exist_ok=True)
        log = pathlib.Path(folder) / "configure.log"
        with log.open("wb") as output:
            done = subprocess.run(["cmake", "--preset", preset, "-B", folder, "-DNVCACHE_TESTS=ON", *options],
                                  stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            say(log.read_text(encoding="utf-8", errors="replace"))
            raise Failed(f"{folder} cannot be configured")
        if not targets:
            return
        steps = 0
        with subprocess.Popen(["cmake", "--build", folder, "--target", *targets], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as compiling:
            for line in compiling.stdout:
                if re.match(r"\[\d+/\d+\] ", line):
                    steps += 1
                    if steps % SHOWN:
                        continue
                say(line.rstrip("\n"))
        if compiling.returncode != 0:
            raise Failed(f"{folder} cannot be built")

    def ctest(self, folder, *options, jobs=JOBS, prefix=()):
        """Some of the tests of a build, any beside any other. Those that fail say so at length."""
        self.step(f"tests of {folder}: {' '.join(options)}")
        if not may_mount():
            if shutil.disk_usage("/dev/shm").total < SHARED_MEMORY:
                self.leave_out(f"tests of {folder}", f"/dev/shm is smaller than {SHARED_MEMORY >> 20} MiB, and this user may mount no other")
                return
            say("This user may make no name space of mounts: one test at a time, with the /dev/shm that all have")
            jobs = 1
        with tempfile.NamedTemporaryFile(suffix=".xml") as report:
            command = [*prefix, "ctest", "--test-dir", folder, "-j", str(jobs), "--output-on-failure", "--no-tests=error",
                       "--no-label-summary", "--output-junit", report.name, *options, *(["-C", "night"] if self.night else [])]
            passed = 0
            with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, errors="replace") as running:
                for line in running.stdout:
                    if re.match(r" +Start +\d+: ", line):
                        continue
                    if re.search(r" Passed +[0-9.]+ sec$", line):
                        passed += 1
                        if passed % SHOWN:
                            continue
                    say(re.sub(r" \.{3,}", " ...", line.rstrip("\n")))
            self.tests += results_of(report.name)
        shutil.rmtree(pathlib.Path(folder) / "test-data", ignore_errors=True)
        (pathlib.Path(folder) / "test-data").mkdir()
        if running.returncode != 0:
            raise Failed(f"tests of {folder}: " + (", ".join(test.name for test in self.tests if test.result == "failed")
                                                  or f"ctest ended with status {running.returncode}"))


def results_of(report):
    try:
        cases = xml.etree.ElementTree.parse(report).getroot().iter("testcase")
    except xml.etree.ElementTree.ParseError:
        return []
    named = {"run": "passed", "fail": "failed", "notrun": "skipped", "disabled": "skipped"}
    # What follows is how Google Test prints a parameter.
    return [Test(case.get("name").split("  # ")[0], float(case.get("time")), named[case.get("status")]) for case in cases]
