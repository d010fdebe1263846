#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Several processes on the same files, each under NVCache: every one sees what it would see without.

Random calls, in lock step, are made by a few processes (agent.c) once on the plain file system and once
under NVCache; what they answer must be the same, and the files in the end. Processes are killed, forked
and replaced by exec on the way: what a dead one has written is there for the others at once.

    several_test.py --agent A --library L --scratch DIR [--seed N] [--rounds N] [--steps N] [--processes N]
"""

import argparse
import hashlib
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

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
    def __init__(self, options, folder, environments):
        self.options = options
        self.folder = folder
        self.environments = environments
        self.running = [self.start(e) for e in environments]

    def start(self, environment):
        return subprocess.Popen([self.options.agent], cwd=self.folder, env=environment, text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)

    def do(self, who, call):
        agent = self.running[who]
        if call == "kill":
            os.killpg(agent.pid, 9)
            agent.wait()
            self.running[who] = self.start(self.environments[who])
            # Of one pool, the others see to it themselves that a dead process's bytes are there. Of
            # another pool they know nothing: its next process does it.
            if len({e.get("NVCACHE_POOL") for e in self.environments}) > 1:
                self.do(who, "close 0")
            return "killed"
        agent.stdin.write(call + "\n")
        agent.stdin.flush()
        return agent.stdout.readline().strip()

    def end(self):
        for agent in self.running:
            agent.stdin.close()
            agent.wait(60)


def tree(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def run(options, steps, environments):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="several-", dir=options.scratch))
    try:
        agents = Agents(options, folder, environments)
        answers = [agents.do(who, call) for who, call in steps]
        agents.end()
        return answers, tree(folder)
    finally:
        shutil.rmtree(folder)


def environments(options, memory, generator):
    """One pool for all, or one for each: that they do not get in each other's way is ours to see to. With
    one pool and hot files alone, they share what they sync (docs/write-through.md)."""
    result = []
    shares = generator.random() < 0.5
    for who in range(options.processes):
        pool = memory / f"pool{who if not shares and generator.random() < 0.5 else 0}"
        result.append({**os.environ, "LD_PRELOAD": options.preloaded, "NVCACHE_POOL": str(pool),
                       "NVCACHE_SIZE": "4M", "NVCACHE_EMULATE": "1", "NVCACHE_NOTICE": "0",
                       "NVCACHE_DRAM": generator.choice(["64k", "16M"]),
                       "NVCACHE_WRITE_BACK": "auto" if shares
                       else generator.choice(["always", "always", "auto"]),
                       "NVCACHE_BATCH_DELAY": generator.choice(["1", "50", "10000"])})
    return result


def difference(options, steps, seed):
    """The first step whose answers differ, and what they were; or None."""
    generator = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="nvcache-test-several-", dir="/dev/shm") as memory:
        cached = run(options, steps, environments(options, pathlib.Path(memory), generator))
    plain = run(options, steps, [dict(os.environ)] * options.processes)
    for i, (want, got) in enumerate(zip(plain[0], cached[0])):
        if want != got:
            return i, f"process {steps[i][0]}, {steps[i][1]}: {want!r} without, {got!r} with NVCache"
    if plain[1] != cached[1]:
        return len(steps), f"files: {plain[1]} without, {cached[1]} with NVCache"
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--agent", required=True)
    parser.add_argument("--library", dest="preloaded", required=True)
    parser.add_argument("--scratch", required=True)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--processes", type=int, default=3)
    options = parser.parse_args()
    options.scratch = pathlib.Path(options.scratch)
    options.scratch.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}", flush=True)
    for n in range(options.rounds):
        seed = options.seed + n
        steps = sequence(random.Random(seed), options.steps, options.processes)
        if difference(options, steps, seed) is None:
            continue
        steps = shrink(options, steps, seed)
        for who, call in steps:
            print(f"  {who} {call}")
        print(f"seed {seed}: {difference(options, steps, seed)}")
        return 1
    print(f"{options.rounds} rounds of {options.steps} calls by {options.processes} processes: no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
