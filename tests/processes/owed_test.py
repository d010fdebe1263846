#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What should hold, and does not yet: each case is owed by an issue, and fails today in exactly one
way. A case that passes, or fails in another way, is a failure here: then OWED is to be changed.

Exit code 77 where file systems cannot be mounted and a case needs one; 1 if CI=true."""

import fcntl
import os
import re
import subprocess
import sys

import kit
from kit import LATE, check, command
from kit.disks import FaultyDisk, Mount, needs_mounts

PROMPT = 5  # seconds for a call that waits for nobody
SIZE = 5000

# case: the issue that owes it, and what is seen today.
OWED = {
    "stat_of_a_stopped_holders_file": (13, "stat: no answer after 5 s"),
    "open_of_a_stopped_holders_file": (13, "open: no answer after 5 s"),
    "open_on_a_slow_disk": (13, "open: no answer after 5 s"),
    "execute_a_closed_script": (13, r"Text file busy: '\./file'"),
    "lease_on_a_closed_file": (13, r"F_SETLEASE: Resource temporarily unavailable"),
    "unmount_after_the_last_close": (13, r"umount .*: target is busy\."),
    "remount_after_the_last_close": (13, r"mount -o remount,ro .*: mount point is busy\..*"),
}

# Writes SIZE bytes (or as many as it is told) to ./file, closes it or not, says so, and waits.
WRITER = """
import os, sys
fd = os.open('file', os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o755)
text = b'#!/bin/true\\n'
for _ in range(int(sys.argv[1])):
    os.write(fd, text + b'#' * (5000 - len(text)))
if sys.argv[2] == 'close':
    os.close(fd)
os.chdir('/')
print('written', flush=True)
sys.stdin.read()
"""


def writer(bench, folder, times=1, then="close", **settings):
    """A program that has written, in `folder`."""
    agent = bench.agent(bench.cached([sys.executable, "-c", WRITER, times, then]), cwd=folder,
                        env=dict(os.environ, NVCACHE_NOTICE="0", **settings))
    check(agent.answer() == "written", "the writer died")
    return agent


def bench_of(options, size="16M"):
    return kit.Bench(options, size=size, dram="1M")


def answers(options, folder, call, code, wanted):
    """Another program under NVCache, with a pool of its own: its answer, in time."""
    with bench_of(options) as bench:
        process = subprocess.Popen(bench.cached([sys.executable, "-c", f"import os; print({code})"]),
                                   cwd=folder, text=True, stdout=subprocess.PIPE,
                                   env=dict(os.environ, NVCACHE_NOTICE="0"))
        try:
            found = process.communicate(timeout=PROMPT)[0].strip()
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise kit.Failure(f"{call}: no answer after {PROMPT} s") from None
    check(found == wanted, f"{call}: {found}, not {wanted}")


STAT = ("stat", "os.stat('file').st_size")
OPEN = ("open", "len(os.read(os.open('file', os.O_RDONLY), 1 << 30))")


def of_a_stopped_holder(options, call):
    with bench_of(options) as bench:
        writer(bench, bench.folder, then="keep", **LATE).stop()
        answers(options, bench.folder, *call, str(SIZE))


def stat_of_a_stopped_holders_file(options):
    of_a_stopped_holder(options, STAT)


def open_of_a_stopped_holders_file(options):
    of_a_stopped_holder(options, OPEN)


def open_on_a_slow_disk(options):
    """The holder has a log full of bytes to bring to a disk that takes its time."""
    needs_mounts()
    with bench_of(options) as bench, FaultyDisk(bench, options.disk) as disk:
        with writer(bench, disk.folder, times=1000, then="keep", **LATE):
            disk.tell("delay 500000")
            answers(options, disk.folder, *OPEN, str(1000 * SIZE))


def execute_a_closed_script(options):
    """By a program that knows of no cache."""
    with bench_of(options) as bench, writer(bench, bench.folder, **LATE):
        try:
            check(subprocess.run(["./file"], cwd=bench.folder, check=False).returncode == 0, "it fails")
        except OSError as error:
            raise kit.Failure(f"{error.strerror}: '{error.filename}'") from None


def lease_on_a_closed_file(options):
    with bench_of(options) as bench, writer(bench, bench.folder, **LATE):
        with open(bench.folder / "file", "rb") as file:
            try:
                fcntl.fcntl(file.fileno(), fcntl.F_SETLEASE, fcntl.F_RDLCK)
            except OSError as error:
                raise kit.Failure(f"F_SETLEASE: {error.strerror}") from None


def after_the_last_close(options, words):
    needs_mounts()
    with bench_of(options) as bench, Mount(bench.folder / "image", bench.folder / "mounted", size=16 << 20) as mount:
        # What is pending is no reason: it can be brought to the disk when somebody asks.
        with writer(bench, mount.folder, **LATE):
            command(*words, mount.folder)
            mount.mounted = words[0] != "umount"


def unmount_after_the_last_close(options):
    after_the_last_close(options, ("umount",))


def remount_after_the_last_close(options):
    after_the_last_close(options, ("mount", "-o", "remount,ro"))


def owed(case, options):
    issue, symptom = OWED[case.__name__]
    try:
        case(options)
    except kit.Failure as failure:
        check(re.fullmatch(symptom, str(failure).strip(), re.DOTALL),
              f"not as it is known: {failure}\nexpected: {symptom}")
        kit.say(f"         owed by issue {issue}: {failure}")
        return
    raise kit.Failure(f"it passes: issue {issue} owes it no more, take it off the list")


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--disk", help="faulty_disk")
    options = parser.parse_args()
    options.nvcache = os.path.abspath(options.nvcache)
    kit.main(options, {name: lambda case=globals()[name]: owed(case, options) for name in OWED})


if __name__ == "__main__":
    main()
