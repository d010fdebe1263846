# SPDX-License-Identifier: BSD-3-Clause
"""What the tests in Python share.

    basics      checks, waiting with limits, processes
    bench       a folder on the disk, a pool in memory, programs with NVCache and without, and the main program
    agents      programs that are told what to do, and programs that are killed
    disks       file systems of a test's own: that lose what is not durable, that refuse, that are full
    faults      a program that makes one call after the other on a disk that fails
    comparison  shell commands with NVCache and without
    tool        unittest's base of what tests the command
    image       a pool written by hand
    packages    what dpkg installs

CMakeLists.txt says where they are; by hand: PYTHONPATH=tests python3 tests/kill/kill_workloads.py ..."""

from .agents import Acknowledged, Agent, Crowd, end_all
from .basics import (EARLY, KEPT, LATE, MIB, SKIPPED, Failure, check, children, command, contents, first_difference,
                     group_lives, say, skip, state_of, until, without_nvcache)
from .bench import Bench, arguments, by_rules, cases_of, front_end_arguments, main, rounds
