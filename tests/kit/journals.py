# SPDX-License-Identifier: BSD-3-Clause
"""Pools with their journal on a disk (docs/disk.md)."""

import contextlib
import os
import pathlib
import signal

from .basics import until


def memory_of(journal):
    """The file with the pool's memory; None: there is none."""
    st = os.stat(journal)
    return next(iter(pathlib.Path("/dev/shm").glob(f"nvcache-*-{st.st_dev:08x}-{st.st_ino:016x}")), None)


def users_of(journal):
    """The processes that have its memory mapped."""
    memory, found = memory_of(journal), []
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if memory is not None and str(memory) in maps.read_text(errors="replace"):
                found.append(int(maps.parent.name))
    return found


def is_used(journal):
    """Somebody has its users' lock (src/pool/byte_locks.h), who may have been killed a moment ago."""
    with open("/proc/locks", encoding="ascii") as locks:
        inode = f":{os.stat(journal).st_ino}"
        return any(word.endswith(inode) for line in locks for word in line.split())


def kill_users(journal):
    def all_gone():
        for pid in users_of(journal):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not users_of(journal)
    until(all_gone, "the end of the pool's processes", 60)


def remove_memory(journal):
    if os.path.exists(journal) and memory_of(journal) is not None:
        memory_of(journal).unlink()
