# SPDX-License-Identifier: BSD-3-Clause
"""What the program tests share: a scratch folder on the disk, a pool on /dev/shm, and two ways to
run the same command: with NVCache and without."""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

POOL_PREFIX = "nvcache-test-"


class Failure(Exception):
    """The test found something wrong; the text says what."""


def check(condition, text):
    if not condition:
        raise Failure(text)


def say(text):
    print(text, flush=True)


class Bench:
    """One test's surroundings. `with Bench(arguments) as bench:` cleans up whatever happens.
    `write_back`: which files are cached; unless told otherwise, each from its first open for writing."""

    def __init__(self, nvcache, scratch, size="128M", dram="32M", timeout=1500, front_end="preload",
                 write_back="always"):
        self.nvcache = str(pathlib.Path(nvcache).resolve())
        self.front_end = front_end
        self.size = size
        self.dram = dram
        self.write_back = write_back
        self.timeout = timeout
        scratch = pathlib.Path(scratch).resolve()
        scratch.mkdir(parents=True, exist_ok=True)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="programs-", dir=scratch))
        self.pools = pathlib.Path(tempfile.mkdtemp(prefix=POOL_PREFIX, dir="/dev/shm"))
        self.pool = self.pools / "pool"

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.pools, ignore_errors=True)

    def cached(self, command):
        """The command line that runs `command` with NVCache; nothing is left to a checkpointer."""
        if self.front_end == "built-in":
            # All by itself: what makes the pool, and recovers it, is in the program.
            return ["env", f"NVCACHE_POOL={self.pool}", f"NVCACHE_SIZE={self.size}",
                    "NVCACHE_EMULATE=1", f"NVCACHE_DRAM={self.dram}",
                    f"NVCACHE_WRITE_BACK={self.write_back}", *map(str, command)]
        return [self.nvcache, "run", "--pool", str(self.pool), "--size", self.size, "--emulate",
                "--dram", self.dram, "--write-back", self.write_back, "--checkpointer", "never", "--",
                *map(str, command)]

    def run(self, command, cache, cwd=None, stdin=None, env=None, may_fail=False):
        """Runs to the end; returns the finished process with its output as text."""
        full = self.cached(command) if cache else [str(word) for word in command]
        done = subprocess.run(full, cwd=cwd or self.folder, input=stdin, text=True,
                              errors="replace", timeout=self.timeout, check=False,
                              stdin=subprocess.DEVNULL if stdin is None else None,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=dict(os.environ, LC_ALL="C", **(env or {})))
        if done.returncode != 0 and not may_fail:
            raise Failure(f"exit code {done.returncode}: {' '.join(full)}\n"
                          f"--- stdout\n{done.stdout[-4000:]}\n--- stderr\n{done.stderr[-4000:]}")
        return done

    def without(self, *command, **options):
        return self.run(command, False, **options)

    def with_cache(self, *command, **options):
        return self.run(command, True, **options)

    def status(self):
        """`nvcache status --json`, flattened: the last part of a key is enough to find a value."""
        check(self.pool.exists(), "there is no pool: the program ran without the cache")
        text = self.without(self.nvcache, "status", self.pool, "--json").stdout
        return json.loads(text)

    def counter(self, name):
        found = _find(self.status(), name)
        check(found is not None, f"nvcache status --json has no \"{name}\"")
        return found

    def check_drained(self):
        """After the program's end the log holds nothing: what is on the disk is all there is."""
        pending = self.counter("pending_records")
        check(pending == 0, f"{pending} records are pending after the program's end")


def _find(value, name):
    if isinstance(value, dict):
        if name in value:
            return value[name]
        for child in value.values():
            found = _find(child, name)
            if found is not None:
                return found
    return None


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--nvcache", required=True, help="the nvcache command to test")
    parser.add_argument("--scratch", required=True, help="a folder on a disk file system")
    parser.add_argument("--long", action="store_true", help="the long form")
    parser.add_argument("cases", nargs="*", help="names of the cases to run; all when there is none")
    return parser


def by_rules(case, names, hot):
    """The cases of `names`, with each file cached from its first open for writing; those of `hot` once
    more, as NAME_auto, with those cached that the program syncs more than once. Each is
    case(name, rule)."""
    cases = {name: lambda name=name: case(name, "always") for name in names}
    return cases | {f"{name}_auto": lambda name=name: case(name, "auto") for name in hot}


def front_end_arguments(parser, program):
    """For the tests that can run `program` from elsewhere, with the cache built into it."""
    def found(name):
        return str(pathlib.Path(name).resolve()) if "/" in name else name

    parser.add_argument("--program", default=program, type=found,
                        help=f"what runs with NVCache [{program}]; without it, {program} does")
    parser.add_argument("--front-end", choices=("preload", "built-in"), default="preload",
                        help="how the program has the cache [preload]")
    parser.add_argument("--part", type=int, default=1, metavar="N",
                        help="an Nth of the log and the DRAM cache, and of data of a given size")


def main(options, cases):
    """Runs the named cases, or all; `cases` maps a name to a function without arguments."""
    failed = []
    for name in options.cases or cases:
        say(f"[ RUN  ] {name}")
        try:
            cases[name]()
            say(f"[ OK   ] {name}")
        except (Failure, subprocess.TimeoutExpired) as problem:
            failed.append(name)
            say(f"[ FAIL ] {name}: {problem}")
    sys.exit(1 if failed else 0)
