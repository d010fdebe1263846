# SPDX-License-Identifier: BSD-3-Clause
"""What `nvcache status` says of processes that cannot have all of their pool, and why."""

import os
import shutil
import subprocess
import sys
import unittest

from kit import tool

IO_URING_SETUP, FANOTIFY_INIT = 425, 300

# Makes a root of its own, which is no mount point, of what the machine's root has.
ENTER = """
root=$1; shift
mount --make-rprivate / || exit 1
for place in /*; do
  name=$root$place
  if [ -L $place ]; then cp -P $place $name
  elif [ -d $place ]; then mkdir -p $name && mount --rbind $place $name || exit 1
  fi
done
"""

# Does what its argument says, says so, and waits.
PROGRAM = f"""
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
what = sys.argv[1]
if what == "ring":
    libc.syscall({IO_URING_SETUP}, 1, ctypes.create_string_buffer(120))
elif what == "tables":
    libc.unshare(0x400)  # CLONE_FILES
elif what == "rights":
    os.setgroups([4242])
elif what == "chroot":
    os.chdir("/data")
elif what == "raw":  # mov %rdi, %rax; syscall; ret
    import mmap
    stub = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    stub.write(bytes.fromhex("4889f80f05c3"))
def sync_names(file):
    fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    folder = os.open(".", os.O_RDONLY)
    for _ in range(3):
        os.pwrite(fd, b"x", 0)
        os.fsync(fd)
        os.fsync(folder)
        os.close(os.open("name", os.O_RDWR | os.O_CREAT, 0o644))
        os.unlink("name")

if what in ("rights", "chroot", "raw"):
    sync_names("file")
if what == "chroot":
    waits, child_ends = os.pipe()
    done, says = os.pipe()
    if os.fork() == 0:
        os.close(child_ends)
        sync_names("childs")
        os.write(says, b".")
        os.read(waits, 1)
        os._exit(0)
    os.read(done, 1)
if what == "outside":
    fd = os.open("file", os.O_RDWR | os.O_CREAT, 0o644)
    for _ in range(3):
        os.pwrite(fd, b"x", 0)
        os.fsync(fd)

    def write():
        while True:
            os.pwrite(fd, b"y", 1)
            time.sleep(0.01)

    threading.Thread(target=write, daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
"""


class HinderedTest(tool.ToolTest):
    def begin(self, what, **settings):
        environment = {**tool.clean_environment(), **self.settings(), "LD_PRELOAD": str(tool.LIBRARY), **settings}
        process = self.start([sys.executable, "-ISBc", PROGRAM, what], env=environment, cwd=self.files,
                             stderr=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def end(self, process):
        """What it has said on stderr."""
        _, errors = process.communicate("\n", timeout=60)
        self.assertEqual(process.returncode, 0)
        return errors

    def hindered(self):
        return self.status()["hindered"]

    def test_each_process_says_what_hinders_it(self):
        self.create()
        self.assertEqual(self.hindered(), [])
        for what, name in (("ring", "io_uring"), ("tables", "descriptor tables"), ("rights", "rights")):
            if what == "rights" and os.geteuid() != 0:
                continue
            with self.subTest(what):
                process = self.begin(what, NVCACHE_NOTICE="all")
                other = self.begin("nothing")
                self.assertEqual(self.hindered(), [{"pid": process.pid, "program": "python3", "by": [name],
                                                    "detail": None}])
                self.assertRegex(self.status_text(), rf"(?m)^ *{process.pid} python3 +{name} +\w.+")
                self.assertRegex(self.end(process), rf"(?m)^nvcache: {name}: .*\.?$")
                self.end(other)
                self.assertEqual(self.hindered(), [])

    def test_code_that_calls_past_libc(self):
        self.create()
        process = self.begin("raw", NVCACHE_NOTICE="all")
        self.assertEqual(self.hindered(), [{"pid": process.pid, "program": "python3", "by": ["raw calls"],
                                            "detail": "code that the program has made"}])
        self.assertIn("nvcache: raw calls: ", self.end(process))
        trusted = self.begin("raw", NVCACHE_RAW="trust")
        self.assertEqual(self.hindered(), [])
        self.end(trusted)

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv") and os.path.exists("/usr/bin/python3"),
                         "it takes root, setpriv, and a Python that everybody may run")
    def test_in_a_chroot(self):
        """Root's names can be in the log there, and nobody else's: each process says so, a child of fork as well."""
        self.pools.chmod(0o777)
        for user, said in ((0, []), (65534, ["chroot"])):
            root = self.make_folder(tool.SCRATCH)
            (root / "data").mkdir()
            # The build may lie where only root gets.
            shutil.copy(tool.LIBRARY, root / "libnvcache.so")
            for place in (root, root / "data", root / "libnvcache.so"):
                place.chmod(0o777)
            script = ENTER + f"cd {root} && exec chroot {root} setpriv --reuid={user} --regid={user} --clear-groups \"$@\""
            environment = {**tool.clean_environment(), **self.settings(), "NVCACHE_WRITE_BACK": "auto"}
            process = self.start(["unshare", "--mount", "sh", "-c", script, "sh", root, "env", "LD_PRELOAD=/libnvcache.so",
                                  "/usr/bin/python3", "-ISBc", PROGRAM, "chroot"], env=environment)
            self.assertEqual(process.stdout.readline(), "ready\n")
            self.assertEqual([found["by"] for found in self.hindered()], 2 * [said] if said else [])
            process.communicate("\n", timeout=60)
            self.assertEqual(process.returncode, 0)
            self.pool.unlink()

    def test_on_request_alone(self):
        self.create()
        self.assertEqual(self.end(self.begin("ring", NVCACHE_NOTICE="0")), "")
        self.assertNotIn("io_uring", self.end(self.begin("ring")))

    def test_a_writer_outside(self):
        self.create()
        process = self.begin("outside", NVCACHE_NOTICE="1", NVCACHE_BATCH_DELAY="1")
        self.assertEqual(self.hindered(), [])
        outside = os.open(self.files / "file", os.O_WRONLY)
        # Each may come together with a call of the program's own, and is then not told from that.
        while not self.hindered():
            os.pwrite(outside, b"theirs", 100)
        os.close(outside)
        self.assertEqual(self.hindered(), [{"pid": process.pid, "program": "python3", "by": ["outside writer"],
                                            "detail": "file"}])
        self.assertRegex(self.end(process), r"(?m)^nvcache: outside writer: .* \(file\)$")

    def test_of_another_pool(self):
        self.create()
        process = self.begin("ring", NVCACHE_NOTICE="0")
        other = self.pools / "other"
        self.create(pool=other)
        self.assertEqual(self.json("status", other)["hindered"], [])
        self.assertEqual([found["by"] for found in self.hindered()], [["io_uring"]])
        self.end(process)


if __name__ == "__main__":
    unittest.main()
