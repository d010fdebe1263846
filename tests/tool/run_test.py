# SPDX-License-Identifier: BSD-3-Clause
"""run: the program's own exit status, signals, arguments and environment; creation, recovery."""

import json
import os
import shutil
import signal
import subprocess
import sys
import unittest

from kit import tool


class RunTest(tool.ToolTest):
    def test_exit_status(self):
        for status in (0, 1, 2, 3, 77, 255):
            result = self.run_on_pool("sh", "-c", f"exit {status}")
            self.assertEqual(result.returncode, status, result.stderr)

    def test_signals(self):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
            self.assert_status(self.run_on_pool("sh", "-c", f"kill -{int(number)} $$"), -number)

    def test_killed_from_outside(self):
        """The program has the very process that was started; the shell sees its signal."""
        program = self.start(self.run_command("sh", "-c", "echo $$; exec sleep 60"))
        self.assertEqual(int(program.stdout.readline()), program.pid)
        program.terminate()
        self.assertEqual(program.wait(30), -signal.SIGTERM)

    def test_not_found(self):
        self.assert_refused(self.run_on_pool("no-such-program", env=tool.QUIET), 127, "no-such-program")
        self.assert_refused(self.run_on_pool("/no/such/program", env=tool.QUIET), 127, "/no/such/program")
        self.assert_refused(self.run_on_pool("", env=tool.QUIET), 127, "cannot be started")

    def test_not_executable(self):
        script = self.files / "script"
        script.write_text("#!/bin/sh\n")
        self.assert_refused(self.run_on_pool(script, env=tool.QUIET), 126, script)
        self.assert_refused(self.run_on_pool(self.files, env=tool.QUIET), 126, self.files)

    def test_notice(self):
        """That the pool is emulated is said once, however many processes there are."""
        script = f"for i in 1 2 3; do dd if=/dev/zero of={self.files}/$i bs=1 count=1 status=none; done"
        result = self.assert_status(self.run_on_pool("sh", "-c", script), 0)
        self.assertRegex(result.stderr, r"\Anvcache: [^\n]+ is emulated: [^\n]+\n\Z")
        self.assertEqual(self.run_on_pool("sh", "-c", script, env=tool.QUIET).stderr, "")

    def test_arguments(self):
        arguments = ["a b", "", "--", "--pool", "-x", "$HOME", "*"]
        result = self.run_on_pool("printf", "%s\\n", *arguments)
        self.assertEqual(result.stdout.splitlines(), arguments)

    def test_without_dashes(self):
        result = self.nvcache("run", "--pool", self.pool, "--emulate", "--size", "1M", "printf", "%s-",
                              "--size", "--")
        self.assertEqual((result.returncode, result.stdout), (0, "--size----"))

    def test_stdin_and_stdout(self):
        result = self.run_on_pool("cat", stdin=None, input="through\n")
        self.assertEqual(result.stdout, "through\n")

    def test_environment(self):
        """What the library will read, and nothing of the environment lost."""
        options = ["--dram", "1M", "--include", "/a*", "--include", "[b-c]", "--exclude", "*.tmp"]
        options += ["--required", "--no-drain", "--batch-min", "5", "--batch-max", "50"]
        options += ["--batch-delay", "20", "--write-back", "never"]
        result = self.nvcache("run", "--pool", "pool", "--size", "1M", "--emulate", *options, "--", "env",
                              cwd=self.pools, env={"OTHER": "kept", "NVCACHE_DRAM": "2M"})
        self.assertEqual(result.returncode, 0, result.stderr)
        seen = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
        expected = {
            "NVCACHE_POOL": str(self.pool),
            "NVCACHE_SIZE": "1M",
            "NVCACHE_EMULATE": "1",
            "NVCACHE_DRAM": "1M",
            "NVCACHE_INCLUDE": "/a*:[b-c]",
            "NVCACHE_EXCLUDE": "*.tmp",
            "NVCACHE_REQUIRED": "1",
            "NVCACHE_DRAIN_AT_EXIT": "0",
            "NVCACHE_BATCH_MIN": "5",
            "NVCACHE_BATCH_MAX": "50",
            "NVCACHE_BATCH_DELAY": "20",
            "NVCACHE_WRITE_BACK": "never",
            "LD_PRELOAD": str(tool.LIBRARY),
            "OTHER": "kept",
        }
        self.assertEqual({name: seen.get(name) for name in expected}, expected)

    def test_other_preloaded_libraries(self):
        other = self.files / "other.so"
        subprocess.run(["cc", "-shared", "-xc", "/dev/null", "-o", other], check=True)
        library = tool.LIBRARY
        for before, after in (
            (f"{other}", f"{library}:{other}"),
            (f"{other} {library}", f"{library}:{other}"),
            (f"{library}", f"{library}"),
        ):
            result = self.run_on_pool("printenv", "LD_PRELOAD", env={"LD_PRELOAD": before})
            self.assertEqual(result.stdout.strip(), after, result.stderr)

    def test_address_sanitizer(self):
        """It wants to be the first library of a program, and sees what the program does past the cache."""
        source = self.files / "program.c"
        source.write_text("""
            #include <fcntl.h>
            #include <stdlib.h>
            #include <unistd.h>
            int main(int count, char** arguments) {
              const int fd = open(arguments[1], O_RDWR | O_CREAT, 0600);
              char* bytes = calloc(1, 100);
              for (int i = 0; i < 3; ++i) {
                if (pwrite(fd, bytes, 100, 100 * i) != 100 || fsync(fd) != 0) return 1;
              }
              const ssize_t read = pread(fd, bytes, 98 + (size_t)count, 0);
              free(bytes);
              return read == 100 ? 0 : 2;
            }
            """)
        program = self.files / "program"
        subprocess.run(["cc", "-g", "-Wno-all", "-fsanitize=address", source, "-o", program], check=True)
        written = self.files / "written"
        for rule in ("auto", "always"):
            run = [program, written]
            self.assert_status(self.run_on_pool(*run, options=["--write-back", rule]), 0)
            wrong = self.run_on_pool(*run, "one more", options=["--write-back", rule])
            self.assertIn("AddressSanitizer: heap-buffer-overflow", wrong.stderr)
            self.assertNotEqual(wrong.returncode, 0)
        needed = subprocess.run(["objdump", "-p", program], check=True, capture_output=True, text=True).stdout
        name = next(line.split()[1] for line in needed.splitlines() if "libasan" in line)
        # Of what a program loads later, only its user knows.
        result = self.run_on_pool("printenv", "LD_PRELOAD", env={"LD_PRELOAD": name})
        self.assertEqual(result.stdout.strip(), f"{name}:{tool.LIBRARY}", result.stderr)

    def test_command_under_the_library(self):
        """The command does not run on the cache itself, even when the environment says so."""
        self.dirty_pool()
        env = self.settings(LD_PRELOAD=str(tool.LIBRARY))
        for command in (["status"], ["dump"], ["recover"]):
            self.assert_status(self.nvcache(*command, self.pool, env=env), 0)

    def test_pool_from_environment(self):
        self.assert_status(self.nvcache("run", "--", "true", env=self.settings("2M")), 0)
        self.assertEqual(self.pool.stat().st_size, 2 * tool.MIB)

    def test_default_size(self):
        self.assert_status(self.nvcache("run", "--pool", self.pool, "--emulate", "--", "true"), 0)
        self.assertEqual(self.pool.stat().st_size, 1024 * tool.MIB)

    def dirty_pool(self, lose=False, damaged=False):
        self.create()
        data = self.files / "data"
        data.write_bytes(b"old")
        with self.dirty_image({0: data}) as pool:
            pool.add_write(0, 0, b"newer")
            if damaged:
                (bad,) = pool.add_write(0, 0, b"wrong")
                pool.flip(pool.payload_offset(bad))
                pool.add_write(0, 4, b"r")
        if lose:
            data.unlink()
        return data

    def test_recovers_first(self):
        data = self.dirty_pool()
        result = self.run_on_pool("cat", data)
        self.assertEqual((result.returncode, result.stdout), (0, "newer"))
        lines = result.stderr.splitlines()
        self.assertRegex(lines[0], r"^nvcache: recovered 1 record \(5 B\) of 1 file from pool ")
        result = self.run_on_pool("cat", data)
        self.assertNotIn("recovered", result.stderr)

    def test_recovers_without_damaged(self):
        data = self.dirty_pool(damaged=True)
        result = self.run_on_pool("cat", data)
        self.assertEqual((result.returncode, result.stdout), (0, "newer"))
        self.assertIn("1 write call is damaged and left out", result.stderr.splitlines()[0])

    def test_unresolved(self):
        self.dirty_pool(lose=True)
        words = (self.pool, "1 record of 1 file", "nvcache recover")
        self.assert_refused(self.run_on_pool("touch", self.files / "started", options=["--required"]), 125, *words)
        self.assertFalse((self.files / "started").exists())
        # Nor does what the program starts say it again.
        result = self.run_on_pool("sh", "-c", f"touch {self.files}/started; sh -c ': > {self.files}/more'")
        self.assert_refused(result, 0, *words, "; the program runs without the cache")
        self.assertTrue((self.files / "started").exists())

    def test_unresolved_with_the_library(self):
        """The same rule."""
        self.dirty_pool(lose=True)
        for required, status in (("0", 0), ("1", 125)):
            settings = self.settings(LD_PRELOAD=str(tool.LIBRARY), NVCACHE_REQUIRED=required)
            result = tool.run("touch", self.files / "started", env=settings)
            self.assert_refused(result, status, self.pool, "unresolved records", "nvcache recover")
            self.assertEqual((self.files / "started").exists(), status == 0)
            (self.files / "started").unlink(missing_ok=True)

    def test_busy_program(self):
        """Not a word of its being executable: it is."""
        program = self.files / "program"
        shutil.copy("/bin/true", program)
        with open(program, "ab"):
            result = self.run_on_pool(program)
        self.assertEqual(result.returncode, 126)
        last = result.stderr.splitlines()[-1]
        self.assertIn("Text file busy; a process has it open for writing", last)
        self.assertNotIn("must be an executable", last)
        program.chmod(0o644)
        result = self.assert_status(self.run_on_pool(program), 126)
        self.assertIn("it must be an executable file", result.stderr.splitlines()[-1])

    def write(self, content, size, options=()):
        """A program that writes content to the file `out`, `size` bytes at a time."""
        (self.files / "in").write_bytes(content)
        script = (
            "import os, sys\n"
            "content = open(sys.argv[1], 'rb').read()\n"
            "out = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)\n"
            "size = int(sys.argv[3])\n"
            "for i in range(0, len(content), size): os.write(out, content[i : i + size])\n"
        )
        return self.run_on_pool(sys.executable, "-c", script, self.files / "in", self.files / "out", size,
                                options=options)

    def test_program_writes_through_the_pool(self):
        content = os.urandom(300 * 1024)
        self.assertEqual(self.write(content, 5000).returncode, 0)
        self.assertEqual((self.files / "out").read_bytes(), content)
        status = self.nvcache("status", self.pool, "--json")
        self.assertGreater(json.loads(status.stdout)["statistics"]["entries_cleaned"], 0)

    def test_no_drain(self):
        """What the program left is in the pool, and the next start brings it to the file."""
        out = self.files / "out"
        options = ["--no-drain", "--batch-min", "1000", "--batch-delay", "60000"]
        self.assertEqual(self.write(b"0123456789" * 1000, 1000, options).returncode, 0)
        status = self.status()
        self.assertEqual(status["state"], "dirty")
        self.assertEqual(status["pending_bytes"], 10000)
        self.assertEqual(status["files"][0]["path"], str(out))
        result = self.run_on_pool("cat", out)
        self.assertIn("recovered", result.stderr)
        self.assertEqual(result.stdout, "0123456789" * 1000)

    def test_started_together(self):
        """Each looks whether the pool must be made or recovered, and none disturbs the others."""
        for _ in range(20):
            self.pool.unlink(missing_ok=True)
            started = [self.start(self.run_command("true"), stderr=subprocess.PIPE) for _ in range(4)]
            self.assertEqual([program.wait(30) for program in started], [0] * 4,
                             "".join(program.stderr.read() for program in started))

    def test_pool_in_use(self):
        program = self.start(self.run_command(*tool.IN_NEED, self.files / "data"))
        program.stdout.readline()
        other = ["sh", "-c", 'exec 3>"$0"; echo y >&3; "$1" status --json "$2"',
                 self.files / "other", tool.COMMAND, self.pool]
        shared = self.run_on_pool(*other, options=["--required"])
        recovery = self.nvcache("recover", self.pool)
        program.communicate("\n")
        self.assertEqual(shared.returncode, 0, shared.stderr)
        processes = json.loads(shared.stdout)["processes"]
        # The shell has become the command, and left what it had in the log to the others.
        self.assertEqual([one["state"] for one in processes if one["state"] != "left"], ["alive", "alive"])
        self.assertEqual(processes[0]["pid"], program.pid)
        self.assertEqual((self.files / "other").read_text(), "y\n")
        self.assert_refused(recovery, 1, self.pool, f"in use by process {program.pid}")


if __name__ == "__main__":
    unittest.main()
