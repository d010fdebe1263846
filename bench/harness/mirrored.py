# SPDX-License-Identifier: BSD-3-Clause
"""A mirrored pool with all that it needs on this machine: etcd, three memory servers, a relay in front of each if
there is to be a delay, and the mirror."""

import contextlib
import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import tempfile
import time

from harness import servers, systems

SERVERS = 3
READY_SECONDS = 20
NAME = "bench"


def missing():
    return None if shutil.which("etcd") else "etcd is missing: install etcd-server"


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Processes:
    """They are killed at the end, whatever happens."""

    def __init__(self, folder, user=None):
        self.folder, self.running, self.user = folder, [], user or {}

    def start(self, name, *words):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NVCACHE_")}
        with open(self.folder / f"{name}.log", "ab") as log:
            self.running.append(subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *(str(word) for word in words)],
                                                 stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, **self.user))

    def said(self, name):
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def end(self):
        for process in reversed(self.running):
            process.kill()
            process.wait()


def _until(condition, processes, name):
    limit = time.monotonic() + READY_SECONDS
    while not condition():
        if time.monotonic() > limit:
            raise systems.Broken(f"{name} is not ready after {READY_SECONDS} s: "
                                 + (processes.said(name).strip().splitlines() or ["nothing said"])[-1])
        time.sleep(0.02)


def _listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def mirror(bench, pool, delay_us=0, encrypted=True, user=None):
    """While it lasts, calls that sync on this pool wait for two servers of three, each `delay_us` away, there and
    back. `user`: whose pool it is, as options of subprocess.run."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=systems.PREFIX, dir=systems.MEMORY))
    servers.give(user, folder)
    processes = Processes(folder, user)
    nvcache, driver = bench.program("nvcache"), bench.program("nvcache_mirror_bench")
    try:
        keys = folder / "keys"
        keys.touch(0o600)
        keys.write_text(f"{NAME}:{secrets.token_hex(32)}\n", encoding="utf-8")
        servers.give(user, keys)
        trust = ["--keys", keys] if encrypted else ["--insecure"]
        ports = free_ports(2 + 2 * SERVERS)
        client, peer = (f"http://127.0.0.1:{port}" for port in ports[:2])
        processes.start("etcd", "etcd", "--data-dir", folder / "etcd", "--listen-client-urls", client,
                        "--advertise-client-urls", client, "--listen-peer-urls", peer,
                        "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}")
        memory_servers, relays = ports[2:2 + SERVERS], ports[2 + SERVERS:]
        for number, port in enumerate(memory_servers):
            memory = folder / f"memory{number}"
            memory.mkdir()
            servers.give(user, memory)
            processes.start(f"server{number}", nvcache, "serve", *trust, "--listen", f"127.0.0.1:{port}", "--limit", "1G",
                            "--memory", memory)
            if delay_us:
                processes.start(f"relay{number}", driver, "relay", "--listen", relays[number], "--port", port,
                                "--delay", int(delay_us * 500))
        _until(lambda: _listens(ports[0]), processes, "etcd")
        for number, port in enumerate(memory_servers):
            _until(lambda port=port: _listens(port), processes, f"server{number}")
        addresses = relays if delay_us else memory_servers
        processes.start("mirror", nvcache, "mirror", "--pool", pool, "--name", NAME, "--etcd", client, *trust,
                        *(word for port in addresses for word in ("--server", f"127.0.0.1:{port}")))
        _until(lambda: "wait for a majority" in processes.said("mirror"), processes, "mirror")
        yield
        said = processes.said("mirror").strip().splitlines()
        if "wait for a majority" not in said[-1]:
            raise systems.Broken(f"the pool was not mirrored all the time: {said[-1]}")
    finally:
        processes.end()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def relay(bench, port, delay_us):
    """A port from which that one is as far away."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=systems.PREFIX, dir=systems.MEMORY))
    processes = Processes(folder)
    try:
        listen = free_ports(1)[0]
        processes.start("relay", bench.program("nvcache_mirror_bench"), "relay", "--listen", listen, "--port", port,
                        "--delay", int(delay_us * 500))
        _until(lambda: _listens(listen), processes, "relay")
        yield listen
    finally:
        processes.end()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def echoes(bench, size, delay_us=0):
    """Ports of three plain servers, as far away."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=systems.PREFIX, dir=systems.MEMORY))
    processes = Processes(folder)
    driver = bench.program("nvcache_mirror_bench")
    try:
        ports = free_ports(2 * SERVERS)
        plain, relays = ports[:SERVERS], ports[SERVERS:]
        for number, port in enumerate(plain):
            processes.start(f"echo{number}", driver, "echo", "--listen", port, "--size", size)
            if delay_us:
                processes.start(f"relay{number}", driver, "relay", "--listen", relays[number], "--port", port,
                                "--delay", int(delay_us * 500))
        used = relays if delay_us else plain
        for number, port in enumerate((*plain, *used)):
            _until(lambda port=port: _listens(port), processes, f"echo{number % SERVERS}")
        yield used
    finally:
        processes.end()
        shutil.rmtree(folder, ignore_errors=True)
