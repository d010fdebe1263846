#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A program whose paths a library translates does the same with NVCache and without, in whichever order the two stand;
nothing happens to what lies at the untranslated paths; and the process says that its names are in no log."""

import pathlib

import kit
from kit import check, say

DECOYS = ("a", "b", "c", "d", "e", "f", "cut", "decoy", "target", "next", "another", "none", "later", "after")


def contents(folder):
    found = {}
    for path in sorted(folder.rglob("*")):
        kind = path.lstat().st_mode
        name = str(path.relative_to(folder))
        found[name] = (oct(kind), path.read_bytes() if path.is_file() and not path.is_symlink() else None)
    return found


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", required=True, help="interposer.c, built")
    parser.add_argument("--library", required=True, help="interposer_library.c, built")
    parser.add_argument("--rule", required=True, choices=("auto", "always"))
    options = parser.parse_args()
    library = pathlib.Path(options.library).resolve()
    with kit.Bench(options, size="16M", write_back=options.rule) as bench:
        results, said = {}, {}
        for how in ("without", "behind", "before"):
            given, meant = bench.folder / how / "given", bench.folder / how / "meant"
            for folder in (given, meant):
                folder.mkdir(parents=True)
            for name in DECOYS:
                (given / name).write_text("DECOY\n", encoding="utf-8")
            settings = {"GIVEN": given, "MEANT": meant, "LD_PRELOAD": library}
            if how != "without":
                both = (bench.preload_library, library) if how == "behind" else (library, bench.preload_library)
                settings |= bench.settings(NVCACHE_NOTICE="all", LD_PRELOAD=":".join(map(str, both)))
            done, _ = bench.strace(bench.folder / f"{how}.trace", settings, options.program, given, meant,
                                   options=("-e", "trace=none"))
            results[how] = done.stdout.replace(f"/{how}/", "/"), contents(given), contents(meant)
            said[how] = "interposer: a library behind ours handles paths" in done.stderr and library.name in done.stderr
        for name in DECOYS:
            check(results["without"][1][name][1] == b"DECOY\n", f"without: the decoy {name} was hit")
        for how in ("behind", "before"):
            for what, before, after in zip(("output", "decoys", "files"), results["without"], results[how]):
                check(before == after, f"{how}: other {what}:\n{before}\n{after}")
        check(said == {"without": False, "behind": True, "before": False}, f"who says that it has an interposer: {said}")
        bench.check_drained()
        say(f"{len(results['without'][0].splitlines())} lines and {len(results['without'][2])} files the same")


if __name__ == "__main__":
    main()
