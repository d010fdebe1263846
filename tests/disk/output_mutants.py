#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Planted bugs in commit at output (docs/output.md): an output left out, each by itself, and each other rule;
and the row or the test of output_test.py that must fail then.

    output_mutants.py make SOURCES FOLDER     # copies of the library's files, with all of them
    output_mutants.py run LIBRARY [MUTANT]    # the tests with a library of these copies: none has failed without a mutant, and
                                              # each mutant is found

The copies are compiled once. In each, MUTANT stands for whether it is this one's turn, which LEAVES_MUTANT says when
the program runs. Text that is not there any more ends the build."""

import os
import pathlib
import re
import subprocess
import sys

CALLS, PRELOAD, VFS = "libc-shim/calls/", "libc-shim/preload/", "src/vfs/"
TEST = pathlib.Path(__file__).with_name("output_test.py")
SKIPPED = 77


def named(function):
    """The wrapper of that name calls the real function at once."""
    return (PRELOAD + "output.cc", [function],
            [(re.compile(rf"(NVCACHE_EXPORT \w+ {function}\([^{{]*\{{\n)((?:.|\n)*?NVCACHE_REAL\({function}\)(\([^;]*\));)"),
              rf"\1  if (MUTANT) return NVCACHE_REAL({function})\3;\n\2")])


def by_number(call, rows):
    old = re.compile(rf"NVCACHE_ON\(SYS_{call}, (Leave\([^)]*\))\)")
    return CALLS + "by_number.cc", rows, [(old, rf"NVCACHE_ON(SYS_{call}, MUTANT ? c() : \1)")]


def check(file, old, rows):
    """A check of MayLeave and its kind, by which the call goes on."""
    return file, rows, [(old, old.replace("!May", "!MUTANT && !May"))]


NAME = "if (!MayLeave(vfs::Output::kName))"
# What it leaves out: file, rows or tests, and what is there instead of what; in that file, or another.
MUTANTS = {
    "write": (CALLS + "data.h", ["write", "writev", "write by number", "write to a socket", "write to a terminal",
                                 "event by write"], [
        ("    if (!MayLeaveBy(fd)) return Result{-1};\n    return Changed(", "    if (!MUTANT && !MayLeaveBy(fd)) return Result{-1};\n    return Changed("),
        ("    return MayLeaveBy(to) ?", "    return MUTANT || MayLeaveBy(to) ?")]),
    "a stream's write": check(PRELOAD + "stdio_slots.cc", "    if (!MayLeaveBy(stream->_fileno)) {", ["stream", "dprintf"]),
    "sendmsg": (CALLS + "message.cc", ["sendmsg", "sendmmsg"], [
        ("return MayLeave(vfs::Output::kSocket) &&", "return (MUTANT || MayLeave(vfs::Output::kSocket)) &&")]),
    **{name: named(name) for name in (
        "send", "sendto", "connect", "bind", "shutdown", "tee", "vmsplice", "eventfd_write", "pclose", "msgsnd", "semop",
        "semtimedop", "mq_send", "kill", "sigqueue", "tgkill", "process_vm_writev")},
    "sendto by number": by_number("sendto", ["sendto by number"]),
    "kill by number": by_number("kill", ["kill by number"]),
    "pidfd_send_signal": by_number("pidfd_send_signal", ["pidfd_send_signal"]),
    "what the kernel moves": check(CALLS + "transfer.h", "|| !MayLeaveBy(to))", ["splice", "sendfile", "copy_file_range"]),
    "close": (CALLS + "descriptor.h", ["close", "close of a socket", "fclose"], [
        ("  return MayClose(fd) ? Offer(", "  return MUTANT || MayClose(fd) ? Offer(")]),
    "close_range": check(CALLS + "descriptor.h", "  if (!MayLeave(vfs::Output::kOther)) return decltype(real(first, last, flags)){-1};",
                         ["close_range"]),
    "dup2": check(CALLS + "descriptor.h", "  if (from != to && !MayClose(to))", ["dup2"]),
    "an open of a FIFO": (VFS + "output.cc", ["open of a FIFO"], [
        ("  if (!found || S_ISREG(st.st_mode) ||", "  if (MUTANT || !found || S_ISREG(st.st_mode) ||")]),
    "an open that makes or cuts": (VFS + "output.cc", ["open that makes a file", "open that cuts a file", "fopen"], [
        ("  if ((flags & (O_CREAT | O_TRUNC | kTemporary)) != 0) {", "  if (!MUTANT && (flags & (O_CREAT | O_TRUNC | kTemporary)) != 0) {")]),
    "ioctl": check(CALLS + "control.h", "&& !MayLeave(vfs::Output::kOther)) return -1;", ["ioctl"]),
    "ftruncate": check(CALLS + "size.h", "  if (!MayLeave(vfs::Output::kFile)) return decltype(real(fd, length)){-1};", ["ftruncate"]),
    "fallocate": check(CALLS + "size.h", "  if (!MayLeave(vfs::Output::kFile)) return decltype(real(fd, mode, offset, length)){-1};",
                       ["fallocate"]),
    "truncate": check(CALLS + "names.h", f"  {NAME} return static_cast<decltype(real())>(-1);\n  vfs::UnseenCall unseen;", ["truncate"]),
    "names": check(CALLS + "names.h", f"  {NAME} return static_cast<decltype(real())>(-1);\n  vfs::Removal removal;",
                   ["rename", "link", "unlink", "remove", "mkdir", "symlink"]),
    "names of what is no file": check(CALLS + "names.h", f"  {NAME} return Failed<decltype(real())>();", ["mkfifo"]),
    "attributes": check(CALLS + "attributes.h", f"  {NAME} return decltype(real()){{-1}};\n  if (IsByDescriptor(path, flags)) {{\n    return Attributed(",
                        ["chmod", "chown", "utimensat", "setxattr"]),
    "AIO": check(CALLS + "async.h", "  if (!MayLeave(vfs::Output::kFile) ||", ["aio_write", "io_submit"]),
    # A process that has the pool lets go of it first, and waits for the journal so.
    "exec": check(CALLS + "process.h", "  if (!MayLeave(vfs::Output::kExit)) return decltype(real()){-1};", ["vfork"]),
    "programs that are started": check(CALLS + "process.h", "  if (!MayLeave(vfs::Output::kExit)) return static_cast<decltype(real())>(failed());",
                                       ["posix_spawn", "system", "popen"]),
    "exit": (VFS + "life.cc", ["return from main", "exit", "_exit", "exit_group", "quick_exit", "the last thread's end"], [
        ("  const bool kept = HoldOutput(Output::kExit) == 0;", "  const bool kept = MUTANT || HoldOutput(Output::kExit) == 0;")]),
    "files of the kernel's": (VFS + "output.cc", ["a file of the kernel's"], [
        ("file != nullptr && file->state.load() == State::kCached;", "file != nullptr && (MUTANT || file->state.load() == State::kCached);"),
        ("  engine.mirror.AwaitTold();\n", "  if (!MUTANT) engine.mirror.AwaitTold();\n", VFS + "data.cc"),
        ("  engine.mirror.AwaitTold();\n", "  if (!MUTANT) engine.mirror.AwaitTold();\n", VFS + "engine/through_write.cc")]),
    "what another process was told": (VFS + "engine/mirror.cc", ["fork"], [
        ("  const bool told = words.Tell(sys::Now(CLOCK_MONOTONIC), ahead_ns_);",
         "  const bool told = words.Tell(sys::Now(CLOCK_MONOTONIC), ahead_ns_);\n  nvcache_test_told = words.told();"),
        ("long Mirror::AwaitOutput(pool::Output output) {\n",
         "long Mirror::AwaitOutput(pool::Output output) {\n  pool::View now;\n  now.base = place_.load();\n"
         "  if (MUTANT && pool::MirrorWords(now).told() != nvcache_test_told) return 0;\n")]),
    "a child of fork": (VFS + "life.cc", ["fork"], [
        ("[[gnu::hot]] void AfterForkInChild() {\n", "[[gnu::hot]] void AfterForkInChild() {\n  if (MUTANT) engine.mirror.Close(true);\n")]),
    "what the cleanup thread writes": ("src/cleanup/kernel_writer.cc", ["test_the_log_goes_before_the_data"], [
        ("  Hold();\n", "  if (!MUTANT) Hold();\n")]),
    "that the cleanup thread cannot": (VFS + "engine/mirror.cc", ["test_a_journal_that_this_process_cannot_bring_forward"], [
        ("    if (outcome == Outcome::kFailed) break;\n", "    if (outcome == Outcome::kFailed || (MUTANT && outcome == Outcome::kUnable && late)) break;\n")]),
    "that another process can": (VFS + "engine/mirror.cc", ["test_a_journal_that_another_process_brings_forward"], [
        (">= ahead_ns_ + kUnableNs;", ">= (MUTANT ? 0 : ahead_ns_) + kUnableNs;")]),
    "how long syncs may be ahead": ("src/pool/mirror_words.cc", ["test_what_is_ahead_for_too_long_holds_a_sync"], [
        ("told_since()) >= ahead_ns) return false;", "told_since()) >= ahead_ns && !MUTANT) return false;")]),
    "outputs that are not seen": (VFS + "output.cc", ["test_where_outputs_are_not_seen_syncs_wait"], [
        ("  engine.mirror.StopTelling();", "  if (!MUTANT) engine.mirror.StopTelling();")]),
    "that an index counts for nothing after a crash": (VFS + "engine/file_systems.cc", ["write beside an index that is mapped"], [
        ("{ return Match(\"*-shm\", fd)", "{ return !MUTANT && Match(\"*-shm\", fd)")]),
    "who else may look at an index": (VFS + "engine/file_systems.cc", ["test_where_outputs_are_not_seen_syncs_wait"], [
        ("fd) && IsExclusive(fd); }", "fd) && (MUTANT || IsExclusive(fd)); }")]),
    "what nobody waits for": (VFS + "engine/mirror.cc", ["test_what_nobody_waits_for_is_written"], [
        ("    if (age < ahead_ns_) return ahead_ns_ - age;", "    if (MUTANT || age < ahead_ns_) return ahead_ns_ - age;")]),
    "that an exit cannot fail": (CALLS + "output.h", ["test_where_the_journal_can_not_be_left_nothing_leaves"], [
        ("return vfs::Stop() ? status : kNotKept;", "return vfs::Stop() || MUTANT ? status : kNotKept;")]),
    "that the journal fails": (VFS + "engine/mirror_wait.cc", ["test_where_the_journal_can_not_be_left_nothing_leaves"], [
        ("    case pool::kMirrorLeaving:\n      return Step::kSleep;\n    default:\n      return Step::kFail;\n  }\n}\n\nvoid OutputWait",
         "    case pool::kMirrorLeaving:\n      return Step::kSleep;\n    default:\n      return MUTANT ? Step::kDone : Step::kFail;\n  }\n}\n\nvoid OutputWait")]),
}
DECLARATION = 'extern "C" int nvcache_test_mutant;\nextern "C" unsigned long nvcache_test_told;\n'
MAIN = """#include <cstdlib>
extern "C" {
int nvcache_test_mutant = 0;
unsigned long nvcache_test_told = 0;
__attribute__((constructor(101))) static void choose() {
  const char* number = std::getenv("LEAVES_MUTANT");
  nvcache_test_mutant = number != nullptr ? std::atoi(number) : 0;
}
}
"""


def make(sources, folder):
    texts = {}
    for number, (what, (name, _, changes)) in enumerate(MUTANTS.items(), 1):
        for old, new, *elsewhere in changes:
            where = elsewhere[0] if elsewhere else name
            text = texts.setdefault(where, (sources / where).read_text())
            pattern = old if isinstance(old, re.Pattern) else re.compile(re.escape(old))
            found = len(pattern.findall(text))
            if found != 1:
                sys.exit(f"{where} has this {found} times, for the mutant that leaves out {what}:\n{pattern.pattern}")
            new = new.replace("MUTANT", f"(nvcache_test_mutant == {number})")
            texts[where] = pattern.sub(new if isinstance(old, re.Pattern) else lambda _, new=new: new, text)
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f'{DECLARATION}#line 1 "{sources / name}"\n{text}')
    (folder / "mutant.cc").write_text(MAIN)


def play(library, number, what):
    rows = [row for row in what if not row.startswith("test_")]
    tests = [f"OutputTest.{row}" for row in what if row.startswith("test_")]
    if rows:
        tests.append("OutputTest.test_a_sync_returns_and_nothing_leaves")
    environment = {**os.environ, "NVCACHE_TEST_LIBRARY": str(library), "LEAVES_MUTANT": str(number),
                   "NVCACHE_TEST_ROWS": ",".join(rows), "LEAVES_PATIENCE": "30" if number == 0 else "5"}
    done = subprocess.run([sys.executable, TEST, *tests], env=environment, text=True, check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def missing(output, what):
    """Those that have not failed."""
    return [row for row in what if not re.search(rf"(?m)^(FAIL|ERROR): .*{re.escape(row if row.startswith('test_') else f'[{row}]')}", output)]


def run(library, wanted):
    chosen = {what: number for number, what in enumerate(MUTANTS, 1) if not wanted or wanted in what}
    code, output = play(library, 0, sorted({row for what in chosen for row in MUTANTS[what][1]}))
    if "skipped" in output:
        print(output)
        return SKIPPED
    wrong = code != 0
    print(output if wrong else f"[ OK   ] none: {len(chosen)} rows and tests find nothing")
    for what, number in chosen.items():
        code, output = play(library, number, MUTANTS[what][1])
        left = missing(output, MUTANTS[what][1])
        wrong |= bool(left)
        print(f"[ {'FAIL' if left else 'OK  '} ] {what}" + (f": not found by {left}\n{output}" if left else ""), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
    else:
        sys.exit(run(pathlib.Path(sys.argv[2]).resolve(), sys.argv[3] if len(sys.argv) > 3 else ""))
