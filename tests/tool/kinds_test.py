# SPDX-License-Identifier: BSD-3-Clause
"""run, and every kind of program: with the cache, or one line that says why without, and what then.
Programs are named by the environment (CMakeLists.txt); what is not there is skipped."""

import errno
import os
import pathlib
import shutil
import struct
import subprocess
import unittest

from kit import tool

STATUS = 7  # of the program under test, when all went well
NOBODY = 65534


def program(name):
    """A build of program.c."""
    path = os.environ.get(f"NVCACHE_TEST_{name}", "")
    if not path:
        raise unittest.SkipTest(f"there is no {name} program")
    return pathlib.Path(path)


STATIC = (
    "is a static program without NVCache",
    "link it with nvcache-musl-gcc, or dynamically with glibc",
)


class ProgramTest(tool.ToolTest):
    def setUp(self):
        super().setUp()
        self.out = self.files / "out"

    def run_on_pool(self, *command, options=(), **more):
        more["env"] = {**tool.QUIET, **more.get("env", {})}
        return super().run_on_pool(*command, options=options, **more)

    def assert_cached(self, result):
        self.assertEqual((result.returncode, result.stderr), (STATUS, ""))
        self.assertEqual(self.out.read_text(), "written\n")
        self.assertGreater(self.records(), 0)

    def records(self):
        """How many records the logs of the pool have taken."""
        return self.status()["statistics"]["entries_cleaned"] if self.pool.exists() else 0

    def assert_without(self, command, text, remedy, passes=False):
        """Not cached and says so; not started when the cache is required."""
        path = command[0]
        result = self.run_on_pool(*command, "--write", self.out)
        who = "it runs" if passes else "it and what it starts run"
        self.assertEqual((result.returncode, result.stdout, result.stderr),
                         (STATUS, "", f"nvcache: {path}: {text}, so {who} without the cache; {remedy}\n"))
        self.assertEqual(self.out.read_text(), "written\n")
        self.assertEqual(self.records(), 0)
        self.assert_not_started(command, path, text, remedy)

    def assert_not_started(self, command, path, text, remedy):
        self.out.unlink(missing_ok=True)
        self.pool.unlink(missing_ok=True)
        for options, env in ((["--required"], {}), ([], {"NVCACHE_REQUIRED": "1"})):
            result = self.run_on_pool(*command, "--write", self.out, options=options, env=env)
            self.assertEqual((result.returncode, result.stderr),
                             (125, f"nvcache: {path}: {text}, and the cache is required; {remedy}\n"))
        self.assertFalse(self.out.exists(), "the program was started")
        self.assertFalse(self.pool.exists())


class KindsTest(ProgramTest):
    def test_glibc(self):
        self.assert_cached(self.run_on_pool(program("GLIBC"), "--write", self.out))

    def test_nvcache_musl(self):
        """Cached without LD_PRELOAD, which is for what it starts."""
        for name in ("MUSL_DYNAMIC", "MUSL_STATIC"):
            with self.subTest(form=name):
                self.assert_cached(self.run_on_pool(program(name), "--write", self.out))
                result = self.run_on_pool(program(name), "--env", "LD_PRELOAD")
                self.assertEqual(result.stdout, f"{tool.LIBRARY}\n")
                command = [program(name), "--exec", program("GLIBC"), "--write", self.out]
                self.out.unlink()
                self.assert_cached(self.run_on_pool(*command))
                self.pool.unlink()

    def test_static(self):
        self.assert_without([program("STATIC")], *STATIC, passes=True)

    def test_static_with_children(self):
        """What a static program starts is cached."""
        command = [program("STATIC"), "--exec", program("GLIBC"), "--write", self.out]
        result = self.run_on_pool(*command)
        self.assertEqual(result.returncode, STATUS, result.stderr)
        self.assertGreater(self.records(), 0)

    def test_script(self):
        """It is the interpreter that runs."""
        script = self.files / "script"
        static = program("STATIC")
        for line in (f"#!{static}", f"#! {static} ", "#!/usr/bin/env interpreter"):
            script.write_text(line + "\n")
            script.chmod(0o755)
            (self.files / "interpreter").unlink(missing_ok=True)
            (self.files / "interpreter").symlink_to(static)
            path = self.files / "interpreter" if "env" in line else static
            env = {"PATH": f"{self.files}:{os.environ['PATH']}"}
            result = self.run_on_pool(script, env=env)
            self.assertIn(f"nvcache: {path}: {STATIC[0]}, so it runs", result.stderr)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertEqual(result.returncode, STATUS)

    def test_other_libc(self):
        """Its dynamic linker would not start the program with the library for glibc."""
        musl = program("PLAIN_MUSL")
        text = "has a dynamic linker of another libc, /lib/ld-musl-x86_64.so.1"
        remedy = "link it with nvcache-musl-gcc, or with glibc"
        self.assert_without([musl], text, remedy)
        other = self.files / "libother.so"
        for before, after in ((str(tool.LIBRARY), None), (f"{tool.LIBRARY}:{other}", str(other))):
            subprocess.run(["cc", "-shared", "-nostdlib", "-xc", "/dev/null", "-o", other], check=True)
            result = self.run_on_pool(musl, "--env", "LD_PRELOAD", env={"LD_PRELOAD": before})
            self.assertEqual(result.stdout.strip(), after or "(none)", result.stderr)

    def test_other_machine(self):
        """An i386 program; whether it can run is the kernel's business."""
        path = self.files / "i386"
        headers, base = 52 + 32, 0x8048000
        code = b"\xbb" + struct.pack("<I", STATUS) + b"\xb8\x01\0\0\0\xcd\x80"  # exit(STATUS)
        path.write_bytes(
            struct.pack("<4sBBB9xHHIIIIIHHHHHH", b"\x7fELF", 1, 1, 1, 2, 3, 1, base + headers, 52, 0, 0,
                        52, 32, 1, 40, 0, 0)
            + struct.pack("<IIIIIIII", 1, 0, base, base, headers + len(code), headers + len(code), 5, 4096)
            + code
        )
        path.chmod(0o755)
        text, remedy = "is not a 64-bit program for x86-64", "build it for that"
        line = f"nvcache: {path}: {text}, so it and what it starts run without the cache; {remedy}"
        result = self.run_on_pool(path)
        self.assertEqual(result.stderr.splitlines()[0], line)
        try:
            self.assertEqual(subprocess.run([path], check=False).returncode, STATUS)
            self.assertEqual((result.returncode, result.stderr), (STATUS, line + "\n"))
        except OSError as error:  # a kernel without 32-bit programs
            self.assertEqual(error.errno, errno.ENOEXEC)
        self.assertFalse(self.pool.exists())
        self.assert_not_started([path], path, text, remedy)

    def test_privileged(self):
        if os.geteuid() != 0:
            self.skipTest("only root can make such a program")
        self.files.chmod(0o777)
        for folder in self.files.parents:
            if not os.stat(folder).st_mode & 0o001:
                self.skipTest(f"another user cannot enter {folder}")
        copy = self.files / "privileged"
        shutil.copy(program("GLIBC"), copy)
        copy.chmod(0o4755)
        if os.statvfs(copy).f_flag & os.ST_NOSUID:
            self.skipTest(f"{self.files} is mounted nosuid")
        self.out.write_text("")
        text, remedy = "gets more rights than its user has", "start nvcache as the user with these rights"
        as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        result = self.run_on_pool(copy, "--write", self.out, **as_nobody)
        self.assertEqual(
            (result.returncode, result.stderr),
            (STATUS, f"nvcache: {copy}: {text}, so it and what it starts run without the cache; {remedy}\n"),
        )
        result = self.run_on_pool(copy, "--write", self.out, options=["--required"], **as_nobody)
        self.assertEqual((result.returncode, result.stderr),
                         (125, f"nvcache: {copy}: {text}, and the cache is required; {remedy}\n"))
        # For root it gets nothing that root has not.
        self.assert_cached(self.run_on_pool(copy, "--write", self.out))

    def test_missing_linker(self):
        path = self.files / "program"
        content = program("GLIBC").read_bytes()
        linker = b"/lib64/ld-linux-x86-64.so.2"
        self.assertIn(linker, content)
        path.write_bytes(content.replace(linker, b"/lib65/ld-linux-x86-64.so.2"))
        path.chmod(0o755)
        result = self.run_on_pool(path)
        self.assert_refused(result, 127, path, "its dynamic linker /lib65/ld-linux-x86-64.so.2 is missing")

    def test_linker_as_program(self):
        result = self.run_on_pool("/lib64/ld-linux-x86-64.so.2", program("GLIBC"), "--write", self.out)
        self.assert_cached(result)


class LibraryTest(ProgramTest):
    """--library, and a folder without the library."""

    def installed(self):
        """A copy of the command, without the library beside it."""
        folder = self.files / "bin"
        folder.mkdir()
        shutil.copy(tool.COMMAND, folder / "nvcache")
        return folder / "nvcache"

    def run_installed(self, *command):
        return tool.run(self.installed(), *self.run_command(*command)[1:], env=tool.QUIET)

    def test_missing(self):
        result = self.run_installed(program("GLIBC"), "--write", self.out)
        self.assert_refused(result, 125, "libnvcache.so is not beside", "--library PATH")
        self.assertFalse(self.out.exists())

    def test_not_needed(self):
        """A program that it cannot get into runs without it, too."""
        result = self.run_installed(program("STATIC"), "--env", "LD_PRELOAD")
        self.assertEqual((result.returncode, result.stdout), (STATUS, "(none)\n"))
        self.assertIn(STATIC[0], result.stderr)

    def assert_library_refused(self, library, *words):
        for kind in ("GLIBC", "STATIC"):
            result = self.run_on_pool(program(kind), "--write", self.out, options=["--library", library])
            self.assertEqual(result.returncode, 125)
            line = result.stderr.splitlines()[-1]
            for word in (str(library), "give the one that came with this nvcache", *words):
                self.assertIn(word, line)
            self.assertFalse(self.out.exists())

    def test_wrong_file(self):
        wrong = self.files / "libnvcache.so"
        for content in (b"", b"\x7fELF", os.urandom(10000), program("GLIBC").read_bytes()):
            wrong.write_bytes(content)
            self.assert_library_refused(wrong, "is not libnvcache.so")
        other = self.files / "other.so"
        shutil.copy(tool.LIBRARY, other)
        self.assert_library_refused(other, "is not libnvcache.so")

    def test_other_version(self):
        content = tool.LIBRARY.read_bytes()
        note = struct.pack("<III", 8, 8, 1) + b"NVCache\0"
        self.assertEqual(content.count(note), 1)
        place = content.index(note) + len(note)
        (version,) = struct.unpack_from("<I", content, place)
        older = self.files / "libnvcache.so"
        older.write_bytes(content[:place] + struct.pack("<I", version - 1) + content[place + 4 :])
        self.assert_library_refused(
            older, f"is for pools of format version {version - 1}, this nvcache for version {version}"
        )

    def test_copy(self):
        copy = self.files / "libnvcache.so"
        shutil.copy(tool.LIBRARY, copy)
        result = self.run_on_pool(program("GLIBC"), "--write", self.out, options=["--library", copy])
        self.assert_cached(result)


if __name__ == "__main__":
    unittest.main()
