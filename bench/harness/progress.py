# SPDX-License-Identifier: BSD-3-Clause
"""What is running, and how long it will still take: a bar on a terminal, lines elsewhere."""

import sys
import time

from harness import units

try:
    import rich.console
    import rich.progress
    import rich.text
except ImportError:
    rich = None


class Remaining:
    """Estimates from what cases say of themselves, and from what was measured already."""

    def __init__(self, plan):
        self.left = list(plan)  # of (key, seconds as the case says)
        self.taken = {}  # key -> seconds of its runs
        self.said = 0.0
        self.spent = 0.0

    def done(self, key, seconds):
        for at, (other, said) in enumerate(self.left):
            if other == key:
                del self.left[at]
                self.said += said
                break
        self.spent += seconds
        self.taken.setdefault(key, []).append(seconds)

    def drop(self, key):
        """Will not be run again."""
        self.left = [entry for entry in self.left if entry[0] != key]

    def seconds(self):
        factor = self.spent / self.said if self.said else 1
        known = {key: sum(runs) / len(runs) for key, runs in self.taken.items()}
        return sum(known.get(key, said * factor) for key, said in self.left)


class Progress:
    """`with Progress(plan) as progress`: begin and done for each run, say for what must be known."""

    def __init__(self, plan, stream=None):
        stream = stream or sys.stderr
        plan = list(plan)
        self.remaining = Remaining(plan)
        self.total = max(1.0, self.remaining.seconds())
        self.stream = stream
        self.begun = 0.0
        self.bar = self.task = None
        self.last = None
        if rich and stream.isatty():
            self.bar = rich.progress.Progress(
                rich.progress.TextColumn("{task.description}", markup=False),
                rich.progress.BarColumn(), rich.progress.TextColumn("{task.fields[left]}"),
                console=rich.console.Console(file=stream, highlight=False))
            self.task = self.bar.add_task("", total=1.0, left="")

    def __enter__(self):
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, kind, value, trace):
        if self.bar:
            self.bar.update(self.task, description="done", completed=1.0, left="")
            self.bar.stop()

    def say(self, text):
        if self.bar:
            self.bar.console.print(text, markup=False, soft_wrap=True)
        else:
            print(text, file=self.stream, flush=True)

    def begin(self, what, system):
        """`what`: one line of output for each, where there is no bar."""
        left = self.remaining.seconds()
        if self.bar:
            self.bar.update(self.task, description=f"{what}, {system}",
                            left=f"{units.duration(left)} left",
                            completed=self.remaining.spent / max(1e-9, self.remaining.spent + left))
        elif what != self.last:
            self.say(f"{what}; {units.duration(left)} left")
        self.last = what
        self.begun = time.monotonic()

    def done(self, key):
        self.remaining.done(key, time.monotonic() - self.begun)
