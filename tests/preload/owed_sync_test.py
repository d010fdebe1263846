#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""owed_sync.c under strace: after a change that no log has, the next fsync reaches the kernel; one
that has nothing to do, or after a change that the log has, does not, or nothing would be proved."""

import errno
import os
import pathlib
import re

import kit
from kit import check

# What a kernel or a file system that does not have the call says of it; root may do all of them.
NOT_THERE = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTTY} | (set() if os.geteuid() == 0 else {errno.EPERM})
# No call is left out on any kernel that Debian 12 has.
OLD = {"chmod", "fchmod", "ioctl", "set_flags", "set_more_flags", "rename", "setxattr", "utimensat"}

# A size, a hole, zeros: the log has what fsync would make durable.
LOGGED = re.compile(r"(syscall\(SYS_)?(ftruncate\b|fallocate\b.*FALLOC_FL_(PUNCH_HOLE|ZERO_RANGE))")

PHASE = re.compile(r'prctl\(PR_SET_NAME, "(\d+) (\w+)"')
SYNC = re.compile(r"\bf(?:data)?sync\(77\b")  # whole, or its beginning


def syncs(trace):
    """How many of the program's fsyncs have reached the kernel, by way and phase."""
    found = {}
    phase = None
    for line in trace:
        announced = PHASE.search(line)
        if announced:
            phase = (int(announced.group(1)), announced.group(2))
            found[phase] = 0
        elif SYNC.search(line) and phase is not None:
            found[phase] += 1
    return found


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", required=True, help="owed_sync.c, built")
    parser.add_argument("--built-in", action="store_true", help="its libc has the cache")
    options = parser.parse_args()
    with kit.Bench(options, size="16M") as bench:
        folder = bench.folder / "files"
        folder.mkdir()
        done, lines = bench.strace(bench.folder / "trace", bench.settings(preload=not options.built_in),
                                   pathlib.Path(options.program).resolve(), folder,
                                   options=("-e", "trace=fsync,fdatasync,prctl"))
        found = syncs(lines)
    ways = [line.split("\t") for line in done.stdout.splitlines()]
    check(len(ways) > 60, f"only {len(ways)} ways")
    wrong, seen, by_log = [], 0, 0
    for number, call, error in ways:
        result = os.strerror(int(error))
        phases = {name: found.get((int(number), name)) for name in ("before", "after", "again")}
        if int(error) in NOT_THERE and not any(re.match(rf"{name}\(", call) for name in OLD):
            kit.say(f"         {call}: {result}, not tried")
            continue
        seen += 1
        logged = LOGGED.match(call) is not None
        by_log += logged
        if error != "0" or phases != {"before": 0, "after": 0 if logged else 1, "again": 0}:
            wrong.append(f"{call}: {result}, real fsyncs: {phases}")
    check(not wrong, f"{len(wrong)} of {len(ways)} ways:\n" + "\n".join(wrong))
    check(by_log > 2, f"only {by_log} ways that the log has")
    print(f"{seen} ways: {seen - by_log} with one real fsync after it, {by_log} with none")


if __name__ == "__main__":
    main()
