#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Several processes change names in the same folders, and never sync them, once these are known. All
are killed, one of them perhaps earlier; the disk loses what it has not made durable, the pool in
memory stays, as NVMM would, and the next boot recovers. Each name is as it was when the last call
returned, or the one that was under way.

What a process has done to a file it syncs; but for `--bare`: for files that were made in a known folder
this is durable without, as long as nobody takes a process for stopped that only waits for a processor.

Exit code 77 where a file system cannot be mounted and shut down."""

import os
import pathlib
import random
import stat
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import kill_power  # noqa: E402
from kill_power import Disk, harness  # noqa: E402
from kill_shared import new_boot  # noqa: E402
from harness import check, say  # noqa: E402

AGENTS = 3
FOLDERS = ("a", "b")


class Node:
    def __init__(self, kind, mode=0o644, data=b""):
        self.kind, self.mode, self.data = kind, mode, data


class Tree:
    """What a process's calls come to. A call is a line of words."""

    def __init__(self):
        self.nodes = {}

    def under(self, folder):
        return [path for path in self.nodes if path.startswith(folder + "/")]

    def apply(self, words):
        what, path, *rest = words
        if what == "create":
            self.nodes[path] = Node("file", int(rest[0], 8))
        elif what == "append":
            self.nodes[path].data += payload(int(rest[0]), int(rest[1]))
        elif what == "write":
            node, at, data = self.nodes[path], int(rest[0]), payload(int(rest[1]), int(rest[2]))
            node.data = node.data[:at].ljust(at, b"\0") + data + node.data[at + len(data):]
        elif what == "truncate":
            node, size = self.nodes[path], int(rest[0])
            node.data = node.data[:size].ljust(size, b"\0")
        elif what == "cut":
            self.nodes[path].data = b""
        elif what == "rename":
            if self.nodes[path] is not self.nodes.get(rest[0]):
                self.nodes[rest[0]] = self.nodes.pop(path)
        elif what == "link":
            self.nodes[rest[0]] = self.nodes[path]
        elif what in ("unlink", "rmdir"):
            del self.nodes[path]
        elif what == "mkdir":
            self.nodes[path] = Node("folder", 0o755)
        elif what == "symlink":
            self.nodes[path] = Node("link", 0o777, rest[0].encode())
        elif what == "chmod":
            self.nodes[path].mode = int(rest[0], 8)
        elif what != "sync":
            raise AssertionError(what)


def payload(size, value):
    return bytes([value]) * size


class Agent:
    """Runs in a process of its own, under NVCache."""

    def __init__(self, seed, me, bare, kinds):
        self.bare = bare
        self.choice = random.Random(seed * 100 + me)
        self.me, self.tree, self.kinds = me, Tree(), kinds

    def name(self, folder):
        return f"{folder}/{self.me}.{self.choice.randrange(6)}"

    def folders(self):
        return [*FOLDERS, *(path for path, node in self.tree.nodes.items() if node.kind == "folder")]

    def files(self):
        return [path for path, node in self.tree.nodes.items() if node.kind == "file"]

    def choose(self):
        kind = self.choice.choice(self.kinds)
        free = self.name(self.choice.choice(self.folders()))
        files = self.files()
        small = self.choice.choice((1, 100, 4096, 5000, 70000))
        value = self.choice.randrange(1, 256)
        if kind == "create":
            return None if free in self.tree.nodes else (kind, free, self.choice.choice(("644", "600")))
        if kind == "mkdir":
            folder = f"{self.choice.choice(FOLDERS)}/{self.me}.d{self.choice.randrange(3)}"
            return None if folder in self.tree.nodes else (kind, folder)
        if kind == "rmdir":
            empty = [path for path, node in self.tree.nodes.items()
                     if node.kind == "folder" and not self.tree.under(path)]
            return (kind, self.choice.choice(empty)) if empty else None
        if kind == "symlink":
            return None if free in self.tree.nodes else (kind, free, f"target{value}")
        if kind == "unlink":
            names = [path for path, node in self.tree.nodes.items() if node.kind != "folder"]
            return (kind, self.choice.choice(names)) if names else None
        if not files:
            return None
        path = self.choice.choice(files)
        if kind in ("append", "write") and len(self.tree.nodes[path].data) > 1 << 20:
            return None
        if kind == "append":
            return kind, path, str(small), str(value)
        if kind == "write":
            return kind, path, str(self.choice.randrange(10000)), str(small), str(value)
        if kind == "truncate":
            return kind, path, str(self.choice.randrange(10000))
        if kind in ("rename", "link"):
            there = self.tree.nodes.get(free)
            if free == path or (there is not None and (kind == "link" or there.kind == "folder")):
                return None
            return kind, path, free
        if kind == "chmod":
            return kind, path, self.choice.choice(("600", "640", "755"))
        return kind, path

    def call(self, words):
        what, path, *rest = words
        if what == "create":
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, int(rest[0], 8))
            os.close(fd)
        elif what in ("append", "write"):
            fd = os.open(path, os.O_WRONLY | (os.O_APPEND if what == "append" else 0))
            if what == "append":
                os.write(fd, payload(int(rest[0]), int(rest[1])))
            else:
                os.pwrite(fd, payload(int(rest[1]), int(rest[2])), int(rest[0]))
            self.end(fd)
        elif what == "truncate":
            fd = os.open(path, os.O_WRONLY)
            os.ftruncate(fd, int(rest[0]))
            self.end(fd)
        elif what == "cut":
            self.end(os.open(path, os.O_WRONLY | os.O_TRUNC))
        elif what == "rename":
            os.rename(path, rest[0])
        elif what == "link":
            os.link(path, rest[0])
        elif what == "unlink":
            os.unlink(path)
        elif what == "mkdir":
            os.mkdir(path)
        elif what == "rmdir":
            os.rmdir(path)
        elif what == "symlink":
            os.symlink(rest[0], path)
        elif what == "chmod":
            fd = os.open(path, os.O_WRONLY)
            os.chmod(path, int(rest[0], 8))
            self.end(fd)
        elif what == "sync":
            os.sync()

    def end(self, fd):
        if not self.bare:
            os.fsync(fd)
        os.close(fd)

    def run(self):
        os.umask(0o022)
        for folder in FOLDERS * 2:
            fd = os.open(folder, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
        while True:
            words = self.choose()
            if words is None:
                continue
            os.write(1, ("> " + " ".join(words) + "\n").encode())
            self.call(words)
            os.write(1, b"<\n")
            self.tree.apply(words)


class Agents:
    def __init__(self, bench, disk, seed, bare, kinds):
        self.said = [[] for _ in range(AGENTS)]
        self.done = [0] * AGENTS
        self.processes = [subprocess.Popen(
            bench.cached([sys.executable, __file__, "--agent", str(seed), str(me), str(int(bare)), *kinds]),
            cwd=disk.folder, env=dict(os.environ, NVCACHE_NOTICE="0"), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE) for me in range(AGENTS)]
        self.readers = [threading.Thread(target=self.read, args=(me,)) for me in range(AGENTS)]
        for reader in self.readers:
            reader.start()

    def read(self, me):
        for line in self.processes[me].stdout:
            if not line.endswith(b"\n"):
                break
            if line.startswith(b"> "):
                self.said[me].append(line.decode().split()[1:])
            else:
                self.done[me] += 1

    def await_calls(self):
        deadline = time.monotonic() + 60
        while not all(self.done) and all(process.poll() is None for process in self.processes):
            check(time.monotonic() < deadline, "the agents do not begin")
            time.sleep(0.01)

    def kill(self, who=None):
        for process in self.processes if who is None else [self.processes[who]]:
            process.kill()
        if who is not None:
            return
        for process, reader in zip(self.processes, self.readers):
            process.wait()
            reader.join()
            errors = process.stderr.read().decode()
            check(errors == "", f"an agent said: {errors}")


def look(folder, me):
    """What is there of an agent's."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        parts = name.split("/")
        if parts[0] not in FOLDERS or len(parts) < 2 or not parts[1].startswith(f"{me}."):
            continue
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            found[name] = ("link", os.readlink(path).encode(), 0o777, status.st_ino)
        elif stat.S_ISDIR(status.st_mode):
            found[name] = ("folder", b"", stat.S_IMODE(status.st_mode), status.st_ino)
        else:
            found[name] = ("file", path.read_bytes(), stat.S_IMODE(status.st_mode), status.st_ino)
    return found


def differences(found, tree, loose):
    """`loose`: a file that a call was writing to."""
    for name in sorted(set(found) | set(tree.nodes)):
        if name not in found:
            return f"{name} is missing"
        if name not in tree.nodes:
            return f"{name} is there"
        kind, data, mode, _ = found[name]
        node = tree.nodes[name]
        if (kind, mode) != (node.kind, node.mode):
            return f"{name} is {kind} {mode:o}, not {node.kind} {node.mode:o}"
        if node.kind != "folder" and data != node.data and node is not loose:
            at = next((i for i, (x, y) in enumerate(zip(data, node.data)) if x != y), -1)
            return f"{name} has {len(data)} bytes, expected {len(node.data)}; other from {at} on"
    for one in tree.nodes:
        for other in tree.nodes:
            if (tree.nodes[one] is tree.nodes[other]) != (found[one][3] == found[other][3]):
                return f"{one} and {other} are {'not ' * (one != other)}the same file"
    return None


def check_agent(folder, me, calls, done):
    before, after = Tree(), Tree()
    for words in calls[:done]:
        before.apply(words)
    for words in calls:
        after.apply(words)
    loose = None
    if len(calls) > done and calls[done][0] in ("append", "write", "truncate", "cut"):
        loose = calls[done][1]
    found = look(folder, me)
    wrong = differences(found, before, before.nodes.get(loose))
    if wrong is None:
        return
    later = differences(found, after, after.nodes.get(loose)) if len(calls) > done else "no call"
    if later is not None:
        raise harness.Failure(f"agent {me}: {wrong}; or {later}; after {done} calls of {len(calls)}: "
                              f"{[' '.join(words) for words in calls[max(done - 12, 0):]]}")


KINDS = {
    "names": ["create", "rename", "rename", "link", "unlink", "symlink"],
    "files": ["create", "append", "write", "rename", "rename", "unlink", "link"],
    "sizes": ["create", "append", "write", "truncate", "cut", "rename", "unlink"],
    "folders": ["create", "mkdir", "mkdir", "rmdir", "append", "rename", "unlink", "chmod"],
    "all": ["create", "create", "append", "write", "truncate", "cut", "rename", "rename", "link", "unlink",
            "mkdir", "rmdir", "symlink", "chmod"],
    "sync": ["create", "append", "rename", "rename", "unlink", "link"] * 4 + ["sync"],
}


def play(bench, disk, seed, bare, kinds):
    choice = random.Random(seed)
    for name in FOLDERS:
        subprocess.run(["rm", "-rf", disk.folder / name], check=True)
        (disk.folder / name).mkdir()
    disk.sync()
    bench.pool.unlink(missing_ok=True)
    agents = Agents(bench, disk, seed, bare, kinds)
    agents.await_calls()
    time.sleep(choice.uniform(0.5, 2))
    if choice.random() < 0.5:
        agents.kill(choice.randrange(AGENTS))
        time.sleep(choice.uniform(0, 0.5))
    agents.kill()
    if choice.random() < 0.75:
        disk.fail()
        new_boot(bench.pool)
    kill_power.recover(bench)
    for me in range(AGENTS):
        check_agent(disk.folder, me, agents.said[me], agents.done[me])
    kill_power.recover(bench)
    left = [path.name for path in disk.folder.rglob(".nvcache-*")]
    check(not left, f"left behind: {left}")
    return sum(agents.done)


def run(options, case, rounds, seed, kind):
    calls = 0
    with harness.Bench(options.nvcache, options.scratch, size="1G", dram="1M",
                       write_back="auto") as bench:
        disk = Disk(bench, kind=kind)
        try:
            for number in range(seed, seed + rounds):
                try:
                    calls += play(bench, disk, number, options.bare, KINDS[case])
                except harness.Failure as failure:
                    raise harness.Failure(f"seed {number}: {failure}") from None
        finally:
            subprocess.run(["umount", disk.folder], check=False)
    say(f"{kind}, {case}: {rounds} rounds, {calls} calls")


def main():
    if sys.argv[1:2] == ["--agent"]:
        Agent(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "1", sys.argv[5:]).run()
    parser = harness.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--bare", action="store_true", help="no file is synced")
    parser.add_argument("--kind", action="append", choices=kill_power.FILE_SYSTEMS)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1000000)
    options = parser.parse_args()
    if not kill_power.possible(options.scratch):
        say("file systems cannot be mounted here")
        return kill_power.SKIP
    say(f"--seed {options.seed}")
    for kind in options.kind or kill_power.FILE_SYSTEMS:
        for case in options.cases or KINDS:
            run(options, case, options.rounds * (50 if options.long else 1), options.seed, kind)
    return 0


if __name__ == "__main__":
    sys.exit(main())
