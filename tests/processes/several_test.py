#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Several processes on the same files, each under NVCache: every one sees what it would see without.

Random calls, in lock step, are made by a few processes (agent.c) once on the plain file system and once
under NVCache; what they answer must be the same, and the files in the end. Processes are killed, forked
and replaced by exec on the way: what a dead one has written is there for the others at once.

    several_test.py --nvcache N --agent A --library L --scratch DIR [--seed N] [--rounds N] [--steps N] [--processes N]
"""

import os
import pathlib
import random
import signal

import kit

NAMES = ["a", "b", "c", "d"]
SLOTS = 3
FLAGS = [
    os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_CREAT,
    os.O_RDWR | os.O_CREAT | os.O_TRUNC, os.O_RDWR | os.O_CREAT | os.O_APPEND,
    os.O_RDONLY | os.O_TRUNC, os.O_RDWR | os.O_CLOEXEC,
]


def sequence(generator, length, processes):
    """(process, call) pairs; `kill` is not a call of the process."""
    steps = []
    for _ in range(length):
        r = generator
        slot, name = r.randrange(SLOTS), r.choice(NAMES)
        offset = r.choice([r.randrange(100), r.randrange(20000), r.randrange(300000)])
        size = r.choice([r.randrange(100), r.randrange(5000), r.randrange(70000)])
        byte = r.randrange(1, 127)
        call = r.choices(
            [f"open {slot} {name} {r.choice(FLAGS)}", f"close {slot}", f"dup {slot} {r.randrange(SLOTS)}",
             f"pread {slot} {offset} {size}", f"pwrite {slot} {offset} {size} {byte}",
             f"read {slot} {size}", f"write {slot} {size} {byte}", f"seek {slot} {offset} {r.randrange(3)}",
             f"stat {name}", f"fstat {slot}", f"fsync {slot}", f"lock {slot} {r.randrange(3)}",
             f"mapped {slot} {offset}", f"ftruncate {slot} {offset}", f"truncate {name} {offset}",
             f"rename {name} {r.choice(NAMES)}", f"unlink {name}", "fork", "exec", "kill", f"map {slot}",
             f"look {offset}", f"poke {offset} {byte}"],
            [20, 10, 1, 15, 25, 4, 10, 4, 10, 5, 12, 4, 1, 2, 2, 3, 2, 1, 1, 1, 1, 5, 1])[0]
        steps.append((r.randrange(processes), call))
    return steps


class Agents:
    """In the bench's folder, each with its environment."""

    def __init__(self, options, bench, environments):
        self.options, self.bench, self.environments = options, bench, environments
        self.running = [self.start(environment) for environment in environments]

    def start(self, environment):
        return self.bench.agent([self.options.agent], cwd=self.bench.folder, env=environment, start_new_session=True)

    def do(self, who, call):
        if call != "kill":
            return self.running[who].call(call)
        os.killpg(self.running[who].pid, signal.SIGKILL)
        self.running[who].process.wait()
        self.running[who] = self.start(self.environments[who])
        # Of one pool, the others see to it themselves that a dead process's bytes are there. Of
        # another pool they know nothing: its next process does it.
        if len({environment.get("NVCACHE_POOL") for environment in self.environments}) > 1:
            self.do(who, "close 0")
        return "killed"


def environments_of(options, bench, generator):
    """One pool for all, or one for each: that they do not get in each other's way is ours to see to. With
    one pool and hot files alone, they share what they sync (docs/write-through.md)."""
    result = []
    shares = generator.random() < 0.5
    for who in range(options.processes):
        pool = bench.pools / f"pool{who if not shares and generator.random() < 0.5 else 0}"
        result.append({**os.environ, **bench.settings(
            options.preloaded, NVCACHE_NOTICE="0", NVCACHE_POOL=str(pool),
            NVCACHE_DRAM=generator.choice(["64k", "16M"]),
            NVCACHE_WRITE_BACK="auto" if shares else generator.choice(["always", "always", "auto"]),
            NVCACHE_BATCH_DELAY=generator.choice(["1", "50", "10000"]))})
    return result


def run(options, steps, generator=None):
    """The answers, and the files in the end; under NVCache if there is a generator of its settings."""
    with kit.Bench(options, size="4M") as bench:
        plain = [dict(os.environ)] * options.processes
        agents = Agents(options, bench, environments_of(options, bench, generator) if generator else plain)
        answers = [agents.do(who, call) for who, call in steps]
        for agent in agents.running:
            agent.end()
            agent.process.wait(60)
        return answers, kit.contents(bench.folder)


def difference(options, steps, seed):
    """The first step whose answers differ, and what they were; or None."""
    cached, plain = run(options, steps, random.Random(seed)), run(options, steps)
    for i, (want, got) in enumerate(zip(plain[0], cached[0])):
        if want != got:
            return i, f"process {steps[i][0]}, {steps[i][1]}: {want!r} without, {got!r} with NVCache"
    for name in sorted(plain[1].keys() | cached[1].keys()):
        want, got = plain[1].get(name), cached[1].get(name)
        if want != got:
            sizes = [None if content is None else len(content) for content in (want, got)]
            return len(steps), f"file {name}: {sizes[0]} bytes without, {sizes[1]} with NVCache, or others"
    return None


def shrink(options, steps, seed):
    found = difference(options, steps, seed)
    if found is None:
        return steps
    steps = steps[:found[0] + 1]
    part = max(len(steps) // 2, 1)
    while part >= 1:
        at = 0
        while at < len(steps) - 1:
            shorter = steps[:at] + steps[at + part:]
            if difference(options, shorter, seed):
                steps = shorter
            else:
                at += part
        part //= 2
    return steps


def one(options, seed):
    steps = sequence(random.Random(seed), options.steps, options.processes)
    if difference(options, steps, seed) is None:
        return
    steps = shrink(options, steps, seed)
    for who, call in steps:
        kit.say(f"  {who} {call}")
    raise kit.Failure(difference(options, steps, seed))


def main():
    parser = kit.arguments(__doc__, rounds=20)
    parser.add_argument("--agent", required=True, type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--library", dest="preloaded", required=True)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--processes", type=int, default=3)
    options = parser.parse_args()
    kit.main(options, {"several": lambda: kit.rounds(options, lambda seed: one(options, seed))})


if __name__ == "__main__":
    main()
