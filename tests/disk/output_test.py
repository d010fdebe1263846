#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Commit at output (docs/output.md): while nothing reaches the journal, syncs return, and nothing that leaves
the program is heard: by whatever call it would. The test has the lock of who writes the journal. When it lets go, all is
heard."""

import ctypes
import errno
import fcntl
import os
import pathlib
import pty
import resource
import signal
import socket
import struct
import subprocess
import sys
import termios
import unittest

from kit import children, tool
from kit.journals import kill_users, memory_of, remove_memory

PROGRAM = os.environ.get("NVCACHE_TEST_LEAVES", str(tool.BUILD / "disk_leaves"))
API_PROGRAM = str(tool.BUILD / "disk_api_syncs")
LIBRARY = os.environ.get("NVCACHE_TEST_LIBRARY", str(tool.LIBRARY))
# Less where a planted bug may leave the program waiting for something else.
PATIENCE = int(os.environ.get("LEAVES_PATIENCE", "30"))
LEADER = 1 << 62  # kLeaderByte of src/pool/byte_locks.h
FUTEX, WRITE = "202", "1"
LIBC = ctypes.CDLL(None, use_errno=True)
UNSAID = 125  # the exit status where what was told is not durable
HEADERS = 2 * 4096  # bytes of a journal's headers (src/journal/format.h)
SHARED, MIRRORED, FAILING = 81920, 3, 5  # src/pool/layout.h and shared_state.h
READY, MAY_SYNC, SYNCED, LEFT = 1, 2, 3, 4
IPC_CREAT, IPC_RMID, IPC_NOWAIT, GETVAL = 0o1000, 0, 0o4000, 12


class Journal:
    """Nobody writes it while it is held."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def lock(self, kind, command=38):  # F_OFD_SETLKW
        fcntl.fcntl(self.fd, command, struct.pack("hhxxxxqqixxxx", kind, os.SEEK_SET, LEADER, 1, 0))

    def __enter__(self):
        self.lock(fcntl.F_WRLCK)
        return self

    def __exit__(self, *_):
        self.lock(fcntl.F_UNLCK)

    def close(self):
        os.close(self.fd)


class Step:
    """The word by which a program says how far it is: memory, which is no output."""

    def __init__(self, folder):
        self.path = folder / "step"
        self.path.write_bytes(bytes(4096))

    def get(self):
        return struct.unpack("I", self.path.read_bytes()[:4])[0]

    def set(self, value):
        with open(self.path, "r+b") as file:
            file.write(struct.pack("I", value))


def waits_for_journal(pid, memory):
    """The process's first thread sleeps on a word of the pool's memory. (Its threads that the engine has sleep there as well.)"""
    try:
        words = pathlib.Path(f"/proc/{pid}/syscall").read_text().split()
        if words[0] != FUTEX:
            return False
        ranges = [line.split("-", 1) for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines() if memory in line]
        return any(int(begin, 16) <= int(words[1], 16) < int(rest.split()[0], 16) for begin, rest in ranges)
    except (FileNotFoundError, ProcessLookupError):
        return False


# ---------------------------------------------------------------------------------------------------------------------------
# Witnesses: each has what the program needs, and says what was heard so far.

class Witness:
    fds = (-1, -1)
    environment = {}

    def __init__(self, folder):
        self.folder = folder

    def begun(self):
        for fd in self.fds:
            if fd >= 0:
                os.close(fd)

    def end(self):
        pass


class Pipe(Witness):
    """Bytes, or the end of file."""

    def __init__(self, folder):
        super().__init__(folder)
        self.mine, out = os.pipe()
        os.set_blocking(self.mine, False)
        self.fds = (os.open(os.devnull, os.O_RDONLY), out)

    def heard(self):
        try:
            os.read(self.mine, 100)
            return True
        except BlockingIOError:
            return False
        except OSError as error:
            return error.errno == errno.EIO  # a terminal's other end was closed

    def end(self):
        os.close(self.mine)


class Socket(Pipe):
    def __init__(self, folder):
        Witness.__init__(self, folder)
        mine, its = socket.socketpair()
        self.mine, out = mine.detach(), its.detach()
        os.set_blocking(self.mine, False)
        self.fds = (-1, out)


class Terminal(Pipe):
    def __init__(self, folder):
        Witness.__init__(self, folder)
        self.mine, out = pty.openpty()
        os.set_blocking(self.mine, False)
        self.fds = (-1, out)


class Window(Terminal):
    def heard(self):
        return struct.unpack("HHHH", fcntl.ioctl(self.mine, termios.TIOCGWINSZ, bytes(8)))[0] == 77


class Event(Pipe):
    def __init__(self, folder):
        Witness.__init__(self, folder)
        self.mine = os.eventfd(0, os.EFD_NONBLOCK)
        self.fds = (-1, os.dup(self.mine))


class Datagrams(Witness):
    def __init__(self, folder):
        super().__init__(folder)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(folder / "datagrams"))
        self.socket.setblocking(False)

    def heard(self):
        try:
            return bool(self.socket.recv(100))
        except BlockingIOError:
            return False

    def end(self):
        self.socket.close()


class Listener(Witness):
    def __init__(self, folder):
        super().__init__(folder)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(folder / "listener"))
        self.socket.listen()
        self.socket.setblocking(False)

    def heard(self):
        try:
            self.socket.accept()[0].close()
            return True
        except BlockingIOError:
            return False

    def end(self):
        self.socket.close()


class Fifo(Witness):
    """Somebody has opened its other end for reading."""

    def __init__(self, folder):
        super().__init__(folder)
        os.mkfifo(folder / "fifo")
        self.seen = False

    def heard(self):
        try:
            os.close(os.open(self.folder / "fifo", os.O_WRONLY | os.O_NONBLOCK))
            self.seen = True
        except OSError as error:
            assert error.errno == errno.ENXIO
        return self.seen


class Opened(Fifo):
    """The same, of a program that ends."""

    def heard(self):
        return self.seen


class Queue(Witness):
    def __init__(self, folder):
        super().__init__(folder)
        self.id = LIBC.msgget(os.getpid(), IPC_CREAT | 0o600)
        assert self.id >= 0

    def heard(self):
        return LIBC.msgrcv(self.id, ctypes.create_string_buffer(64), 32, 0, IPC_NOWAIT) >= 0

    def end(self):
        LIBC.msgctl(self.id, IPC_RMID, None)


class Semaphore(Witness):
    def __init__(self, folder):
        super().__init__(folder)
        self.id = LIBC.semget(os.getpid(), 1, IPC_CREAT | 0o600)
        assert self.id >= 0

    def heard(self):
        return LIBC.semctl(self.id, 0, GETVAL) > 0

    def end(self):
        LIBC.semctl(self.id, 0, IPC_RMID)


class Mq(Witness):
    def __init__(self, folder):
        super().__init__(folder)
        self.name = f"/leaves-{os.getpid()}".encode()
        self.id = LIBC.mq_open(self.name, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK, 0o600, None)
        assert self.id >= 0, os.strerror(ctypes.get_errno())

    def heard(self):
        return LIBC.mq_receive(self.id, ctypes.create_string_buffer(8192), 8192, None) >= 0

    def end(self):
        LIBC.mq_close(self.id)
        LIBC.mq_unlink(self.name)


class Signal(Witness):
    def heard(self):
        return signal.sigtimedwait([signal.SIGUSR1], 0) is not None


class Memory(Witness):
    def __init__(self, folder):
        super().__init__(folder)
        self.bytes = ctypes.create_string_buffer(16)
        self.environment = {"LEAVES_TO": hex(ctypes.addressof(self.bytes))}

    def heard(self):
        return self.bytes.value == b"heard"


class Exit(Witness):
    """That it has ended is looked at for all."""

    def heard(self):
        return False


def path_of(name, look):
    class Path(Witness):
        def heard(self):
            return look(self.folder / name)
    return Path


def sized(name):
    return path_of(name, lambda path: path.exists() and path.stat().st_size > 0)


MADE = path_of("made", os.path.lexists)
GONE = path_of("old", lambda path: not path.exists())
KERNELS, CUT = sized("kernels"), path_of("old", lambda path: path.stat().st_size == 0)

ROWS = {
    "write": Pipe, "write that does not block": Pipe, "write to a pipe of its own": Pipe, "write beside an index that is mapped": Pipe, "writev": Pipe, "write by number": Pipe, "stream": Pipe, "dprintf": Pipe,
    "send": Socket, "sendto": Datagrams, "sendto by number": Socket, "sendmsg": Socket, "sendmmsg": Socket,
    "write to a socket": Socket, "write to a terminal": Terminal, "connect": Listener, "bind": MADE, "shutdown": Socket,
    "close": Pipe, "close of a socket": Socket, "fclose": Pipe, "close_range": Pipe, "dup2": Pipe, "open of a FIFO": Fifo,
    "ioctl": Window, "event by write": Event, "eventfd_write": Event, "msgsnd": Queue, "mq_send": Mq, "semop": Semaphore,
    "semtimedop": Semaphore, "splice": Pipe, "tee": Pipe, "vmsplice": Pipe, "sendfile": Socket, "copy_file_range": KERNELS,
    "kill": Signal, "kill by number": Signal, "sigqueue": Signal, "tgkill": Signal, "pidfd_send_signal": Signal,
    "process_vm_writev": Memory, "a file of the kernel's": KERNELS, "aio_write": KERNELS, "io_submit": KERNELS,
    "ftruncate": KERNELS, "truncate": KERNELS, "fallocate": KERNELS, "rename": MADE, "link": MADE, "unlink": GONE,
    "remove": GONE, "mkdir": MADE, "symlink": MADE, "mkfifo": MADE, "open that makes a file": MADE,
    "open that cuts a file": CUT, "fopen": MADE, "chmod": path_of("old", lambda path: path.stat().st_mode & 0o777 == 0o600),
    "chown": path_of("old", lambda path: path.stat().st_uid == 1), "utimensat": path_of("old", lambda path: path.stat().st_mtime == 1),
    "setxattr": path_of("old", lambda path: "user.heard" in os.listxattr(path)), "execv": Pipe, "execlp": Pipe, "vfork": Pipe,
    "posix_spawn": Pipe, "system": Pipe, "popen": Pipe, "pclose": Pipe, "fork": Pipe, "fork after the sync": Pipe, "return from main": Exit, "exit": Exit,
    "_exit": Exit, "exit_group": Exit, "quick_exit": Exit, "the last thread's end": Exit,
}
# A vfork is a fork while a file is cached. The call that is held comes behind the one that the program counts, or is that of a child.
COUNTS = {"fork": LEFT, "vfork": LEFT, "return from main": LEFT}
# The witness has to look while the program lives.
WHILE_ALIVE = {"open of a FIFO"}


class OutputTest(tool.ToolTest):
    def setUp(self):
        super().setUp()
        self.pool = self.files / "pool"
        result = self.nvcache("create", self.pool, "--size", "1M", "--commit", "output")
        if result.returncode != 0:
            self.skipTest(f"no journal can lie on this disk: {result.stderr.strip()}")
        self.addCleanup(remove_memory, self.pool)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])

    def until(self, condition, what, patience=PATIENCE):
        super().until(condition, what, patience)

    def under(self, **more):
        return {**tool.clean_environment(), "LD_PRELOAD": LIBRARY, "NVCACHE_POOL": str(self.pool), "NVCACHE_REQUIRED": "1",
                "NVCACHE_AHEAD": "60000", "NVCACHE_WRITE_BACK": "auto", "NVCACHE_EXCLUSIVE": "*/data*", **tool.QUIET, **more}

    def begin(self, name, folder, witness, run=(), program=PROGRAM, **more):
        step = Step(self.make_folder(tool.MEMORY))
        words = [*run, program, name, folder, step.path, *witness.fds, os.getpid()]
        process = subprocess.Popen([str(word) for word in words], env=self.under(**witness.environment, **more),
                                   stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=[fd for fd in witness.fds if fd >= 0])
        witness.begun()
        self.addCleanup(self.kill, process)
        self.reach(process, step, READY)
        return process, step

    def kill(self, process):
        process.kill()
        process.wait()
        process.stderr.close()

    def ended(self, process):
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def reach(self, process, step, value):
        self.until(lambda: step.get() >= value or self.ended(process), f"step {value}")
        if step.get() < value:
            self.fail(f"the program has ended at step {step.get()}, with {process.wait()}: {process.stderr.read().decode()}")

    def asleep(self, process, all_of_them=False):
        memory = memory_of(self.pool).name
        found = [waits_for_journal(pid, memory) for pid in [process.pid, *children(process.pid)]]
        return all(found) and len(found) > 1 if all_of_them else any(found)

    def folder(self):
        folder = self.make_folder(tool.SCRATCH)
        (folder / "old").write_bytes(b"old")
        return folder

    def one(self, name, witness):
        process, step = self.begin(name, witness.folder, witness)
        with Journal(self.pool):
            step.set(MAY_SYNC)
            self.until(lambda: self.ended(process) or self.asleep(process, name in ("fork", "vfork")), f"{name}: it does not wait")
            self.assertFalse(self.ended(process), f"{name}: it has ended: {step.get()}")
            self.assertEqual(step.get(), COUNTS.get(name, SYNCED), f"{name}: how far it is")
            self.assertFalse(witness.heard(), f"{name}: it was heard")
        if name in WHILE_ALIVE:
            self.until(lambda: witness.heard() or self.ended(process), f"{name}: nothing is heard")
        self.until(lambda: self.ended(process), f"{name}: it does not end")
        self.assertEqual(process.wait(), 0, f"{name}: {process.stderr.read()}")
        if not isinstance(witness, (Exit, Fifo)):
            self.until(witness.heard, f"{name}: nothing is heard")

    def test_a_sync_returns_and_nothing_leaves(self):
        wanted = os.environ.get("NVCACHE_TEST_ROWS")
        for name, kind in ROWS.items():
            if wanted is not None and name not in wanted.split(","):
                continue
            with self.subTest(name):
                witness = kind(self.folder())
                try:
                    self.one(name, witness)
                finally:
                    witness.end()

    def test_what_another_process_was_told_holds_ones_output(self):
        witness, folder = Pipe(self.folder()), self.folder()
        other, heard = self.begin("write", witness.folder, witness, NVCACHE_EXCLUSIVE="*/nothing")
        process, step = self.begin("(the cleanup thread)", folder, Witness(folder), NVCACHE_BATCH_DELAY="60000")
        with Journal(self.pool):
            step.set(MAY_SYNC)
            self.reach(process, step, SYNCED)
            # It has nothing in its cache, and writes before it syncs.
            heard.set(MAY_SYNC)
            self.until(lambda: self.ended(other) or self.asleep(other), "it does not wait")
            self.assertFalse(self.ended(other) or witness.heard())
        step.set(LEFT + 1)
        self.assertEqual((process.wait(), other.wait()), (0, 0))
        self.assertTrue(witness.heard())
        witness.end()

    def test_who_only_reads_waits_as_well(self):
        """It may have seen in memory that they share what another one was told."""
        folder = self.folder()
        process, step = self.begin("(the cleanup thread)", folder, Witness(folder), NVCACHE_BATCH_DELAY="60000")
        with Journal(self.pool):
            step.set(MAY_SYNC)
            self.reach(process, step, SYNCED)
            reader = subprocess.Popen(["cat", folder / "old"], env=self.under(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.addCleanup(self.kill, reader)
            self.until(lambda: self.ended(reader) or self.asleep(reader), "it does not wait")
            self.assertFalse(self.ended(reader), "it has not waited")
        self.assertEqual(reader.communicate(), (b"old", b""))
        step.set(LEFT + 1)
        self.assertEqual((reader.wait(), process.wait()), (0, 0))

    def test_the_log_goes_before_the_data(self):
        folder = self.folder()
        process, step = self.begin("(the cleanup thread)", folder, Witness(folder), NVCACHE_BATCH_DELAY="1")
        # At the end of the batch before, it waits for the journal as well.
        self.until(lambda: self.status()["pending_records"] == 0, "the batch before does not end")
        with Journal(self.pool):
            before = self.bell()
            step.set(MAY_SYNC)
            self.reach(process, step, SYNCED)
            self.until(lambda: self.bell() != before, "its cleanup thread does not wait")
            self.assertEqual((folder / "data").read_bytes(), b"1")
        self.until(lambda: (folder / "data").read_bytes() == b"3", "nothing reaches the file")
        step.set(LEFT + 1)
        self.assertEqual(process.wait(), 0)

    def test_a_journal_that_this_process_cannot_bring_forward(self):
        """Nor can another: it has failed before anything reaches the file. Nobody leaves it, so what was told and is not on the disk
        fails the process, and no signal kills that: not even the journal's header has room within the limit."""
        folder = self.folder()
        process, step = self.begin("(the cleanup thread)", folder, Witness(folder), NVCACHE_BATCH_DELAY="1",
                                   NVCACHE_AHEAD="10")
        self.await_journal()
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (HEADERS - 1, resource.RLIM_INFINITY))
        step.set(MAY_SYNC)
        self.reach(process, step, SYNCED)
        self.until(lambda: (folder / "data").read_bytes() == b"3", "nothing reaches the file")
        self.assertNotEqual(self.state(), MIRRORED)
        step.set(LEFT + 1)
        self.assertEqual(process.wait(), UNSAID)
        self.assertEqual(process.stderr.read().decode().count("the pool's journal cannot be written"), 1)

    def test_a_journal_that_another_process_brings_forward(self):
        """Which does so when what was told is ahead for too long: the one that cannot waits for it."""
        words, more = "(the cleanup thread)", {"NVCACHE_AHEAD": "1500"}
        able, able_step = self.begin(words, *self.place(), NVCACHE_BATCH_DELAY="60000", **more)
        folder, witness = self.place()
        unable, step = self.begin(words, folder, witness, NVCACHE_BATCH_DELAY="1", **more)
        self.await_journal()
        resource.prlimit(unable.pid, resource.RLIMIT_FSIZE, (HEADERS - 1, resource.RLIM_INFINITY))
        for process, its in ((unable, step), (able, able_step)):
            its.set(MAY_SYNC)
            self.reach(process, its, SYNCED)
        self.until(lambda: (folder / "data").read_bytes() == b"3", "nothing reaches the file")
        self.assertEqual(self.state(), MIRRORED)
        for its in (step, able_step):
            its.set(LEFT + 1)
        self.assertEqual((unable.wait(), able.wait()), (0, 0))

    def place(self):
        folder = self.folder()
        return folder, Witness(folder)

    def test_nothing_later_is_there_without_what_was_before(self):
        witness = MADE(self.folder())
        process, step = self.begin("rename", witness.folder, witness, NVCACHE_BATCH_DELAY="1")
        with Journal(self.pool):
            step.set(MAY_SYNC)
            self.until(lambda: self.ended(process) or self.asleep(process), "it does not wait")
            process.kill()
            process.wait()
        memory_of(self.pool).unlink()
        self.assert_status(self.nvcache("recover", self.pool), 0)
        found = (witness.folder / "data").read_bytes(), witness.heard()
        self.assertEqual(found, (b"1", False))

    def test_what_is_ahead_for_too_long_holds_a_sync(self):
        folder = self.folder()
        process, step = self.begin("(a late sync)", folder, Witness(folder), NVCACHE_AHEAD="1")
        with Journal(self.pool):
            step.set(MAY_SYNC)
            self.until(lambda: self.ended(process) or self.asleep(process), "it does not wait")
            self.assertEqual(step.get(), SYNCED)
        self.assertEqual(process.wait(), 0)

    def test_what_nobody_waits_for_is_written(self):
        """By the cleanup thread of the process, which has a file in its cache; by the checkpointer, of one that has no thread yet."""
        run = [tool.COMMAND, "run", "--library", LIBRARY, "--pool", self.pool, "--checkpointer", "auto", "--"]
        for who, words, more in (("thread", (), {"NVCACHE_BATCH_DELAY": "60000"}),
                                 ("checkpointer", run, {"NVCACHE_EXCLUSIVE": "*/nothing", "LD_PRELOAD": ""})):
            with self.subTest(who):
                folder = self.folder()
                process, step = self.begin("(nothing)", folder, Witness(folder), words, NVCACHE_AHEAD="10", **more)
                before = self.told()[0]
                step.set(MAY_SYNC)
                self.reach(process, step, SYNCED)
                self.assertGreater(self.told()[0], before)
                self.until(lambda: self.told()[0] <= self.told()[1], "nobody writes it")
                step.set(LEFT + 1)
                self.assertEqual(process.wait(), 0)
        kill_users(self.pool)

    def await_journal(self):
        """It has all that was told. (Where the cleanup thread brings a write to the file before that is synced, nothing has waited.)"""
        self.until(lambda: self.told()[0] <= self.told()[1], "the journal lacks something")

    def bell(self):
        """It changes when somebody begins to wait."""
        return struct.unpack_from("I", memory_of(self.pool).read_bytes()[SHARED:SHARED + 192], 144)[0]

    def state(self):
        return struct.unpack_from("I", memory_of(self.pool).read_bytes()[SHARED:SHARED + 192], 128)[0]

    def told(self):
        """And how far the journal is."""
        words = memory_of(self.pool).read_bytes()[SHARED:SHARED + 192]
        return struct.unpack_from("Q", words, 168)[0], struct.unpack_from("Q", words, 136)[0]

    def test_where_outputs_are_not_seen_syncs_wait(self):
        for name, more in (("(a mapping)", {}), ("(a mapping of an index)", {}), ("exit", {"NVCACHE_STDIO": "0"}),
                           ("the C API", {"program": API_PROGRAM, "LD_PRELOAD": ""})):
            with self.subTest(name):
                folder = self.folder()
                process, step = self.begin(name, folder, Witness(folder), **more)
                with Journal(self.pool):
                    step.set(MAY_SYNC)
                    self.until(lambda: self.ended(process) or self.asleep(process), "it does not wait")
                    self.assertEqual(step.get(), MAY_SYNC, "a sync was told")
                self.assertEqual(process.wait(), 0)

    def test_a_terminal_that_is_stopped_stops_nobody_else(self):
        """The program has waited for the journal, and then does for the terminal: it holds nothing meanwhile."""
        slow, quick = Terminal(self.folder()), Pipe(self.folder())
        terminal = os.dup(slow.fds[1])
        self.addCleanup(os.close, terminal)
        termios.tcflow(terminal, termios.TCOOFF)
        stopped, step = self.begin("write to a terminal", slow.folder, slow)
        step.set(MAY_SYNC)
        self.until(lambda: self.told()[0] <= self.told()[1] and self.in_call(stopped) == WRITE, "it does not write")
        process, its = self.begin("write", quick.folder, quick)
        its.set(MAY_SYNC)
        self.until(lambda: self.ended(process), "the other one does not end")
        self.assertTrue(quick.heard())
        self.assertFalse(self.ended(stopped) or slow.heard())
        termios.tcflow(terminal, termios.TCOON)
        self.until(lambda: self.ended(stopped), "it does not end")
        self.assertTrue(slow.heard())
        for witness in (slow, quick):
            witness.end()

    def in_call(self, process):
        return pathlib.Path(f"/proc/{process.pid}/syscall").read_text().split()[0]

    def test_a_handler_that_writes_waits_as_well(self):
        witness = Pipe(self.folder())
        process, step = self.begin("write", witness.folder, witness)
        memory = memory_of(self.pool).name
        with Journal(self.pool):
            step.set(MAY_SYNC)
            self.until(lambda: self.asleep(process), "it does not wait")
            process.send_signal(signal.SIGUSR2)
            self.until(lambda: self.mask(process, "SigBlk") >> signal.SIGUSR2 - 1 & 1 and waits_for_journal(process.pid, memory), "the handler does not run, and wait")
            self.assertFalse(witness.heard())
        self.assertEqual(process.wait(), 0)
        self.assertTrue(witness.heard())
        witness.end()

    def mask(self, process, name):
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        return next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith(name))

    def test_where_the_journal_can_not_be_left_nothing_leaves(self):
        """The state `failing`: a call fails, and an exit has another status, unless a round that was under way has what was told."""
        refused, own = 125, 9
        for name, statuses in (("write", (refused, own)), ("exit", (refused,)), ("_exit", (refused,)), ("return from main", (refused,)),
                               ("quick_exit", (refused,)), ("exit_group", (refused,))):
            with self.subTest(name):
                witness = Pipe(self.folder())
                process, step = self.begin(name, witness.folder, witness)
                with Journal(self.pool):
                    step.set(MAY_SYNC)
                    self.until(lambda: self.asleep(process), "it does not wait")
                    self.set_state(FAILING)
                try:
                    self.until(lambda: self.ended(process), "it does not end")
                    self.assertEqual(os.read(witness.mine, 1), b"")
                finally:
                    self.set_state(MIRRORED)
                    witness.end()
                self.assertIn(process.wait(), statuses)

    def set_state(self, state):
        with open(memory_of(self.pool), "r+b") as file:
            file.seek(SHARED + 128)
            file.write(struct.pack("I", state))

    def test_each_row_is_the_programs(self):
        rows = {f"({row})" for row in ("the cleanup thread", "a late sync", "a mapping", "a mapping of an index", "nothing")} | set(ROWS)
        self.assertEqual(rows, set(subprocess.run([PROGRAM], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
