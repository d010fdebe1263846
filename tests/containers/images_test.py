#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""images_test.py [--keep]: builds the images with scripts/containers, runs each with a small load, looks
at what it wrote, and removes everything. --keep leaves images and results there."""

import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CONTAINERS = ROOT / "scripts/containers"
FOLDER = ROOT / "build/containers"
RESULTS = FOLDER / "results"
USER = 1000  # of the images
SUITES = ("fio", "rocksdb", "sqlite")
BLOCKS, BLOCK = 300, 4096
MUSL = "NVCACHE_MUSL" in (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
IMAGES = ["nvcache", *(f"nvcache-{suite}" for suite in SUITES), *["nvcache-musl"] * MUSL]
KILLED = 1  # what buildah says of a program that was killed
WRITER = f'open F, ">", "/results/data" or die; syswrite F, "x" x {BLOCK} for 1..{BLOCKS}; kill 9, $$'
PROGRAM = r"""
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
int main(void) {
#ifdef __GLIBC__
  return 3;
#endif
  int fd = open("/results/written", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0 || write(fd, "on musl\n", 8) != 8 || fsync(fd) != 0) return 4;
  return kill(getpid(), SIGKILL);
}
"""


def check(condition, text):
    if not condition:
        sys.exit(f"images_test: {text}")


def containers(*arguments, status=0):
    """Standard output of scripts/containers, which must end with this status."""
    done = subprocess.run([CONTAINERS, *map(str, arguments)], check=False, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    check(done.returncode == status, f"scripts/containers {' '.join(map(str, arguments))}: exit status "
          f"{done.returncode}, not {status}: {done.stdout[-2000:]}")
    return done.stdout


def run(name, *arguments, **options):
    return containers("run", name, *arguments, **options)


def command():
    """The image nvcache: the command is there, and what a killed program has written is in the pool, and
    in its file after recovery."""
    check(run("nvcache", "--version").startswith("nvcache "), "no version")
    check("recover" in run("nvcache", "--help"), "no help")
    check("recover" in run("nvcache"), "no help without an argument")
    at, pool = RESULTS / "nvcache", "/results/pool"
    options = ("run", "--pool", pool, "--size", "16M", "--emulate", "--required", "--no-drain",
               "--write-back", "always", "--batch-min", 100000, "--batch-max", 100000, "--batch-delay", 60000)
    check(run("nvcache", *options, "--", "id", "-u").strip() == str(USER), "runs as another user")
    memory = pathlib.Path("/dev/shm/nvcache-test-pool")
    run("nvcache", "run", "--pool", memory, "--size", "8M", "--emulate", "--required", "--", "true")
    check(not memory.exists(), "a container's /dev/shm is the machine's")
    run("nvcache", *options, "--", "perl", "-e", WRITER, status=KILLED)
    state = json.loads(run("nvcache", "status", "--json", pool))
    check(state["pending_records"] >= BLOCKS, f"the log has {state['pending_records']} records")
    check((at / "data").stat().st_size == 0, "it was written to the disk at once")
    run("nvcache", "recover", pool)
    check((at / "data").read_bytes() == b"x" * (BLOCKS * BLOCK), "recovery has not brought all")


def benchmark(suite):
    """The results of a smoke run are whole, and are those of the cache."""
    name = f"nvcache-{suite}"
    run(name, "--smoke")
    at = RESULTS / name
    document = json.loads((at / "results.json").read_text(encoding="utf-8"))
    check(not document["failures"] and not document["interrupted"], document["failures"])
    state = [(each["name"], each["state"]) for each in document["suites"]]
    check(state == [(suite, "run")], state)
    check(0 < document["suites"][0]["planned"] == document["suites"][0]["done"], document["suites"])
    check(document["machine"]["Pool"].startswith("emulated"), document["machine"])
    results = {(each["name"], each["system"]): each for each in document["results"]}
    cached = {result for result, system in results if system == "nvcache"}
    for system in {system for _, system in results}:
        # Each system has measured what NVCache has, as far as it is asked to.
        check(cached & {result for result, other in results if other == system}, f"{system}: nothing")
    used(suite, results, document["results"])
    figures = {path.stem for path in at.glob("*.svg")}
    check(figures and figures == {path.stem for path in at.glob("*.png")}, f"figures {figures}")
    check(all(figure.startswith(suite) for figure in figures), f"figures {figures}")
    check((at / "results.csv").stat().st_size > 0, "results.csv")
    check("<svg" in (at / "report.html").read_text(encoding="utf-8"), "report.html has no figure")
    check(not list(at.glob("nvcache-test-*")), "files were left behind")
    check({path.stat().st_uid for path in at.iterdir()} == {USER}, "results of another user")
    return len(document["results"]), len(figures)


def used(suite, results, every):
    """That the cache was at work. Each suite counts the log's records itself, and fails if they are
    too few; this is what shows besides."""
    if suite == "fio":
        waits = results["log full", "nvcache"]["runs"][0]["metrics"]["count"]
        check(waits > 0, "more than the log was written, and nobody waited for it")
    elif suite == "sqlite":
        flushes = {each["system"]: each["runs"][0]["metrics"]["count"] for each in every
                   if each["name"] == "flushes" and each["parameters"]["journal"] == "WAL"}
        check(flushes["nvcache"] < flushes["fsync"] / 2, f"flushes for each transaction: {flushes}")
    else:
        check(("fillsync", "nvcache") in results, "no fillsync")


def report(suites):
    """One report of all."""
    sources = [word for suite in suites for word in ("--from", RESULTS / f"nvcache-{suite}")]
    done = subprocess.run(["/usr/bin/python3", ROOT / "bench/run", *sources, "--output", RESULTS],
                          check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(done.returncode == 0, f"bench/run --from: {done.stdout}")
    text = (RESULTS / "report.html").read_text(encoding="utf-8")
    check(all(f'id="{suite}"' in text for suite in suites), "the report lacks a suite")


def refuses():
    """What is wrong is one line, before anything is measured."""
    containers("build", "nothing", status=2)
    containers("run", "nothing", status=2)
    run("nvcache-fio", "--smoke", "--folder", "/opt", status=2)
    run("nvcache-fio", "--smoke", "--output", "/opt/results", status=2)
    run("nvcache-fio", "--smoke", "--pools", "/mnt/none", status=2)


def musl():
    at = RESULTS / "nvcache-musl"
    check(run("nvcache-musl", "id", "-u").strip() == str(USER), "runs as another user")
    (at / "program.c").write_text(PROGRAM, encoding="utf-8")
    run("nvcache-musl", "nvcache-musl-gcc", "-O2", "-Wall", "/results/program.c", "-o", "/results/program")
    run("nvcache-musl", "env", "NVCACHE_POOL=/results/pool", "NVCACHE_SIZE=16M", "NVCACHE_EMULATE=1",
        "NVCACHE_REQUIRED=1", "NVCACHE_WRITE_BACK=always", "NVCACHE_BATCH_DELAY=60000", "/results/program", status=KILLED)
    check((at / "written").stat().st_size == 0, "it was written to the disk at once")
    run("nvcache-musl", "nvcache", "recover", "/results/pool")
    check((at / "written").read_bytes() == b"on musl\n", "what was written is not there")


def timed(what, work, *arguments):
    begin = time.monotonic()
    found = work(*arguments)
    print(f"{what}: {time.monotonic() - begin:.0f} s" + (f", {found}" if found else ""), flush=True)


def main():
    keep = "--keep" in sys.argv
    try:
        for image in IMAGES:
            timed(f"build {image}", lambda name=image: containers("build", name) and None)
        timed("nvcache", command)
        for suite in SUITES:
            timed(f"nvcache-{suite}", benchmark, suite)
        report(SUITES)
        timed("mistakes", refuses)
        if MUSL:
            timed("nvcache-musl", musl)
        else:
            print("nvcache-musl: left out: this source has no musl")
        print(containers("sizes"), end="")
    finally:
        if not keep:
            containers("clean")
    check(keep or not FOLDER.exists(), f"{FOLDER} is still there")


main()
