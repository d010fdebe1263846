# SPDX-License-Identifier: BSD-3-Clause
"""A test's surroundings: a scratch folder on the disk, a pool on /dev/shm, and two ways to run the same
command, with NVCache and without; and the main program of a test."""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

from .agents import Agent
from .basics import Failure, check, say

POOL_PREFIX = "nvcache-test-"
ROWS = "SELECT id, v FROM t ORDER BY id;"  # of what check_rows() checks


class Bench:
    """One test's surroundings. `with Bench(arguments) as bench:` cleans up whatever happens.
    `write_back`: which files are in the log: `auto`, those that are hot, write-through; `exclusive`, the same, cached;
    `never`, none; unless told otherwise, each from its first open for writing, cached."""

    def __init__(self, options, size="128M", dram="32M", timeout=1500, front_end="preload",
                 write_back="always"):
        self.nvcache = str(pathlib.Path(options.nvcache).resolve())
        self.front_end = front_end
        self.size = size
        self.dram = dram
        self.write_back = write_back
        self.timeout = timeout
        scratch = pathlib.Path(options.scratch).resolve()
        scratch.mkdir(parents=True, exist_ok=True)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="programs-", dir=scratch))
        self.pools = pathlib.Path(tempfile.mkdtemp(prefix=POOL_PREFIX, dir="/dev/shm"))
        self.pool = self.pools / "pool"
        self.preload_library = pathlib.Path(self.nvcache).parent / "libnvcache.so"
        self.keep = False  # for whoever looks at a failure
        self.agents = []
        self.others = []  # processes that are killed in the end

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for agent in self.agents:
            agent.remove()
        for process in self.others:
            process.kill()
            process.wait()
        if kind is not None and self.pool.exists():
            done = subprocess.run([self.nvcache, "status", self.pool], check=False, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            say("\n".join(done.stdout.splitlines()[:20]))
        if self.keep:
            say(f"kept: {self.folder} and {self.pools}")
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.pools, ignore_errors=True)

    def settings(self, preload=True, **more):
        """The variables with which a program has the cache by itself: by the library, by another one, or built in."""
        library = {"LD_PRELOAD": str(self.preload_library if preload is True else preload)} if preload else {}
        return {**library, "NVCACHE_POOL": str(self.pool), "NVCACHE_SIZE": self.size, "NVCACHE_EMULATE": "1",
                "NVCACHE_DRAM": self.dram, **self.rule(), **more}

    def rule(self):
        """The variables that say which files are in the log."""
        if self.write_back == "exclusive":
            return {"NVCACHE_WRITE_BACK": "auto", "NVCACHE_EXCLUSIVE": "*"}
        return {"NVCACHE_WRITE_BACK": self.write_back}

    def cached(self, command, options=("--checkpointer", "never")):
        """The command line that runs `command` with NVCache; nothing is left to a checkpointer."""
        if self.front_end == "built-in":
            # All by itself: what makes the pool, and recovers it, is in the program.
            settings = self.settings(preload=False)
            return ["env", *(f"{name}={value}" for name, value in settings.items()), *map(str, command)]
        rule = ("--write-back", "auto", "--exclusive", "*") if self.write_back == "exclusive" else ("--write-back", self.write_back)
        return [self.nvcache, "run", "--pool", str(self.pool), "--size", self.size, "--emulate",
                "--dram", self.dram, *rule, *options, "--", *map(str, command)]

    def agent(self, command, **options):
        """One that is removed in the end."""
        agent = Agent(command, self.pools / f"errors{len(self.agents)}", **options)
        self.agents.append(agent)
        return agent

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

    def strace(self, trace, settings, *command, options=(), **more):
        """Runs it under strace, which has the settings for it alone; the lines of the trace."""
        words = [word for name, value in settings.items() for word in ("-E", f"{name}={value}")]
        done = self.without("strace", "-f", "-qq", "-e", "signal=none", *options, "-o", trace, *words, *command, **more)
        return done, trace.read_text(encoding="utf-8", errors="replace").splitlines()

    def recover(self, status=0):
        """What it prints."""
        done = self.without(self.nvcache, "recover", self.pool, may_fail=True)
        check(done.returncode == status,
              f"recover: exit code {done.returncode} instead of {status}: {done.stdout}{done.stderr}")
        return done.stdout

    def status(self):
        """`nvcache status --json`, flattened: the last part of a key is enough to find a value."""
        check(self.pool.exists(), "there is no pool: the program ran without the cache")
        text = self.without(self.nvcache, "status", self.pool, "--json").stdout
        return json.loads(text)

    def counter(self, name):
        found = _find(self.status(), name)
        check(found is not None, f"nvcache status --json has no \"{name}\"")
        return found

    def pending(self):
        return self.counter("pending_records")

    def states(self):
        """Of the processes in the pool, by number."""
        return {seat["pid"]: seat["state"] for seat in self.status()["processes"]}

    def check_rows(self, acknowledged, value_of, **options):
        """sqlite3's `db` is sound, and its table t has every row that was acknowledged, and at most one more."""
        verdict = self.without("sqlite3", "db", "PRAGMA integrity_check;", **options).stdout
        check(verdict == "ok\n", f"integrity_check: {verdict}")
        return self.count_rows(self.without("sqlite3", "db", ROWS, **options), acknowledged, value_of)

    @staticmethod
    def count_rows(done, acknowledged, value_of):
        """Of what a program has printed of ROWS."""
        rows = done.stdout.splitlines()
        check(acknowledged <= len(rows) <= acknowledged + 1, f"{len(rows)} rows, {acknowledged} are acknowledged")
        for row, line in enumerate(rows, 1):
            check(line == f"{row}|{value_of(row)}", f"row {row} is wrong: {line[:100]}")
        return len(rows)

    def check_drained(self):
        """After the program's end the log holds nothing: what is on the disk is all there is."""
        pending = self.pending()
        check(pending == 0, f"{pending} records are pending after the program's end")

    def check_clean(self):
        """Nobody is there, and nothing is left of anybody."""
        status = self.status()
        check(status["state"] == "clean" and not status["processes"] and status["pending_records"] == 0
              and status["last_words"] is None, f"state {status['state']}, {status['processes']}, "
              f"{status['pending_records']} pending, {status['last_words']}")


def _find(value, name):
    if isinstance(value, dict):
        if name in value:
            return value[name]
        for child in value.values():
            found = _find(child, name)
            if found is not None:
                return found
    return None


def arguments(description, rounds=None, seed=False):
    """`rounds`: how many there are unless one says; with them, or with `seed`, the run has a seed."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--nvcache", required=True, help="the nvcache command to test")
    parser.add_argument("--scratch", required=True, help="a folder on a disk file system")
    parser.add_argument("--long", action="store_true", help="the long form")
    parser.add_argument("cases", nargs="*", help="names of the cases to run; all when there is none")
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds)
    if seed or rounds is not None:
        parser.add_argument("--seed", type=int, default=random.randrange(10**9),
                            help="repeats the random choices of a run")
    return parser


def rounds(options, play, long=50):
    """What play(seed) returns of each round; a failure says of which one it is."""
    results = []
    for seed in range(options.seed, options.seed + options.rounds * (long if options.long else 1)):
        try:
            results.append(play(seed))
        except Failure as failure:
            raise Failure(f"--seed {seed}: {failure}") from None
    return results


def cases_of(functions, *arguments_of_all):
    """By their names, each with these arguments."""
    return {function.__name__: lambda function=function: function(*arguments_of_all) for function in functions}


def by_rules(case, names, hot, exclusive=()):
    """The cases of `names`, with each file cached from its first open for writing; those of `hot` once
    more, as NAME_auto, with those write-through that the program syncs more than once; those of `exclusive`, as
    NAME_exclusive, with these cached. Each is case(name, rule)."""
    cases = {name: lambda name=name: case(name, "always") for name in names}
    return cases | {f"{name}_{rule}": lambda name=name, rule=rule: case(name, rule)
                    for rule, some in (("auto", hot), ("exclusive", exclusive)) for name in some}


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
    if getattr(options, "seed", None) is not None:
        say(f"seed {options.seed} (give it back with --seed)")
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
