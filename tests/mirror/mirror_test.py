#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The mirrored log as it is run: memory servers, a mirror, etcd, and programs as they are, under `nvcache run`. All of
them are killed and stopped and their links cut, and then a machine loses its power: its processes, its pool, and what
its file system has not made durable. After `nvcache recover --mirror`, all that was acknowledged is there.

Exit code 77 where there is no etcd, or a file system cannot be mounted and shut down. Where no network namespaces can
be made, all servers are on loopback."""

import collections
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import kit
from kit import Failure, check, command, say, skip, state_of, until
from kit.disks import needs_power_failures
from etcd_servers import Cluster, free_ports
from machines import SERVERS, Links, Loopback, Machine, Servers, own_network, reserve_ports

# Of tests/power. What the pool's calls wait for, and after what an operation is acknowledged; `behind`: so many of the
# newest operations the program itself may lose (SQLite does not sync the folder after a commit with FULL); `restarts`:
# the checker knows of more than one operation that was under way, so that one writer may follow another.
Workload = collections.namedtuple("Workload", "commit promise rules behind restarts")


def workload(commit="fsync", promise="fsync", rules=("auto", "always"), behind=0, restarts=True):
    return Workload(commit, promise, rules, behind, restarts)


WORKLOADS = {
    **{f"records-{how}": workload() for how in ("fsync", "fdatasync", "dsync", "rwf", "msync", "syncfs")},
    "replace": workload(), "maildir-synced": workload(rules=("auto",)),
    "sqlite-wal": workload(), "sqlite-delete": workload(), "sqlite-full": workload(behind=1),
    "rocksdb": workload(),
    # Each change waits. With `always`, times are not promised.
    "raw": workload("write", "mirrored"), "names": workload("write", "mirrored", ("auto",), restarts=False),
    "recreate": workload("write", "mirrored", restarts=False), "rotate": workload("write", "mirrored", restarts=False),
}
# The cleanup thread's ways: as they are; late, but no mirror waits longer for it than a test may; at once.
LATE = {**kit.LATE, "NVCACHE_BATCH_DELAY": "3000"}
HABITS = ({}, {}, LATE, kit.EARLY)


class Setting:
    """Etcd, servers and machines, for some losses."""

    def __init__(self, options, chance):
        self.options, self.chance = options, chance
        self.nvcache, self.scratch = pathlib.Path(options.nvcache).resolve(), pathlib.Path(options.scratch).resolve()
        self.machines, self.images = [], []
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="nvcache-test-mirror-", dir="/dev/shm"))
        self.mounted = pathlib.Path(tempfile.mkdtemp(prefix="mirror-", dir=self.scratch))
        self.etcd = self.network = self.servers = None
        self.losses = 0
        self.kept = []  # what recoveries have said that could not bring all to the files
        self.told = ""
        self.acknowledged = collections.Counter()

    def __enter__(self):
        try:
            nodes = self.chance.choice((1, 1, 1, 3))
            has_links = self.options.has_networks and self.chance.random() < 0.6
            ports = free_ports(2 * nodes + SERVERS)  # of all together: none is given out twice
            etcd = Cluster(nodes, ports=ports[SERVERS:])
            self.network = Links(self.folder) if has_links else Loopback(ports[:SERVERS])
            if self.options.has_networks:
                reserve_ports([*etcd.urls, *etcd.peers, *self.network.addresses])
            self.etcd = etcd.__enter__()
            self.servers = Servers(self.options, self.folder, self.network)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None and issubclass(kind, (Failure, subprocess.SubprocessError)):
            say(self.logs())
        for machine in self.machines:
            machine.close()
        if self.servers is not None:
            self.servers.kill()
        if self.network is not None:
            self.network.close()
        if self.etcd is not None:
            self.etcd.__exit__(kind, value, trace)
        if kind is not None and self.options.keep:
            self.keep()
        for image in self.images:
            image.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.mounted.rmdir()

    def keep(self):
        """The pools as they were lost, and recovered, the disks, and all that was said."""
        self.options.keep.mkdir(parents=True, exist_ok=True)
        for path in (*(machine.folder for machine in self.machines), *self.images):
            to = self.options.keep / f"{self.folder.name}-{path.name.removeprefix(self.folder.name + '-')}"
            subprocess.run(["cp", "-r", "--sparse=always", path, to], check=False)

    def image(self, name):
        """On a disk, which takes its time to sync, or in memory."""
        self.images.append(self.chance.choice((self.scratch, self.folder)) / f"{self.folder.name}-{name}.image")
        return self.images[-1]

    def machine(self, name="one", image=None):
        self.machines.append(Machine(self, name, image))
        return self.machines[-1]

    def agent(self, mode, what, promise=None):
        kind = WORKLOADS[what.split(":")[0]]
        return [pathlib.Path(self.options.agent).resolve(), mode, self.mounted, self.options.seed,
                promise or kind.promise, what]

    def environment(self, machine):
        return {"FOUND": str(machine.folder / "found"), "NVCACHE_NOTICE": "0"}

    def logs(self):
        logs = [f"--- {machine.name}: {name}\n{machine.said(name)[-2500:]}"
                for machine in self.machines for name in ("mirror", "writer")]
        if self.servers is not None:
            logs += [f"--- server {i}\n{self.servers.log(i).read_text(errors='replace')[-1000:]}"
                     for i in range(SERVERS)]
        return "\n".join(logs)


class Life:
    """Of one workload on a machine, from one loss to the next."""

    def __init__(self, setting, machine, name):
        self.setting, self.machine, self.name, self.kind = setting, machine, name, WORKLOADS[name]
        self.chance = setting.chance
        self.rule = setting.options.rule or self.chance.choice(self.kind.rules)
        self.habits = self.chance.choice(HABITS)
        setting.told += f"; {name}, rule {self.rule}, batch delay {self.habits.get('NVCACHE_BATCH_DELAY', 'as ever')}"
        self.known = 0  # are there for good
        self.below = None
        for path in (name, *(("common/a", "common/b") if name.startswith("names") else ())):
            (machine.disk.seen / path).mkdir(parents=True)
        machine.sync()

    def begin(self, below="real", *more):
        self.below = below
        self.setting.told += f"; below majority {below}"
        if not self.machine.pool.exists():
            self.machine.create(self.kind.commit)
        self.machine.start_mirror(below, *more)
        self.write()

    def write(self):
        self.machine.write(self.name, self.rule, **self.habits)

    def acknowledged(self):
        return max(self.known, self.machine.acknowledged())

    def promised(self):
        """So many operations are there after a loss: the program itself may lose those that its workload is `behind`."""
        return max(self.acknowledged() - self.kind.behind, 0)

    def await_more(self, count=5):
        goal = self.acknowledged() + count
        until(lambda: self.acknowledged() >= goal or self.machine.writer.has_ended(), "more is acknowledged", 60)
        if self.below == "error" and self.machine.writer.has_ended():
            return check_error(self)  # servers that are slow are no majority for a moment
        check(self.acknowledged() >= goal, f"the writer has ended: {self.machine.complaint()}")

    def lose(self, with_records=False):
        self.setting.told += ", lost"
        self.machine.lose(self.chance, with_records)
        self.setting.losses += 1

    def recover_and_verify(self, kills=0):
        """The recovery may be killed, and its machine die again."""
        for _ in range(kills):
            with subprocess.Popen(self.machine.recovery(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  start_new_session=True) as process:
                time.sleep(self.chance.uniform(0, 0.4))
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            until(lambda pid=process.pid: not kit.group_lives(pid), "the end of a recovery")
            if self.chance.random() < 0.5:
                self.machine.disk.shut_down()
                self.machine.disk.again()
                self.machine.pool.unlink(missing_ok=True)
        said = self.machine.recover()
        self.verify()
        return said

    def verify(self):
        acknowledged = self.acknowledged()
        found = self.machine.verify(self.name, self.promised())
        self.setting.acknowledged[self.name] += acknowledged - self.known
        self.machine.output.unlink()
        self.known = found
        # The checker is a program without NVCache.
        self.machine.sync()

    def next_writer(self):
        """The writer alone dies. The next one sees all of it, if not for good."""
        machine = self.machine
        machine.writer.kill()
        # Not before: meanwhile it may do more than a checker takes for unacknowledged.
        machine.writer.await_output()
        acknowledged = self.acknowledged()
        under = (self.setting.nvcache, "run", "--pool", machine.pool, "--required", "--write-back", self.rule, "--")
        # After the end of a process alone, a write is there whole or not at all.
        promise = "write" if self.kind.promise == "mirrored" else None
        machine.verify(self.name, self.promised(), under, promise)
        self.setting.acknowledged[self.name] += acknowledged - self.known
        self.known = acknowledged
        self.write()


# ---- Cases


def lost_pool(setting, name):
    """Nothing goes wrong but the loss."""
    life = Life(setting, setting.machine(), name)
    life.begin()
    life.await_more()
    life.machine.await_mirrored()
    life.await_more(50)
    life.lose()
    said = life.recover_and_verify()
    check("recovered" in said, said)
    said = life.machine.recover()
    check("nothing to recover" in said, said)


def followed(setting, name):
    """The writer alone dies, and another one goes on with its files: what the first one has left in the log does not
    undo what the second one has synced."""
    life = Life(setting, setting.machine(), name)
    if not life.kind.restarts:
        return
    life.begin()
    life.machine.await_mirrored()
    life.await_more(30)
    life.next_writer()
    life.await_more(30)
    life.lose()
    life.recover_and_verify()


def below_majority(setting, name):
    """Two of three servers are gone: syncs become real, and mirrored again when they are back."""
    life = Life(setting, setting.machine(), name)
    life.begin("real")
    life.machine.await_mirrored()
    life.await_more()
    for i in (0, 1):
        setting.servers[i].kill()
    until(lambda: life.machine.said("mirror").count("syncs are real") == 2, "syncs are real", 20)
    life.await_more(20)
    if setting.chance.random() < 0.3:
        life.lose()
        for i in (0, 1):
            setting.servers[i].start()
        life.recover_and_verify()
        return
    for i in (0, 1):
        setting.servers[i].start()
    life.machine.await_mirrored(2)
    life.await_more(20)
    life.lose()
    life.recover_and_verify()


def blocked(setting, name):
    """Two of three are stopped: nothing is acknowledged until they go on."""
    life = Life(setting, setting.machine(), name)
    life.begin("block")
    life.machine.await_mirrored()
    life.await_more()
    for i in (0, 1):
        setting.servers[i].stop()
    until(lambda: all(state_of(setting.servers[i].pid) == "T" for i in (0, 1)), "servers stop")
    time.sleep(0.2)  # what was on its way
    before = life.acknowledged()
    time.sleep(1.5)
    check(life.acknowledged() == before, "something was acknowledged without a majority")
    if setting.chance.random() < 0.5:
        life.lose()
    for i in (0, 1):
        setting.servers[i].go_on()
    if life.machine.pool.exists():
        life.await_more(20)
        life.lose()
    life.recover_and_verify()


def refused(setting, name):
    """The same with an error: the writer hears of it, and ends."""
    life = Life(setting, setting.machine(), name)
    life.begin("error")
    life.machine.await_mirrored()
    life.await_more()
    for i in (0, 1):
        setting.servers[i].kill()
    until(life.machine.writer.has_ended, "the writer hears of an error", 20)
    check_error(life)
    for i in (0, 1):
        setting.servers[i].start()
    life.machine.await_mirrored(2)
    life.lose()
    life.recover_and_verify()


def check_error(life):
    life.machine.writer.await_output()
    complaint = life.machine.complaint()
    # RocksDB asks with sync_file_range whether there is one, and asserts that it does not fail.
    check(re.search("Input/output error|I/O error|IO error|IsSyncFileRangeSupported", complaint), f"the writer has ended: {complaint}")


def ahead(setting, name):
    """No server gets what comes last, and the disk does: all that was acknowledged is there, whatever recovery writes
    over it."""
    life = Life(setting, setting.machine(), name)
    life.begin("block")
    life.machine.await_mirrored()
    life.await_more(setting.chance.randrange(20, 300))
    for server in setting.servers:
        server.kill()
    time.sleep(setting.chance.uniform(0, 0.3))
    life.lose()
    for server in setting.servers:
        server.start()
    life.recover_and_verify()


def too_many_forget(setting, name):
    """Two of three have forgotten: a recovery waits, and says for whom; it does not take what one of them has."""
    life = Life(setting, setting.machine(), name)
    life.begin("block")
    life.machine.await_mirrored()
    life.await_more()
    life.lose()
    for i in (0, 1):
        setting.servers.forget(i)
    code, said = life.machine.try_to_recover(seconds=6)
    check(code is None, f"it came to an end: {code}, {said}")
    check("2 of 3 servers have to remember" in said and said.count("it has forgotten") == 2, said)
    check(not life.machine.pool.exists(), "a pool was made")


def removed(setting, _):
    """Somebody has removed a file from the disk: recovery keeps its records, again and again, until it is told to drop
    them. Then the name is free for the next mirror."""
    life = Life(setting, setting.machine(), "records-fsync")
    life.rule, life.habits = "always", LATE
    life.begin("block")
    life.machine.await_mirrored()
    life.await_more(20)
    life.lose(with_records=True)
    (life.machine.disk.seen / life.name / "a").unlink()
    life.machine.sync()
    for _ in range(2):
        code, said = life.machine.try_to_recover()
        check(code == kit.KEPT and "a (inode" in said, f"exit code {code}: {said}")
    saved = life.machine.folder / "saved"
    code, said = life.machine.try_to_recover("--export", saved, "--discard")
    check(code == 0 and "discarded" in said and any(saved.iterdir()), f"exit code {code}: {said}")
    code, said = life.machine.try_to_recover()
    check(code == 0 and "nothing to recover" in said, f"exit code {code}: {said}")
    life = Life(setting, life.machine, "replace")
    life.begin("block", "--take-over")
    life.await_more(20)
    life.lose()
    life.recover_and_verify()


def interrupted(setting, _):
    """A recovery has brought all to the files, and dies before it says so. The next one finds that all is there."""
    life = Life(setting, setting.machine(), "replace")
    life.rule, life.habits = "auto", LATE
    life.begin("block")
    life.machine.await_mirrored()
    life.await_more(50)
    life.lose(with_records=True)
    # As the installed ones, but that the command that replays kills who has started it.
    tools = setting.folder / "tools"
    tools.mkdir()
    (tools / "nvcache-mirror").hardlink_to(shutil.copy(setting.nvcache.with_name("nvcache-mirror"), tools / "copy"))
    (tools / "nvcache").write_text(f'#!/bin/sh\n{setting.nvcache} "$@" >&2\nkill -KILL $PPID\n')
    (tools / "nvcache").chmod(0o700)
    words = [tools / "nvcache-mirror" if word == str(setting.nvcache) else word for word in life.machine.recovery()]
    done = subprocess.run(words, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    check(done.returncode == -signal.SIGKILL, f"exit code {done.returncode}: {done.stdout}")
    code, said = life.machine.try_to_recover()
    check(code == 0, f"exit code {code} after one that was killed: {said}\nwhich had said: {done.stdout}")
    life.verify()


def takes_over(setting, name):
    """The first machine seems to be lost, and is only stopped; a second one has a copy of its volume, as it was then.
    When the first one comes back, nothing of it is acknowledged, or gets anywhere."""
    chance = setting.chance
    first = Life(setting, setting.machine("one"), name)
    first.begin("block")
    first.machine.await_mirrored()
    first.await_more(50)
    pids = first.machine.stop()
    copy = setting.image("two")
    command("cp", "--sparse=always", first.machine.disk.image, copy)
    second = Life.__new__(Life)
    second.__dict__.update(first.__dict__, machine=setting.machine("two", copy))
    second.machine.output = first.machine.output
    second.known = first.known
    setting.losses += 1
    second.machine.recover()
    at_takeover = first.acknowledged()
    found = second.machine.verify(name, first.promised())
    second.known, second.machine.output = found, second.machine.folder / "none"
    second.machine.sync()
    second.begin("block", "--take-over")
    until(lambda: second.acknowledged() > found, "the second machine goes on", 60)
    for pid in pids if chance.random() < 0.5 else sorted(pids, reverse=True):
        os.kill(pid, signal.SIGCONT)
        time.sleep(chance.uniform(0, 0.3))
    until(lambda: "another writer has come" in first.machine.said("mirror"), "the first mirror is fenced", 30)
    until(first.machine.writer.has_ended, "the first writer hears of it", 30)
    check_error(first)
    # One whose sync had returned before the stop may be said after it.
    check(first.promised() <= found,
          f"{first.acknowledged()} are acknowledged by a fenced machine, the other one has found {found}")
    second.await_more(20)
    second.lose()
    second.recover_and_verify()
    setting.acknowledged[name] += at_takeover


class Trouble:
    """Whatever can be killed, stopped, cut off or slowed down, is, for some seconds."""

    def __init__(self, life):
        self.life, self.setting, self.chance = life, life.setting, life.chance
        self.servers, self.network, self.nodes = self.setting.servers, self.setting.network, self.setting.etcd.nodes
        self.stopped, self.cut, self.slow = [], set(), set()
        self.forgetful = False

    def play(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.chance.uniform(0, 0.2))
            if self.life.machine.writer.has_ended():
                check_error(self.life)
                return check(self.life.below == "error", "the writer has heard of an error")
            machine = self.life.machine
            check(not machine.mirror.has_ended(), "the mirror has ended")
            step = self.chance.choice((self.kill_server, self.stop, self.stop, self.go_on, self.go_on, self.kill_mirror,
                                       self.kill_etcd, self.cut_link, self.join_link, self.delay, self.forget,
                                       self.kill_writer))
            self.setting.told += f", {step.__name__}"
            step()

    def kill_server(self):
        self.chance.choice(self.servers.all).restart()

    def kill_mirror(self):
        self.life.machine.mirror.restart()

    def kill_etcd(self):
        node = self.chance.choice(self.nodes)
        node.kill()
        node.start()

    def kill_writer(self):
        # Who waits for a majority does so for as long as this takes.
        if self.life.kind.restarts and self.chance.random() < 0.3:
            self.end()
            self.setting.told += " indeed"
            self.life.next_writer()

    def stop(self):
        machine = self.life.machine
        what = self.chance.choice((*self.servers, machine.mirror, machine.writer, self.nodes[0]))
        if len(self.stopped) < 2 and what not in self.stopped:
            what.stop()
            self.stopped.append(what)

    def go_on(self):
        if self.stopped:
            self.stopped.pop(self.chance.randrange(len(self.stopped))).go_on()

    def cut_link(self):
        which = self.chance.randrange(SERVERS)
        self.network.cut(which)
        self.cut.add(which)

    def join_link(self):
        if self.cut:
            self.network.join(self.cut.pop())

    def delay(self):
        if self.network.can_delay:
            which = self.chance.randrange(SERVERS)
            self.network.delay(which, self.chance.choice((5, 50, 300)))
            self.slow.add(which)

    def forget(self):
        """One may, and has to be filled again before another one may."""
        if not self.forgetful and self.chance.random() < 0.3:
            self.forgetful = True
            self.servers.forget(self.chance.randrange(SERVERS))

    def end(self):
        while self.stopped:
            self.stopped.pop().go_on()
        while self.cut:
            self.network.join(self.cut.pop())
        while self.slow:
            self.network.delay(self.slow.pop(), 0)


def trouble(setting, name):
    chance = setting.chance
    life = Life(setting, setting.machine(), name)
    below = chance.choice(("real", "real", "block", "error"))
    for life_number in range(chance.choice((1, 2, 3))):
        # The dead one's lease may be there for some seconds.
        life.begin(below, *(("--take-over",) if life_number else ()))
        life.await_more()
        trouble = Trouble(life)
        trouble.play(chance.uniform(0.5, 4))
        early = chance.random() < 0.5
        if early:
            trouble.end()
        life.lose()
        trouble.end()
        dead = setting.servers[chance.randrange(SERVERS)] if not trouble.forgetful and chance.random() < 0.5 else None
        if dead is not None:
            dead.kill()
        kills = chance.choice((0, 0, 0, 1, 2))
        life.recover_and_verify(kills)
        if dead is not None:
            dead.start()


# ---- What the test would miss


LOST = 20  # operations


def self_check(options):
    """What a loss of the newest operations leaves is reported: they are said to be acknowledged, and nobody has done
    them. And a volume loses what nobody has synced."""
    for name in ("records-fsync", "records-dsync", "sqlite-wal", "rocksdb"):
        with Setting(options, random.Random(options.seed)) as setting:
            life = Life(setting, setting.machine(), name)
            life.begin()
            life.machine.await_mirrored()
            life.await_more(50)
            life.lose()
            life.recover_and_verify()
            try:
                life.machine.verify(name, life.known + LOST)
            except Failure as expected:
                check(" acknowledged: " in str(expected), str(expected))
                say(f"as it should be: {str(expected).splitlines()[0]}")
            else:
                raise Failure(f"{name}: {LOST} operations are lost, and nothing is missing")
            unsynced = life.machine.disk.seen / "unsynced"
            unsynced.write_text("x")
            life.machine.disk.shut_down()
            life.machine.disk.again()
            check(not unsynced.exists(), "the volume loses nothing")


def run(options, case, name, seed, totals):
    begin = time.monotonic()
    with Setting(options, random.Random(f"{seed} {case.__name__} {name}")) as setting:
        try:
            case(setting, name)
        except (Failure, subprocess.SubprocessError) as problem:
            raise Failure(f"--seed {seed} {case.__name__} {name}: {problem}\n{setting.told}") from None
    totals["losses"] += setting.losses
    totals["kept"] += len(setting.kept)
    totals.update(setting.acknowledged)
    where = "links" if isinstance(setting.network, Links) else "loopback"
    say(f"{case.__name__} {name}: {setting.losses} losses, {sum(setting.acknowledged.values())} acknowledged, "
        f"{len(setting.kept)} kept, {where}, {time.monotonic() - begin:.1f} s")


CASES = {case.__name__: case for case in
         (lost_pool, followed, below_majority, blocked, refused, too_many_forget, removed, interrupted, takes_over, ahead, trouble)}


def main():
    parser = kit.arguments(__doc__, rounds=6)
    parser.add_argument("--agent", required=True, help="the power_agent to use")
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="of these; else of all, by turns")
    parser.add_argument("--rule", choices=("auto", "always"), help="which files are cached")
    parser.add_argument("--self-check", action="store_true", help="whether the test finds what is missing")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="where to keep what a failure has left")
    options = parser.parse_args()
    if shutil.which("etcd") is None:
        skip("there is no etcd; the package is etcd-server")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and cleans up
    options.has_networks = own_network()
    needs_power_failures(options)
    if options.self_check:
        kit.main(options, {"self_check": lambda: self_check(options)})
    names = options.workload or [*WORKLOADS]
    totals = collections.Counter()

    def play(name, rounds):
        failures = []
        for seed in range(options.seed, options.seed + rounds):
            which = seed if rounds > 1 else seed + [*CASES].index(name)
            try:
                run(options, CASES[name], names[which % len(names)], seed, totals)
            except Failure as failure:
                say(f"FAILURE: {failure}")
                failures.append(str(failure))
        check(not failures, f"{len(failures)} of {rounds} rounds")

    chosen, options.cases = options.cases or [*CASES], []
    try:
        kit.main(options, {name: lambda name=name: play(name, options.rounds if name == "trouble" else 1)
                           for name in chosen})
    finally:
        losses, kept = totals.pop("losses", 0), totals.pop("kept", 0)
        say(f"{losses} losses, of which {kept} needed a person; acknowledged, and there: {sum(totals.values())}")
        for name, count in sorted(totals.items()):
            say(f"  {name}: {count}")


if __name__ == "__main__":
    main()
