# SPDX-License-Identifier: BSD-3-Clause
"""Runs pool_fuzzer or mirror_fuzzer for a time. Prints its seed; what fails is saved, and `pool_fuzzer FILE`
tries it again.

    fuzz.py --fuzzer build/pool_fuzzer --seconds 45 [--seed N] [--corpus FOLDER]

Exit status: 0 nothing found, 1 something found, 77 cannot be run here."""

import argparse
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

SKIPPED = 77
SEEDS = 64


def make_corpus(folder, seed):
    """Inputs of all lengths, so that the first rounds do many kinds of damage already."""
    chance = random.Random(seed)
    for number in range(SEEDS):
        length = chance.choice((0, 1, 4, 8, 16, 40, 100))
        (folder / f"seed{number}").write_bytes(bytes(chance.randrange(256) for _ in range(length)))


def fuzz(options, seed, found, plant=False):
    """libFuzzer's exit status and output."""
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=options.scratch) as new:
        corpus = pathlib.Path(options.corpus or new)
        corpus.mkdir(parents=True, exist_ok=True)
        make_corpus(corpus, seed)
        command = [
            options.fuzzer, f"-seed={seed}", f"-max_total_time={options.seconds}", "-timeout=10",
            "-rss_limit_mb=1024", "-error_exitcode=1", f"-max_len={options.length}", "-len_control=0",
            "-print_final_stats=1",
            f"-artifact_prefix={found}/", str(corpus),
        ]
        return run(command, plant, options.seconds + 120)


def run(command, plant, seconds):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("NVCACHE_")}
    if plant:
        environment["NVCACHE_FUZZ_PLANT"] = "1"
    result = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                            timeout=seconds)
    return result.returncode, result.stdout.decode("utf-8", "replace")


def tell(output):
    executed = re.search(r"stat::number_of_executed_units: *(\d+)", output)
    covered = re.findall(r"cov: (\d+)", output)
    print(f"{executed.group(1) if executed else '?'} inputs, "
          f"{covered[-1] if covered else '?'} edges of the program")


def search(options):
    found = pathlib.Path(options.scratch) / "fuzz-found"
    found.mkdir(exist_ok=True)
    print(f"seed {options.seed}", flush=True)
    status, output = fuzz(options, options.seed, found)
    if status == SKIPPED:
        print(output, end="")
        return SKIPPED
    if status == 0:
        tell(output)
        found.rmdir() if not any(found.iterdir()) else None
        return 0
    print(output[-20000:])
    for name in re.findall(r"Test unit written to (\S+)", output):
        print(f"found; once more: {options.fuzzer} {name}")
    return 1


def self_check(options):
    """An error that was planted is found, saved, found again in what was saved, and gone without."""
    options.seconds = 60
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=options.scratch) as found:
        status, output = fuzz(options, options.seed, found, plant=True)
        if status == SKIPPED:
            print(output, end="")
            return SKIPPED
        saved = re.findall(r"Test unit written to (\S+)", output)
        if status == 0 or len(saved) != 1 or "/wrong was" not in output:
            print(output[-5000:])
            print("the planted error was not found")
            return 1
        once_more = [options.fuzzer, "-error_exitcode=1", saved[0]]
        again = [run(once_more, plant, 60)[0] for plant in (True, False)]
        print(f"planted: found, saved; status of that input: {again[0]}, without the error "
              f"{again[1]}")
        return 0 if again[0] != 0 and again[1] == 0 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fuzzer", required=True)
    parser.add_argument("--scratch", required=True, help="a folder for what is found")
    parser.add_argument("--seconds", type=int, default=45)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 2**31))
    parser.add_argument("--length", type=int, default=512, help="of an input at most, in bytes")
    parser.add_argument("--corpus", help="keep interesting inputs here, for the next time")
    parser.add_argument("--self-check", action="store_true")
    options = parser.parse_args()
    pathlib.Path(options.scratch).mkdir(parents=True, exist_ok=True)
    return self_check(options) if options.self_check else search(options)


if __name__ == "__main__":
    sys.exit(main())
