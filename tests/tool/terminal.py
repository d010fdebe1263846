# SPDX-License-Identifier: BSD-3-Clause
"""A terminal for one program, and what stands on its screen."""

import fcntl
import os
import select
import struct
import subprocess
import termios
import time

PATIENCE = 30  # seconds
MARK = b"\033[5m\033[25m"  # shows nothing, and no program here says it
RIGHT, LEFT, UP, DOWN = b"\033C", b"\033D", b"\033A", b"\033B"  # keys of a VT52


class Terminal:
    """Draws what a VT52 would, which knows few sequences. Of another kind, only `output` counts."""

    def __init__(self, command, env, lines=24, columns=80, kind="vt52"):
        self.master, self.slave = os.openpty()
        self.output = b""
        self.drawn = 0  # of `output`
        self.row = self.column = 0
        self.before = termios.tcgetattr(self.slave)
        environment = {name: value for name, value in env.items() if name not in ("LINES", "COLUMNS", "TERM")}
        if kind is not None:
            environment["TERM"] = kind
        self.resize(lines, columns)
        self.process = subprocess.Popen(list(map(str, command)), env=environment, stdin=self.slave,
                                        stdout=self.slave, stderr=subprocess.PIPE, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        os.close(self.master)
        os.close(self.slave)

    def resize(self, lines, columns):
        """The kernel sends SIGWINCH."""
        self.screen = [[" "] * columns for _ in range(lines)]
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys):
        os.write(self.master, keys)

    def read(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            self.output += os.read(self.master, 65536)
            self.draw()

    def lines(self):
        return ["".join(row).rstrip() for row in self.screen]

    def until(self, condition, what):
        """Until `condition` holds of the lines on the screen, or of a program that has ended."""
        end = time.monotonic() + PATIENCE
        while not condition(self.lines()):
            if time.monotonic() > end or self.process.poll() is not None:
                raise AssertionError(f"{what}: status {self.process.poll()}, on the screen:\n"
                                     + "\n".join(self.lines()))
            self.read(0.1)

    def await_end(self):
        """Its status, and what it said on stderr."""
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            if time.monotonic() > end:
                raise AssertionError("it does not end; on the screen:\n" + "\n".join(self.lines()))
            self.read(0.05)
        # What it wrote last may still be on its way to us; what we write now comes behind it.
        os.write(self.slave, MARK)
        while not self.output.endswith(MARK):
            if time.monotonic() > end:
                raise AssertionError("its terminal is stuck")
            self.read(0.05)
        self.output = self.output[:-len(MARK)]
        self.drawn = min(self.drawn, len(self.output))
        return self.process.returncode, self.process.stderr.read().decode()

    def is_restored(self):
        return termios.tcgetattr(self.slave) == self.before

    def draw(self):
        while self.drawn < len(self.output):
            used = self.draw_one(self.output[self.drawn:])
            if used == 0:
                return  # the rest of a sequence is to come
            self.drawn += used

    def draw_one(self, rest):
        """How many bytes that was."""
        last = len(self.screen) - 1, len(self.screen[0]) - 1
        first = rest[:1]
        if first == b"\033":
            if len(rest) < 2 or (rest[1:2] == b"Y" and len(rest) < 4):
                return 0
            return self.draw_sequence(rest, last)
        if first == b"\r":
            self.column = 0
        elif first == b"\n":
            self.row = min(self.row + 1, last[0])
        elif first == b"\b":
            self.column = max(self.column - 1, 0)
        elif first == b"\t":
            self.column = min(self.column // 8 * 8 + 8, last[1])
        elif first >= b" ":
            if self.row <= last[0] and self.column <= last[1]:
                self.screen[self.row][self.column] = first.decode("latin-1")
            self.column += 1
        return 1

    def draw_sequence(self, rest, last):
        code = rest[1:2]
        if code == b"Y":
            self.row, self.column = rest[2] - 32, rest[3] - 32
            return 4
        if code == b"H":
            self.row = self.column = 0
        elif code == b"A":
            self.row = max(self.row - 1, 0)
        elif code == b"B":
            self.row = min(self.row + 1, last[0])
        elif code == b"C":
            self.column = min(self.column + 1, last[1])
        elif code == b"D":
            self.column = max(self.column - 1, 0)
        elif code in b"JK" and self.row <= last[0]:
            self.screen[self.row][self.column:] = " " * (last[1] + 1 - self.column)
            for row in range(self.row + 1, last[0] + 1) if code == b"J" else ():
                self.screen[row] = [" "] * (last[1] + 1)
        return 2
