# SPDX-License-Identifier: BSD-3-Clause
"""What a mirrored pool needs, as processes of this machine: memory servers, each behind a link of its own where the
kernel allows it, and machines with a disk, a mirror and a writer, which lose their power."""

import ctypes
import fcntl
import os
import pathlib
import re
import signal
import struct
import subprocess

from kit import KEPT, Failure, check, command, say, state_of, until
from kit.disks import IOC_SHUTDOWN, SHUTDOWN_NOLOGFLUSH, make_image

SERVERS = 3
NAME = "test"  # of the mirror
POOL_SIZE = "64M"
DISK_SIZE = 400 << 20
PORT = 7070
CLONE_NEWNET = 0x40000000
SECONDS_TO_RECOVER = 90
# What is said of names and files that the disk has in a later state than the images.
AHEAD = re.compile("something else has it|another file has its name|No such file or directory|what had it is not there")
# What the kernel does with a process that is stopped, or gone.
AT_REST = "TtZX"


class Process:
    """Killed with the test, whatever becomes of that. `where`: the words that lead to its namespaces. `output`: the file
    that gets what it prints, by a pipe: a program's own writes to a file may wait for the mirror."""

    def __init__(self, words, log, where=(), output=None, **environment):
        self.words = [*where, "setpriv", "--pdeathsig", "KILL", *(str(word) for word in words)]
        self.log, self.output = log, output
        self.environment = dict(os.environ, **environment)
        self.process = self.sink = None
        self.start()

    def start(self):
        with open(self.log, "ab") as log, open(self.output or os.devnull, "ab") as output:
            if self.output:
                self.sink = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "cat"], stdin=subprocess.PIPE,
                                             stdout=output)
            self.process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, env=self.environment, stderr=log,
                                            stdout=self.sink.stdin if self.output else log)
            if self.output:
                self.sink.stdin.close()

    def await_output(self):
        """After the end of all that have its pipe."""
        self.sink.wait(30)

    @property
    def pid(self):
        return self.process.pid

    def kill(self):
        self.process.kill()
        self.process.wait()

    def restart(self):
        self.kill()
        self.start()

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def has_ended(self):
        return self.process.poll() is not None


# ---- Networks


class Loopback:
    """All servers on this machine's own address, without keys."""

    credentials = ("--insecure",)

    def __init__(self, ports):
        self.addresses = [f"127.0.0.1:{port}" for port in ports]
        self.keys = ("--insecure",)
        self.can_delay = False

    def where(self, _):
        return ()

    def cut(self, server):
        pass

    def join(self, server):
        pass

    def delay(self, server, milliseconds):
        pass

    def close(self):
        pass


class Links:
    """Each server in a network namespace of its own, at the other end of a pair of veth devices; with keys and TLS."""

    def __init__(self, folder):
        self.folder = folder
        self.holders = []
        self.addresses = [f"10.77.{i}.2:{PORT}" for i in range(SERVERS)]
        key = folder / "key"
        key.write_text(f"{NAME}:{os.urandom(32).hex()}\n")
        key.chmod(0o600)
        self.credentials = self.keys = ("--keys", key)
        try:
            for i in range(SERVERS):
                self.make(i)
            self.can_delay = self.try_delay()
        except BaseException:
            self.close()
            raise

    def make(self, i):
        holder = Process(["sleep", "infinity"], self.folder / "holders.log", ["unshare", "-n"])
        self.holders.append(holder)
        await_namespace(holder.pid, "net")
        command("ip", "link", "add", "name", f"v{i}", "type", "veth", "peer", "name", "w0", "netns", holder.pid)
        command("ip", "address", "add", f"10.77.{i}.1/24", "dev", f"v{i}")
        command("ip", "link", "set", f"v{i}", "up")
        for words in (("address", "add", f"10.77.{i}.2/24", "dev", "w0"), ("link", "set", "w0", "up"),
                      ("link", "set", "lo", "up")):
            command(*self.where(i), "ip", *words)

    def try_delay(self):
        try:
            self.delay(0, 1)
            self.delay(0, 0)
            return True
        except Failure:
            return False

    def where(self, server):
        return ["nsenter", f"--net=/proc/{self.holders[server].pid}/ns/net", "--"]

    def cut(self, server):
        command("ip", "link", "set", f"v{server}", "down")

    def join(self, server):
        command("ip", "link", "set", f"v{server}", "up")

    def delay(self, server, milliseconds):
        how = ("replace", "dev", f"v{server}", "root", "netem", "delay", f"{milliseconds}ms", f"{milliseconds // 2}ms")
        command("tc", "qdisc", *(how if milliseconds else ("del", "dev", f"v{server}", "root")))

    def close(self):
        for i, holder in enumerate(self.holders):
            holder.kill()
            # The kernel takes its time with a namespace; the device here takes the other one with it.
            subprocess.run(["ip", "link", "delete", f"v{i}"], check=False, stderr=subprocess.DEVNULL)


def own_network():
    """Whether this process has a network of its own from now on, in which it may make devices."""
    if ctypes.CDLL(None).unshare(CLONE_NEWNET) != 0:
        return False
    try:
        command("ip", "link", "set", "lo", "up")
        command("ip", "link", "add", "name", "try0", "type", "veth", "peer", "name", "try1")
        command("ip", "link", "delete", "try0")
        return True
    except (OSError, Failure) as problem:
        say(f"servers have no networks of their own here: {problem}")
        return False


def reserve_ports(addresses):
    """In the own network: no connection takes the port of a server that is dead at that moment as its own."""
    ports = ",".join(address.rsplit(":", 1)[1] for address in addresses)
    pathlib.Path("/proc/sys/net/ipv4/ip_local_reserved_ports").write_text(ports)


def await_namespace(pid, kind):
    def name(of):
        try:
            return os.readlink(f"/proc/{of}/ns/{kind}")
        except FileNotFoundError:
            return None
    until(lambda: name(pid) not in (None, name("self")), f"a namespace ({kind})")


# ---- Servers


class Servers:
    """Their memory outlives them."""

    def __init__(self, options, folder, network):
        self.folder, self.network = folder, network
        self.all = []
        try:
            for i, address in enumerate(network.addresses):
                self.memory(i).mkdir()
                self.all.append(Process([options.nvcache, "serve", *network.keys, "--listen", address, "--limit", "1G",
                                         "--memory", self.memory(i)], self.log(i), network.where(i)))
            for i in range(SERVERS):
                until(lambda i=i: self.serves(i), f"server {i} serves")
        except BaseException:
            self.kill()
            raise

    def serves(self, i):
        said = self.log(i).read_text()
        check(not self.all[i].has_ended(), f"server {i} has ended: {said}")
        return "serves on" in said

    def __iter__(self):
        return iter(self.all)

    def __getitem__(self, i):
        return self.all[i]

    def memory(self, i):
        return self.folder / f"memory{i}"

    def log(self, i):
        return self.folder / f"server{i}.log"

    def forget(self, i):
        """Its machine has started anew."""
        self.all[i].kill()
        for path in self.memory(i).iterdir():
            path.unlink()
        self.all[i].start()

    def kill(self):
        for server in self.all:
            server.kill()


# ---- Machines


class Volume:
    """An ext4 that only one machine sees; it writes out only what it is asked to."""

    def __init__(self, holder, image, folder, is_new):
        self.holder, self.image, self.folder = holder, image, folder
        self.where = ["nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", "--"]
        if is_new:
            make_image(image, DISK_SIZE)
            command("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
        self.mount()

    @property
    def seen(self):
        """The folder, for who is not in the machine."""
        return pathlib.Path(f"/proc/{self.holder.pid}/root{self.folder}")

    def mount(self):
        command(*self.where, "mount", "-t", "ext4", "-o", "loop,commit=300", self.image, self.folder)

    def shut_down(self):
        """It stops at once, without writing anything more."""
        folder = os.open(self.seen, os.O_RDONLY)
        fcntl.ioctl(folder, IOC_SHUTDOWN, struct.pack("I", SHUTDOWN_NOLOGFLUSH))
        os.close(folder)

    def again(self):
        """After the power failure. What had no sync, it may have lost."""
        # A process that is gone from the pool may still have to close its files.
        unmount = [str(word) for word in (*self.where, "umount", "--quiet", self.folder)]
        until(lambda: subprocess.run(unmount, check=False, stderr=subprocess.DEVNULL).returncode == 0,
              "nobody uses the volume", 20)
        self.mount()


def users_of(pool):
    """The processes that have it mapped, whether they live or are stopped."""
    found = []
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
        try:
            if str(pool) in maps.read_text(errors="replace"):
                found.append(int(maps.parent.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            pass
    return found


class Machine:
    """Its processes have a mount namespace of their own: where the volume of a machine is restored on another one, it
    has the same path there. `image`: the volume that it begins with; else a new one."""

    def __init__(self, setting, name, image=None):
        self.setting, self.name = setting, name
        self.folder = setting.folder / name
        self.folder.mkdir()
        self.pool = self.folder / "pool"
        self.mirror = self.writer = None
        self.found = 0  # at the last look
        self.lives = 0
        self.holder = Process(["sleep", "infinity"], self.folder / "holder.log",
                              ["unshare", "-m", "--propagation", "private"])
        await_namespace(self.holder.pid, "mnt")
        self.disk = Volume(self.holder, image or setting.image(name), setting.mounted, image is None)

    def words(self, *words):
        """Of a command in this machine."""
        return [*self.disk.where, *(str(word) for word in words)]

    def log(self, name):
        return self.folder / f"{name}.log"

    def said(self, name):
        return self.log(name).read_text(errors="replace") if self.log(name).exists() else ""

    # ---- What runs

    def create(self, commit="fsync"):
        command(self.setting.nvcache, "create", self.pool, "--size", POOL_SIZE, "--commit", commit)

    def start_mirror(self, below="real", *more):
        network = self.setting.network
        words = [self.setting.nvcache, "mirror", "--pool", self.pool, "--name", NAME, *network.credentials,
                 "--below-quorum", below, "--patience", "400", *more]
        for url in self.setting.etcd.urls:
            words += ["--etcd", url]
        for address in network.addresses:
            words += ["--server", address]
        self.mirror = Process(words, self.log("mirror"), self.disk.where)

    def await_mirrored(self, times=1):
        until(lambda: self.said("mirror").count("wait for a majority") >= times, "the pool is mirrored", 30)

    def write(self, workload, rule="auto", **environment):
        """A program as it is, which says what is durable."""
        self.lives += 1
        self.output = self.folder / f"acknowledged{self.lives}"
        self.writer = Process([self.setting.nvcache, "run", "--pool", self.pool, "--dram", "1M", "--required",
                               "--write-back", rule, "--", *self.setting.agent("work", workload)],
                              self.log("writer"), self.disk.where, self.output, **self.setting.environment(self),
                              **environment)

    def acknowledged(self, said="@acked"):
        """The newest number that this life's writer has said, in whole lines; 0 if none."""
        lines = self.output.read_text().split("\n")[:-1] if self.output.exists() else []
        return next((int(line.split()[2]) for line in reversed(lines) if line.startswith(f"{said} ")), 0)

    def announced(self):
        return self.acknowledged("@next")

    def complaint(self):
        """Of a writer that has ended by itself."""
        found = re.search(r"^@bad .*", self.output.read_text(), re.MULTILINE)
        return found.group(0) if found else f"exit code {self.writer.process.poll()}: {self.said('writer')[-500:]}"

    # ---- Its end

    def stop(self):
        """All of its processes; each has reached a place where it rests."""
        pids = {self.mirror.pid, self.writer.pid, *users_of(self.pool)}
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        until(lambda: all(state_of(task.name) in AT_REST for pid in pids
                          for task in pathlib.Path(f"/proc/{pid}/task").glob("*")), "a machine stops")
        return pids

    def kill_users(self, but=()):
        for pid in users_of(self.pool):
            if pid in but:
                continue
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def lose(self, chance, with_records=False):
        """The power goes: the processes, in any order, what the file system has not made durable, and the pool. What a
        writer leaves when it dies before the disk goes may be in the files by then, but for `with_records`."""
        ours = (self.writer.pid, self.mirror.pid)
        steps = [self.writer.kill, self.mirror.kill, lambda: self.kill_users(ours), self.disk.shut_down]
        chance.shuffle(steps)
        if with_records:
            steps.sort(key=lambda step: step != self.disk.shut_down)
        for step in steps:
            step()
        until(lambda: self.kill_users() or not users_of(self.pool), "the end of the pool's processes", 60)
        self.writer.await_output()
        self.pool.replace(self.folder / "lost")  # for whoever looks at a failure; nobody finds it there
        self.disk.again()

    def recovery(self, *more):
        words = [self.setting.nvcache, "recover", self.pool, "--name", NAME, *self.setting.network.credentials, *more]
        for url in self.setting.etcd.urls:
            words += ["--mirror", url]
        return self.words(*words)

    def try_to_recover(self, *more, seconds=SECONDS_TO_RECOVER):
        """Its exit code, and what it says."""
        try:
            done = subprocess.run(self.recovery(*more), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  check=False, timeout=seconds)
            return done.returncode, done.stdout
        except subprocess.TimeoutExpired as expired:
            return None, (expired.stdout or b"").decode()

    def recover(self):
        """What it says. Where the disk was ahead of all images, it leaves that to a person, who drops the records."""
        code, said = self.try_to_recover()
        if code == KEPT:
            unresolved = [line for line in said.splitlines() if line.startswith("unresolved: ")]
            check(unresolved and all(AHEAD.search(line) for line in unresolved), said)
            say("\n".join(unresolved))
            self.setting.kept.append(said)
            code, said = self.try_to_recover("--discard")
        check(code == 0, f"recovery: exit code {code}: {said}")
        return said

    def verify(self, workload, acknowledged, under=(), promise=None):
        """How many are there. `under`: what the checker runs under; without, it is a program without NVCache."""
        # What was found at the last look was begun, acknowledged or not, and the next writer went on from there.
        what = f"{workload}:{acknowledged}:{max(self.announced(), self.found)}"
        done = subprocess.run(self.words(*under, *self.setting.agent("verify", what, promise)),
                              check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=dict(os.environ, **self.setting.environment(self)), timeout=SECONDS_TO_RECOVER)
        found = re.search(r"^@found \S+ (\d+)$", done.stdout, re.MULTILINE)
        check(done.returncode == 0 and found, f"{workload}, {acknowledged} acknowledged: {done.stdout}")
        self.found = int(found.group(1))
        return self.found

    def sync(self):
        folder = os.open(self.disk.seen, os.O_RDONLY)
        ctypes.CDLL(None).syncfs(folder)
        os.close(folder)

    def close(self):
        for process in (self.writer, self.mirror):
            if process is not None:
                process.kill()
        self.kill_users()
        if self.writer is not None:
            self.writer.await_output()
        self.holder.kill()
