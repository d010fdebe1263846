#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The checkpointer: what it brings to the disk for others, when it is started and when it ends, and
that neither the programs nor their files notice it.

Programs (agent.c) make calls in lock step. A file that two of them sync twice is write-through; the
one that ends leaves its records to the checkpointer, if that was there first.

    checkpointer_test.py --nvcache build/nvcache --agent A --scratch DIR [CASE ...]

Exit code 77 where a case cannot be run; 1 if CI=true."""

import ctypes
import fcntl
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import time

import kit
from kit import LATE, check, command, skip, state_of
from kit.disks import Mount, make_image, needs_mounts

PATIENCE = 60
CREATE = os.O_RDWR | os.O_CREAT
PR_SET_CHILD_SUBREAPER = 36
F_OFD_SETLK = 37
KEEP_OFF = (1 << 62) + 515  # kKeepOffByte of src/pool/format.h

# A program that must have no child, hear of none, and have no descriptor but its own.
ALONE = """
import os, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
end = time.monotonic() + float(sys.argv[1])
while True:
    try:
        print('child', os.waitpid(-1, os.WNOHANG))
    except ChildProcessError:
        pass
    children = open(f'/proc/self/task/{os.getpid()}/children').read().split()
    if children or signal.SIGCHLD in signal.sigpending() or time.monotonic() > end:
        break
    time.sleep(0.01)
print('pid', os.getpid() if len(sys.argv) > 2 else 'any', 'children', children, 'told',
      signal.SIGCHLD in signal.sigpending(), 'descriptors',
      sorted(fd for fd in map(int, os.listdir('/proc/self/fd')) if 2 < fd < 10 and
             os.path.exists(f'/proc/self/fd/{fd}') and not  # ctest hands one on
             os.path.exists(f'/proc/{os.getppid()}/fd/{fd}') and not
             os.readlink(f'/proc/self/fd/{fd}').startswith('/proc')))
"""
UNSEEN = "pid {} children [] told False descriptors []\n"


def until(condition, what):
    kit.until(condition, what, 60)


class Bench(kit.Bench):
    def __init__(self, options, size="16M", write_back="auto"):
        super().__init__(options, size=size, dram="1M", write_back=write_back)
        self.program = str(pathlib.Path(options.agent).resolve())

    def __exit__(self, kind, value, trace):
        for agent in self.agents:
            agent.remove()
        for pid in self.checkpointers():
            if state_of(pid) != "Z":
                os.kill(pid, signal.SIGKILL)
        super().__exit__(kind, value, trace)

    def command(self, *words, options=()):
        return self.cached(words, options)

    def environment(self, **settings):
        return {**kit.without_nvcache(), "LC_ALL": "C", "NVCACHE_NOTICE": "0", **settings}

    def start(self, options=(), folder=None, opens=None, **settings):
        """`opens`: a file, as 0."""
        agent = self.agent(self.command(self.program, options=options), cwd=folder or self.folder,
                           env=self.environment(**settings))
        if opens:
            agent.must(f"open 0 {opens} {CREATE}", "0")
        return agent

    def once(self, *words, options=(), prefix=(), **more):
        """To its end; what it has printed."""
        done = subprocess.run([*prefix, *self.command(*words, options=options)], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              env=self.environment(), cwd=self.folder, timeout=PATIENCE, **more)
        check(done.returncode == 0, f"{words}: {done.returncode}, {done.stdout}")
        return done.stdout

    def checkpointers(self, pool=None):
        """Those that are at work for the pool, asleep or not."""
        found = []
        words = ["nvcache", "checkpointer", "--left", str(pool or self.pool)]
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                text = path.read_bytes().decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if text.rstrip("\0").split("\0") == words:
                found.append(int(path.parent.name))
        return found

    def checkpointer(self):
        """The one that was started, once it has a seat."""
        found = []
        def is_there():
            found[:] = [seat["pid"] for seat in self.status()["processes"] if seat["checkpointer"]]
            return found
        until(is_there, "a checkpointer has a seat")
        check(self.checkpointers() == found, f"checkpointers: {self.checkpointers()}, {found} has a seat")
        return found[0]

    def asleep(self):
        """The one that was started; it need not have a seat."""
        until(self.checkpointers, "there is a checkpointer")
        found = self.checkpointers()
        check(len(found) == 1, f"checkpointers: {found}")
        return found[0]

    def make_ready(self):
        """There is a checkpointer, and it can be asked."""
        def is_ready():
            if not self.checkpointers():
                self.once("true")
            return any("nvcache-leases" in " ".join(links(pid)) for pid in self.checkpointers())
        until(is_ready, "a checkpointer")

    def await_end(self, pid):
        until(lambda: state_of(pid) == "Z", f"the end of {pid}")

    def kill(self, pid):
        """A checkpointer. The kernel frees what it had a moment after it is gone."""
        os.kill(pid, signal.SIGKILL)
        self.await_end(pid)
        until(lambda: self.states().get(pid) in (None, "dead"), f"the end of {pid}")

    def await_clean(self):
        until(lambda: self.status()["state"] == "clean", "the pool is clean")
        self.check_clean()

    def share(self, agents, name="f"):
        """The file is open in all of them as 0, and write-through."""
        for agent in agents:
            agent.must(f"open 0 {name} {CREATE}", "0")
        for agent in agents:
            for _ in range(2):
                synced(agent, "pwrite 0 0 1 1", "1")
        for agent in agents:
            synced(agent, "pwrite 0 0 1 2", "1")

    def has_open(self, pid, folder):
        """A folder of that file system."""
        device = os.stat(folder).st_dev
        return any(os.path.isdir(link) and os.stat(link).st_dev == device for link in links(pid))


def synced(agent, write, wanted):
    """The write, and its sync."""
    agent.must(write, wanted)
    agent.must("fsync 0", "0")


def end_each(agents):
    """One after the other."""
    for agent in agents:
        agent.await_end()


def shared_by_two(bench, folder=None):
    """Two programs with a write-through file. The checkpointer, which was started by another one, has
    its descriptor before them: two others have asked for it, and may not have waited long enough for
    their own sake."""
    folder = folder or bench.folder
    bench.make_ready()
    before = [bench.start(folder=folder) for _ in range(2)]
    bench.share(before, "before")
    pid = bench.checkpointer()
    until(lambda: bench.has_open(pid, folder), "its descriptor")
    agents = [bench.start(folder=folder) for _ in range(2)]
    bench.share(agents)
    end_each(before)
    return agents, pid


# ---------------------------------------------------------------------------------------------
# When it is started, and when it ends.


def started_once(options):
    """However many programs are started at the same time; it ends when nobody needs it."""
    with Bench(options) as bench:
        bench.once("true", options=("--checkpointer", "never"))
        starts = [subprocess.Popen(bench.command("sleep", "1"), env=bench.environment()) for _ in range(8)]
        check(all(start.wait(PATIENCE) == 0 for start in starts), "a program failed")
        pid = bench.asleep()
        check(bench.once("true") == "" and bench.checkpointers() == [pid], f"{pid}, {bench.checkpointers()}")
        bench.check_clean()  # it has no seat: nobody had anything to do with the pool
        bench.await_end(pid)
        bench.check_clean()


def never(options):
    with Bench(options) as bench:
        bench.once("true", options=("--checkpointer", "never"))
        check(not bench.checkpointers(), "there is one")
    with Bench(options, write_back="never") as bench:
        bench.once("true")
        check(not bench.checkpointers(), "there is one, and nothing for it to do")
    with Bench(options) as bench:
        done = subprocess.run(bench.command("true", options=("--checkpointer", "always")), text=True,
                              check=False, stderr=subprocess.PIPE, env=bench.environment())
        check(done.returncode == 125 and "give auto or never" in done.stderr, f"{done}")
        environment = bench.environment(NVCACHE_CHECKPOINTER="never")
        check(subprocess.run(bench.command("true"), env=environment, check=False).returncode == 0
              and not bench.checkpointers(), "NVCACHE_CHECKPOINTER=never")


def library_alone(options):
    """Only `nvcache run` starts one."""
    with Bench(options) as bench:
        environment = bench.environment(**bench.settings(NVCACHE_REQUIRED="1"))
        check(subprocess.run(["true"], env=environment, check=False).returncode == 0, "true")
        check(bench.pool.exists() and not bench.checkpointers(), "there is one")


def unseen(options):
    """By the program: no child, no signal, no descriptor."""
    with Bench(options) as bench:
        found = bench.once(sys.executable, "-c", ALONE, "3", close_fds=False)
        check(found == UNSEEN.format("any"), found)
        check(bench.checkpointers(), "there was none")


def process_1(options):
    """All that loses its parent would become the program's child: so none is started."""
    prefix = ("unshare", "--pid", "--mount", "--fork", "--mount-proc")
    if subprocess.run([*prefix, "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        skip("no name space of processes can be made")
    with Bench(options, write_back="always") as bench:
        found = bench.once(sys.executable, "-c", ALONE, "1", "pid", prefix=prefix)
        check(found == UNSEEN.format("1"), found)
        bench.once("sh", "-c", "echo written > file", prefix=prefix)
        check((bench.folder / "file").read_text() == "written\n", "the file is not written")
        bench.check_clean()  # the last one has brought it to the disk


def subreaper(options):
    with Bench(options) as bench:
        def be_one():
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        found = bench.once(sys.executable, "-c", ALONE, "1", preexec_fn=be_one)
        check(found == UNSEEN.format("any") and not bench.checkpointers(), found)


def faults(bench, rule):
    """Page faults of a program that writes 20 MiB."""
    words = bench.command("dd", "if=/dev/zero", "of=file", "bs=64k", "count=320", options=("--huge", rule))
    # pylint: disable-next=consider-using-with # wait4 is what says it
    process = subprocess.Popen(words, env=bench.environment(**LATE), cwd=bench.folder, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    check(process.returncode == 0, f"dd: {process.returncode}")
    return usage.ru_minflt


def huge(options):
    """It puts what is used of the pool into huge pages, and some more, within the bound: so the next program takes few
    page faults."""
    with Bench(options, size="64M", write_back="always") as bench:
        faults(bench, "never")
        before = faults(bench, "never")
        check(bench.status()["huge"] == 0, f"huge: {bench.status()['huge']}")
        os.kill(bench.checkpointers()[0], signal.SIGTERM)
        until(lambda: not bench.checkpointers(), "the checkpointer ends")
        faults(bench, "16M")
        until(lambda: bench.status()["huge"] == 16 << 20, "what may be is huge")
        os.kill(bench.checkpointers()[0], signal.SIGTERM)
        until(lambda: not bench.checkpointers(), "the checkpointer ends")
        faults(bench, "auto")
        until(lambda: bench.status()["huge"] == 64 << 20, "all is huge")
        after = faults(bench, "auto")
        # 20 MiB have 5120 pages of 4 KiB.
        check(before - after > 4000, f"{before} page faults, and {after} with huge pages")


def nobodys(options):
    """It keeps nothing of the program that it was started with, or of its surroundings."""
    with Bench(options) as bench:
        def surroundings_of_it():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.setpriority(os.PRIO_PROCESS, 0, 1)
        with open(bench.folder / "inherited", "w", encoding="utf-8") as file:
            agent = subprocess.Popen(bench.command("sleep", "60"), cwd=bench.folder, stdout=file,
                                     env=bench.environment(SECRET="1", LD_PRELOAD="/no/such/library"),
                                     stderr=subprocess.DEVNULL, pass_fds=[file.fileno()],
                                     preexec_fn=surroundings_of_it)
        bench.others.append(agent)
        pid = bench.asleep()
        until(lambda: "nvcache-leases" in " ".join(links(pid)), "it has begun")
        check(os.getsid(pid) == pid and os.getpgid(pid) == pid, "it has no session of its own")
        check(os.readlink(f"/proc/{pid}/cwd") == "/", "its folder")
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        check(stat[4] == "0", f"its terminal is {stat[4]}")
        check(int(stat[1]) not in (agent.pid, os.getpid()), f"its parent is {stat[1]}")
        status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        masks = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Sig"))
        check(int(masks["SigBlk"], 16) == 0, f"it blocks {masks['SigBlk']}")
        check(int(masks["SigIgn"], 16) & 1 << signal.SIGINT - 1 == 0, f"it ignores {masks['SigIgn']}")
        check(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text(encoding="utf-8") == "0\n", "oom")
        environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
        check(b"SECRET" not in environment and b"LD_PRELOAD" not in environment, f"{environment}")
        check(pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8") == "nvcache\n", "its name")
        for link in links(pid):
            its_own = link.startswith(("/dev/shm/nvcache-leases", "anon_inode:"))
            check(link in ("/dev/null", str(bench.pool)) or its_own, f"it has {link}")


def links(pid):
    """What its descriptors lead to; nothing if it has ended."""
    found = []
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            found.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    except FileNotFoundError:
        pass
    return found


def removed(options):
    """The pool has lost its name, or another one has it: what it held is brought to the disk."""
    with Bench(options) as bench:
        agents, pid = shared_by_two(bench)
        bench.pool.unlink()
        bench.await_end(pid)
        other = bench.start()
        until(lambda: bench.checkpointers() not in ([], [pid]), "another one")
        end_each([*agents, other])
        bench.await_clean()


def foreground(options):
    """As a service has it: one at a time; it stays, and ends when it is told to."""
    with Bench(options) as bench:
        def start(*words):
            bench.others.append(subprocess.Popen([bench.nvcache, "checkpointer", *words, bench.pool], text=True,
                                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                                 env=bench.environment()))
            return bench.others[-1]
        done = start()
        said = done.communicate(timeout=PATIENCE)[0]
        check(done.returncode == 1 and said.count("\n") == 1, f"of no pool: {said}")
        stays = start("--stay")
        time.sleep(0.2)
        agents = [bench.start(options=("--checkpointer", "never")) for _ in range(2)]
        until(lambda: "nvcache-leases" in " ".join(links(stays.pid)), "it has begun")
        done = start()
        said = done.communicate(timeout=PATIENCE)[0]
        check(done.returncode == 1 and said.endswith("has a checkpointer; leave the work to it\n"), said)
        bench.share(agents)
        until(lambda: any(seat["checkpointer"] for seat in bench.status()["processes"]), "its seat")
        end_each(agents)
        bench.await_clean()
        end_each([bench.start() for _ in range(2)])
        check(not bench.checkpointers(), "another one was left")
        time.sleep(7)
        check(stays.poll() is None, f"it has ended: {stays.returncode}")
        stays.send_signal(signal.SIGINT)
        check(stays.wait(PATIENCE) == 0 and stays.stdout.read() == "", "its end")
        ends = start()
        check(ends.wait(PATIENCE) == 0 and ends.stdout.read() == "", "without --stay it ends by itself")
        bench.check_clean()


# ---------------------------------------------------------------------------------------------
# What it does.


def left(options):
    """What programs leave is on the disk soon, and nothing is left of anybody."""
    with Bench(options) as bench:
        agents, pid = shared_by_two(bench)
        for agent in agents:
            synced(agent, "pwrite 0 100 5000 7", "5000")
        agents[1].await_end()
        check(bench.pending() > 0 and bench.states()[agents[1].pid] == "left", f"{bench.states()}")
        until(lambda: agents[1].pid not in bench.states(), "its seat is free")
        agents[0].must("pwrite 0 100 5000 8", "5000")
        agents[0].await_end()
        check(bench.states()[agents[0].pid] == "left", f"{bench.states()}")
        bench.await_clean()
        check((bench.folder / "f").read_bytes()[100:5100] == b"\x08" * 5000, "the file")
        bench.await_end(pid)


def published(options):
    """A program that has a file to itself, in its cache: the kernel gets the bytes at its end."""
    with Bench(options, write_back="exclusive") as bench:
        agents, pid = shared_by_two(bench)
        agents.append(bench.start(opens="g", **LATE))
        # It was made in a known folder: write-through, and cached after so many syncs.
        for _ in range(64):
            synced(agents[2], "pwrite 0 0 1 1", "1")
        agents[2].must("pwrite 0 0 5000 7", "5000")
        check((bench.folder / "g").stat().st_size == 1, "it is not in the cache")
        agents[2].await_end()
        check(bench.states()[agents[2].pid] == "left" and bench.pending() > 0, f"{bench.states()}")
        check((bench.folder / "g").read_bytes() == b"\x07" * 5000, "the kernel has other bytes")
        until(lambda: agents[2].pid not in bench.states(), "its seat is free")
        end_each(agents[:2])
        bench.await_clean()
        bench.await_end(pid)


def idle(options):
    """A process has no thread of the engine's before it has work for one. What it has logged by then
    is brought to the disk by the checkpointer; without one it has threads at once."""
    def threads(agent):
        return len(os.listdir(f"/proc/{agent.pid}/task"))

    def pending(agent):
        found = [seat for seat in bench.status()["processes"] if seat["pid"] == agent.pid]
        return sum(seat["through_records"] for seat in found)

    with Bench(options) as bench:
        _, pid = shared_by_two(bench)
        sleeper = bench.start(opens="f")
        sleeper.must("pwrite 0 0 1 6", "1")
        check(threads(sleeper) == 1, f"{threads(sleeper)} threads after one write")
        check(pending(sleeper) > 0, "the write is not in the log")
        until(lambda: pending(sleeper) == 0, "the write is on the disk")
        check(threads(sleeper) == 1, f"{threads(sleeper)} threads, and it has done nothing")
        sleeper.must("pwrite 0 0 1 7", "1")
        check(threads(sleeper) == 3, f"{threads(sleeper)} threads of a process that goes on")
        bench.kill(pid)
        alone = bench.start(opens="f", options=["--checkpointer", "never"])
        alone.must("pwrite 0 0 1 8", "1")
        check(threads(alone) >= 3, f"{threads(alone)} threads where there is no checkpointer")
        # One that brings the logs of the dead to the files may be there besides, for as long as that takes.
        until(lambda: threads(alone) == 3, "two threads of the engine's are left")


def without(options):
    """The last one does the work at its end."""
    with Bench(options) as bench:
        agents = [bench.start(options=("--checkpointer", "never")) for _ in range(2)]
        bench.share(agents)
        agents[0].must("pwrite 0 100 5000 7", "5000")
        end_each(agents)
        bench.check_clean()


def orphan(options):
    """A program is killed, and no other one is started."""
    with Bench(options, write_back="always") as bench:
        agent = bench.start(opens="f", **LATE)
        agent.must("pwrite 0 0 5000 7", "5000")
        pid = bench.asleep()
        agent.kill()
        until(lambda: (bench.folder / "f").read_bytes() == b"\x07" * 5000, "the bytes")
        bench.await_clean()
        bench.await_end(pid)


def heard_of(pid):
    """The processes whose death the checkpointer hears of, by a pidfd each."""
    found = set()
    for info in pathlib.Path(f"/proc/{pid}/fdinfo").glob("*"):
        try:
            lines = dict(line.split(":", 1) for line in info.read_text(encoding="utf-8").splitlines())
        except FileNotFoundError:  # it was closed just now
            continue
        found.add(int(lines.get("Pid", 0)))
    return found - {0}


def orphans(options):
    """Three are killed at once. It hears of each one that has a seat, and of no other."""
    with Bench(options, write_back="always") as bench:
        agents = [bench.start(opens=name, **LATE) for name in "fgh"]
        for agent in agents:
            agent.must("pwrite 0 0 5000 7", "5000")
        pid = bench.asleep()
        until(lambda: heard_of(pid) == {agent.pid for agent in agents}, "it hears of three")
        for agent in agents:
            agent.kill()
        for name in "fgh":
            until(lambda file=bench.folder / name: file.read_bytes() == b"\x07" * 5000, f"{name}")
        until(lambda: not heard_of(pid), "it hears of nobody")
        bench.await_clean()
        bench.await_end(pid)


def closes_the_file_system(options):
    """It can be unmounted soon after the last program has ended, and while others use the pool."""
    needs_mounts(with_fuse=False)
    with Bench(options) as bench:
        with Mount(bench.folder / "image", bench.folder / "mounted", size=32 << 20) as mount:
            other = bench.start(NVCACHE_REQUIRED="1")  # it has a seat, and no file
            agents, pid = shared_by_two(bench, mount.folder)
            for agent in agents:
                agent.must("pwrite 0 100 5000 7", "5000")
                agent.await_end()
            check(bench.pending() > 0, "nothing is pending")
            until(lambda: not bench.has_open(pid, mount.folder), "it closes it")
            mount.unmount()
            check(bench.checkpointer() == pid, "it has gone, too")
            # The files of another file system may be write-through now.
            agents, pid = shared_by_two(bench)
            end_each([*agents, other])
            bench.await_clean()


def other_mounts(options):
    """A file system that it does not see: it says no, and the last program does the work."""
    needs_mounts(with_fuse=False)
    with Bench(options) as bench:
        folder, image = bench.folder / "mounted", make_image(bench.folder / "image", 32 << 20)
        folder.mkdir()
        command("mkfs.ext4", "-q", image)
        sleeper = bench.start()
        pid = bench.asleep()
        script = f"mount -o loop {image} {folder} && cd {folder} && exec \"$@\""
        program, where = bench.command(bench.program), {"cwd": bench.folder, "env": bench.environment()}
        first = bench.agent(["unshare", "--mount", "sh", "-c", script, "sh", *program], **where)
        first.must(f"open 0 f {CREATE}", "0")
        agents = [first, bench.agent(["nsenter", f"--mount=/proc/{first.pid}/ns/mnt", f"--wd={folder}", *program],
                                     **where)]
        bench.share(agents)
        check(not any(os.path.isdir(link) for link in links(pid)), f"it has {links(pid)}")
        end_each([*agents, sleeper])
        bench.await_clean()


def room(options):
    """A program that wants the room that others have left gets it."""
    with Bench(options, size="1M") as bench:
        agents, _ = shared_by_two(bench)
        for i in range(200):
            synced(agents[i % 2], f"pwrite 0 {i * 4000} 4000 {i % 100 + 1}", "4000")
        end_each(agents)
        content = (bench.folder / "f").read_bytes()
        check(content == b"".join(bytes([i % 100 + 1]) * 4000 for i in range(200)), "the file")
        bench.await_clean()


def wait(options):
    """The command ends when all is on the disk, with the program's status."""
    with Bench(options, write_back="always") as bench:
        def run(script, **settings):
            return subprocess.run(bench.command("sh", "-c", script, options=("--wait", *LATE_OPTIONS)),
                                  check=False, cwd=bench.folder, env=bench.environment(**settings), text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE)
        for status in (0, 1, 77):
            done = run(f"echo {status} > f; exit {status}")
            check(done.returncode == status and bench.pending() == 0, f"{done}, {bench.pending()}")
        done = run("echo killed > f; kill -9 $$")
        check(done.returncode == -signal.SIGKILL and bench.pending() == 0
              and (bench.folder / "f").read_text() == "killed\n", f"{done}, {bench.pending()}")
        done = run("echo left > f", NVCACHE_DRAIN_AT_EXIT="0")
        check(done.returncode == 0 and bench.pending() == 0
              and (bench.folder / "f").read_text() == "left\n", f"{done}, {bench.pending()}")
        done = run("exec no-such-program")
        check(done.returncode == 127, f"{done}")
        done = subprocess.run(bench.command("no-such-program", options=("--wait",)), check=False, text=True,
                              stderr=subprocess.PIPE, env=bench.environment())
        check(done.returncode == 127 and done.stderr.count("\n") == 1, f"{done}")
        # It is the program's parent: signals are passed on, and it stops when the program stops.
        waits = subprocess.Popen(bench.command("sh", "-c", "trap 'echo told; exit 5' TERM; echo ready; "
                                               "kill -TSTP $$; while :; do sleep 0.01; done", options=("--wait",)),
                                 stdout=subprocess.PIPE, text=True, env=bench.environment(),
                                 preexec_fn=lambda: os.setpgid(0, 0))
        bench.others.append(waits)
        check(waits.stdout.readline() == "ready\n", "the program")
        until(lambda: state_of(waits.pid) == "T", "it stops")
        waits.send_signal(signal.SIGCONT)
        waits.send_signal(signal.SIGTERM)
        check(waits.wait(PATIENCE) == 5 and waits.stdout.read() == "told\n", f"{waits.returncode}")


def wait_for_what_is_left(options):
    """By a program that leaves its records to the checkpointer, while another one goes on."""
    with Bench(options) as bench:
        agents, _ = shared_by_two(bench)
        agents.append(bench.start(opens="f", options=("--wait",)))
        for _ in range(3):
            synced(agents[2], "pwrite 0 100 5000 9", "5000")
        agents[2].await_end()
        check(bench.pending() == 0, f"{bench.pending()} pending")
        end_each(agents[:2])


def wait_while_stopped(options):
    """The checkpointer goes on, and a program that is stopped is not waited for."""
    with Bench(options) as bench:
        agents, pid = shared_by_two(bench)
        agents.append(bench.start(opens="f", options=("--wait",)))
        for _ in range(3):
            synced(agents[2], "pwrite 0 100 5000 9", "5000")
        end_each(agents[:2])
        os.kill(pid, signal.SIGSTOP)
        agents[2].await_end()
        check(bench.pending() == 0, f"{bench.pending()} pending")
    with Bench(options, write_back="always") as bench:
        agent = bench.start(opens="f", options=LATE_OPTIONS)
        agent.must("pwrite 0 100 5000 9", "5000")
        os.kill(agent.pid, signal.SIGSTOP)
        done = subprocess.run(bench.command("true", options=("--wait",)), check=False, text=True, stderr=subprocess.PIPE,
                              env=bench.environment(), cwd=bench.folder, timeout=PATIENCE)
        check(done.returncode == 125 and f"process {agent.pid} (" in done.stderr
              and done.stderr.count("\n") == 1, f"{done}")
        os.kill(agent.pid, signal.SIGCONT)
        agent.await_end()


# ---------------------------------------------------------------------------------------------
# What becomes of it.


def told_to_end(options):
    """While records are left to it, and while programs go on."""
    for number in (signal.SIGTERM, signal.SIGINT):
        with Bench(options) as bench:
            agents, pid = shared_by_two(bench)
            agents[0].must("pwrite 0 100 5000 7", "5000")
            agents[0].await_end()
            check(bench.pending() > 0, "nothing is pending")
            os.kill(pid, number)
            bench.await_end(pid)
            # It leaves them to a process that stays, if that has become busy.
            until(lambda: agents[0].pid not in bench.states(), "what was left is on the disk")
            synced(agents[1], "pwrite 0 100 5000 8", "5000")
            agents[1].await_end()
            bench.check_clean()
            agents, pid = shared_by_two(bench)
            for agent in agents:
                agent.must("pwrite 0 100 5000 9", "5000")
                agent.await_end()
            os.kill(pid, number)
            bench.await_end(pid)
            bench.check_clean()
            check((bench.folder / "f").read_bytes()[100:] == b"\x09" * 5000, "the file")


def killed(options):
    """Nothing is lost, whenever that is."""
    with Bench(options) as bench:
        agents, pid = shared_by_two(bench)
        agents[0].must("pwrite 0 100 5000 6", "5000")
        agents[0].await_end()
        bench.kill(pid)
        synced(agents[1], "pwrite 0 100 5000 7", "5000")
        agents[1].await_end()
        bench.check_clean()
        # Records are left to it.
        agents, pid = shared_by_two(bench)
        os.kill(pid, signal.SIGSTOP)
        for agent in agents:
            agent.must("pwrite 0 100 5000 8", "5000")
            agent.await_end()
        bench.kill(pid)
        check(bench.pending() > 0, "nothing is pending")
        bench.once("true")
        bench.await_clean()
        check((bench.folder / "f").read_bytes()[100:] == b"\x08" * 5000, "the file")


def stopped(options):
    """Others go on and end; those who end later do its work."""
    with Bench(options) as bench:
        agents, pid = shared_by_two(bench)
        os.kill(pid, signal.SIGSTOP)
        try:
            for i in range(100):
                synced(agents[i % 2], f"pwrite 0 {i * 100} 100 7", "100")
            agents[1].await_end()
            check(bench.states()[agents[1].pid] == "left", f"{bench.states()}")
            # It is waited for once, at most.
            agents.append(bench.start())
            bench.share([agents[2]])
            time.sleep(0.1)
            agents[0].must("pwrite 0 9800 100 7", "100")  # it is busy from now on
            until(lambda: agents[1].pid not in bench.states(), "its records are on the disk")
            for agent in (agents[0], agents[2]):
                agent.must("pwrite 0 9900 100 7", "100")
                agent.await_end()
            left_by = set(bench.states()) - {pid}
            check(left_by, "nothing is left to it")
            time.sleep(10.5)
            late = [bench.start(), bench.start()]
            bench.share(late)
            end_each(late)
            check(not left_by & set(bench.states()), f"{bench.states()}, {left_by} have left")
        finally:
            os.kill(pid, signal.SIGCONT)
        bench.await_clean()
        check((bench.folder / "f").read_bytes()[1:] == b"\x07" * 9999, "the file")


def recovered(options):
    """`nvcache recover` has the pool, whatever the checkpointer is at."""
    with Bench(options, write_back="always") as bench:
        agent = bench.start(opens="f", **LATE)
        pid = bench.checkpointer()
        for i in range(5):
            agent.must("pwrite 0 0 5000 7", "5000")
            busy = subprocess.run([bench.nvcache, "recover", bench.pool], check=False, text=True,
                                  stderr=subprocess.PIPE)
            check(busy.returncode == 1 and "in use" in busy.stderr, f"while a program uses it: {busy}")
            agent.kill()
            time.sleep(i * 0.3)
            bench.recover()
            check((bench.folder / "f").read_bytes() == b"\x07" * 5000, "the file")
            bench.check_clean()
            agent = bench.start(opens="f", **LATE)
        check(bench.checkpointer() == pid, "it has ended")
        agent.kill()
        bench.pool.unlink()
        bench.await_end(pid)


def keeps_off(options):
    """As long as a recovery wants the pool; one that is stopped is waited for."""
    with Bench(options, write_back="always") as bench:
        agent = bench.start(opens="f", **LATE)
        agent.must("pwrite 0 0 5000 7", "5000")
        pid = bench.checkpointer()
        with open(bench.pool, "rb") as pool:
            fcntl.fcntl(pool, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, KEEP_OFF, 1, 0))
            until(lambda: pid not in bench.states(), "it gives its seat up")
            time.sleep(1.5)
            check(list(bench.states()) == [agent.pid], f"{bench.states()}")
        check(bench.checkpointer() == pid, "it comes again")
        os.kill(pid, signal.SIGSTOP)
        agent.kill()
        recovers = subprocess.Popen([bench.nvcache, "recover", bench.pool], text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        bench.others.append(recovers)
        time.sleep(0.5)
        check(recovers.poll() is None, "it does not wait")
        os.kill(pid, signal.SIGCONT)
        check(recovers.wait(PATIENCE) == 0, f"{recovers.returncode}, {recovers.stdout.read()}")
        check((bench.folder / "f").read_bytes() == b"\x07" * 5000, "the file")


def two_users(options):
    """Each has one, for a pool of its own."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        skip("it takes root, and setpriv")
    with Bench(options) as bench:
        for folder in (bench.folder, bench.pools):
            folder.chmod(0o777)
        tool = pathlib.Path(bench.nvcache)
        for name in ("nvcache", "libnvcache.so"):
            shutil.copy(tool.parent / name, bench.pools / name)
        theirs = bench.pools / "theirs"
        command_line = [str(theirs) if word == str(bench.pool) else word for word in bench.command("sleep", "60")]
        command_line[0] = str(bench.pools / "nvcache")
        bench.others.append(subprocess.Popen(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                                              *command_line], env=bench.environment()))
        bench.others.append(subprocess.Popen(bench.command("sleep", "60"), env=bench.environment()))
        until(lambda: bench.checkpointers() and bench.checkpointers(theirs), "each has one")
        owners = [os.stat(f"/proc/{pid}").st_uid
                  for pid in (*bench.checkpointers(), *bench.checkpointers(theirs))]
        check(owners == [0, 65534], f"they belong to {owners}")
        done = subprocess.run([bench.nvcache, "checkpointer", theirs], check=False, text=True,
                              stderr=subprocess.PIPE)
        check(done.returncode == 1 and "belongs to the user" in done.stderr, f"{done}")
        os.kill(bench.checkpointers(theirs)[0], signal.SIGKILL)


def limited(options):
    """The user may have no other process, and no thread: it is not started, and the program has no thread of the
    engine's. It goes on, and nothing is lost."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None or shutil.which("prlimit") is None:
        skip("it takes root, setpriv and prlimit")
    user = "54321"  # nobody else's
    for write_back in ("auto", "exclusive", "always"):
        with Bench(options, write_back=write_back) as bench:
            for folder in (bench.folder, bench.pools):
                folder.chmod(0o777)
            tool = pathlib.Path(bench.nvcache)
            for place in (tool, tool.parent / "libnvcache.so", pathlib.Path(bench.program)):
                shutil.copy(place, bench.pools / place.name)
            bench.nvcache = str(bench.pools / tool.name)
            agent = bench.agent(["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "prlimit",
                                 "--nproc=1", *bench.command(bench.pools / pathlib.Path(bench.program).name)],
                                cwd=bench.folder, env=bench.environment())
            agent.must(f"open 0 f {CREATE}", "0")
            for i in range(100):
                synced(agent, f"pwrite 0 {i * 10} 10 {i + 1}", "10")
            content = b"".join(bytes([i + 1]) * 10 for i in range(100))
            check(not bench.checkpointers(), "there is one")
            check(len(os.listdir(f"/proc/{agent.pid}/task")) == 1, "there is a thread")
            agent.kill()
            check(agent.said().count("\n") <= 1, agent.said())
            if bench.pool.exists():
                bench.recover()
            check((bench.folder / "f").read_bytes() == content, "the file")


# Starts what its arguments say as process 2 of a name space of processes, with descriptor 0.
ENTER = ("unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "sh", "-c", '"$@"; exit $?', "sh")


def apart(bench, name):
    """A program in a name space of its own that has written to the file, and its number in ours."""
    agent = bench.agent([*ENTER, *bench.command(bench.program)], cwd=bench.folder, env=bench.environment(**LATE))
    agent.must(f"open 0 {name} {CREATE}", "0")
    agent.must("pwrite 0 0 5000 7", "5000")
    shell, = kit.children(agent.pid)
    inner, = set(kit.children(shell)) - set(bench.checkpointers())
    return agent, inner


def other_processes(options):
    """Those that it serves have other numbers for the processes: it is in their name space, or they are in one of their
    own. Whoever dies there, nothing is lost."""
    if subprocess.run([*ENTER, "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        skip("no name space of processes can be made")
    for first in ("here", "there"):
        with Bench(options, write_back="always") as bench:
            starter = bench.start(opens="g", **LATE) if first == "here" else apart(bench, "g")[0]
            pid = bench.asleep()
            here = bench.start(opens="h", **LATE)
            here.must("pwrite 0 0 5000 8", "5000")
            others = [apart(bench, name) for name in "ab"]
            check(bench.checkpointers() == [pid], f"{bench.checkpointers()}, {pid} was there")
            for _, inner in others:
                os.kill(inner, signal.SIGKILL)
            here.must(f"open 1 a {os.O_RDONLY}", "1")
            check(here.call("pread 1 0 5000").split()[0] == "5000", "what was written before the death")
            for name in "ab":
                until(lambda file=bench.folder / name: file.read_bytes() == b"\x07" * 5000, f"{name}")
            if first == "there":
                os.kill(starter.pid, signal.SIGKILL)  # all of its name space goes along
                bench.await_end(pid)
                check((bench.start().call(f"open 0 g {os.O_RDONLY}"), (bench.folder / "g").read_bytes()) ==
                      ("0", b"\x07" * 5000), "what all of a name space have left")
            else:
                starter.await_end()
            here.await_end()
            check((bench.folder / "h").read_bytes() == b"\x08" * 5000, "h")
            if first == "here":
                bench.await_clean()


def killed_in_replay(options):
    """While it brings the logs of the dead to the files. Others do so when they come."""
    if shutil.which("strace") is None or subprocess.run(["strace", "-o", "/dev/null", "true"], check=False,
                                                        stderr=subprocess.DEVNULL).returncode != 0:
        skip("strace may not trace")
    for kind in ("pwritev", "fsync", "close"):
        with Bench(options, write_back="always") as bench:
            agents = [bench.start(options=("--checkpointer", "never"), opens=name, **LATE) for name in "fgh"]
            resident = subprocess.Popen(
                ["strace", "-f", "-o", "/dev/null", "-P", bench.folder / "f", "-e", f"trace={kind}",
                 "-e", f"inject={kind}:signal=KILL:when=1", bench.nvcache, "checkpointer", "--stay", bench.pool],
                env=bench.environment())
            bench.others.append(resident)
            for agent in agents:
                agent.must("pwrite 0 0 5000 7", "5000")
            until(lambda: any(seat["checkpointer"] for seat in bench.status()["processes"]), "its seat")
            for agent in agents:
                agent.process.kill()
            check(resident.wait(PATIENCE) != 0, f"{kind}: it is not killed")
            bench.once("cat", *"fgh")
            for name in "fgh":
                check((bench.folder / name).read_bytes() == b"\x07" * 5000, f"{kind}: {name}")
            bench.await_clean()


LATE_OPTIONS = ("--batch-delay", "60000", "--batch-min", "100000", "--batch-max", "100000")

CASES = (started_once, never, library_alone, unseen, process_1, subreaper, huge, nobodys, removed, foreground,
         left, published, idle, without, orphan, orphans, closes_the_file_system, other_mounts, room, wait, wait_for_what_is_left,
         wait_while_stopped, told_to_end, killed, stopped, recovered, keeps_off, two_users, limited,
         other_processes, killed_in_replay)


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--agent", required=True, help="processes_agent")
    options = parser.parse_args()
    kit.main(options, kit.cases_of(CASES, options))


if __name__ == "__main__":
    main()
