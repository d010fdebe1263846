# SPDX-License-Identifier: BSD-3-Clause
"""Reads what strace says of a program under NVCache, and finds the calls on cached files that
reached the kernel past the library.

A system call that the library makes has its instruction within libnvcache.so. So has, for each file
that becomes cached, the open of a descriptor of its own by /proc/thread-self/fd. From then on, until the
last close, every data call on the program's descriptors of this file must be the library's, unless
something documented has handed the file to the kernel before (REASONS). Then the library has told the
kernel the offsets of the program's descriptors, which is seen as well.

Calls on names, such as rename, are not judged: whoever makes them, they are made within libc."""

import collections
import re

# Why a data call of the program's may reach the kernel; docs/settings.md says the same to users.
REASONS = {
    "stream": "it belongs to a stdio stream",
    "standard": "it is descriptor 0, 1 or 2, which have streams",
    "fork": "it was open at a fork",
    "exec": "it was open when the program started",
    "mmap": "it was mapped",
    "direct": "it was opened with O_DIRECT",
    "target": "the kernel copied into it",
    "unlinked": "its name was removed",
    "in use": "another process had the pool",
    "turn": "a lock was let go of, and it was not synced twice since",
    "used again": "it has the inode number of a file that was mapped, and is gone",
}

HOT_SYNCS = 2  # kHotSyncs of heat.h
SYNCS = {"fsync", "fdatasync"}
DATA = {"read", "pread64", "readv", "preadv", "preadv2", "write", "pwrite64", "writev", "pwritev",
        "pwritev2", "lseek", "ftruncate", "fallocate", "fsync", "fdatasync"}
# Harmless on a file that the library does not have; on one that it has, they confuse its tables.
TABLE = {"close", "dup", "dup2", "dup3"}
OPENS = {"open", "openat", "openat2", "creat"}
FORKS = {"clone", "clone3", "fork", "vfork"}
NAMES = {"rename", "renameat", "renameat2", "unlink", "unlinkat"}
COPIES = {"copy_file_range": 1, "splice": 1, "sendfile": 0}  # which of the descriptors is the target
TRACED = (*DATA, *TABLE, *OPENS, *FORKS, *NAMES, *COPIES, "mmap", "fcntl", "execve", "execveat")

STRACE = ("strace", "-f", "-i", "-y", "-s", "300", "--seccomp-bpf", "-e", "signal=none",
          "-e", "trace=" + ",".join(TRACED))

DESCRIPTOR = re.compile(r"\b(\d+)<([^>]*)>")


class File:
    """An inode as one process knows it."""

    def __init__(self, path, reason=None):
        self.path = path
        self.reason = reason
        self.written = False  # a descriptor of the program's is, or was since all were closed, for writing
        self.cached = False   # the library has a descriptor of its own
        self.handed_over = False  # the library has told the kernel the offsets
        self.syncs_left = 0  # so many until it is cached again, which the end of a turn has given back


class Process:
    def __init__(self):
        self.files = {}     # by the program's descriptors
        self.internal = {}  # the same by the library's
        self.preloaded = []   # where libnvcache.so lies: (begin, end)
        self.mapped = set()  # paths; they stay with the kernel for good
        self.uncached = None  # or the reason for which no further file becomes cached

    def fork(self):
        child = Process()
        copies = {}
        for fd, file in self.files.items():
            if id(file) not in copies:
                copies[id(file)] = copy = File(file.path, file.reason)
                copy.written = file.written
            child.files[fd] = copies[id(file)]
        child.preloaded = self.preloaded
        child.mapped = set(self.mapped)
        return child

    def execute(self):
        for file in self.files.values():
            file.reason = file.reason or "exec"
            file.cached = False
        self.internal, self.preloaded, self.mapped, self.uncached = {}, [], set(), None

    def close(self, fd):
        file = self.files.pop(fd, None)
        if file is not None and file not in self.files.values():
            file.written = file.handed_over = False
            file.syncs_left = 0
            file.reason = "mmap" if file.path in self.mapped else None
        file = self.internal.pop(fd, None)
        if file is not None and file not in self.internal.values():
            file.cached = False

    def in_library(self, pointer):
        return any(begin <= pointer < end for begin, end in self.preloaded)

    def file_at(self, path):
        for file in (*self.files.values(), *self.internal.values()):
            if file.path == path:
                return file
        return File(path, "mmap" if path in self.mapped else None)


class Audit:
    """What happened to the files below `folder`. Everything else is not looked at."""

    def __init__(self, folder, trace):
        self.folder = str(folder) + "/"
        self.violations = []  # text
        self.reasons = collections.Counter()
        self.cached = set()   # paths
        self.served = 0       # reads and writes of the library's on its own descriptors
        self.processes = {}   # by thread
        self.streams = set()  # threads within fopen
        self.waiting = collections.defaultdict(list)  # lines of threads whose clone has not returned
        self.unfinished = {}
        for line in trace:
            thread, pointer, text = re.fullmatch(r"(\d+) +\[([0-9a-f?]+)\] (.*)\n?", line).groups()
            self.line(int(thread), pointer, text)
        for thread, lines in self.waiting.items():
            self.violations.append(f"thread {thread} comes from nowhere: {lines[0][1]}")

    def line(self, thread, pointer, text):
        if not self.processes:
            self.processes[thread] = Process()  # strace's own child
        if thread not in self.processes:
            self.waiting[thread].append((pointer, text))
            return
        if text.startswith("+++"):
            del self.processes[thread]  # the number may come back
            return
        if text.endswith("<unfinished ...>"):
            text = text[:-len("<unfinished ...>")]
            # The number is free, and may come back, before this call is seen to return.
            if text.startswith("close("):
                text += ") = 0"
            else:
                self.unfinished[thread] = (pointer, text)
                return
        resumed = re.match(r"<\.\.\. (\w+) resumed>", text)
        if resumed:
            if resumed.group(1) == "close":
                return
            pointer, first = self.unfinished.pop(thread)
            text = first + text[resumed.end():]
        call = re.fullmatch(r"(\w+)\((.*)\) += (0x[0-9a-f]+|-?\d+|\?)(.*)", text, re.S)
        if call is None:
            self.violations.append(f"cannot be read: {text}")
            return
        name, arguments, result, rest = call.groups()
        self.call(thread, int(pointer, 16), name, arguments, result, rest)

    def call(self, thread, pointer, name, arguments, result, rest):
        process = self.processes[thread]
        ours = process.in_library(pointer)
        if name == "write" and arguments.startswith("-1, \"audit: "):
            self.witness(thread, process, arguments)
            return
        if ours and name == "write" and re.match(r'2\b.*"nvcache: .* in use', arguments):
            process.uncached = "in use"
        descriptors = [(int(fd), path) for fd, path in DESCRIPTOR.findall(arguments)]
        if name in DATA | TABLE and descriptors:
            self.judge(process, ours, name, descriptors[0][0], f"{name}({arguments}) = {result}{rest}")
        if result == "?" or result.startswith("-"):
            return
        if name in OPENS:
            self.opened(thread, process, ours, arguments, int(result), rest)
        elif name == "close":
            process.close(int(re.match(r"\d+", arguments).group()))
        elif name in ("dup", "dup2", "dup3") or name == "fcntl" and "F_DUPFD" in arguments:
            self.duplicated(process, descriptors[0][0], int(result))
        elif name in FORKS:
            self.forked(process, ours, arguments, int(result))
        elif name.startswith("exec"):
            process.execute()
        elif name == "mmap" and descriptors:
            self.mapping(process, descriptors[-1], arguments, int(result, 16))
        elif name in COPIES and not ours:
            self.give(process, descriptors[COPIES[name]][0], "target")
        elif name in NAMES:
            self.renamed(process, name, arguments)
        elif name == "fcntl" and "F_SETLK" in arguments and "F_UNLCK" in arguments and not ours:
            for file in process.files.values():
                if file.cached:
                    file.syncs_left = HOT_SYNCS
        elif name == "fcntl" and "F_SETFL" in arguments and "O_DIRECT" in arguments:
            self.give(process, descriptors[0][0], "direct")

    def judge(self, process, ours, name, fd, text):
        if ours:
            if name == "lseek" and "SEEK_SET" in text and fd in process.files:
                process.files[fd].handed_over = True
            self.served += fd in process.internal and name in ("pread64", "pwrite64", "pwritev")
            return
        if fd in process.internal:
            self.violations.append(f"on a descriptor of the library's own: {text}")
            return
        file = process.files.get(fd)
        if file is None or not (file.cached or file.written and name in DATA):
            return
        reason = file.reason or (None if file.cached else process.uncached)
        if reason is None and file.syncs_left > 0:
            reason = "turn"
            file.syncs_left -= name in SYNCS
        if reason is not None and (file.handed_over or not file.cached):
            self.reasons[reason] += 1
        else:
            what = "past the cache" if file.cached else "on a file that was never cached"
            self.violations.append(f"{what}: {text}")

    def opened(self, thread, process, ours, arguments, fd, rest):
        path = re.match(r"<([^>]*)>", rest).group(1)
        process.close(fd)
        if not path.startswith(self.folder) or "O_DIRECTORY" in arguments or "O_PATH" in arguments:
            return
        file = process.file_at(path)
        if ours and '"/proc/thread-self/fd/' in arguments:
            process.internal[fd] = file
            file.cached = True
            self.cached.add(path)
            return
        process.files[fd] = file
        file.written |= re.search(r"\bO_(WRONLY|RDWR)\b", arguments) is not None
        if thread in self.streams:
            self.give(process, fd, "stream")
        if fd <= 2:
            self.give(process, fd, "standard")
        if "O_DIRECT" in arguments:
            self.give(process, fd, "direct")

    def duplicated(self, process, source, fd):
        if source in process.internal:
            process.internal[fd] = process.internal[source]
            return
        process.close(fd)
        if source in process.files:
            process.files[fd] = process.files[source]
            if fd <= 2:
                self.give(process, fd, "standard")

    def forked(self, process, ours, arguments, child):
        if "CLONE_FILES" in arguments:  # a thread, or who loads libpmem in one's place
            self.processes[child] = process
        else:
            # The library's own child makes a call that a filter may forbid, and ends.
            for fd in () if ours else process.files:
                self.give(process, fd, "fork")
            self.processes[child] = process.fork()
        for pointer, text in self.waiting.pop(child, ()):
            self.line(child, pointer, text)

    def mapping(self, process, descriptor, arguments, address):
        fd, path = descriptor
        if path.endswith("/libnvcache.so") and "PROT_EXEC" in arguments:
            process.preloaded.append((address, address + int(arguments.split(", ")[1])))
        if fd in process.files:
            self.give(process, fd, "mmap")
            process.mapped.add(path)

    def renamed(self, process, name, arguments):
        folders = re.findall(r"(?:AT_FDCWD|\d+)<([^>]*)>, \"", arguments)
        paths = re.findall(r'"((?:[^"\\]|\\.)*)"', arguments)
        if not folders:  # rename and unlink name no folder: strace shows none either
            known = [file.path for file in process.files.values() if file.path] + [*process.mapped]
            paths = [next((k for k in known if k.endswith("/" + p.lstrip("./"))), p) for p in paths]
        else:
            paths = [p if p.startswith("/") else f"{f}/{p}" for f, p in zip(folders, paths)]
        if paths[-1] in process.mapped:
            process.uncached = process.uncached or "used again"
        for file in {*process.files.values(), *process.internal.values()}:
            if file.path == paths[-1]:  # its name is gone
                file.reason = file.reason or "unlinked"
                file.path = None
            elif name.startswith("rename") and file.path == paths[0]:
                file.path = paths[1]

    def witness(self, thread, process, arguments):
        text = re.search(r'audit: ([^"]*)', arguments).group(1)
        if text == "begin":
            self.streams.add(thread)
        elif text == "end":
            self.streams.discard(thread)
        else:
            self.give(process, int(text.split()[1]), "stream")

    def give(self, process, fd, reason):
        """From now on the kernel may see data calls. In these cases it has to be handed over before."""
        file = process.files.get(fd)
        if file is None:
            return
        if reason in ("mmap", "fork", "target") and file.cached and not file.handed_over:
            self.violations.append(f"not handed over: {file.path}, and yet {REASONS[reason]}: {reason}(")
        file.reason = file.reason or reason
