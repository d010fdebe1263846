# SPDX-License-Identifier: BSD-3-Clause
"""Programs that have a filter of system calls from their start on, as a service has its unit's and a container its
runtime's: one that ends them for a call, or one that refuses processes. What such a filter may forbid is not called, or
the program runs without the cache."""

import errno
import pathlib
import re
import signal
import sys
import unittest

from kit import tool

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "src"

# Numbers of calls of x86-64.
CALLS = {"clone": 56, "clone3": 435, "fchownat": 260, "fork": 57, "vfork": 58, "fallocate": 285, "name_to_handle_at": 303, "open_by_handle_at": 304, "setfsgid": 123,
         "setfsuid": 122, "setgroups": 116, "statx": 332}
# What systemd's @system-service leaves out; and what more does SystemCallFilter=~@privileged.
SYSTEM_SERVICE = ["open_by_handle_at"]
UNPRIVILEGED = [*SYSTEM_SERVICE, "fchownat", "setfsgid", "setfsuid", "setgroups"]

KILL, ERRNO = 0x80000000, 0x00050000

# Becomes the program behind "--", for which this becomes of each call of the numbers before it.
SEAL = """
import ctypes, os, struct, sys
end = sys.argv.index("--")
action, *numbers = map(int, sys.argv[1:end])
ALLOW = 0x7fff0000
code = [(0x20, 0, 0, 0)]  # the number
code += [(0x15, len(numbers) - i, 0, number) for i, number in enumerate(numbers)]
code += [(0x06, 0, 0, ALLOW), (0x06, 0, 0, action)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(filters)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, program) == 0  # PR_SET_SECCOMP
os.execvp(sys.argv[end + 1], sys.argv[end + 1:])
"""

# Syncs a file so often that it is cached, and dies, or ends.
WRITER = """
import os, signal, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
for i in range(80):
    os.pwrite(fd, b"%3d " % i, 4 * i)
    os.fsync(fd)
if sys.argv[2] == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
print("written")
"""

# Any program on libc makes these, so a filter that forbids them ends it without us as well; or they are made by the
# checkpointer alone, by `nvcache recover` for another user, or where the program has made the same.
COMMON = {"clock_gettime", "close", "clone", "exit", "exit_group", "futex", "getpid", "gettid", "ioctl", "kill", "mmap", "munmap",
          "openat", "prctl", "read", "write", "wait4",
          "epoll_create1", "epoll_ctl", "epoll_wait", "eventfd2", "pidfd_open",
          "setgroups",
          "mlock2", "mlockall", "munlock", "munlockall", "sync"}


class FilterTest(tool.ToolTest):
    def sealed(self, forbidden, *program, action=KILL, preload=True, **settings):
        numbers = [CALLS[name] for name in forbidden]
        words = ["env", f"LD_PRELOAD={tool.LIBRARY}"] if preload else []
        return tool.run(sys.executable, "-ISBc", SEAL, action, *numbers, "--", *words, *program,
                        cwd=self.files, env={**self.settings(), "NVCACHE_WRITE_BACK": "auto", "NVCACHE_EXCLUSIVE": "*", **settings})

    def write(self, file, how, forbidden=(), **settings):
        return self.sealed(forbidden, sys.executable, "-ISBc", WRITER, file, how, **settings)

    def leave_records_of_a_file_that_is_gone(self):
        result = self.write("gone", "dies", NVCACHE_NOTICE="0")
        self.assertEqual(result.returncode, -signal.SIGKILL, result.stderr)
        (self.files / "gone").unlink()

    def test_a_recorded_file_is_gone(self):
        self.leave_records_of_a_file_that_is_gone()
        for forbidden in (SYSTEM_SERVICE, UNPRIVILEGED):
            for attempt in ("first", "second"):
                with self.subTest(forbidden=forbidden, attempt=attempt):
                    result = self.sealed(forbidden, "cat", "/dev/null")
                    self.assert_status(result, 0)
                    self.assertRegex(result.stderr, r"\Anvcache: [^\n]*unresolved records[^\n]*without the cache\n\Z")
        result = self.sealed(SYSTEM_SERVICE, tool.COMMAND, "run", "--pool", self.pool, "--", "echo", "started")
        self.assertEqual((result.returncode, result.stdout), (0, "started\n"), result.stderr)
        self.assertNotEqual(self.status()["pending_records"], 0)

    def test_a_file_that_was_moved_is_found_where_that_is_allowed(self):
        self.assertEqual(self.write("file", "dies").returncode, -signal.SIGKILL)
        (self.files / "file").rename(self.files / "moved")
        self.assert_status(self.sealed(["setgroups"], "cat", "/dev/null", NVCACHE_NOTICE="0"), 0)
        if not self.is_clean():
            self.skipTest("by handles only root finds files")
        self.assertEqual((self.files / "moved").read_bytes(), b"".join(b"%3d " % i for i in range(80)))

    def test_a_program_without_privileges_is_cached(self):
        result = self.write("file", "ends", UNPRIVILEGED, NVCACHE_NOTICE="0")
        self.assert_ok(result, "written\n")
        self.assertNotEqual(self.status()["statistics"]["segments_taken"], 0)

    def test_its_log_is_recovered_without_privileges(self):
        self.assertEqual(self.write("file", "dies", UNPRIVILEGED).returncode, -signal.SIGKILL)
        self.assert_ok(self.sealed(UNPRIVILEGED, "cat", "/dev/null", NVCACHE_NOTICE="0"))
        self.assertTrue(self.is_clean())

    def test_what_the_cache_needs_is_forbidden(self):
        for name in ("fallocate", "name_to_handle_at", "statx"):
            with self.subTest(name):
                result = self.write("file", "ends", [name])
                self.assertEqual((result.returncode, result.stdout), (0, "written\n"), result.stderr)
                self.assertRegex(result.stderr, rf"\Anvcache: a filter [^\n]* call {CALLS[name]}, [^\n]*without the cache\n\Z")
                result = self.write("file", "ends", [name], NVCACHE_REQUIRED="1")
                self.assertEqual(result.returncode, 125)
                result = self.sealed([name], *self.run_command("echo", "started"))
                self.assertEqual((result.returncode, result.stdout), (0, "started\n"), result.stderr)
        self.leave_records_of_a_file_that_is_gone()
        result = self.sealed(["fallocate"], "cat", "/dev/null")
        self.assert_status(result, 0)
        self.assertRegex(result.stderr, rf"\Anvcache: a filter [^\n]* call {CALLS['fallocate']}, [^\n]*\n\Z")

    def test_processes_are_refused(self):
        """Threads as well. What a command does that starts none itself goes on, after one line."""
        expected = b"".join(b"%3d " % i for i in range(80))
        for error in (errno.EAGAIN, errno.EPERM):
            for options in (None, (), ("--wait",)):
                for how, status in (("ends", 0), ("dies", -signal.SIGKILL))[error == errno.EPERM:]:
                    with self.subTest(error=error, options=options, how=how):
                        program = [sys.executable, "-ISBc", WRITER, "file", how]
                        if options is not None:
                            program = self.run_command(*program, options=options)
                        result = self.sealed(["clone", "clone3", "fork", "vfork"], *program, action=ERRNO | error,
                                             preload=options is None)
                        self.assert_status(result, status)
                        self.assertRegex(result.stderr, rf"\Anvcache: a filter [^\n]* forbids call {CALLS['clone']}, "
                                                        r"[^\n]*without the cache\n\Z")
                        self.assertEqual((self.files / "file").read_bytes(), expected)
                        (self.files / "file").unlink()

    def test_each_call_of_the_engine_is_known(self):
        def made_in(files):
            return {name for file in files for name in re.findall(r"\bSYS_(\w+)", file.read_text(encoding="utf-8"))}

        table = SOURCE / "sys" / "filter.cc"
        others = [file for file in SOURCE.rglob("*") if file.suffix in (".cc", ".h") and file != table
                  and "rawcall" not in file.parts]
        self.assertEqual(made_in(others) - made_in([table]) - COMMON, set())
        self.assertEqual(made_in([table]) - made_in(others) - COMMON, set())


if __name__ == "__main__":
    unittest.main()
