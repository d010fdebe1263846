#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""elided.c under strace: of a file that others may look at, or that the log has whole, no fsync reaches
the kernel once the file is hot; of one that somebody may write to unseen, each does. What is in the files
is what is there without NVCache."""

import pathlib
import re

import kit
from kit import check

SYNCS = 5  # of the program, in the phase that counts
# Of all others, none is real.
REAL = {
    "mapped_to_write", "mapped_and_protected", "mapped_and_moved", "sent_in", "written_by_aio",
    "where_libc_writes_errors", "direct", "in_a_program_too", "spawned", "spawned_as_output",
    "output_of_vfork", "mode_set_by_vfork", "sent_away", "at_an_offset_of_others",
}

PHASE = re.compile(r'prctl\(PR_SET_NAME, "(\d+) (\w+)"')
SYNC = {"hot": re.compile(r"\bf(?:data)?sync\(77\b"),  # whole, or its beginning
        "all": re.compile(r"\bf(?:data)?sync\(\d")}


def syncs(trace):
    """How many of the fsyncs that count have reached the kernel, by way."""
    found = {}
    number, counted = 0, None
    for line in trace:
        announced = PHASE.search(line)
        if announced:
            number, counted = int(announced.group(1)), SYNC.get(announced.group(2))
        elif counted is not None and counted.search(line):
            found[number] = found.get(number, 0) + 1
    return found


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", required=True, help="elided.c, built")
    options = parser.parse_args()
    program = pathlib.Path(options.program).resolve()
    with kit.Bench(options, size="16M", write_back="auto") as bench:
        folders = [bench.folder / "with", bench.folder / "without"]
        for folder in folders:
            folder.mkdir()
        done, lines = bench.strace(bench.folder / "trace", bench.settings(), program, folders[0],
                                   options=("-e", "trace=fsync,fdatasync,prctl"))
        found = syncs(lines)
        plain = bench.without(program, folders[1])
        check(done.stdout == plain.stdout, f"with NVCache:\n{done.stdout}without:\n{plain.stdout}")
    ways = [line.split("\t")[:2] for line in done.stdout.splitlines()]
    check(REAL <= {way for _, way in ways} and len(ways) > 25, f"only {len(ways)} ways")
    wrong = [f"{way}: {found.get(int(number), 0)} of {SYNCS} syncs were real"
             for number, way in ways if found.get(int(number), 0) != (SYNCS if way in REAL else 0)]
    check(not wrong, "\n".join(wrong))
    print(f"{len(ways)} ways: {len(ways) - len(REAL)} without a real fsync, {len(REAL)} with all of them")


if __name__ == "__main__":
    main()
