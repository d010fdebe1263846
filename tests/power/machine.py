# SPDX-License-Identifier: BSD-3-Clause
"""One start of the guest: QEMU, its serial lines, and its end."""

import os
import pathlib
import re
import select
import subprocess
import time

import guest_image

COMMAND_LINE = ("console=ttyS0 quiet panic=-1 oops=panic edd=off tsc=reliable "
                "random.trust_cpu=on mitigations=off no_timer_check")
MEMORY = "1G"


class Stuck(Exception):
    """The guest does not get on."""


class NotStarted(Stuck):
    """It has not even come to its job."""


class Machine:
    """A running guest. `with Machine(...)` kills it in any case."""

    def __init__(self, image, job, folder, nvdimm=None, disk=None, accelerator="tcg",
                 options=()):
        self.started = time.monotonic()
        self.lines = []  # (seconds since the start, text), whole lines only
        self.rest = b""
        self.console = folder / "console"
        job_file = folder / "job"
        job_file.write_text(job)
        command = [guest_image.find("qemu-system-x86_64"), "-accel", accelerator, "-cpu", "max",
                   "-machine", "q35,nvdimm=on", "-smp", "1", "-m", f"{MEMORY},slots=2,maxmem=4G",
                   "-kernel", image.kernel, "-initrd", image.ram_disk, "-append", COMMAND_LINE,
                   "-fw_cfg", f"name=opt/job,file={job_file}", "-nodefaults", "-no-reboot",
                   "-display", "none", "-monitor", "none", "-nic", "none",
                   "-serial", f"file:{self.console}",
                   "-chardev", "stdio,id=host,signal=off", "-serial", "chardev:host", *options]
        if nvdimm is not None:
            command += ["-object", f"memory-backend-file,id=memory,share=on,mem-path={nvdimm},"
                        f"size={os.path.getsize(nvdimm)},pmem=off",
                        "-device", "nvdimm,id=nvdimm,memdev=memory"]
        if disk is not None:
            disk.start()
            command += ["-blockdev", f"driver=nbd,node-name=disk,server.type=unix,"
                        f"server.path={disk.path}", "-device", "virtio-blk-pci,drive=disk"]
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.kill()

    def kill(self):
        """The power is gone. What the guest has sent before is still read."""
        if self.process.poll() is None:
            self.process.kill()
        if not self.process.stdout.closed:
            self._take(self.process.stdout.read())
            self.errors = self.process.stderr.read().decode(errors="replace")
            self.process.stdout.close()
            self.process.stderr.close()
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
