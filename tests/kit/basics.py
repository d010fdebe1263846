# SPDX-License-Identifier: BSD-3-Clause
"""Checks, waiting with limits, and what becomes of processes."""

import os
import pathlib
import subprocess
import sys
import time

SKIPPED = 77
KEPT = 3  # exit code of `nvcache recover`
MIB = 1 << 20
PATIENCE = 20  # seconds for what may wait for a disk that fails or is slow

# The cleanup thread does nothing for as long as a test may take, or all it can.
LATE = {"NVCACHE_BATCH_DELAY": "60000", "NVCACHE_BATCH_MIN": "1048576", "NVCACHE_BATCH_MAX": "1048576"}
EARLY = {"NVCACHE_BATCH_DELAY": "1", "NVCACHE_BATCH_MIN": "1", "NVCACHE_BATCH_MAX": "1"}


class Failure(Exception):
    """The test found something wrong; the text says what."""


def check(condition, text):
    if not condition:
        raise Failure(text)


def say(text):
    print(text, flush=True)


def skip(why, must_run_in_ci=True):
    """Ends the test as skipped; but not where the tests have to run."""
    say(f"[ SKIP ] {why}")
    sys.exit(1 if must_run_in_ci and os.environ.get("CI") == "true" else SKIPPED)


def until(condition, what, patience=PATIENCE):
    end = time.monotonic() + patience
    while not condition():
        check(time.monotonic() < end, f"{what}: not after {patience} s")
        time.sleep(0.02)


def without_nvcache():
    """This process's environment without anything that NVCache or the linker would read."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("NVCACHE_", "LD_"))}


def command(*words, **options):
    """Runs it to its end, which has to be good; its output."""
    words = [str(word) for word in words]
    done = subprocess.run(words, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", **options)
    check(done.returncode == 0, f"{' '.join(words)}: {done.stdout}")
    return done.stdout


def state_of(pid):
    """The letter of its state; Z when it is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return "Z"
    return text.rsplit(")", 1)[1].split()[0]


def children(pid):
    try:
        return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def group_lives(group):
    """Whether a process of the group is there that has not died."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of_group = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(of_group) == group and state not in "ZX":
            return True
    return False


def contents(folder):
    """Of all files below it, by their names there."""
    return {path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}


def first_difference(one, other):
    """Where two sequences of bytes begin to differ."""
    return next((i for i, (x, y) in enumerate(zip(one, other)) if x != y), min(len(one), len(other)))
