# SPDX-License-Identifier: BSD-3-Clause
"""Programs that are told what to do, a line each time; and programs that say what is durable by now, until
they are killed."""

import os
import select
import signal
import subprocess
import threading
import time

from .basics import Failure, check, state_of, until

PATIENCE = 120  # seconds for an answer, and for an end


class Agent:
    """Answers each line with one."""

    def __init__(self, command, errors, **options):
        self.errors = errors
        self.rest = b""
        with open(errors, "wb") as file:
            self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=file, **options)
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.remove()

    def tell(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, patience=PATIENCE):
        end = time.monotonic() + patience
        while b"\n" not in self.rest:
            left = end - time.monotonic()
            check(left > 0 and select.select([self.process.stdout], [], [], left)[0],
                  f"process {self.pid}: no answer after {patience} s")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise Failure(f"process {self.pid} has died: {self.process.wait()}, {self.said()}")
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()

    def call(self, line):
        self.tell(line)
        return self.answer()

    def must(self, line, wanted):
        found = self.call(line)
        check(found == str(wanted), f"{line}: {found}, not {wanted}")

    def said(self):
        return self.errors.read_text(errors="replace")

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)
        until(lambda: state_of(self.pid) == "T", "a program that was stopped stops")

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)

    def end(self):
        self.process.stdin.close()

    def await_end(self, patience=PATIENCE):
        """It ends by itself, and has said nothing."""
        if not self.process.stdin.closed:
            self.end()
        try:
            code = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise Failure(f"process {self.pid} has not ended after {patience} s") from None
        check(code == 0 and self.said() == "", f"exit code {code}, it says {self.said()!r}")

    def remove(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            try:
                stream.close()
            except BrokenPipeError:
                pass


class Acknowledged(dict):
    """The newest number that each has said; 0 of one that has said none."""

    def __missing__(self, who):
        return 0

    def hear(self, who, number):
        self[who] = max(self[who], int(number))

    def check(self, who, found, ahead=None):
        """Of the numbers that are there of it, none is older, nor newer than so many more."""
        newest = self[who]
        check(min(found) >= newest and (ahead is None or max(found) <= newest + ahead),
              f"of {who}: {sorted(set(found))}, but {newest} is acknowledged")


def end_all(agents):
    for agent in agents:
        agent.end()
    for agent in agents:
        agent.await_end()


class Crowd:
    """Programs under NVCache, each with what it starts a group of its own. hear(which, words) is told each line that
    one of them has said whole; all are heard by the time when kill() returns."""

    def __init__(self, bench, folder, commands, hear, **environment):
        self.hear = hear
        self.processes, self.readers, self.errors = [], [], []
        for which, command in enumerate(commands):
            self.errors.append(bench.folder / f"errors{which}")
            with open(self.errors[-1], "wb") as errors:
                self.processes.append(subprocess.Popen(
                    bench.cached(command), cwd=folder, env=dict(os.environ, NVCACHE_NOTICE="0", **environment),
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True))
            self.readers.append(threading.Thread(target=self.read, args=(which,)))
            self.readers[-1].start()

    def read(self, which):
        for line in self.processes[which].stdout:
            if not line.endswith(b"\n"):
                break
            self.hear(which, line.decode().split())

    def await_words(self, enough, what):
        """Until enough() is true, or one has ended, of which kill() says why."""
        try:
            until(lambda: enough() or any(process.poll() is not None for process in self.processes), what, 60)
        except Failure:
            self.kill()
            raise

    def kill_one(self, which):
        self.processes[which].kill()

    def end_one(self, which):
        """It leaves what it has in the log to the others, if it can."""
        self.processes[which].terminate()
        try:
            self.processes[which].wait(30)
        except subprocess.TimeoutExpired:
            raise Failure("a program does not end") from None

    def kill(self):
        """All; the exit codes."""
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process, reader in zip(self.processes, self.readers):
            process.wait()
            reader.join()
        return [process.returncode for process in self.processes]

    def said(self):
        """On stderr."""
        return "".join(path.read_text(errors="replace") for path in self.errors)
