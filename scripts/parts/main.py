# SPDX-License-Identifier: BSD-3-Clause
"""The command scripts/test, which has the help."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import parts
import steps

NAMES = [part.name for part in parts.PARTS]
SLOWEST = 5


def git(*arguments):
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def complain(message):
    print(f"scripts/test: {message}", file=sys.stderr)
    return 2


def show_list():
    for part in parts.PARTS:
        print(f"{part.name:10}{part.covers}")
        print(f"{'':10}due for: {', '.join(part.due) or 'every change'}")
    return 0


def base_of(name=None):
    """The commit that changes are counted from: what HEAD has in common with it."""
    for candidate in [name] if name else ["origin/main", "main"]:
        found = git("merge-base", "HEAD", candidate)
        if found:
            return found
    return None


def due_since(base):
    changed = set(git("diff", "--name-only", base).splitlines()) | set(git("ls-files", "--others", "--exclude-standard").splitlines())
    return [part for part in parts.PARTS if changed and part.is_due(changed)]


def wanted(arguments, base):
    """The parts that the command line asks for; or a message."""
    if arguments[:1] == ["--all"]:
        if len(arguments) > 1:
            return f"--all has every part: leave {' '.join(arguments[1:])} out"
        # The gate is some of the others.
        return [part for part in parts.PARTS if part.name != "gate"]
    if arguments[:1] == ["--changed"]:
        # The gate has this one.
        return [part for part in due_since(base) if part.name != "sources"]
    unknown = [name for name in arguments if name not in NAMES]
    if unknown:
        return f"{unknown[0]} is no part and no option; the parts are {', '.join(NAMES)}, the options --help has"
    return [part for part in parts.PARTS if part.name in (arguments or ["gate"])]


def run_part(part, base, night):
    run = steps.Run(part.name, base, night)
    error = None
    try:
        part.run(run)
    except steps.Failed as failure:
        error = str(failure)
        steps.say(f"FAILED: {error}")
    run.seconds = time.monotonic() - run.began
    return run, error


def report(runs):
    """A table: what ran, how long, the slowest tests, what was left out. False: something failed."""
    everything = [test for run, _ in runs for test in run.tests]
    count = {result: sum(test.result == result for test in everything) for result in ("passed", "failed", "skipped")}
    print(f"\n{'part':10}{'tests':>7}{'seconds':>9}  the slowest")
    for run, error in runs:
        slowest = sorted(run.tests, key=lambda test: -test.seconds)[:SLOWEST]
        words = ", ".join(f"{test.name} {test.seconds:.0f}" for test in slowest)
        print(f"{run.part:10}{len(run.tests):7}{run.seconds:9.0f}  {words}")
        for line in run.left_out:
            print(f"{'':10}left out: {line}")
        if error:
            print(f"{'':10}FAILED: {error}")
    for test in everything:
        if test.result == "skipped":
            print(f"skipped: {test.name}")
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return not any(error for _, error in runs)


def main(arguments):
    night = "--night" in arguments
    arguments = [argument for argument in arguments if argument != "--night"]
    if arguments == ["--list"]:
        return show_list()
    base = base_of(arguments[1] if arguments[:1] == ["--changed"] and len(arguments) == 2 else None)
    if arguments[:1] == ["--changed"] and base is None:
        return complain(f"there is no commit {' or '.join(arguments[1:] or ['origin/main', 'main'])}: name one that HEAD comes from")
    chosen = wanted(arguments, base)
    if isinstance(chosen, str):
        return complain(chosen)
    if not chosen:
        print("Nothing differs, so no part is due")
        return 0
    packages = steps.Run("packages", base, night)
    packages.step("Debian's")
    if subprocess.run(["scripts/install-packages", "build", "demo", "test"], check=False).returncode != 0:
        return 1
    packages.seconds = time.monotonic() - packages.began
    runs = [(packages, None), *(run_part(part, base, night) for part in chosen)]
    return 0 if report(runs) else 1


if __name__ == "__main__":
    os.chdir(pathlib.Path(__file__).resolve().parents[2])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
