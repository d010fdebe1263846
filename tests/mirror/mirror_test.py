#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The mirrored log as it is run: memory servers, a mirror, etcd, a writer; all of them are killed and stopped, and
then the pool is gone. What the writer was told is durable must be in its file after `nvcache recover --mirror`.

    mirror_test.py --nvcache COMMAND --driver mirror_driver --scratch DIR [--rounds N] [--seed N]"""

import argparse
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from kit import Failure, check, say, skip, until
from etcd_servers import Cluster, free_ports

RECORD = 64
POOL_SIZE = 64 << 20
SERVERS = 3


class Process:
    def __init__(self, words, log):
        self.words, self.log = [str(word) for word in words], log
        self.process = None
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *self.words], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ends(self):
        return self.process.poll() is not None


class Setting:
    """Servers on loopback, without keys, whose memory outlives them."""

    def __init__(self, options, folder, etcd):
        self.options, self.folder, self.etcd = options, folder, etcd
        self.ports = free_ports(SERVERS)
        self.pool, self.file = folder / "pool", options.scratch / f"records-{folder.name}"
        self.servers = [self.serve(i, port) for i, port in enumerate(self.ports)]
        for i in range(SERVERS):
            until(lambda i=i: "serves on" in self.text(f"server{i}"), f"server {i} serves")
        self.mirror = self.writer = None

    def text(self, name):
        log = self.folder / f"{name}.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def serve(self, i, port):
        memory = self.folder / f"memory{i}"
        memory.mkdir(exist_ok=True)
        return Process([self.options.nvcache, "serve", "--insecure", "--listen", f"127.0.0.1:{port}", "--limit", "1G",
                        "--memory", memory], self.folder / f"server{i}.log")

    def start(self, below="real"):
        subprocess.run([self.options.driver, "create", self.pool, str(POOL_SIZE)], check=True)
        words = [self.options.nvcache, "mirror", "--pool", self.pool, "--name", "test", "--etcd", self.etcd.urls[0],
                 "--insecure", "--below-quorum", below, "--patience", "400"]
        for port in self.ports:
            words += ["--server", f"127.0.0.1:{port}"]
        self.mirror = Process(words, self.folder / "mirror.log")

    def write(self, first=0):
        self.writer = Process([self.options.driver, "write", self.pool, self.file, first], self.folder / "writer.log")

    def acknowledged(self):
        lines = self.text("writer").split("\n")[:-1]
        return int(lines[-1]) + 1 if lines and lines[-1].isdigit() else 0

    def lose(self):
        """The machine has lost its memory: all of its processes, and the pool."""
        self.writer.kill()
        self.mirror.kill()
        self.pool.unlink()

    def recover(self, seconds=60):
        return subprocess.run([self.options.nvcache, "recover", self.pool, "--mirror", self.etcd.urls[0], "--name", "test",
                               "--insecure"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              timeout=seconds)

    def verify(self, count):
        content = self.file.read_bytes()
        for i in range(count):
            found = content[i * RECORD:(i + 1) * RECORD].rstrip(b"\0")
            check(found == str(i).encode(), f"record {i} of {count} that were acknowledged is {found}")

    def next(self):
        self.pool.unlink(missing_ok=True)
        self.file.unlink(missing_ok=True)
        (self.folder / "writer.log").unlink(missing_ok=True)

    def end(self):
        for each in (self.writer, self.mirror, *self.servers):
            if each is not None:
                each.kill()
        self.file.unlink(missing_ok=True)

    def logs(self):
        return "\n".join(f"--- {name}\n{self.text(name)[-1500:]}"
                         for name in ("mirror", "writer", "server0", "server1", "server2"))


def lost_pool(setting, _):
    """Nothing goes wrong but the loss."""
    setting.start()
    setting.write()
    until(lambda: setting.acknowledged() > 200, "records are acknowledged", 20)
    until(lambda: "wait for a majority" in setting.text("mirror"), "the pool is mirrored", 20)
    count = setting.acknowledged()
    until(lambda: setting.acknowledged() > count + 200, "records go on", 20)
    setting.lose()
    result = setting.recover()
    check(result.returncode == 0 and "recovered" in result.stdout, result.stdout)
    setting.verify(setting.acknowledged())
    again = setting.recover()
    check(again.returncode == 0 and "nothing to recover" in again.stdout, again.stdout)


def below_majority(setting, _):
    """Two of three servers are gone: syncs become real, and mirrored again when they are back."""
    setting.start()
    setting.write()
    until(lambda: "wait for a majority" in setting.text("mirror"), "the pool is mirrored", 20)
    for i in (0, 1):
        setting.servers[i].kill()
    until(lambda: setting.text("mirror").count("syncs are real") == 2, "syncs are real", 20)
    count = setting.acknowledged()
    until(lambda: setting.acknowledged() > count + 20, "records go on", 20)
    for i in (0, 1):
        setting.servers[i].start()
    until(lambda: setting.text("mirror").count("wait for a majority") == 2, "it is mirrored again", 20)
    count = setting.acknowledged()
    until(lambda: setting.acknowledged() > count + 20, "records go on", 20)
    setting.lose()
    result = setting.recover()
    check(result.returncode == 0, result.stdout)
    setting.verify(setting.acknowledged())


def too_many_forget(setting, _):
    """Two of three have forgotten: a recovery waits, and says for whom; it does not take what one of them has."""
    setting.start("block")
    setting.write()
    until(lambda: "wait for a majority" in setting.text("mirror"), "the pool is mirrored", 20)
    setting.lose()
    for i in (0, 1):
        setting.servers[i].kill()
        shutil.rmtree(setting.folder / f"memory{i}")
        (setting.folder / f"memory{i}").mkdir()
        setting.servers[i].start()
    try:
        result = setting.recover(6)
        raise Failure(f"it came to an end: {result.stdout}")
    except subprocess.TimeoutExpired as expired:
        text = (expired.stdout or b"").decode()
        check("2 of 3 servers have to remember" in text and text.count("it has forgotten") == 2, text)
    check(not setting.pool.exists(), "a pool was made")


def trouble(setting, chance):
    """All that can be killed or stopped is, for some seconds."""
    setting.start(chance.choice(("real", "real", "block")))
    setting.write()
    end = time.monotonic() + chance.uniform(1, 4)
    stopped = []
    while time.monotonic() < end:
        time.sleep(chance.uniform(0, 0.2))
        check(not setting.writer.ends(), "the writer has ended")
        server = chance.choice(setting.servers)
        match chance.randrange(6):
            case 0:
                setting.mirror.kill()
                setting.mirror.start()
            case 1:
                server.kill()
                server.start()
            case 2 if not stopped:
                stopped.append(server.process)
                server.process.send_signal(signal.SIGSTOP)
            case 3 if stopped:
                stopped.pop().send_signal(signal.SIGCONT)
            case 4:
                setting.etcd.nodes[0].kill()
                setting.etcd.nodes[0].start()
            case _:
                pass
    for process in stopped:
        process.send_signal(signal.SIGCONT)
    setting.lose()
    result = setting.recover()
    check(result.returncode == 0, result.stdout)
    setting.verify(setting.acknowledged())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcache", required=True)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    if shutil.which("etcd") is None:
        skip("there is no etcd; the package is etcd-server")
    options.scratch.mkdir(parents=True, exist_ok=True)
    say(f"seed {options.seed}")
    chance = random.Random(options.seed)
    cases = [lost_pool, below_majority, *[trouble] * options.rounds, too_many_forget]
    records = 0
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="nvcache-test-mirror-", dir="/dev/shm") as folder, Cluster() as etcd:
            setting = Setting(options, pathlib.Path(folder), etcd)
            try:
                case(setting, chance)
                records += setting.acknowledged()
            except Failure:
                print(f"{case.__name__}:\n{setting.logs()}")
                raise
            finally:
                setting.end()
    say(f"{len(cases)} losses, {records} records were acknowledged, all are there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
