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
import random
import shutil
import stat
import sys
import time

import kit
from kit.disks import FILE_SYSTEMS, PowerDisk, needs_power_failures, strike

AGENTS = 3
FOLDERS = ("a", "b")


class Node:
    def __init__(self, kind, mode=0o644, data=b""):
        self.kind, self.mode, self.data = kind, mode, data


class Tree:
    """What a process's calls come to. A call is a line of words: what is done, to what, and how."""

    def __init__(self):
        self.nodes = {}

    def under(self, folder):
        return [path for path in self.nodes if path.startswith(folder + "/")]

    def of_kind(self, *kinds):
        return [path for path, node in self.nodes.items() if node.kind in kinds]

    def apply(self, words):
        what, path, *rest = words
        getattr(self, what)(path, *rest)

    def create(self, path, mode):
        self.nodes[path] = Node("file", int(mode, 8))

    def append(self, path, size, value):
        self.nodes[path].data += payload(size, value)

    def write(self, path, at, size, value):
        node, at, data = self.nodes[path], int(at), payload(size, value)
        node.data = node.data[:at].ljust(at, b"\0") + data + node.data[at + len(data):]

    def truncate(self, path, size):
        self.nodes[path].data = self.nodes[path].data[:int(size)].ljust(int(size), b"\0")

    def cut(self, path):
        self.nodes[path].data = b""

    def rename(self, path, to):
        if self.nodes[path] is not self.nodes.get(to):
            self.nodes[to] = self.nodes.pop(path)

    def link(self, path, to):
        self.nodes[to] = self.nodes[path]

    def unlink(self, path):
        del self.nodes[path]

    rmdir = unlink

    def mkdir(self, path):
        self.nodes[path] = Node("folder", 0o755)

    def symlink(self, path, target):
        self.nodes[path] = Node("link", 0o777, target.encode())

    def chmod(self, path, mode):
        self.nodes[path].mode = int(mode, 8)

    def sync(self, path):
        pass


def payload(size, value):
    return bytes([int(value)]) * int(size)


# What changes names; and what is done to an open file, which is synced then.
CALLS = {
    "create": lambda path, mode: os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, int(mode, 8))),
    "rename": os.rename,
    "link": os.link,
    "unlink": os.unlink,
    "mkdir": os.mkdir,
    "rmdir": os.rmdir,
    "symlink": lambda path, target: os.symlink(target, path),
    "sync": lambda path: os.sync(),
}
ON_FILES = {
    "append": lambda fd, path, size, value: os.write(fd, payload(size, value)),
    "write": lambda fd, path, at, size, value: os.pwrite(fd, payload(size, value), int(at)),
    "truncate": lambda fd, path, size: os.ftruncate(fd, int(size)),
    "chmod": lambda fd, path, mode: os.chmod(path, int(mode, 8)),
}


class Agent:
    """Runs in a process of its own, under NVCache."""

    def __init__(self, seed, me, bare, kinds):
        self.bare = bare
        self.choice = random.Random(seed * 100 + me)
        self.me, self.tree, self.kinds = me, Tree(), kinds

    def name(self, folder):
        return f"{folder}/{self.me}.{self.choice.randrange(6)}"

    def folders(self):
        return [*FOLDERS, *self.tree.of_kind("folder")]

    def choose(self):
        kind = self.choice.choice(self.kinds)
        free = self.name(self.choice.choice(self.folders()))
        files = self.tree.of_kind("file")
        small = self.choice.choice((1, 100, 4096, 5000, 70000))
        value = self.choice.randrange(1, 256)
        if kind == "create":
            return None if free in self.tree.nodes else (kind, free, self.choice.choice(("644", "600")))
        if kind == "mkdir":
            folder = f"{self.choice.choice(FOLDERS)}/{self.me}.d{self.choice.randrange(3)}"
            return None if folder in self.tree.nodes else (kind, folder)
        if kind == "rmdir":
            empty = [path for path in self.tree.of_kind("folder") if not self.tree.under(path)]
            return (kind, self.choice.choice(empty)) if empty else None
        if kind == "symlink":
            return None if free in self.tree.nodes else (kind, free, f"target{value}")
        if kind == "unlink":
            names = self.tree.of_kind("file", "link")
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

    def call(self, what, path, *rest):
        if what in CALLS:
            CALLS[what](path, *rest)
        else:
            fd = os.open(path, os.O_WRONLY | {"append": os.O_APPEND, "cut": os.O_TRUNC}.get(what, 0))
            if what in ON_FILES:
                ON_FILES[what](fd, path, *rest)
            self.end(fd)

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
            self.call(*words)
            os.write(1, b"<\n")
            self.tree.apply(words)


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
            return (f"{name} has {len(data)} bytes, expected {len(node.data)}; other from "
                    f"{kit.first_difference(data, node.data)} on")
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
        raise kit.Failure(f"agent {me}: {wrong}; or {later}; after {done} calls of {len(calls)}: "
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
        shutil.rmtree(disk.folder / name, ignore_errors=True)
        (disk.folder / name).mkdir()
    disk.sync()
    bench.pool.unlink(missing_ok=True)
    calls, done = [[] for _ in range(AGENTS)], [0] * AGENTS

    def hear(me, words):
        if words[0] == ">":
            calls[me].append(words[1:])
        else:
            done[me] += 1

    commands = [[sys.executable, __file__, "--agent", seed, me, int(bare), *kinds] for me in range(AGENTS)]
    crowd = kit.Crowd(bench, disk.folder, commands, hear)
    crowd.await_words(lambda: all(done), "the agents begin")
    time.sleep(choice.uniform(0.5, 2))
    strike(bench, disk, crowd, choice, crowd.kill_one if choice.random() < 0.5 else None)
    for me in range(AGENTS):
        check_agent(disk.folder, me, calls[me], done[me])
    bench.recover()
    left = [path.name for path in disk.folder.rglob(".nvcache-*")]
    kit.check(not left, f"left behind: {left}")
    return sum(done)


def run(options, case, kind):
    with kit.Bench(options, size="1G", dram="1M", write_back="auto") as bench, PowerDisk(bench, kind=kind) as disk:
        calls = kit.rounds(options, lambda seed: play(bench, disk, seed, options.bare, KINDS[case]))
    kit.say(f"         {len(calls)} rounds, {sum(calls)} calls")


def main():
    if sys.argv[1:2] == ["--agent"]:
        Agent(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "1", sys.argv[5:]).run()
    parser = kit.arguments(__doc__, rounds=4)
    parser.add_argument("--bare", action="store_true", help="no file is synced")
    parser.add_argument("--kind", action="append", choices=FILE_SYSTEMS)
    options = parser.parse_args()
    needs_power_failures(options)
    chosen, options.cases = options.cases or KINDS, []
    kit.main(options, {f"{kind}, {case}": lambda kind=kind, case=case: run(options, case, kind)
                       for kind in options.kind or FILE_SYSTEMS for case in chosen})


if __name__ == "__main__":
    main()
