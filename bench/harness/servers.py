# SPDX-License-Identifier: BSD-3-Clause
"""Servers that a suite starts: as a user who is not root, and ended whatever happens."""

import contextlib
import grp
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

from harness import systems

READY_SECONDS = 60
END_SECONDS = 60
GIVE_UP_SECONDS = 5


def user(*names):
    """The first of these users that there is, for a server that does not run as root: the options of
    subprocess.run. Empty if we are not root."""
    if os.geteuid() != 0:
        return {}
    for name in names:
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            group = grp.getgrgid(found.pw_gid).gr_name
            return {"user": found.pw_name, "group": group, "extra_groups": []}
    raise systems.Broken(f"none of the users {', '.join(names)} is there: install the server's package")


def unreachable(options, paths):
    """A sentence on a file that the user of these options cannot read, or a folder that is closed to that
    user, or None."""
    for path in paths if options else ():
        flag = "-x" if path.is_dir() else "-r"
        if subprocess.run(["test", flag, path], check=False, **options).returncode != 0:
            return f"{path} is closed to user {options['user']}: name other folders with --build and --folder"
    return None


def give(options, *paths):
    """To that user."""
    for path in paths if options else ():
        shutil.chown(path, options["user"], options["group"])


@contextlib.contextmanager
def short_folder(options):
    """For sockets, whose names must be short; in memory."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=systems.PREFIX, dir=systems.MEMORY))
    try:
        give(options, folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Server:
    """`with Server(...)`: it runs, and answers. At the end it is asked to stop. If it does not, or if the
    block has failed, it is killed. The rest of its process group is killed in any case."""

    def __init__(self, command, log, kept, ready, stop=signal.SIGTERM, give_up=signal.SIGTERM, **options):
        """`log` is the server's own; it is copied to `kept` if the server ends by itself. `ready()`:
        whether it answers. `stop`: the signal that asks it. `give_up`: the one that it gets before it is
        killed, so that it ends children that are not of its group. `options` are those of
        subprocess.Popen."""
        self.command, self.log, self.kept = [str(word) for word in command], pathlib.Path(log), kept
        self.ready, self.stop, self.give_up = ready, stop, give_up
        self.options = options
        self.process = None

    def __enter__(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                **self.options)
        try:
            self._wait()
        except BaseException:
            self._kill()
            raise
        return self

    def _wait(self):
        limit = time.monotonic() + READY_SECONDS
        while not self.ready():
            if self.process.poll() is not None:
                raise self._ended(self.process.returncode)
            if time.monotonic() > limit:
                raise systems.Broken(f"{self.command[0]} does not answer after {READY_SECONDS} s: "
                                     f"{self._last_words()}")
            time.sleep(0.02)

    def _ends_by_itself(self):
        """A client may notice before we can."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        return self.process.returncode is not None

    def _ended(self, status):
        shutil.copyfile(self.log, self.kept)
        return systems.Broken(f"{self.command[0]} ended with status {status}; its log is kept as {self.kept}, and "
                              f"says at the end: {self._last_words()}")

    def _last_words(self):
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return (text.strip().splitlines() or ["nothing said"])[-1]

    def _kill(self):
        self.process.send_signal(self.give_up)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GIVE_UP_SECONDS)
        self._kill_group()
        self.process.wait()

    def _kill_group(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def __exit__(self, kind, value, trace):
        if kind:
            ended = issubclass(kind, Exception) and self._ends_by_itself()
            self._kill()
            if ended:
                raise self._ended(self.process.returncode) from value
            return
        self.process.send_signal(self.stop)
        try:
            status = self.process.wait(END_SECONDS)
        except BaseException as error:
            self._kill()
            if isinstance(error, subprocess.TimeoutExpired):
                raise systems.Broken(f"{self.command[0]} does not end: it was killed") from None
            raise
        self._kill_group()
        if status != 0:
            raise self._ended(status)
