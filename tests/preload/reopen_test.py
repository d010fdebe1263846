#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A file that libc cuts inside freopen is on the disk as it is then, when it has been synced: by strace. Else recovery
would lay over it what the log has from before."""

import pathlib

import kit
from kit import check, say


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", required=True, help="reopen.c, built")
    options = parser.parse_args()
    for rule in ("auto", "always"):
        with kit.Bench(options, size="16M", write_back=rule) as bench:
            _, lines = bench.strace(bench.folder / "trace", bench.settings(NVCACHE_NOTICE="0"),
                                    pathlib.Path(options.program).resolve(),
                                    options=("-e", "trace=access,openat,fsync,fdatasync,syncfs"))
            thread = lines[0].split()[0]
            calls = [words[1] for words in (line.split(None, 1) for line in lines) if words[0] == thread]
            marks = {name: [at for at, call in enumerate(calls) if call.startswith(f'access("{name}"')]
                     for name in ("reopen", "end")}
            check(all(len(places) == 1 for places in marks.values()), f"{rule}: {marks}")
            between = calls[marks["reopen"][0]:marks["end"][0]]
            cuts = [at for at, call in enumerate(between) if '"file"' in call and "O_TRUNC" in call]
            check(len(cuts) == 1, f"{rule}: {between}")
            syncs = [call for call in between[cuts[0]:] if "sync" in call.split("(")[0] and call.endswith("= 0")]
            check(syncs, f"{rule}: no sync is real after the cut: {between}")
            check((bench.folder / "file").read_bytes() == b"new", f"{rule}: other bytes")
    say("the cut is synced")


if __name__ == "__main__":
    main()
