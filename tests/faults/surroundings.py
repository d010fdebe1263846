# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of failing disks share: disks that fail on command, and a program that makes one
call after the other, each of which has to return in time."""

import ctypes
import json
import os
import pathlib
import random
import select
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))

import harness  # noqa: E402
from harness import check, say  # noqa: E402

SKIPPED = 77
CLONE_NEWNS = 0x20000
MIB = 1 << 20
PATIENCE = 20  # seconds for a call that may wait for a disk that fails or is slow
KEPT = 3       # exit code of `nvcache recover`


def command(*words):
    done = subprocess.run([str(word) for word in words], check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace")
    check(done.returncode == 0, f"{' '.join(map(str, words))}: {done.stdout}")


def until(condition, what, patience=PATIENCE):
    end = time.monotonic() + patience
    while not condition():
        check(time.monotonic() < end, f"{what}: not after {patience} s")
        time.sleep(0.02)


class Mount:
    """A file system in the file `image`."""

    def __init__(self, image, folder, kind="ext4", make=(), options=""):
        self.image, self.folder, self.kind, self.options = image, folder, kind, options
        self.mounted = False
        folder.mkdir(exist_ok=True)
        command(f"mkfs.{kind}", "-q", *make, image)
        self.mount()

    def mount(self, more=""):
        options = ",".join(filter(None, ("loop", self.options, more)))
        command("mount", "-t", self.kind, "-o", options, self.image, self.folder)
        self.mounted = True

    def unmount(self, *how):
        command("umount", *how, self.folder)
        self.mounted = False

    def await_end(self):
        """After a lazy unmount: nobody uses it any more, and the kernel has let go of the image."""
        def users():
            for path in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
                try:
                    if path.read_text(encoding="utf-8").rstrip("\n") == str(self.image):
                        return True
                except OSError:  # it went just now
                    pass
            return False
        until(lambda: not users(), "the end of the file system")

    def again(self, more=""):
        """What only the page cache had is gone."""
        self.unmount()
        self.mount(more)

    def close(self):
        if self.mounted:
            subprocess.run(["umount", "-l", self.folder], check=False)

    def shown_read_only(self):
        with open("/proc/mounts", encoding="utf-8") as mounts:
            line = next(line for line in mounts if f" {self.folder} " in line)
        return "ro" in line.split()[3].split(",") or "emergency_ro" in line

    @staticmethod
    def write_out(path):
        """The file's bytes are on the disk then, and nothing says yet that they are its own."""
        file = os.open(path, os.O_RDONLY)
        wait_before_write_wait_after = 7
        whole = ctypes.c_int64(0)
        check(ctypes.CDLL(None).sync_file_range(file, whole, whole, wait_before_write_wait_after) == 0,
              "the bytes cannot be written")
        os.close(file)

    def sync(self):
        folder = os.open(self.folder, os.O_RDONLY)
        ctypes.CDLL(None).syncfs(folder)
        os.close(folder)


class Disk(Mount):
    """A file system on a disk that obeys. Without a journal, unless told otherwise: the errors hit
    data only, as long as no file grows."""

    def __init__(self, bench, tool, name="bad", size=64 * MIB, make=("-O", "^has_journal"),
                 mount_options=""):
        self.raw = bench.folder / f"{name}.raw"
        self.raw.mkdir()
        self.process = subprocess.Popen([tool, self.raw, str(size)], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until((self.raw / "disk").exists, "the disk")
        super().__init__(self.raw / "disk", bench.folder / name,
                         make=("-E", "lazy_itable_init=0,lazy_journal_init=0", *make),
                         options=mount_options)

    def tell(self, line):
        with open(self.raw / "control", "w", encoding="ascii") as control:
            control.write(line + "\n")

    def close(self):
        self.tell("ok")
        super().close()
        subprocess.run(["umount", "-l", self.raw], check=False)
        self.process.terminate()
        self.process.wait()


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


class Program:
    """The agent with NVCache; `files` has what it was told is written, by path."""

    def __init__(self, bench, prefix=(), **env):
        self.files = {}
        self.errors = bench.folder / "stderr"
        self.process = subprocess.Popen(
            bench.cached([*prefix, sys.executable, "-c", AGENT]), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=open(self.errors, "w", encoding="utf-8"), text=True,
            env=dict(os.environ, **{f"NVCACHE_{name}": str(value) for name, value in env.items()}))
        self.seed = 0
        self.read_line("start")

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def read_line(self, what):
        ready = select.select([self.process.stdout], [], [], PATIENCE)[0]
        check(ready, f"{what} hangs")
        line = self.process.stdout.readline()
        check(line, f"{what}: the program died: {self.errors.read_text()}")
        return json.loads(line)

    def call(self, *words):
        self.process.stdin.write(json.dumps([str(w) if isinstance(w, pathlib.Path) else w
                                             for w in words]) + "\n")
        self.process.stdin.flush()
        return self.read_line(" ".join(map(str, words)))

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
        import hashlib
        content = bytes(self.files[path])
        wanted = [len(content), hashlib.md5(content).hexdigest()]
        self.expect(wanted, "read", fd, 0, len(content) + 1)

    def check_disk(self, *paths):
        for path in paths or self.files:
            found, wanted = path.read_bytes(), bytes(self.files[path])
            if found != wanted:
                at = next((i for i, (a, b) in enumerate(zip(found, wanted)) if a != b),
                          min(len(found), len(wanted)))
                check(False, f"{path.name} differs at {at}: {len(found)} bytes, "
                             f"expected {len(wanted)}")

    def end(self, code=0, lines=0):
        """Its exit code is its own, and so is stderr, but for `lines`."""
        try:
            self.call("exit", code)
        except harness.Failure as failure:
            check("died" in str(failure), str(failure))
        try:
            found = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            check(False, "the program does not end")
        text = "".join(line for line in open(self.errors, encoding="utf-8")
                       if "is emulated" not in line)
        check(found == code, f"exit code {found}: {text}")
        check(text.count("\n") == lines, f"{lines} lines expected on stderr: {text}")
        return text

    def kill(self):
        self.process.kill()
        check(self.process.wait() == -9, "the program was not there to be killed")


def prepare(path, size):
    """A file with all its blocks on the disk."""
    with open(path, "wb") as file:
        file.write(bytes(size))
        os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def recover(bench, status, *words):
    """stderr, which is one line if the exit code is not 0."""
    done = subprocess.run([bench.nvcache, "recover", bench.pool], check=False, timeout=60, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors="replace")
    text = done.stdout + done.stderr
    check(done.returncode == status, f"recover: exit code {done.returncode}: {text}")
    check(done.stderr.count("\n") == (1 if status else 0), f"recover: {done.stderr}")
    for word in words:
        check(word in text, f"recover does not say {word}: {text}")


def failing(bench):
    """The files that `nvcache status` shows as failing: path -> what it says."""
    return {file["path"]: file for file in bench.status()["files"] if file.get("error")}


def own_mounts():
    """False where nothing can be mounted. What is, is seen by nobody else, and goes with us."""
    if os.geteuid() == 0 and os.path.exists("/dev/fuse") and \
            ctypes.CDLL(None).unshare(CLONE_NEWNS) == 0:
        if subprocess.run(["mount", "--make-rprivate", "/"], check=False).returncode == 0:
            return True
    say("file systems cannot be mounted here")
    return False


def skip():
    """As skipped; but not where the tests have to run."""
    sys.exit(1 if os.environ.get("CI") == "true" else SKIPPED)
