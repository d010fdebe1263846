# SPDX-License-Identifier: BSD-3-Clause
"""One start of the guest: QEMU, its serial lines, and its end."""

import json
import os
import pathlib
import re
import select
import socket
import subprocess
import time

import guest_image

COMMAND_LINE = ("console=ttyS0 quiet panic=-1 oops=panic edd=off tsc=reliable "
                "random.trust_cpu=on mitigations=off no_timer_check")
MEMORY = "1G"
STATE_SECONDS = 60


class Stuck(Exception):
    """The guest does not get on."""


class NotStarted(Stuck):
    """It has not even come to its job."""


class Monitor:
    """QEMU's monitor, over a socket without a name."""

    def __init__(self):
        self.ours, self.theirs = socket.socketpair()
        self.ours.settimeout(STATE_SECONDS)
        self.lines = self.ours.makefile("rb")
        fd = self.theirs.fileno()
        self.options = ["-chardev", f"socket,id=monitor,fd={fd}",
                        "-mon", "chardev=monitor,mode=control"]

    def begin(self):
        """QEMU has the other end now."""
        self.theirs.close()
        self.ask("qmp_capabilities")
        # The NVDIMM is the host's file, and no part of a saved guest.
        self.ask("migrate-set-capabilities",
                 capabilities=[{"capability": "x-ignore-shared", "state": True}])
        self.ask("migrate-set-parameters", **{"max-bandwidth": 1 << 40})

    def ask(self, command, **arguments):
        try:
            self.ours.sendall(json.dumps({"execute": command, "arguments": arguments}).encode())
            for line in self.lines:
                answer = json.loads(line)
                if "error" in answer:
                    raise NotStarted(f"{command}: {answer['error']['desc']}")
                if "return" in answer:
                    return answer["return"]
        except OSError as problem:
            raise NotStarted(f"QEMU does not answer {command}: {problem}") from None
        raise NotStarted(f"QEMU has gone at {command}")

    def until(self, command, *wanted):
        """Asks until the status is one of these."""
        deadline = time.monotonic() + STATE_SECONDS
        while (status := self.ask(command).get("status")) not in wanted:
            if time.monotonic() > deadline:
                raise NotStarted(f"{command}: {status} after {STATE_SECONDS} s")
            time.sleep(0.01)

    def close(self):
        self.theirs.close()
        self.lines.close()
        self.ours.close()


class Machine:
    """A running guest. `with Machine(...)` kills it in any case. Without a job it stops before it
    has looked at NVDIMM and disk, and can be saved; with `state` it goes on from there."""

    def __init__(self, image, job, folder, nvdimm=None, disk=None, accelerator="tcg",
                 options=(), state=None):
        self.started = time.monotonic()
        self.lines = []  # (seconds since the start, text), whole lines only
        self.rest = b""
        self.console = folder / "console"
        self.monitor = Monitor()
        command = [guest_image.find("qemu-system-x86_64"), "-accel", accelerator, "-cpu", "max",
                   "-machine", "q35,nvdimm=on", "-smp", "1", "-m", f"{MEMORY},slots=2,maxmem=4G",
                   "-kernel", image.kernel, "-initrd", image.ram_disk, "-append", COMMAND_LINE,
                   "-nodefaults", "-no-reboot", "-device", "vmgenid,guid=auto",
                   "-display", "none", "-monitor", "none", "-nic", "none",
                   "-serial", f"file:{self.console}",
                   "-chardev", "stdio,id=host,signal=off", "-serial", "chardev:host",
                   *self.monitor.options, *options, *self._task(job, folder, state),
                   *self._devices(nvdimm, disk)]
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        pass_fds=[self.monitor.theirs.fileno()])
        if state is not None:
            self._go_on(state)

    @staticmethod
    def _task(job, folder, state):
        if job is not None:
            job_file = folder / "job"
            job_file.write_text(job)
            yield from ("-fw_cfg", f"name=opt/job,file={job_file}")
        if state is not None:
            yield from ("-incoming", "defer", "-S")

    @staticmethod
    def _devices(nvdimm, disk):
        if nvdimm is not None:
            yield from ("-object", f"memory-backend-file,id=memory,share=on,mem-path={nvdimm},"
                        f"size={os.path.getsize(nvdimm)},pmem=off",
                        "-device", "nvdimm,id=nvdimm,memdev=memory")
        if disk is not None:
            disk.start()
            yield from ("-blockdev", f"driver=nbd,node-name=disk,server.type=unix,"
                        f"server.path={disk.path}", "-device", "virtio-blk-pci,drive=disk")

    def __enter__(self):
        return self

    def _go_on(self, state):
        try:
            self.monitor.begin()
            self.monitor.ask("migrate-incoming", uri=f"exec:cat '{state}'")
            self.monitor.until("query-status", "paused", "prelaunch")
            self.monitor.ask("cont")
            self.process.stdin.write(f"{time.time():.0f}\n".encode())
            self.process.stdin.flush()
        except (NotStarted, OSError) as problem:
            self.kill()
            raise NotStarted(str(problem)) from None

    def save(self, state):
        """To be called when the guest waits. It does not go on."""
        self.monitor.begin()
        self.monitor.ask("stop")
        self.monitor.ask("migrate", uri=f"exec:cat >'{state}'")
        self.monitor.until("query-migrate", "completed")

    def __exit__(self, kind, value, trace):
        self.kill()

    def kill(self):
        """The power is gone. What the guest has sent before is still read."""
        if self.process.poll() is None:
            self.process.kill()
        self.monitor.close()
        if not self.process.stdout.closed:
            self._take(self.process.stdout.read())
            self.errors = self.process.stderr.read().decode(errors="replace")
            for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
                stream.close()
        self.process.wait()

    def _take(self, data):
        now = time.monotonic() - self.started
        *whole, self.rest = (self.rest + data).split(b"\n")
        self.lines += [(now, line.decode(errors="replace").rstrip("\r")) for line in whole]

    def wait(self, pattern, seconds):
        """Reads until a line matches, and returns the match; None when the time is over first.
        Raises Stuck when the guest has ended."""
        wanted = re.compile(pattern)
        deadline = time.monotonic() + seconds
        seen = 0
        while True:
            for _, line in self.lines[seen:]:
                if found := wanted.fullmatch(line):
                    return found
            seen = len(self.lines)
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.process.stdout], [], [], max(left, 0))
            if not ready:
                return None
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                self.kill()
                kind = Stuck if self.lines else NotStarted
                raise kind(f"the guest has ended: {self.errors.strip() or self.tail()}")
            self._take(data)

    def must(self, pattern, seconds):
        if (found := self.wait(pattern, seconds)) is None:
            kind = Stuck if self.lines else NotStarted
            raise kind(f"no line '{pattern}' within {seconds} s: {self.tail()}")
        return found

    def finish(self, seconds):
        """Waits until the guest has switched itself off."""
        self.must("@done", seconds)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            raise Stuck("the guest does not switch itself off") from None
        self.kill()

    def texts(self):
        return [text for _, text in self.lines]

    def tail(self):
        console = pathlib.Path(self.console)
        kernel = console.read_text(errors="replace")[-1500:] if console.exists() else ""
        return "\n".join(self.texts()[-15:]) + ("\nconsole:\n" + kernel if kernel.strip() else "")


def accelerator(image, folder, cache):
    """KVM where a guest starts with it, which is not everywhere where there is a /dev/kvm."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    answer = cache / f"accelerator-{boot}"
    if not answer.exists():
        with Machine(image, "echo @alive\n", folder, accelerator="kvm") as machine:
            try:
                alive = machine.wait("@alive", 10) is not None
            except Stuck:
                alive = False
        answer.write_text("kvm" if alive else "tcg")
    return answer.read_text()
