# SPDX-License-Identifier: BSD-3-Clause
"""A program that makes one call after the other on a disk that fails, each of which has to return in time."""

import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys

from .agents import Agent
from .basics import PATIENCE, Failure, check, first_difference

AGENT = r'''
import ctypes, errno, hashlib, json, os, random, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
data = lambda seed, n: random.Random(seed).randbytes(n)
def burst(fd, at, n, count, seed):
    """Writes until one is refused: how many were not, and why it ended."""
    for i in range(count):
        try:
            os.pwrite(fd, data(seed + i, n), at + i * n)
        except OSError as error:
            return [i, errno.errorcode[error.errno]]
    return [count, ""]
def child():
    pid = os.fork()
    if pid == 0:
        os._exit(5)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def sync_range(fd):
    if libc.sync_file_range(fd, ctypes.c_int64(0), ctypes.c_int64(0), 7) != 0:
        raise OSError(ctypes.get_errno(), "sync_file_range")
    return 0
calls = {"open": lambda path, flags: os.open(path, flags, 0o644), "burst": burst, "fork": child,
         "write": lambda fd, at, n, seed: os.pwrite(fd, data(seed, n), at),
         "read": lambda fd, at, n: (lambda b: [len(b), hashlib.md5(b).hexdigest()])(os.pread(fd, n, at)),
         "size": lambda path: os.stat(path).st_size, "sync_range": sync_range,
         "exec": lambda name: os.execvp(name, [name]),
         "mapped": lambda name: open("/proc/self/maps").read().count(name),
         "spawn": lambda: subprocess.run(["true"]).returncode, "exit": lambda n: sys.exit(n)}
for name in ("close", "fsync", "fdatasync", "ftruncate", "rename", "unlink", "truncate", "dup", "seteuid",
             "utime"):
    calls[name] = lambda *a, f=getattr(os, name): f(*a) or 0
print("0", flush=True)
for line in sys.stdin:
    name, *arguments = json.loads(line)
    try:
        result = calls[name](*arguments)
    except OSError as error:
        result = errno.errorcode[error.errno]
    print(json.dumps(result), flush=True)
'''


def data(seed, n):
    return random.Random(seed).randbytes(n)


class Program(Agent):
    """With NVCache; `files` has what it was told is written, by path."""

    def __init__(self, bench, prefix=(), **env):
        self.files = {}
        self.seed = 0
        super().__init__(bench.cached([*prefix, sys.executable, "-c", AGENT]), bench.folder / "stderr",
                         env=dict(os.environ, **env))
        self.answer_to("start")

    def answer_to(self, what):
        try:
            return json.loads(self.answer(PATIENCE))
        except Failure as failure:
            raise Failure(f"{what}: {failure}") from None

    def call(self, *words):
        self.tell(json.dumps([str(word) if isinstance(word, pathlib.Path) else word for word in words]))
        return self.answer_to(" ".join(map(str, words)))

    def expect(self, wanted, *words):
        found = self.call(*words)
        check(found == wanted, f"{' '.join(map(str, words))}: {found}, expected {wanted}")

    def open(self, path, flags=os.O_RDWR | os.O_CREAT):
        fd = self.call("open", path, flags)
        check(isinstance(fd, int), f"open {path}: {fd}")
        self.files.setdefault(path, bytearray(path.read_bytes()))
        return fd

    def write(self, path, fd, at, n):
        """What the call returned; `files` follows."""
        self.seed += 1
        result = self.call("write", fd, at, n, self.seed)
        if isinstance(result, int):
            self.put(path, at, data(self.seed, n)[:result])
        return result

    def must_write(self, path, fd, at, n):
        result = self.write(path, fd, at, n)
        check(result == n, f"write {n} bytes at {at} of {path}: {result}")

    def must_rename(self, path, to):
        self.expect(0, "rename", path, to)
        self.files[to] = self.files.pop(path)

    def burst(self, path, fd, at, n, count):
        seed = self.seed + 1
        self.seed += count
        done, why = self.call("burst", fd, at, n, count, seed)
        for i in range(done):
            self.put(path, at + i * n, data(seed + i, n))
        return done, why

    def put(self, path, at, some):
        content = self.files[path]
        if len(content) < at:
            content.extend(bytes(at - len(content)))
        content[at:at + len(some)] = some

    def check_reads(self, path, fd):
        content = bytes(self.files[path])
        wanted = [len(content), hashlib.md5(content).hexdigest()]
        self.expect(wanted, "read", fd, 0, len(content) + 1)

    def check_disk(self, *paths):
        for path in paths or self.files:
            found, wanted = path.read_bytes(), bytes(self.files[path])
            if found != wanted:
                check(False, f"{path.name} differs at {first_difference(found, wanted)}: {len(found)} bytes, "
                             f"expected {len(wanted)}")

    def end(self, code=0, lines=0):
        """Its exit code is its own, and so is stderr, but for `lines`."""
        try:
            self.call("exit", code)
        except Failure as failure:
            check("died" in str(failure), str(failure))
        try:
            found = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            check(False, "the program does not end")
        text = "".join(line for line in self.said().splitlines(keepends=True) if "is emulated" not in line)
        check(found == code, f"exit code {found}: {text}")
        check(text.count("\n") == lines, f"{lines} lines expected on stderr: {text}")
        return text

    def kill(self):
        super().kill()
        check(self.process.returncode == -9, "the program was not there to be killed")


def prepare(path, size):
    """A file with all its blocks on the disk."""
    with open(path, "wb") as file:
        file.write(bytes(size))
        os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def recover(bench, status, *words):
    """It says these words, and one line on stderr if the exit code is not 0."""
    done = bench.without(bench.nvcache, "recover", bench.pool, may_fail=True)
    text = done.stdout + done.stderr
    check(done.returncode == status, f"recover: exit code {done.returncode}: {text}")
    check(done.stderr.count("\n") == (1 if status else 0), f"recover: {done.stderr}")
    for word in words:
        check(word in text, f"recover does not say {word}: {text}")


def failing(bench):
    """The files that `nvcache status` shows as failing: path -> what it says."""
    return {file["path"]: file for file in bench.status()["files"] if file.get("error")}
