#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Redis, and Valkey where it is packaged, with an append-only file, killed again and again: after each
start every acknowledged key is there with its value."""

import os
import random
import shutil
import signal
import socket
import subprocess
import time

import kit
from kit import check

PATIENCE = 60  # seconds, for a server that starts, answers or dies
BATCH = 20  # commands under way at one time; each is acknowledged on its own


def value_of(key):
    return (f"{key}." * (1 + key * 37 % 300)).encode()


class Client:
    """Enough of the protocol: an array of strings there, one answer back."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(str(path))
        self.stream = self.socket.makefile("rb")

    def close(self):
        self.stream.close()
        self.socket.close()

    def send(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))

    def answer(self):
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError
        check(not line.startswith(b"-") or line.startswith(b"-LOADING"), f"the server says {line}")
        if line.startswith(b"$") and line != b"$-1\r\n":
            return self.stream.read(int(line[1:]) + 2)[:-2]
        return None if line == b"$-1\r\n" else line[:-2]

    def ask(self, *words):
        self.send(*words)
        return self.answer()


class Server:
    """`name`-server under NVCache, or without it. The end of the `with` kills it."""

    def __init__(self, bench, name, cache):
        # The package of the tools has the server under another of its names, and starts nothing when installed.
        program = bench.folder / f"{name}-server"
        if not program.exists():
            program.symlink_to(shutil.which(f"{name}-check-rdb"))
        self.socket = bench.pools / "socket"  # the name of a socket has to be short
        self.socket.unlink(missing_ok=True)
        command = [program, "--port", "0", "--unixsocket", self.socket, "--appendonly", "yes",
                   "--appendfsync", "always", "--save", "", "--auto-aof-rewrite-percentage", "0",
                   "--dir", bench.folder]
        with open(bench.folder / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                bench.cached(command) if cache else [str(word) for word in command], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, cwd=bench.folder, start_new_session=True,
                env=dict(os.environ, LC_ALL="C"))
        try:
            self.client = self.connect(bench)
        except BaseException:
            self.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.client.close()
        self.kill()

    def connect(self, bench):
        limit = time.monotonic() + PATIENCE
        while True:
            check(self.process.poll() is None, "the server does not start:\n" +
                  (bench.folder / "server.log").read_text(errors="replace")[-3000:])
            check(time.monotonic() < limit, "the server does not answer")
            try:
                client = Client(self.socket)
                if client.ask("PING") == b"+PONG":
                    return client
                client.close()
            except (ConnectionError, FileNotFoundError):
                pass
            time.sleep(0.05)

    def kill(self):
        """The server, and a child of its that may be rewriting the file."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        # The child: the kernel takes its time.
        kit.until(lambda: not kit.group_lives(self.process.pid), "the end of a child of the server", PATIENCE)


def write(server, first, count, rewrite):
    """Sets keys from `first` on until `count` are acknowledged; how many were sent."""
    sent = 0
    for answered in range(count):
        while sent < answered + BATCH:
            server.client.send("SET", f"key{first + sent}", value_of(first + sent))
            sent += 1
        check(server.client.answer() == b"+OK", "a key was refused")
        if answered == rewrite:
            other = Client(server.socket)
            other.ask("BGREWRITEAOF")
            other.close()
    return sent


def check_keys(server, acknowledged, sent):
    """Everything acknowledged is there; what was sent is there whole, or not at all."""
    for key in range(sent):
        value = server.client.ask("GET", f"key{key}")
        check(value == value_of(key) or (value is None and key not in acknowledged),
              f"key{key}: {value and value[:50]!r}, acknowledged: {key in acknowledged}")


def killed(options, name, cache, rule="always"):
    draw = random.Random(options.seed)
    with kit.Bench(options, size="32M", dram="8M", timeout=120, write_back=rule) as bench:
        acknowledged, sent = set(), 0
        for number in range(options.rounds):
            count = draw.randint(500, 3000)
            # Not in the first round, which is to be killed with its file on the cache.
            rewrite = draw.randrange(count) if number else None
            with Server(bench, name, cache) as server:
                check_keys(server, acknowledged, sent)
                more = write(server, sent, count, rewrite)
            acknowledged |= set(range(sent, sent + count))
            sent += more
            if cache and number == 0:
                # Records of write-through that a checkpoint has passed are counted nowhere.
                taken = bench.counter("segments_taken")
                check(taken > 0, "nothing went through the log")
                kit.say(f"         {taken} segments")
        # The last time by the command, and without the cache.
        if cache:
            bench.recover()
        with Server(bench, name, False) as server:
            check_keys(server, acknowledged, sent)
        kit.say(f"         {len(acknowledged)} keys acknowledged")


def one(options, case):
    """`case`: plain, cached, cached_auto or cached_exclusive, of Redis; with valkey_ before it, of Valkey."""
    name = "valkey" if case.startswith("valkey_") else "redis"
    if name == "valkey" and shutil.which("valkey-check-rdb") is None:
        kit.skip("there is no Valkey", must_run_in_ci=False)
    rule = case.rpartition("_")[2]
    killed(options, name, rule != "plain", rule if rule in ("auto", "exclusive") else "always")


def main():
    options = kit.arguments(__doc__, rounds=5).parse_args()
    cases = [before + case for before in ("", "valkey_") for case in ("plain", "cached", "cached_auto", "cached_exclusive")]
    kit.main(options, {case: lambda case=case: one(options, case) for case in cases})


if __name__ == "__main__":
    main()
