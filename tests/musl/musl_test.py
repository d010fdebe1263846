#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The patched musl alone: its toolchain, its dynamic linker, and what it offers to a front end that
only counts. Works on copies of the tree, so everything here also runs from a moved one."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from kit import without_nvcache

TREE = pathlib.Path(os.environ["NVCACHE_MUSL_TREE"]).resolve()
HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
ENGINE = "libnvcache-musl.so"
FLAGS = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Wshadow", "-Werror", f"-I{PROJECT}"]

scratch = None  # holds `bare`, a tree without an engine, and `fake`, one with the front end that counts


def setUpModule():
    global scratch
    data = TREE.parent / "test-data"
    data.mkdir(exist_ok=True)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="musl-", dir=data))
    unittest.addModuleCleanup(shutil.rmtree, scratch)
    scratch.chmod(0o755)
    for name in ("bare", "fake"):
        shutil.copytree(TREE, scratch / name, symlinks=True)
        for engine in (scratch / name / "lib").glob("libnvcache-musl.*"):
            engine.unlink()
    compile_(HERE / "fake.c", scratch / "fake/lib" / ENGINE, "-shared", "-fPIC")
    compile_(HERE / "fake.c", scratch / "fake.o", "-c", "-fPIC")
    subprocess.run(["ar", "rcs", scratch / "fake/lib/libnvcache-musl.a", scratch / "fake.o"], check=True)


def environment(**settings):
    return {**without_nvcache(), **settings}


def compile_(source, output, *options, tree="fake", **settings):
    subprocess.run([scratch / tree / "bin/nvcache-musl-gcc", *FLAGS, *options, source, "-o", output],
                   check=True, env=environment(**settings), stdin=subprocess.DEVNULL, timeout=60)
    return output


def run(*command, **settings):
    return subprocess.run([str(word) for word in command], env=environment(**settings),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=120, check=False)


class MuslTest(unittest.TestCase):
    maxDiff = None

    def expect(self, result, stdout, stderr="", status=0):
        self.assertEqual((result.stdout, result.stderr, result.returncode), (stdout, stderr, status))


class Toolchain(MuslTest):
    def hello(self, *options, tree="bare", **settings):
        return compile_(HERE / "hello.c", scratch / "hello", *options, tree=tree, **settings)

    def interpreter(self, program):
        return re.search(r"interpreter: (.*)\]", run("readelf", "-lW", program).stdout)

    def test_dynamic(self):
        for tree in ("bare", "fake"):
            for options in ([], ["-no-pie"], ["-flto"], ["-O2", "-pthread", "-rdynamic"]):
                with self.subTest(tree=tree, options=options):
                    program = self.hello(*options, tree=tree)
                    linker = self.interpreter(program)[1]
                    self.assertEqual(linker, str(scratch / tree / "lib/ld-musl-x86_64.so.1"))
                    self.expect(run(program), "hello\n")

    def test_static(self):
        for tree in ("bare", "fake"):
            for options in (["-static"], ["-static-pie"], ["-static", "-no-pie"], ["-static", "-pthread"]):
                with self.subTest(tree=tree, options=options):
                    program = self.hello(*options, tree=tree)
                    self.assertIsNone(self.interpreter(program))
                    self.expect(run(program), "hello\n")
                    attached = "__nvcache_attach" in run("nm", "--defined-only", program).stdout
                    self.assertEqual(attached, tree == "fake")

    def test_shared_library(self):
        library = compile_(HERE / "hello.c", scratch / "libhello.so", "-shared", "-fPIC", "-DLIBRARY")
        needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-dW", library).stdout)
        self.assertEqual(needed, ["libc.so"])
        self.expect(run(self.hello(), library), "hello, library\n")

    def test_steps(self):
        text = run(scratch / "bare/bin/nvcache-musl-gcc", "-E", HERE / "hello.c").stdout
        self.assertIn(f"{scratch}/bare/include/stdio.h", text)
        self.assertNotIn('"/usr/include/stdio.h"', text)
        compile_(HERE / "hello.c", scratch / "hello.o", "-c", tree="bare")
        self.expect(run(compile_(scratch / "hello.o", scratch / "hello", tree="bare")), "hello\n")

    def test_other_compiler(self):
        compiler = scratch / "compiler"
        compiler.write_text('#!/bin/sh\necho "$1" >&2\nshift\nexec gcc "$@"\n')
        compiler.chmod(0o755)
        result = run(scratch / "bare/bin/nvcache-musl-gcc", HERE / "hello.c", "-o", scratch / "hello",
                     REALGCC=f"{compiler} word")
        self.expect(result, "", "word\n")
        self.expect(run(scratch / "hello"), "hello\n")

    def test_through_a_link(self):
        link = scratch / "musl-gcc-link"
        link.symlink_to("bare/bin/nvcache-musl-gcc")
        self.assertEqual(run(link, HERE / "hello.c", "-o", scratch / "hello").returncode, 0)
        self.expect(run(scratch / "hello"), "hello\n")

    def test_machine_is_untouched(self):
        for linker in pathlib.Path("/lib").glob("ld-musl-*"):
            self.assertFalse(linker.resolve().is_relative_to(TREE), linker)
        for name in ("lib/ld-musl-x86_64.so.1", "lib/libc.so", "bin/nvcache-musl-gcc"):
            self.assertTrue((TREE / name).resolve().is_relative_to(TREE), name)


class Loader(MuslTest):
    def setUp(self):
        self.bare = compile_(HERE / "hello.c", scratch / "hello.bare", tree="bare")
        self.fake = compile_(HERE / "hello.c", scratch / "hello.fake")

    def missing(self, what, reason="No such file or directory", tree="bare"):
        return f"nvcache: {scratch}/{tree}/lib/{ENGINE}: cannot be loaded: {reason}; {what}\n"

    def test_without_a_pool(self):
        self.expect(run(self.bare, NVCACHE_REQUIRED="1"), "hello\n")
        self.expect(run(self.bare, NVCACHE_POOL="", NVCACHE_REQUIRED="1"), "hello\n")
        self.expect(run(self.fake, FAKE_EXIT="1"), "hello\n")

    def test_missing_engine(self):
        runs = self.missing("the program runs without the cache")
        for program in ([self.bare], [scratch / "bare/lib/libc.so", self.bare]):
            self.expect(run(*program, NVCACHE_POOL="/x"), "hello\n", runs)
            self.expect(run(*program, NVCACHE_POOL="/x", NVCACHE_REQUIRED="0"), "hello\n", runs)
            self.expect(run(*program, NVCACHE_POOL="/x", NVCACHE_REQUIRED="1"), "",
                        self.missing("the program is not started (NVCACHE_REQUIRED)"), 125)

    def test_broken_engine(self):
        engine = scratch / "bare/lib" / ENGINE
        self.addCleanup(engine.unlink)
        engine.write_text("no library")
        self.expect(run(self.bare, NVCACHE_POOL="/x"), "hello\n",
                    self.missing("the program runs without the cache", "Exec format error"))

    def test_engine(self):
        for program in ([self.fake], [scratch / "fake/lib/ld-musl-x86_64.so.1", self.fake]):
            result = run(*program, NVCACHE_POOL="/x", FAKE_EXIT="1")
            self.expect(result, "hello\nexit is offered\n")

    def test_by_a_link(self):
        """A link to the dynamic linker elsewhere leads to the engine, too."""
        link = scratch / "ld-link"
        link.symlink_to(scratch / "fake/lib/ld-musl-x86_64.so.1")
        self.addCleanup(link.unlink)
        self.expect(run(link, self.fake, NVCACHE_POOL="/x", FAKE_EXIT="1"), "hello\nexit is offered\n")

    def test_other_preloads(self):
        other = compile_(HERE / "other.c", scratch / "libother.so", "-shared", "-fPIC")
        front_end = compile_(HERE / "other.c", scratch / "libnvcache.so", "-shared", "-fPIC")
        for items in ("{1}:{0}", "libnvcache.so {0}", "{0}:{1}"):
            preload = items.format(other, front_end)
            for pool in ({}, {"NVCACHE_POOL": "/x"}):
                with self.subTest(preload=preload, pool=pool):
                    first = f"front end first: {int('NVCACHE_POOL' in pool)}\n"
                    self.expect(run(self.fake, LD_PRELOAD=preload, **pool), f"{first}hello\n")

    def test_secure(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to make a program of another user")
        program = scratch / "secure"
        shutil.copy(self.bare, program)
        os.chown(program, 65534, 65534)
        program.chmod(0o4755)
        self.expect(run(program, NVCACHE_POOL="/x", NVCACHE_REQUIRED="1"), "hello\n")


class FrontEnd(MuslTest):
    """Each program, linked both ways: without a front end, and with one that refuses, or makes, calls."""

    def both(self, name):
        for way in ("-rdynamic", "-static"):
            yield compile_(HERE / f"{name}.c", scratch / f"{name}{way}", way)

    def same(self, name, *arguments, differing=()):
        for program in self.both(name):
            plain = run(program, *arguments)
            self.expect(plain, plain.stdout)
            wanted = plain.stdout
            for old, new in differing:
                self.assertIn(old, wanted)
                wanted = wanted.replace(old, new)
            self.expect(run(program, *arguments, NVCACHE_POOL="x"), wanted)
            self.expect(run(program, *arguments, NVCACHE_POOL="x", FAKE_MAKE="1"), wanted)

    def test_numbers(self):
        # And those that are younger than this musl.
        text = (TREE / "include/bits/syscall.h").read_text()
        text += (PROJECT / "libc-shim/calls/by_number.cc").read_text()
        numbers = dict(re.findall(r"#define (SYS_\w+)\s+(\d+)", text))
        wanted = sorted(int(numbers[name]) for name in table())
        for program in self.both("numbers"):
            self.expect(run(program, NVCACHE_POOL="x"), "".join(f"{number}\n" for number in wanted))

    def test_functions(self):
        for program in self.both("functions"):
            self.expect(run(program, NVCACHE_POOL="x"), "69 functions\n")

    def test_streams(self):
        self.same("streams", scratch / "file")

    def test_cancel(self):
        self.same("cancel")

    def test_processes(self):
        self.same("processes", differing=[("the child shares memory", "the child has a copy")])

    def test_libc(self):
        self.same("libc")


def table():
    """The calls that the front ends handle by number."""
    names = set()
    for source in (PROJECT / "libc-shim").rglob("*"):
        if source.suffix in (".cc", ".h", ".def"):
            names |= set(re.findall(r"\bNVCACHE_ON\((SYS_\w+)", source.read_text()))
    return names


class List(MuslTest):
    def test_same_as_the_table(self):
        patches = (PROJECT / "libc-shim/musl/patches").glob("*.patch")
        offered = re.findall(r"^\+\tcase (SYS_\w+):$", "".join(p.read_text() for p in patches), re.M)
        self.assertGreater(len(offered), 70)
        self.assertEqual(sorted(offered), sorted(table()))


if __name__ == "__main__":
    sys.exit(unittest.main())
