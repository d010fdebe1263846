# SPDX-License-Identifier: BSD-3-Clause
"""An NVDIMM and a disk over many power failures, and the host's record of what the guest has
acknowledged."""

import dataclasses
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

import disk
import guest_image
import machine

POOL_PREFIX = "nvcache-test-power-"
DISK_SIZE = 320 << 20  # XFS wants 300 MiB; what is never written takes no memory
NVDIMM_SIZE = 64 << 20
FORMATS = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-b", str(disk.EXT4_BLOCK)),
    "xfs": ("mkfs.xfs", "-q"),
    "btrfs": ("mkfs.btrfs", "-q"),
}
# Far more than is needed, for machines that are busy.
BOOT_SECONDS = 180
MOST_ATTEMPTS = 3
LONGEST_WORK = 4  # seconds, while the disk waits for the flush at which it stops
FILES_OF_RAW = 4  # data_workloads.cc
COLD = 0.05  # of all starts
POSTGRES = "postgres"  # a workload that wants a user and a database
COMMON_FOLDERS = ("common/a", "common/b")  # of the workloads that change names
KEPT = 3  # exit status of nvcache recover
REFUSED = 125  # of nvcache run, and of a program whose pool cannot be used


class Failure(Exception):
    """What was acknowledged is not there, or something else is wrong; the text says what."""


@dataclasses.dataclass
class Plan:
    """All choices of a life: from the seed, or as a self check wants them."""
    seed: int
    workloads: tuple
    media: str = "fsdax"  # of the pool: fsdax, devdax; disk: a journal on the disk of the files
    pool_size: str = "8M"
    file_system: str = "ext4"  # on the disk
    mount: str = "rw"
    promise: str = "write"
    commit: str = ""  # of a pool on the disk
    apart: bool = False  # each workload has a process of its own
    restarts: bool = True  # another writer may follow one that the power failure has met
    cached: bool = True  # under NVCache
    write_back: str = "always"
    names: str = "auto"  # NVCACHE_NAMES
    recovers: bool = True
    disk_lies: bool = False
    mapped: bool = False  # the disk is behind device-mapper
    policies: tuple = disk.POLICIES
    batches: tuple = ("default", "eager", "late")

    def postgres(self):
        return POSTGRES in self.workloads

    def changes_names(self):
        """So often that its files lack some when the power fails."""
        return (self.write_back == "auto" and not self.postgres() and not self.on_disk() and
                not self.workloads[0].startswith("both"))

    def on_disk(self):
        """The level is `disk` (docs/disk.md)."""
        return self.media == "disk"


@dataclasses.dataclass
class Start:
    """The choices of one start of the guest."""
    kill: str = ""  # from when on: boot, create, recover, work, fault; empty: no power failure
    delay: float = 0.0  # seconds after that
    flush: int = 0  # or at this flush of the disk after that
    recovery: str = "recover"  # or run, library: who recovers
    fault: str = ""  # of a mapped disk at work: error, flakey, delay, blocks
    then: str = "mend"  # and then: mend, restart, power
    early: bool = False  # recovery is tried before the disk is mounted
    batch: str = "default"
    dram: str = "1M"
    flush_seconds: float = 0.0  # how slow the disk is
    policy: str = "all"  # what it keeps at the power failure
    cold: bool = False  # the guest boots, and does not go on from a saved state

    def moment(self):
        after = f"flush {self.flush}" if self.flush else f"{self.delay:.2f} s"
        return f"{self.kill} + {after}"


BATCHES = {
    "default": "",
    "eager": "NVCACHE_BATCH_MIN=1 NVCACHE_BATCH_MAX=8 NVCACHE_BATCH_DELAY=1",
    "late": "NVCACHE_BATCH_MIN=2000 NVCACHE_BATCH_DELAY=60000",
}


def draw_start(draw, plan, first):
    """A power failure: mostly at work, now and then while the guest starts or recovers, or makes
    the pool. Half of them while the disk flushes, for that is when most can be lost."""
    kill = draw.choices(("work", "create" if first else "recover", "boot"), (70, 20, 10))[0]
    seconds, flushes = {"work": (2.0, 60), "recover": (0.4, 8), "boot": (3.0, 4),
                        "create": (0.2, 0)}[kill]
    if plan.postgres():  # it recovers, too, and its start takes longest
        seconds, flushes = 3 * seconds, 3 * flushes
    if plan.on_disk():  # each sync is a flush; the journal is filled when it is made, and read by a recovery
        seconds, flushes = {"work": (2.0, 300), "create": (4.0, 40)}.get(kill, (1.0, 8))
    return Start(kill=kill, delay=draw.uniform(0, seconds),
                 flush=draw.choice((0, draw.randint(min(1, flushes), flushes))),
                 recovery=draw.choice(("recover", "run", "library")),
                 early=draw.random() < 0.2 and not plan.on_disk(), batch=draw.choice(plan.batches),
                 dram=draw.choice(("64k", "1M", "16M")),
                 flush_seconds=draw.choice((0.0, 0.003, 0.02)), policy=draw.choice(plan.policies),
                 cold=draw.random() < COLD)


def prepare_nvdimm(image, media, scratch):
    """An NVDIMM with a namespace, and for fsdax a file system. Made once, by a guest."""
    path = image.folder / f"{media}.nvdimm"
    if path.exists():
        return path
    unfinished = scratch / f"{media}.nvdimm"
    with open(unfinished, "wb") as file:
        file.truncate(NVDIMM_SIZE)
    if media == "disk":  # it is there, since a saved state has one, and nobody uses it
        return unfinished
    text = (f"step namespace ndctl create-namespace -f -e namespace0.0 -m {media} "
            f"--map={'mem' if media == 'fsdax' else 'dev'}\n")
    if media == "fsdax":
        text += ("step format mkfs.ext4 -q -F -b 4096 /dev/pmem0\n"
                 "pool_up fsdax\nstep unmount umount /p\n")
    with machine.Machine(image, text, scratch, nvdimm=unfinished) as guest:
        guest.finish(BOOT_SECONDS)
    bad = [line for line in guest.texts() if re.match(r"@bad|@end \S+ [^0]", line)]
    if bad:
        raise machine.Stuck(f"the NVDIMM cannot be prepared: {bad}\n{guest.tail()}")
    shutil.copyfile(unfinished, path.with_suffix(".unfinished"))
    path.with_suffix(".unfinished").rename(path)
    return path


def save_state(image, scratch):
    """A guest that has booted and has not looked at NVDIMM and disk yet: under an emulated processor
    that takes most of a start's time. Two starts from it differ as two boots do: in their clock, in
    their random numbers, and in the number of the boot."""
    nvdimm, state = scratch / "nvdimm", scratch / "state"
    with open(nvdimm, "wb") as file:
        file.truncate(NVDIMM_SIZE)
    with tempfile.TemporaryDirectory(prefix=POOL_PREFIX, dir="/dev/shm") as memory:
        device = disk.Disk(pathlib.Path(memory) / "disk", DISK_SIZE)
        try:
            with machine.Machine(image, None, scratch, nvdimm, device) as guest:
                guest.must("@waiting", BOOT_SECONDS)
                guest.save(state)
        finally:
            device.close()
    nvdimm.unlink()
    return state


def copy_sparse(source, target):
    subprocess.run(["cp", "--sparse=always", source, target], check=True)


class Life:
    """`with Life(...) as life:` cleans up, whatever happens."""

    def __init__(self, bench, plan, draw):
        self.bench = bench
        self.plan = plan
        self.draw = draw
        self.acknowledged = dict.fromkeys(plan.workloads, 0)
        self.announced = dict.fromkeys(plan.workloads, 0)
        self.starts = 0
        self.created = False  # the pool is
        self.ready = False  # and the folders
        self.worked = False  # a writer has
        self.verified = 0
        self.errors = 0  # that the file system gave to NVCache
        self.names = 0  # that recovery had from the log
        self.recovered = 0  # runs of recovery that had something from the log
        self.kept = 0  # and that could not bring all to the files
        self.logs = []
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="power-", dir=bench.scratch))
        self.memory = pathlib.Path(tempfile.mkdtemp(prefix=POOL_PREFIX, dir="/dev/shm"))
        self.nvdimm = self.memory / "nvdimm"
        self.before = self.memory / "nvdimm.before"
        # A socket's name has to be short.
        self.disk = disk.Disk(self.memory / "disk", DISK_SIZE, plan.disk_lies,
                              plan.file_system)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.disk.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.memory, ignore_errors=True)

    def begin(self):
        """A new NVDIMM and a new disk."""
        copy_sparse(prepare_nvdimm(self.bench.image, self.plan.media, self.folder), self.nvdimm)
        image = self.folder / "disk"
        with open(image, "wb") as file:
            file.truncate(DISK_SIZE)
        program, *options = FORMATS[self.plan.file_system]
        subprocess.run([guest_image.find(program), *options, image], check=True,
                       stdout=subprocess.DEVNULL)
        self.disk.load(image)
        image.unlink()

    # -----------------------------------------------------------------------------------------
    # What the guest is told to do.

    def agent(self, mode):
        plan = self.plan
        names = (plan.workloads if mode == "work" else
                 [f"{name}:{number}:{self.announced[name]}"
                  for name, number in self.acknowledged.items()])
        mode = "apart" if mode == "work" and plan.apart else mode
        return f"agent {mode} /d {plan.seed} {plan.promise} {' '.join(names)}"

    def job(self, start):
        plan = self.plan
        lines = []
        folders = " ".join(f"/d/{name}" for name in (*plan.workloads, *COMMON_FOLDERS))
        if plan.cached and not plan.on_disk():
            lines += self.pool()
            if plan.postgres():
                lines.append(f"chown {guest_image.USER} $POOL")
            if start.early:
                # The folders are there, but below them is not the disk.
                lines += [f"mkdir -p {folders}", "step early nvcache recover $POOL"]
        if plan.mapped:
            lines.append("mapper_up")
        lines.append(self.mount())
        if plan.cached and plan.on_disk():
            lines += self.pool()
        if not self.ready:
            database = f"database_up /d/{POSTGRES} {guest_image.USER}; " if plan.postgres() else ""
            lines.append(f"mkdir -p {folders}; {database}sync; echo @ready")
        if plan.cached and plan.recovers:
            lines += self.recovery(start)
        lines.append(self.verify(start))
        if start.fault:
            lines += self.fault(start)
        elif start.kill:
            lines.append(f"[ $STATUS = 0 ] && {self.work(start)}")
        return "\n".join(lines) + "\n"

    def pool(self):
        plan = self.plan
        yield f"pool_up {plan.media}"
        if not self.created:
            size = "" if plan.media == "devdax" else f" --size {plan.pool_size}"
            commit = f" --commit {plan.commit}" if plan.commit else ""
            # A journal has its name when it is whole, and has no status before a recovery.
            there = "[ -e $POOL ]" if plan.on_disk() else "nvcache status $POOL >/tmp/status 2>&1"
            yield f"{there} || step create nvcache create $POOL{size}{commit}"

    def mount(self):
        device = "/dev/mapper/data" if self.plan.mapped else "/dev/vda"
        return f"disk_up {device} {self.plan.mount} {self.plan.file_system}"

    def fault(self, start):
        """The disk fails while the workloads are at it. Then it works again, and they go on; or
        they are killed, nothing can be recovered, the disk works again, and all can be; or the
        power fails as well."""
        yield f"{self.work(start).removeprefix('step work ')} &"
        yield "PROGRAM=$!"
        yield f"await_cached {FILES_OF_RAW * len(self.plan.workloads)}"
        yield f"sleep 1; break_disk {start.fault}; sleep 2; errors"
        if start.then == "power":
            yield "sleep 1000"
        if start.then == "mend":
            yield "mend_disk; sleep 1"
        yield "kill -9 $PROGRAM; wait"
        yield "umount /d || echo '@bad guest the disk cannot be unmounted'"
        if start.then == "restart":
            yield f"mount -t ext4 -o {self.plan.mount} /dev/mapper/data /d"
            yield "step broken nvcache recover $POOL"
            yield "umount /d"
            yield "mend_disk"
        yield self.mount()
        yield "step recover nvcache recover $POOL"

    def recovery(self, start):
        yield "echo @recovering"
        if start.recovery == "run":
            yield (f"step run {self.as_user()}nvcache run --pool $POOL --required --checkpointer never "
                   "-- dmsetup --version")
        elif start.recovery == "library":
            yield (f"step library {self.as_user()}env NVCACHE_POOL=$POOL NVCACHE_REQUIRED=1 "
                   "LD_PRELOAD=/nvcache/libnvcache.so dmsetup --version")
        yield "step recover nvcache recover $POOL"
        if self.plan.on_disk():
            yield f"[ $STATUS = {KEPT} ] && step discard nvcache recover --discard $POOL"

    def verify(self, start):
        """A server goes on where it was, and so it does under NVCache."""
        if self.plan.postgres() and self.plan.recovers:
            return f"step verify {self.under_cache(start)}{self.agent('verify')}"
        return f"step verify {self.as_user()}{self.agent('verify')}"

    def work(self, start):
        return f"step work {self.under_cache(start)}{self.agent('work')}"

    def under_cache(self, start):
        if not self.plan.cached:
            return self.as_user()
        # --required: without the cache nothing would be promised.
        return (f"{self.as_user()}env {BATCHES[start.batch]} NVCACHE_NAMES={self.plan.names} "
                f"nvcache run --pool $POOL --required --checkpointer never --dram {start.dram} "
                f"--write-back {self.plan.write_back} -- ")

    def as_user(self):
        if not self.plan.postgres():
            return ""
        user = guest_image.USER
        return f"/bin/setpriv --reuid {user} --regid {user} --clear-groups "

    # -----------------------------------------------------------------------------------------

    def run(self, start):
        """Starts the guest, takes its power away as `start` says, and judges what it said."""
        shutil.copyfile(self.nvdimm, self.before)
        self.record = {"acknowledged": dict(self.acknowledged),
                       "announced": dict(self.announced), "created": self.created,
                       "ready": self.ready}
        self.disk.flush_seconds = start.flush_seconds
        job = self.job(start)
        self.starts += 1
        lines, stuck = self.start_guest(job, start)
        self.logs.append((start, lines))
        self.disk.power_failure(self.draw, start.policy)
        self.judge([text for _, text in lines], start)
        if stuck:
            raise Failure(str(stuck))

    def start_guest(self, job, start):
        """What it has said, and why it does not get on, or None. A busy host makes an emulated machine
        too slow for its kernel now and then."""
        state = None if start.cold else self.bench.state
        for attempt in range(1, MOST_ATTEMPTS + 1):
            guest = None
            try:
                with machine.Machine(self.bench.image, job, self.folder, self.nvdimm, self.disk,
                                     self.bench.accelerator, state=state) as guest:
                    self.follow(guest, start)
                return guest.lines, None
            except machine.NotStarted as problem:
                stuck = problem
                if attempt < MOST_ATTEMPTS:
                    print(f"  not started, once more: {problem}", flush=True)
            except machine.Stuck as problem:
                stuck = problem
                break
        return guest.lines if guest else [], stuck

    def follow(self, guest, start):
        if not start.kill:
            guest.finish(BOOT_SECONDS)
            return
        moment = {"boot": None, "recover": "@recovering", "work": "@started",
                  "create": "@begin create", "fault": "@errors .*"}[start.kill]
        if moment:
            guest.must(moment, BOOT_SECONDS)
        over = "@done|@end work.*"
        if start.flush == 0:
            guest.wait(over, start.delay)
            return
        self.disk.stop_at_flush(start.flush)
        deadline = time.monotonic() + LONGEST_WORK
        while not self.disk.stopped.is_set() and time.monotonic() < deadline:
            if guest.wait(over, 0.01):
                return

    def judge(self, lines, start):
        self.kept += self.plan.on_disk() and f"@end recover {KEPT}" in lines
        bad = [line.removeprefix("@bad ") for line in lines if line.startswith("@bad ")]
        if bad:
            raise Failure("; ".join(bad))
        for line in lines:
            if found := re.fullmatch(r"@end (\S+) (\d+)", line):
                self.judge_status(found[1], int(found[2]), lines)
            elif found := re.fullmatch(r"@found (\S+) (\d+)", line):
                self.acknowledged[found[1]] = int(found[2])
            elif found := re.fullmatch(r"@acked (\S+) (\d+)", line):
                self.acknowledged[found[1]] = max(self.acknowledged[found[1]], int(found[2]))
            elif line == "@ready":
                self.ready = True
            elif line == "@started":
                self.worked = True
            elif found := re.fullmatch(r"@next (\S+) (\d+)", line):
                self.announced[found[1]] = int(found[2])
            elif found := re.fullmatch(r"@errors (\d+)", line):
                self.errors += int(found[1])
            elif re.search(r"\brecovered \d+ ", line):
                found = re.search(r"(\d+) names?\b", line)
                self.names += int(found[1]) if found else 0
                self.recovered += 1
            elif line.startswith("@refused ") and not start.fault:
                raise Failure(line)

    def judge_status(self, step, status, lines):
        if step == "work":
            raise Failure(f"the workloads have ended, status {status}: {lines[-5:]}")
        if step in ("early", "broken"):
            if status not in (0, KEPT):
                raise Failure(f"recovery without a disk: exit status {status}: {lines[-5:]}")
        elif status != 0 and not self.may_keep(step, status, lines):
            raise Failure(f"{step}: exit status {status}: " + "\n".join(lines[-8:]))
        elif step == "verify":
            self.verified += 1
        elif step == "create":
            self.created = True

    def may_keep(self, step, status, lines):
        """A disk that is ahead of its journal may have removed a file (docs/mirror.md: Removals)."""
        return (self.plan.on_disk() and (step, status) in (("run", REFUSED), ("library", REFUSED), ("recover", KEPT)) and
                "@end recover 0" not in lines)

    # -----------------------------------------------------------------------------------------

    def save(self, reason):
        """All that is needed to verify once more: as it was before the last start."""
        start = self.logs[-1][0]
        folder = pathlib.Path(tempfile.mkdtemp(prefix="case-", dir=self.bench.cases))
        copy_sparse(self.before, folder / "nvdimm")
        self.disk.save(folder / "disk")
        (folder / "case.json").write_text(json.dumps(
            {"reason": reason, "plan": dataclasses.asdict(self.plan),
             "recovery": start.recovery, "early": start.early,
             **self.record}, indent=2) + "\n")
        with open(folder / "serial", "w", encoding="utf-8") as log:
            for choices, lines in self.logs:
                log.write(f"=== {choices}\n")
                log.writelines(f"{seconds:8.3f} {text}\n" for seconds, text in lines)
        return folder

    @staticmethod
    def load(bench, folder, draw):
        """A saved case, and how it was recovered."""
        folder = pathlib.Path(folder)
        case = json.loads((folder / "case.json").read_text())
        plan = dict(case["plan"])
        for name in ("workloads", "policies", "batches"):
            plan[name] = tuple(plan[name])
        life = Life(bench, Plan(**plan), draw)
        copy_sparse(folder / "nvdimm", life.nvdimm)
        life.disk.load(folder / "disk")
        life.acknowledged = case["acknowledged"]
        life.announced = case["announced"]
        life.created, life.ready = case["created"], case["ready"]
        return life, Start(recovery=case["recovery"], early=case["early"])
