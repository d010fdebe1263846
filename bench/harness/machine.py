# SPDX-License-Identifier: BSD-3-Clause
"""What the numbers were measured on."""

import os
import pathlib
import platform
import re
import shutil
import subprocess

from harness import systems

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Virtual machines are slow at memory that they never had: this much is used once before.
WARM_BYTES = 4 << 30
WARM_BYTES_SMOKE = 16 << 20
_CHUNK = bytes(1 << 20)
IN_MEMORY = ("tmpfs", "ramfs")  # file systems


def _first(path, pattern, default=""):
    try:
        found = re.search(pattern, pathlib.Path(path).read_text())
    except OSError:
        return default
    return found.group(1).strip() if found else default


def _output(*command):
    try:
        return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _version(package):
    """Debian's, or nothing."""
    return _output("dpkg-query", "-W", "-f", "${Version}", package)


def _postgres_version():
    """Of the newest one."""
    found = [int(folder.name) for folder in pathlib.Path("/usr/lib/postgresql").glob("[0-9]*")]
    return _version(f"postgresql-{max(found)}") if found else ""


def file_system(folder):
    """ext4, xfs, ..., as findmnt says."""
    # One line for each file system that is mounted there; the last one hides the others.
    lines = _output("findmnt", "-n", "-o", "FSTYPE", "-T", str(folder)).splitlines()
    kind = lines[-1] if lines else "unknown"
    return f"{kind} without a journal" if kind == "ext4" and not _has_journal(folder) else kind


def _has_journal(folder):
    """An image of a virtual machine may have none, and then a sync writes the inode in place of a transaction."""
    numbers = os.stat(folder).st_dev
    device = pathlib.Path(f"/sys/dev/block/{os.major(numbers)}:{os.minor(numbers)}").resolve().name
    return _first(f"/sys/fs/ext4/{device}/journal_task", r"(.*)") != "<none>"


def _write_back():
    """The PWB instruction that the engine takes of what this processor has."""
    flags = _first("/proc/cpuinfo", r"(?m)^flags\s*:(.*)$").split()
    return next((name for name in ("clwb", "clflushopt", "clflush") if name in flags), "unknown")


def _virtual_machine():
    if shutil.which("systemd-detect-virt"):
        return _output("systemd-detect-virt", "--vm") or "none found"
    return "yes" if _first("/proc/cpuinfo", r"(?m)^flags\s*:.*( hypervisor)\b") else "none found"


def facts(bench):
    """Title -> text, in the order in which they are shown."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    commit = _output("git", "describe", "--always", "--dirty", "--abbrev=10")
    versions = {
        "fio": _output("fio", "--version").removeprefix("fio-"),
        "SQLite": _output("sqlite3", "--version").split(" ")[0],
        "RocksDB": _version("rocksdb-tools"),
        "git": _version("git"),
        "PostgreSQL": _postgres_version(),
        "Redis": _version("redis-tools"),
        "MariaDB": _version("mariadb-server-core"),
        "libc": platform.libc_ver()[1],
    }
    build = _first(bench.build / "CMakeCache.txt", r"CMAKE_BUILD_TYPE:\w+=(.*)")
    return {
        "Processor": _first("/proc/cpuinfo", r"model name\s*: (.*)") or platform.machine(),
        "Cores": str(os.cpu_count()),
        "Memory": f"{pages / 2**30:.0f} GiB",
        "Virtual machine": _virtual_machine(),
        "Kernel": f"Linux {platform.release().split('-')[0]}",
        "Disk": f"{file_system(bench.folder)}, "
                f"{shutil.disk_usage(bench.folder).free / 2**30:.0f} GiB free",
        "Pool": f"{'emulated, in memory' if bench.emulate else 'persistent memory'} "
                f"({file_system(bench.pools)})",
        "Cache-line write-back": _write_back().upper(),
        "Versions": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
        "NVCache": ", ".join(filter(None, (_output(str(bench.build / "nvcache"), "--version"),
                                           commit and f"commit {commit}", build))),
    }


def line(found):
    """One line of a results' facts, for the documentation."""
    return (f"{found['Processor']}, {found['Cores']} cores, {found['Memory']}; {found['Kernel']}; "
            f"disk: {found['Disk'].split(',')[0]}; pool: {found['Pool']}.")


def warm_up(size):
    """Writes a file of so many bytes in memory, if there is room, and removes it."""
    room = shutil.disk_usage(systems.MEMORY).free // 2
    path = systems.MEMORY / f"{systems.PREFIX}warm-{os.getpid()}"
    try:
        with open(path, "wb", buffering=0) as file:
            for _ in range(min(size, room) // len(_CHUNK)):
                file.write(_CHUNK)
    finally:
        path.unlink(missing_ok=True)
