#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A program whose paths a library translates does the same with NVCache and without, in whichever order the two stand;
nothing happens to what lies at the untranslated paths; and the process says that its names are in no log. What it removes
and syncs, recovery does not bring back, though another process has it in the log."""

import pathlib
import sys

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


MAKER = """
import os, sys
folder = os.open(sys.argv[1], os.O_RDONLY)
for _ in range(3): os.fsync(folder)
for name in ("one", "two"):
    file = os.open(sys.argv[1] + "/" + name, os.O_RDWR | os.O_CREAT, 0o600)
    os.write(file, bytes(100))
    os.fsync(file)
print("made", flush=True)
sys.stdin.readline()
"""
REMOVER = """
import os, sys
folder = os.open(sys.argv[1], os.O_RDONLY)
os.unlink(sys.argv[1] + "/one")
os.fsync(folder)
"""


def settle(options, library):
    """Whatever the log has of the folder when the remover's sync returns is from before the removal."""
    with kit.Bench(options, size="16M", write_back="auto") as bench:
        given, meant = bench.folder / "given", bench.folder / "meant"
        given.mkdir()
        meant.mkdir()
        settings = bench.settings(NVCACHE_NOTICE="0")
        maker = bench.agent(["env", *(f"{name}={value}" for name, value in settings.items()), sys.executable, "-c", MAKER,
                             meant])
        check(maker.answer() == "made", "the maker")
        pending = [line for line in bench.without(bench.nvcache, "dump", bench.pool).stdout.splitlines()
                   if "pending" in line and "/one" in line]
        check(any("created" in line for line in pending), "names are not in the log: nothing would be proved")
        settings |= {"GIVEN": given, "MEANT": meant, "LD_PRELOAD": f"{bench.preload_library}:{library}"}
        bench.without(*("env", *(f"{name}={value}" for name, value in settings.items()), sys.executable, "-c", REMOVER,
                        given))
        pending = [line for line in bench.without(bench.nvcache, "dump", bench.pool).stdout.splitlines()
                   if "pending" in line and "/one" in line]
        check(not pending, "after a removal and its sync the log still has\n" + "\n".join(pending))
        check([path.name for path in meant.iterdir()] == ["two"], "what is there")
        say("nothing of what was removed and synced is pending")


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", required=True, help="interposer.c, built")
    parser.add_argument("--library", dest="interposer", required=True, help="interposer_library.c, built")
    parser.add_argument("--rule", required=True, choices=("auto", "always"))
    options = parser.parse_args()
    library = pathlib.Path(options.interposer).resolve()
    if options.rule == "auto":
        settle(options, library)
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
