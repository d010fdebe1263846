#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a mirror that runs says of itself and its servers, by --metrics, `nvcache status --mirror`, `nvcache status` and
`nvcache top`; and what `nvcache status --mirror` makes of those that are no mirrors.

    metrics_test.py --nvcache COMMAND --scratch DIR"""

import argparse
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

from kit import check, say, skip, until
from etcd_servers import Cluster, free_ports

SYNCS = 20
PROGRAM = """
import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
for i in range(int(sys.argv[2])):
    os.pwrite(fd, b"x" * 100, 100 * i)
    os.fsync(fd)
"""


class Processes:
    """Killed in the end."""

    def __init__(self, folder):
        self.folder, self.all = folder, []

    def start(self, name, *words):
        with open(self.folder / f"{name}.log", "ab") as log:
            self.all.append(subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *map(str, words)], stdout=log, stderr=log,
                                             stdin=subprocess.DEVNULL))
        return self.all[-1]

    def said(self, name):
        return (self.folder / f"{name}.log").read_text()

    def kill(self):
        for process in self.all:
            process.kill()
            process.wait()


def run(*words, status=0):
    done = subprocess.run(list(map(str, words)), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          timeout=60)
    check(done.returncode == status, f"{words} ended with {done.returncode}: {done.stdout}")
    return done.stdout


def page_of(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        said = b""
        while part := client.recv(65536):
            said += part
    head, _, body = said.decode().partition("\r\n\r\n")
    check(head.startswith("HTTP/1.1 200 OK\r\n"), head)
    return body


def values_of(path):
    """By name and labels, as they stand there."""
    lines = [line.rpartition(" ") for line in page_of(path).splitlines() if not line.startswith("#")]
    return {name.removeprefix("nvcache_mirror_"): float(value) for name, _, value in lines}


def rows_of(text):
    """The table of `nvcache status --mirror`, by address."""
    table = text.split("\n\n")[1].splitlines()
    check(table[0].split()[:3] == ["SERVER", "STATE", "EPOCH"], text)
    return {row.split()[0]: row.split()[1:] for row in table[1:]}


def of_a_mirror(nvcache, scratch, folder, etcd, processes):
    ports = free_ports(3)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    servers = [processes.start(f"server{port}", nvcache, "serve", "--insecure", "--listen", f"127.0.0.1:{port}", "--limit",
                               "64M") for port in ports]
    pool, page = folder / "pool", folder / "page"
    run(nvcache, "create", pool, "--size", "4M", "--commit", "fsync")
    words = [nvcache, "mirror", "--pool", pool, "--name", "test", "--etcd", etcd.urls[0], "--insecure", "--patience", "200",
             "--metrics", page]
    for address in addresses:
        words += ["--server", address]
    mirror = processes.start("mirror", *words)
    until(lambda: "metrics are at" in processes.said("mirror"), "the mirror begins")
    until(lambda: values_of(page)['state{state="mirrored"}'] == 1, "the pool is mirrored", 30)
    until(lambda: all(values_of(page)[f'server_stage{{server="{each}",stage="following"}}'] == 1 for each in addresses),
          "all servers follow", 30)

    run(nvcache, "run", "--pool", pool, "--required", "--write-back", "always", "--checkpointer", "never", "--",
        sys.executable, "-c", PROGRAM, scratch / f"{folder.name}-file", SYNCS)
    values = values_of(page)
    check(values["wait_seconds_count"] >= SYNCS, f"waits: {values['wait_seconds_count']}")
    check(values['wait_seconds_bucket{le="+Inf"}'] == values["wait_seconds_count"], "the histogram is whole")
    check(values["waits_failed_total"] == 0 and values["wait_seconds_sum"] > 0, f"{values}")
    check(values["batches_total"] >= 3 and values["sent_bytes_total"] > 0, f"{values}")
    check(values["epoch"] == 1 and values['mode{mode="mirrored"}'] == 1, f"{values}")
    for address in addresses:
        label = f'{{server="{address}"}}'
        check(values[f"server_connected{label}"] == 1 and values[f"server_epoch{label}"] == 1, f"{values}")
        check(values[f"server_copies_total{label}"] == 1 and values[f"server_reconnects_total{label}"] == 0, f"{values}")
    # Nobody writes any more.
    until(lambda: all(values_of(page)[f'server_lag_seconds{{server="{each}"}}'] == 0 for each in addresses),
          "the servers have everything")

    status = json.loads(run(nvcache, "status", pool, "--json"))["mirror"]
    check((status["state"], status["alive"], status["lacking_lsns"]) == ("mirrored", True, 0), f"{status}")
    check(status["waits"] == values["wait_seconds_count"] and status["wait_p99_us"] >= status["wait_median_us"] > 0,
          f"{status}")
    check(re.search(r"(?m)^mirror +mirrored: a sync waits [^;]*$", run(nvcache, "status", pool)), "status")
    check(re.search(r"(?m)^mirror +mirrored, running; ", run(nvcache, "top", pool, "--once", "--interval", "0.1")), "top")
    rows = rows_of(run(nvcache, "status", "--mirror", page))
    check(list(rows) == addresses, f"{rows}")
    check(all(row[:3] == ["following", "1", "yes"] for row in rows.values()), f"{rows}")

    # A server that has forgotten comes back, and then no majority is there.
    servers[0].kill()
    servers[0].wait()
    label = f'{{server="{addresses[0]}"}}'
    until(lambda: values_of(page)[f"server_connected{label}"] == 0, "the mirror sees that a server is gone")
    before = values_of(page)["below_quorum_seconds_total"]
    servers[0] = processes.start("again", nvcache, "serve", "--insecure", "--listen", addresses[0], "--limit", "64M")
    until(lambda: values_of(page)[f"server_copies_total{label}"] == 2, "the server gets a second copy", 30)
    check(values_of(page)[f"server_reconnects_total{label}"] >= 1, "it was connected once more")
    check(values_of(page)["below_quorum_seconds_total"] == before, "there was a majority all the time")
    for server in servers[1:]:
        server.kill()
        server.wait()
    until(lambda: values_of(page)["below_quorum_seconds_total"] > before, "no majority follows")

    mirror.kill()
    mirror.wait()
    status = json.loads(run(nvcache, "status", pool, "--json"))["mirror"]
    check(not status["alive"], f"{status}")
    check("no mirror answers there" in run(nvcache, "status", "--mirror", page, status=1), "a socket that nobody has")


def of_no_mirror(nvcache, folder):
    """Each says this one thing, whatever it is asked, and closes the connection."""
    long = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (3 << 20)
    for i, (said, status) in enumerate(((b"", 1), (b"SSH-2.0-x\r\n", 1), (b"HTTP/1.1 404 Not Found\r\n\r\n", 1),
                                        (b"HTTP/1.1 200 OK\r\n", 1), (b"HTTP/1.1 200 OK\r\n\r\n\xff\0{\n", 0),
                                        (b'HTTP/1.1 200 OK\r\n\r\nnvcache_mirror_server_epoch{server="\x1b[2J"} 1\n', 0),
                                        (long, 0))):
        path = folder / f"no{i}"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()

            def answer(server=server, said=said):
                connection, _ = server.accept()
                with connection:
                    connection.recv(4096)
                    try:
                        connection.sendall(said)
                    except OSError:
                        pass  # it has heard enough

            thread = threading.Thread(target=answer)
            thread.start()
            text = run(nvcache, "status", "--mirror", path, status=status)
            thread.join()
        check("\x1b" not in text and (status == 0 or text.count("\n") == 1), text)
    run(nvcache, "status", "--mirror", "x", status=1)
    run(nvcache, "status", "--mirror", folder / "none", status=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcache", type=pathlib.Path, required=True)
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.scratch.mkdir(exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="nvcache-test-metrics-", dir="/dev/shm"))
    processes = Processes(folder)
    try:
        of_no_mirror(options.nvcache, folder)
        if shutil.which("etcd") is None:
            skip("etcd is not installed")
        with Cluster() as etcd:
            of_a_mirror(options.nvcache, options.scratch, folder, etcd, processes)
    finally:
        processes.kill()
        shutil.rmtree(folder)
        (options.scratch / f"{folder.name}-file").unlink(missing_ok=True)
    say("the mirror, its servers and its pool say the same")


if __name__ == "__main__":
    main()
