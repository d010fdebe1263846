#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""In pages of which size a pool in persistent memory is mapped: the page faults of a process that writes 64 MiB for the first
time, for the second, and once more after a sync() (docs/settings.md: Huge pages).

Exit code 77 where there is no QEMU or no kernel for the guest, except in CI (CI=true)."""

import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import guest_image
import machine

SKIP = 77
SECONDS = 1200
# A devdax device has all of an NVDIMM but for what lies before its first boundary: 64 MiB of one, 1 GiB of the other.
NVDIMMS = (("small", 66 << 20), ("large", 2 << 30))
DISK_SIZE = 64 << 20
# Page faults of a lap over 16,384 pages, or 32 and a few of 2 MiB.
SMALL, HUGE, NONE = range(16000, 16700), range(30, 64), range(8)
SOME = range(1000, 16700)  # of those that were written since

EXT4 = "mkfs.ext4 -q -F -b 4096"
ALIGNED_EXT4 = f"{EXT4} -E stride=512,stripe_width=512"
XFS = "mkfs.xfs -q -f -d size=1g"
ALIGNED_XFS = f"{XFS},su=2m,sw=1"
DEVICE, VOLUME = "/dev/pmem$LARGE", "/dev/mapper/volume"
VOLUME_AT_1_MIB = ("dmsetup create volume --noudevsync --table \"0 2097152 linear /dev/pmem$LARGE 2048\"", "dmsetup mknodes")
SHATTER = ("agent shatter /p/pieces",)

# `first`: the faults of the first lap. `namespace`: the NVDIMM, and what it is made; none: as it is. `make`: the commands
# that make and mount a file system; none: the pool is the device.
Kind = collections.namedtuple("Kind", "name first namespace make", defaults=("", ()))


def mounted(make, device=DEVICE):
    size = " 1g" if make.startswith(EXT4) else ""
    return f"{make} {device}{size}", f"mount -t {make.split()[0].partition('.')[2]} -o dax {device} /p"


KINDS = (
    Kind("devdax of 4 KiB", SMALL, "$SMALL devdax 4k"),
    Kind("devdax of 2 MiB", HUGE, "$SMALL devdax 2M"),
    Kind("devdax of 1 GiB", NONE, "$LARGE devdax 1G"),
    Kind("ext4", SMALL, "$LARGE fsdax 2M", mounted(EXT4)),
    Kind("ext4, stride=512", HUGE, make=mounted(ALIGNED_EXT4)),
    Kind("ext4, stride=512, in pieces of 64 KiB", SMALL, make=mounted(ALIGNED_EXT4) + SHATTER),
    Kind("ext4, stride=512, on a volume at 1 MiB", SMALL, make=VOLUME_AT_1_MIB + mounted(ALIGNED_EXT4, VOLUME)),
    Kind("xfs, su=2m, on a volume at 1 MiB", SMALL, make=mounted(ALIGNED_XFS, VOLUME)),
    Kind("xfs", SMALL, make=("dmsetup remove --noudevsync volume", *mounted(XFS))),
    Kind("xfs, extszinherit=512", SMALL, make=mounted(f"{XFS},extszinherit=512")),
    Kind("xfs, su=2m", HUGE, make=mounted(ALIGNED_XFS)),
    Kind("xfs, su=2m, in pieces of 64 KiB", SMALL, make=mounted(ALIGNED_XFS) + SHATTER),
)


def job():
    """The script that the guest runs."""
    yield "disk_up /dev/vda rw"
    yield "for n in 0 1; do [ $(cat /sys/bus/nd/devices/region$n/size) -lt $((1 << 30)) ] && SMALL=$n || LARGE=$n; done"
    # The kernel would have namespaces of 16 MiB and multiples alone.
    yield "echo 2097152 >/sys/bus/nd/devices/region$SMALL/align"
    # The log is emptied when it is full.
    yield "export NVCACHE_BATCH_MIN=1048576 NVCACHE_BATCH_MAX=1048576 NVCACHE_BATCH_DELAY=60000"
    for kind in KINDS:
        pool = "/p/pool"
        if kind.namespace:
            number, mode, align = kind.namespace.split()
            yield (f"step namespace ndctl create-namespace -f -e namespace{number}.0 -m {mode} --map=mem "
                   f"--align={align}")
        for command in kind.make:
            yield f"step make {command}"
        if not kind.make:
            pool = f"/dev/dax{number}.0"
            yield f"nvcache create {pool}"  # unless it has the one of the kind before
        run_agent = (f"nvcache run --pool {pool} --size 64M --required --checkpointer never --dram 4M "
                     "--exclusive /d/file -- agent")
        if kind.make:  # else the first one pays for its blocks, too
            yield f"step fill {run_agent} fill /d/file"
        yield f"echo '@kind {kind.name}'"
        yield f"step laps {run_agent} laps /d/file"
        if kind.make:
            yield "step unmount umount /p"


def run(build):
    """What the guest has said."""
    with tempfile.TemporaryDirectory(prefix="power-pages-", dir=build / "test-data") as name, \
            tempfile.TemporaryDirectory(prefix="nvcache-test-power-", dir="/dev/shm") as memory:
        folder, cache = pathlib.Path(name), build / "power-guest"
        image = guest_image.Image(cache, folder, build, build / "power_laps", tools=("mkfs.xfs",))
        accelerator = machine.accelerator(image, folder, cache)
        disk = folder / "disk"
        options = ["-drive", f"if=virtio,format=raw,cache=unsafe,file={disk}"]
        for path, size in ((disk, DISK_SIZE), *((pathlib.Path(memory) / name, size) for name, size in NVDIMMS)):
            with open(path, "wb") as file:
                file.truncate(size)
        for name, size in NVDIMMS:
            options += ["-object", f"memory-backend-file,id={name},share=on,mem-path={memory}/{name},size={size},pmem=off",
                        "-device", f"nvdimm,memdev={name}"]
        subprocess.run([guest_image.find("mkfs.ext4"), "-q", "-F", disk], check=True)
        with machine.Machine(image, "\n".join(job()) + "\n", folder, accelerator=accelerator, options=options) as guest:
            guest.finish(SECONDS)
        return guest.texts()


def laps(lines):
    """The page faults of each lap, of each kind."""
    found, kind = collections.defaultdict(list), None
    for line in lines:
        if match := re.fullmatch(r"@kind (.*)", line):
            kind = match.group(1)
        elif match := re.fullmatch(r"@lap (\d+)", line):
            found[kind].append(int(match.group(1)))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True, help="the build folder")
    try:
        lines = run(pathlib.Path(parser.parse_args().build).resolve())
    except guest_image.Missing as problem:
        print(f"there is no guest: {problem}")
        return 1 if os.environ.get("CI") else SKIP
    found = laps(lines)
    wrong = [line for line in lines if re.match(r"@bad|@end \S+ [^0]", line)]
    print(f"{'page faults of a lap of 64 MiB:':40} first second after sync()")
    for kind in KINDS:
        print(f"{kind.name:40}", *(f"{faults:6}" for faults in found[kind.name]))
        # What the file system has made durable is to be met again.
        synced = NONE if not kind.make else SOME if kind.first is SMALL else range(64)
        wanted = (kind.first, NONE, synced)
        if len(found[kind.name]) != len(wanted) or any(
                faults not in among for faults, among in zip(found[kind.name], wanted)):
            wrong.append(f"{kind.name}: {found[kind.name]} faults, wanted {wanted}")
    if wrong:
        print(*lines, "wrong:", *wrong, sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
