# SPDX-License-Identifier: BSD-3-Clause
"""Clusters of etcd on loopback, and servers that are none."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from kit import Failure, check, command, state_of, until

FOLDERS = "nvcache-test-etcd-"


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Node:
    """One etcd. Killed with the test, whatever becomes of that."""

    def __init__(self, words, data, log):
        self.words, self.data, self.log = words, data, log
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "etcd", *self.words],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)
        until(lambda: state_of(self.process.pid) == "T", "etcd stops")

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)


class Cluster:
    """`with Cluster(3) as etcd:`; all of them answer then."""

    def __init__(self, size=1, scheme="http", client_options=(), ctl_options=(), ports=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=FOLDERS, dir="/dev/shm"))
        self.ctl_options = ctl_options
        ports = ports or free_ports(2 * size)
        self.urls = [f"{scheme}://127.0.0.1:{port}" for port in ports[:size]]
        self.peers = [f"http://127.0.0.1:{port}" for port in ports[size:]]
        everyone = ",".join(f"n{i}={peer}" for i, peer in enumerate(self.peers))
        self.nodes = []
        # One alone is elected by nobody.
        times = ("50", "500") if size > 1 else ("10", "100")
        for i, (url, peer) in enumerate(zip(self.urls, self.peers)):
            data = self.folder / f"n{i}"
            words = ["--name", f"n{i}", "--data-dir", data, "--listen-client-urls", url,
                     "--advertise-client-urls", url, "--listen-peer-urls", peer,
                     "--initial-advertise-peer-urls", peer, "--initial-cluster", everyone,
                     "--heartbeat-interval", times[0], "--election-timeout", times[1], *client_options]
            self.nodes.append(Node([str(word) for word in words], data, self.folder / f"log{i}"))

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *problem):
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self):
        for node in self.nodes:
            node.start()
        self.await_health()

    def await_health(self):
        until(lambda: self.try_ctl("endpoint", "health") is not None, "etcd answers", 30)

    def try_ctl(self, *words, stdin=None):
        """What etcdctl prints; None if it fails."""
        done = subprocess.run(["etcdctl", f"--endpoints={','.join(self.urls)}", *self.ctl_options,
                               *map(str, words)], check=False, input=stdin or "", text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(os.environ, ETCDCTL_API="3"))
        return done.stdout if done.returncode == 0 else None

    def ctl(self, *words, stdin=None):
        said = self.try_ctl(*words, stdin=stdin)
        check(said is not None, f"etcdctl {' '.join(map(str, words))} has failed")
        return said

    def value(self, name):
        return self.ctl("get", f"/nvcache/mirror/{name}", "--print-value-only").strip()

    def restart(self):
        for node in self.nodes:
            node.kill()
        self.start()

    def restore(self, snapshot):
        """The only node begins anew with what the snapshot has."""
        node, = self.nodes
        node.kill()
        shutil.rmtree(node.data)
        command("etcdctl", "snapshot", "restore", snapshot, "--name", "n0", "--data-dir", node.data,
                "--initial-cluster", f"n0={self.peers[0]}", "--initial-advertise-peer-urls", self.peers[0],
                env=dict(os.environ, ETCDCTL_API="3"))
        self.start()


class Server:
    """Listens; serve(connection) is called in a thread for each connection. Subclasses say what it does."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.requests = []  # the path of each
        self.ends = threading.Event()
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        self.ends.set()
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.run, args=(connection,), daemon=True).start()

    def run(self, connection):
        with connection:
            try:
                connection.settimeout(30)
                self.serve(connection, self.read(connection))
            except OSError:
                pass

    def read(self, connection):
        """A whole request, as it came."""
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                return data
            data += more
        head, rest = data.split(b"\r\n\r\n", 1)
        length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n")
                       if line.lower().startswith(b"content-length:")), 0)
        while len(rest) < length:
            rest += connection.recv(65536)
        self.requests.append(head.split()[1].decode())
        return head + b"\r\n\r\n" + rest

    def serve(self, connection, request):
        raise NotImplementedError


class Fake(Server):
    """Answers each request by `answer`: bytes, or a function of the connection."""

    def __init__(self, answer):
        self.answer = answer
        super().__init__()

    def serve(self, connection, request):
        if callable(self.answer):
            self.answer(self, connection)
        else:
            connection.sendall(self.answer)


class Between(Server):
    """Passes requests on to an etcd: at once, or when `gate` is set; and its answers, unless `mute`."""

    def __init__(self, url):
        self.target = int(url.rsplit(":", 1)[1])
        self.gate = threading.Event()
        self.gate.set()
        self.mute = False
        self.passed = 0  # requests that etcd has answered
        super().__init__()

    def serve(self, connection, request):
        if not self.gate.wait(30):
            raise Failure("the gate was not opened")
        with socket.create_connection(("127.0.0.1", self.target)) as etcd:
            etcd.settimeout(30)
            etcd.sendall(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            answer = b""
            while more := etcd.recv(65536):
                answer += more
        self.passed += 1
        if not self.mute:
            connection.sendall(answer)


def http(body, status="200 OK", more=""):
    body = body if isinstance(body, bytes) else body.encode()
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() \
        + body


def endless(server, connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not server.ends.is_set():
        connection.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")


def endless_headers(server, connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while not server.ends.is_set():
        connection.sendall(b"X-Line: " + b"x" * 4096 + b"\r\n")


def slow(server, connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while not server.ends.is_set():
        connection.sendall(b" ")
        time.sleep(0.05)


def silent(server, connection):
    del connection
    server.ends.wait(30)
