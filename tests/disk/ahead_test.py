#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Calls on names by chance, all of which the file system has, when the journal has what it was given by then
(docs/disk.md#removals): the program is killed, and the memory is gone. Then recovery ends with status 0, and

- each name is as it was at some time after the last sync
- no file is lost that was there all that time
- another recovery changes nothing

    ahead_test.py 1 40       # the seeds 1 to 40: of an even one, with the right to open files by their handles
"""

import os
import random
import sys
import unittest

from pools import KnownFolderTest, without_privilege

FIRST, COUNT = 1, 40
BEGUN = {"old": b"before is known newer", "cold": b"cold"}
NAMES = ("p", "q", "s", *BEGUN)
# `far` is a folder that no log knows.
CALLS = """
os.mkdir('../far')
def append(name, what):
    put(name, what, flags=os.O_APPEND)
def rename_far():
    open('../far/t', 'w').close()
    os.rename('../far/t', 'zz')
    os.rename('zz', '../far/t')
    os.unlink('../far/t')
def sync_far():
    put('../far/u', b'x')
"""
KINDS = ("put", "put", "put", "write", "rename", "rename", "rename", "rename", "unlink", "unlink", "link", "sync", "rename_far",
         "append", "sync_far")


class Model:
    """The names in the folder, after each call that was chosen; `calls` are the program's."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.files = {name: [content] for name, content in BEGUN.items()}  # one list for each file
        self.calls, self.states, self.synced = [], [dict(BEGUN)], 0
        for _ in range(self.random.randint(2, 8)):
            kind = self.random.choice(KINDS)
            call = getattr(self, kind)()
            if call is None:
                continue
            self.calls.append(call)
            self.states.append({name: file[0] for name, file in self.files.items()})
            if kind in ("put", "append", "sync", "sync_far"):
                self.synced = len(self.calls)

    def choose(self, there):
        """A name, or None."""
        names = [name for name in NAMES if (name in self.files) == there]
        return self.random.choice(names) if names else None

    def put(self, sync=True):
        name = self.choose(False)
        if name is None:
            return None
        content = b"%s%d" % (name.encode(), len(self.calls))
        self.files[name] = [content]
        return f"put('{name}', {content}, {sync})"

    def write(self):
        return self.put(False)

    def append(self):
        name = self.choose(True)
        if name is None:
            return None
        content = b"+%d" % len(self.calls)
        self.files[name][0] += content
        return f"append('{name}', {content})"

    def rename(self):
        old = self.choose(True)
        if old is None:
            return None
        new = self.random.choice([name for name in NAMES if name != old])
        if self.files.get(new) is not self.files[old]:  # of two names of a file both stay
            self.files[new] = self.files.pop(old)
        return f"os.rename('{old}', '{new}')"

    def link(self):
        old, new = self.choose(True), self.choose(False)
        if old is None or new is None:
            return None
        self.files[new] = self.files[old]
        return f"os.link('{old}', '{new}')"

    def unlink(self):
        name = self.choose(True)
        if name is None:
            return None
        del self.files[name]
        return f"os.unlink('{name}')"

    def sync(self):
        return "os.fsync(folder)"

    def rename_far(self):
        return "rename_far()"

    def sync_far(self):
        return "sync_far()"


class AheadTest(KnownFolderTest):
    def contents(self):
        return {path.name: path.read_bytes() for path in self.data.iterdir() if path.name not in "abc"}

    def recover(self, right):
        self.assert_ok(self.nvcache("recover", self.pool, preexec_fn=None if right else without_privilege))
        return self.contents()

    def play(self, seed):
        model = Model(seed)
        (self.data / "cold").write_bytes(BEGUN["cold"])
        os.sync()
        process = self.begin(CALLS + "\n".join(model.calls) + "\nsay('done')\n")
        self.assertEqual(self.go_on(process), "done\n", model.calls)
        self.kill(process)
        self.assertEqual(self.contents(), model.states[-1], model.calls)
        self.memory.unlink()
        right = seed % 2 == 0
        found = self.recover(right)
        states = model.states[model.synced:]
        for name in {*found, *model.states[-1]}:
            self.assertIn(found.get(name), [state.get(name) for state in states], (name, found, model.calls))
        for content in model.states[-1].values():
            if all(content in state.values() for state in states):
                self.assertIn(content, found.values(), model.calls)
        self.assertEqual(self.recover(right), found, model.calls)


def test_of(seed):
    def test(self):
        self.play(seed)
    return test


if __name__ == "__main__":
    if len(sys.argv) > 2:
        FIRST, COUNT = int(sys.argv[1]), int(sys.argv[2])
        del sys.argv[1:3]
    for seed in range(FIRST, FIRST + COUNT):
        setattr(AheadTest, f"test_seed_{seed:06}", test_of(seed))
    unittest.main()
