#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The record in etcd: what the client says is what etcd has done, or it says that it does not know. With etcd
servers of the test's own, which are killed, stopped and restored, and with servers that are none."""

import argparse
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import time

from kit import Agent, cases_of, check, main, skip, until

from etcd_servers import Between, Cluster, Fake, endless, endless_headers, free_ports, http, silent, slow

TIMEOUT = 2000  # ms; for answers that come
SHORT = 400  # ms; for answers that do not
SLOWEST = 100  # ms for which a client may hold up its loop, on a machine that does other things as well


class Client(Agent):
    """The driver, with its answers as words. It is removed in the end."""

    def __init__(self, test, *words, timeout=TIMEOUT):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="etcd-", dir=test.scratch))
        super().__init__([test.driver, f"timeout={timeout}", *words], folder / "errors", env=test.environment)
        self.folder = folder
        self.gone = False  # it has ended as the test wanted
        self.must_begin("ready")

    def kill(self):
        super().kill()
        self.gone = True

    def __exit__(self, kind, value, trace):
        try:
            if kind is None and not self.gone:
                self.tell("slowest")
                took = int(self.words()[1])
                check(took <= SLOWEST, f"the client has held up its loop for {took} ms")
                self.tell("end")
                check(self.process.wait(5) == 0, "the client has ended with an error")
                check(self.said() == "", self.said())
        finally:
            self.remove()
            shutil.rmtree(self.folder)

    def words(self):
        return self.answer(30).split()

    def must_begin(self, *wanted):
        """The rest of the words."""
        words = self.words()
        check(words[:len(wanted)] == [str(word) for word in wanted], f"{words} instead of {wanted}")
        return words[len(wanted):]

    def read(self, name="m"):
        """(whether etcd was reached, revision, version, writer)"""
        self.tell(f"read {name}")
        reached, revision, version, writer, *_ = self.must_begin("read")
        return reached == "reached", int(revision), int(version), writer

    def write(self, version, writer, revision, name="m"):
        """(done, conflict or unknown; revision)"""
        self.tell(f"write {name} {version} {writer} {revision}")
        return self.wrote()

    def wrote(self):
        outcome, revision, *_ = self.must_begin("write")
        return outcome, int(revision)

    def must_write(self, version, writer, revision):
        outcome, revision = self.write(version, writer, revision)
        check(outcome == "done", f"version {version}: {outcome}")
        return revision

    def hold(self, text, ttl, name="m"):
        self.tell(f"hold {name} {text} {ttl}")
        return self.must_begin("hold")[0]

    def peak(self):
        """KiB of memory."""
        text = pathlib.Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return int(text.split("VmHWM:")[1].split()[0])


def equal(found, wanted, what):
    check(found == wanted, f"{what}: {found} instead of {wanted}")


def basics(test):
    with Cluster() as etcd, Client(test, *etcd.urls) as client:
        equal(client.read(), (True, 0, 0, "-"), "no record")
        equal(client.write(2, "x", 7)[0], "conflict", "a change of what is not there")
        first = client.must_write(1, "a", 0)
        equal(client.read(), (True, first, 1, "a"), "what was created")
        equal(client.write(9, "x", 0)[0], "conflict", "a second creation")
        equal(client.write(9, "x", first + 1)[0], "conflict", "a wrong revision")
        second = client.must_write(2, "b", first)
        check(second > first, "the revision goes up")
        equal(client.write(9, "x", first)[0], "conflict", "an old revision")
        equal(client.read(), (True, second, 2, "b"), "what was changed")
        equal(client.read("other"), (True, 0, 0, "-"), "another name")
        # What somebody has written by hand.
        for text in ("", "nonsense", "{}", "\x01", "x" * 30000):
            etcd.ctl("put", "/nvcache/mirror/m", "--", text)
            client.tell("read m")
            words = client.must_begin("read", "reached")
            check(int(words[0]) > second and words[1:3] == ["0", "-"] and "record" in words, words)
        # A record that cannot be stored is not sent: version 0.
        equal(client.write(0, "x", 0, "fresh")[0], "unknown", "a record that cannot be")
        equal(client.read("fresh"), (True, 0, 0, "-"), "a record that cannot be")


def two_writers(test):
    with Cluster() as etcd, Client(test, *etcd.urls) as one, Client(test, *etcd.urls) as two:
        revision = 0
        for turn in range(1, test.turns(100) + 1):
            writers = {"one": one, "two": two}
            for name, client in writers.items():
                client.tell(f"write m {turn} {name} {revision}")
            results = {name: client.wrote() for name, client in writers.items()}
            done = [name for name, result in results.items() if result[0] == "done"]
            equal(sorted(result[0] for result in results.values()), ["conflict", "done"], f"turn {turn}")
            revision = results[done[0]][1]
            equal(one.read(), (True, revision, turn, done[0]), f"turn {turn}")


def killed(test):
    with Cluster() as etcd, Client(test, *etcd.urls) as client:
        node, = etcd.nodes
        revision = client.must_write(1, "after", 0)
        node.kill()
        equal(client.write(2, "before", revision)[0], "unknown", "etcd is dead")
        equal(client.read()[0], False, "etcd is dead")
        etcd.start()
        equal(client.read(), (True, revision, 1, "after"), "what was acknowledged before etcd was killed")
        version, seen = 1, set()
        for _ in range(test.turns(3)):
            client.tell(f"write m {version + 1} during {revision}")
            time.sleep(random.choice((0, 0, 0.001, 0.002, 0.003, 0.005)))
            node.kill()
            outcome, new = client.wrote()
            seen.add(outcome)
            etcd.start()
            reached, found, found_version, _ = client.read()
            check(reached and outcome in ("done", "unknown"), f"{outcome}, reached: {reached}")
            check(found_version in (version, version + 1), f"version {found_version} after {version}")
            if outcome == "done":
                equal((found, found_version), (new, version + 1), "a change that was acknowledged")
            revision, version = found, found_version
        print("        seen:", *sorted(seen))


def no_answer(test):
    """etcd has done it, and the answer is lost: unknown, and nothing is sent again by anybody."""
    with Cluster() as etcd, Between(etcd.urls[0]) as between, \
            Client(test, between.url, *etcd.urls) as client:
        between.mute = True
        equal(client.write(1, "a", 0)[0], "unknown", "a lost answer")
        equal(between.requests, ["/v3/kv/txn"], "requests")
        reached, revision, version, _ = client.read()
        equal((reached, version), (True, 1), "a read tells")
        equal(client.write(2, "b", 0)[0], "conflict", "the same once more")
        equal(client.write(2, "b", revision)[0], "done", "on what was read")


def late(test):
    """A change that lands after its attempt was given up."""
    with Cluster() as etcd, Between(etcd.urls[0]) as between, \
            Client(test, *etcd.urls) as other, Client(test, between.url, timeout=SHORT) as client:
        # Nobody has changed it meanwhile: it lands, and whoever read before is refused.
        between.gate.clear()
        equal(client.write(1, "late", 0)[0], "unknown", "held up")
        equal(other.read(), (True, 0, 0, "-"), "before it lands")
        between.gate.set()
        until(lambda: between.passed == 1, "it lands")
        equal(other.write(1, "other", 0)[0], "conflict", "after it has landed")
        _, revision, _, writer = other.read()
        equal(writer, "late", "the writer")
        # Somebody has: it does nothing.
        between.gate.clear()
        equal(client.write(2, "late", revision)[0], "unknown", "held up again")
        revision = other.must_write(2, "other", revision)
        between.gate.set()
        until(lambda: between.passed == 2, "it arrives")
        equal(other.read(), (True, revision, 2, "other"), "after it has arrived")


def stopped(test):
    with Cluster() as etcd, Client(test, *etcd.urls, timeout=SHORT) as client, Client(test, *etcd.urls) as other:
        node, = etcd.nodes
        revision = client.must_write(1, "first", 0)
        for version in range(2, 2 + test.turns(2)):
            node.stop()
            before = time.monotonic()
            equal(client.write(version, "late", revision)[0], "unknown", "etcd is stopped")
            took = time.monotonic() - before
            check(SHORT / 1000 - 0.05 <= took < SHORT / 1000 + 1, f"it took {took} s")
            equal(client.read()[0], False, "etcd is stopped")
            node.go_on()
            outcome, new = other.write(version, "other", revision)
            check(outcome in ("done", "conflict"), outcome)
            time.sleep(0.05)
            found = other.read()
            equal(found[2:], (version, "other" if outcome == "done" else "late"), f"{outcome}, and so")
            revision = found[1]
            check(outcome == "conflict" or new == revision, "the record was changed once more")


def endpoints(test):
    with Cluster() as etcd, Fake(silent) as hung:
        dead = f"http://127.0.0.1:{free_ports(1)[0]}"
        with Client(test, dead, *etcd.urls) as client:
            revision = client.must_write(1, "a", 0)
            equal(client.read(), (True, revision, 1, "a"), "behind a dead endpoint")
        with Client(test, "http://name.invalid:1", *etcd.urls) as client:
            equal(client.read(), (True, revision, 1, "a"), "behind a name that is none")
        with Client(test, hung.url, *etcd.urls, timeout=2 * SHORT) as client:
            equal(client.read(), (True, revision, 1, "a"), "behind an endpoint that does not answer")
        with Client(test, hung.url, *etcd.urls, timeout=2 * SHORT) as client:
            equal(client.write(2, "b", revision)[0], "unknown", "an endpoint that does not answer")
            client.must_write(2, "b", revision)
        with Client(test, dead, timeout=SHORT) as client:
            equal(client.write(3, "c", revision)[0], "unknown", "no endpoint but a dead one")
            client.tell("read m")
            client.must_begin("read", "unreached")
    for wrong in ("ftp://a:1", "127.0.0.1:2379", "http://", "http://a:1/path", "http://user:word@a:1", "http://a b", "http://a\n"):
        done = subprocess.run([test.driver, wrong], check=False, capture_output=True, text=True)
        check(done.returncode == 2 and "no endpoint" in done.stdout and done.stdout.count("\n") == 1, done.stdout)


def lease(test):
    with Cluster() as etcd, Client(test, *etcd.urls) as one, Client(test, *etcd.urls) as two:
        equal(one.hold("one", 2), "held", "nobody has it")
        equal(etcd.value("m/writer"), "one", "the key")
        equal(two.hold("two", 2), "one", "the other one has it")
        equal(one.hold("one", 2), "unknown", "a second lease")
        one.tell("release")
        one.must_begin("release", "done")
        equal(etcd.value("m/writer"), "", "the key, after it was released")
        equal(two.hold("two", 2), "held", "it was released")
        # Longer than its time: it is renewed.
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            equal(one.hold("one", 2), "two", "it is renewed")
            time.sleep(0.3)
        two.stop()
        until(lambda: one.hold("one", 2) == "held", "its holder is stopped", 10)
        two.go_on()
        two.must_begin("lost")
        equal(two.hold("two", 2), "one", "after it was lost")
        one.kill()
        until(lambda: two.hold("two", 2) == "held", "its holder is dead", 10)


def lease_of_dead_etcd(test):
    with Cluster() as etcd, Client(test, *etcd.urls) as client:
        equal(client.hold("me", 3), "held", "nobody has it")
        etcd.restart()
        time.sleep(0.5)
        equal(client.hold("me", 2), "unknown", "it was dead for a shorter time: a second lease")
        # It is removed by force.
        etcd.ctl("lease", "revoke", etcd.ctl("lease", "list").split()[-1])
        client.must_begin("lost")
        equal(client.hold("me", 2), "held", "nobody has it again")
        etcd.nodes[0].kill()
        before = time.monotonic()
        client.must_begin("lost")
        took = time.monotonic() - before
        check(took < 3.5, f"it was noticed after {took} s")


def cluster(test):
    with Cluster(3) as etcd, Client(test, *etcd.urls, timeout=2000) as client, \
            Client(test, etcd.urls[0], timeout=SHORT) as follower:
        revision = client.must_write(1, "a", 0)
        equal(follower.read(), (True, revision, 1, "a"), "at another node")
        # A minority is no etcd: what it remembers is not said.
        for node in etcd.nodes[1:]:
            node.stop()
        equal(follower.read()[0], False, "at a minority")
        equal(follower.write(2, "b", revision)[0], "unknown", "at a minority")
        for node in etcd.nodes[1:]:
            node.go_on()
        until(lambda: client.read()[0], "the others are back", 10)
        _, revision, version, _ = client.read()
        # One after the other is killed, among them the leader.
        for node in etcd.nodes:
            node.kill()
            for _ in range(20):
                outcome, new = client.write(version + 1, "c", revision)
                if outcome == "done":
                    revision, version = new, version + 1
                    break
                check(outcome == "unknown" or version + 1 == client.read()[2], f"{outcome}: {client.read()}")
                reached, found, found_version, _ = client.read()
                if reached:
                    revision, version = found, found_version
            else:
                check(False, "two of three nodes do not change the record")
            node.start()
            etcd.await_health()
        equal(client.read(), (True, revision, version, "c"), "at last")


def restored(test):
    with Cluster() as etcd, Client(test, *etcd.urls) as client:
        snapshot = etcd.folder / "snapshot"
        old = client.must_write(1, "old", 0)
        etcd.ctl("snapshot", "save", snapshot)
        new = client.must_write(2, "new", old)
        etcd.restore(snapshot)
        equal(client.read(), (True, old, 1, "old"), "from the old copy")
        # Revisions are counted again: another record gets that of the new one.
        with Client(test, *etcd.urls) as other, Client(test, *etcd.urls) as writer:
            equal(other.read(), (True, old, 1, "old"), "from the old copy")
            equal(other.must_write(2, "other", old), new, "the revision of another record")
            equal(writer.read(), (True, new, 2, "other"), "another record")
            etcd.restore(snapshot)
            equal(other.must_write(2, "else", old), new, "the revision of yet another record")
            equal(writer.write(3, "mistaken", new)[0], "conflict", "a revision of another history")
            equal(other.read(), (True, new, 2, "else"), "what the mistaken one has left")


HEADER = '"header":{"cluster_id":"1","member_id":"1","revision":"5","raft_term":"2"}'
KEY = "L252Y2FjaGUvbWlycm9yL20="  # /nvcache/mirror/m
GARBAGE = {
    "nothing": b"",
    "no HTTP": b"\x00\xff" * 100,
    "HTTP/0.9": b"{" + HEADER.encode() + b"}",
    "no JSON": http("<html>"),
    "JSON": http("[]"),
    "no header": http("{}"),
    "no revision": http('{"header":{"cluster_id":"1"}}'),
    "a number as a revision": http('{"header":{"cluster_id":"1","revision":5}}'),
    "a negative revision": http('{"header":{"cluster_id":"1","revision":"-5"}}'),
    "a high revision": http('{"header":{"cluster_id":"1","revision":"99999999999999999999"}}'),
    "deep": http("[" * 60000),
    "deeper": http('{"header":' * 5000),
    "deep in a stream": http('{"result":{"header":' + "[" * 32000 + "]" * 32000 + "}}"),
    "no UTF-8": http(b'{"header":"\xff"}'),
    "empty": http(""),
    "500": http('{"error":"etcdserver: request timed out","code":14}', "503 Service Unavailable"),
    "500 with an answer": http("{" + HEADER + "}", "500 Internal Server Error"),
    "an error as an object": http('{"error":{"grpc_code":14,"message":"a\\nb"}}'),
    "an error of errors": http('{"error":' * 3000 + "1" + "}" * 3000),
    "400": http('{"error":"\\u001b[31m","code":3}', "400 Bad Request"),
    "a code that is none": http('{"code":99999999999999999999999}', "400 Bad Request"),
    "too short": http(b" " * 1000)[:-500],
    "too long": http(b" " * 70000),
    "without an end": endless,
    "headers without an end": endless_headers,
    "slow": slow,
    "silent": silent,
}
# Of etcd by its header, and not what was asked for.
STRANGE = ['"kvs":7', '"kvs":[]', '"kvs":[1,2]', '"kvs":[{}]', '"count":"1"', '"responses":7', '"responses":[7]',
           f'"kvs":[{{"key":"eA==","mod_revision":"5","value":"e30="}}],"succeeded":true',
           f'"kvs":[{{"key":"{KEY}","value":"e30="}}],"succeeded":true,"responses":[]',
           f'"kvs":[{{"key":"{KEY}","mod_revision":"5","value":"e30"}}],"succeeded":1',
           f'"kvs":[{{"key":"{KEY}","mod_revision":"5","value":7}}],"succeeded":true,"responses":[{{"x":1}}]',
           '"responses":[{"response_put":{}}]', '"responses":[{"response_range":{}}],"succeeded":true']


def garbage(test):
    answers = {**GARBAGE, **{text: http("{" + HEADER + "," + text + "}") for text in STRANGE}}
    with Fake(b"") as fake, Client(test, fake.url, timeout=SHORT) as client:
        for what, answer in answers.items():
            fake.answer = answer
            # One without "kvs" says that there is none.
            if what not in STRANGE or "responses" not in what or "kvs" in what:
                equal(client.read(), (False, 0, 0, "-"), what)
            equal(client.write(1, "a", 0), ("unknown", 0), what)
            equal(client.hold("me", 2), "unknown", what)
        # What belongs to etcd's answers is one, so that the others are refused for what is wrong with them.
        fake.answer = http("{" + HEADER + "}")
        equal(client.read(), (True, 0, 0, "-"), "an answer")
        fake.answer = http("{" + HEADER + ',"responses":[{"response_range":{}}]}')
        equal(client.write(1, "a", 0), ("conflict", 0), "an answer")
        fake.answer = http("{" + HEADER + ',"responses":[{"response_put":{}}],"succeeded":true}')
        equal(client.write(1, "a", 0), ("done", 5), "an answer")
        check(client.peak() < 128 << 10, f"the client has taken {client.peak()} KiB")


def once(test):
    """A change is sent once, also if a connection ends without an answer; a read is sent to each endpoint."""
    for answer in (b"", b"HTTP/1.1 200 OK\r\n", http("{}"), http('{"error":"leader changed","code":14}', "503 x")):
        with Fake(answer) as one, Fake(answer) as two, Client(test, one.url, two.url) as client:
            for _ in range(3):
                one.requests.clear()
                two.requests.clear()
                equal(client.write(1, "a", 0)[0], "unknown", answer)
                equal(one.requests + two.requests, ["/v3/kv/txn"], answer)
            one.requests.clear()
            two.requests.clear()
            equal(client.read()[0], False, answer)
            equal(one.requests + two.requests, 2 * ["/v3/kv/range"], answer)
    # libcurl sends a request again if a connection that it had kept ends without an answer.
    def first_alone(server, connection):
        if len(server.requests) == 1:
            connection.sendall(http("{" + HEADER + "}"))
            server.read(connection)

    with Fake(first_alone) as fake, Client(test, fake.url) as client:
        equal(client.read()[0], True, "an answer")
        equal(client.write(1, "a", 0)[0], "unknown", "a connection that was kept")
        equal(fake.requests, ["/v3/kv/range", "/v3/kv/txn"], "a connection that was kept")
    with Cluster() as etcd, Fake(http("<html>")) as one, Client(test, one.url, *etcd.urls) as client:
        equal(client.read(), (True, 0, 0, "-"), "behind a server that is none")


def redirected(test):
    """Neither a redirection nor a proxy of the environment is followed."""
    with Cluster() as etcd, Fake(http("{}")) as other, Fake(b"") as fake:
        for status in ("301 x", "302 x", "303 x", "307 x", "308 x"):
            fake.answer = http("", status, f"Location: {other.url}/v3/kv/range\r\n")
            with Client(test, fake.url) as client:
                equal(client.read()[0], False, status)
                equal(client.write(1, "a", 0)[0], "unknown", status)
        variables = {name: other.url for name in ("http_proxy", "https_proxy", "all_proxy", "ALL_PROXY")}
        test.environment = {**test.environment, **variables}
        try:
            with Client(test, *etcd.urls) as client:
                equal(client.read(), (True, 0, 0, "-"), "with a proxy")
        finally:
            test.environment = {name: value for name, value in test.environment.items() if name not in variables}
        equal(other.requests, [], "requests to another server")


class Certificates:
    """An authority, and what it has signed: for the server, and for a client."""

    def __init__(self, folder):
        self.folder = folder
        self.ca = self.authority("ca")
        self.other = self.authority("other")
        self.server, self.client = self.signed("server"), self.signed("client")

    def run(self, *words):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)

    def authority(self, name):
        self.run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                 "-subj", f"/CN={name}", "-keyout", self.folder / f"{name}.key", "-out", self.folder / f"{name}.pem")
        return self.folder / f"{name}.pem"

    def signed(self, name):
        key, request, certificate = (self.folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        extensions = self.folder / "extensions"
        extensions.write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
        self.run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
                 "-keyout", key, "-out", request)
        self.run("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.folder / "ca.key", "-CAcreateserial",
                 "-days", "2", "-extfile", extensions, "-out", certificate)
        return certificate, key


def tls(test):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="etcd-tls-", dir=test.scratch))
    try:
        made = Certificates(folder)
        certificate, key = made.client
        options = ["--cert-file", made.server[0], "--key-file", made.server[1], "--client-cert-auth",
                   "--trusted-ca-file", made.ca]
        ctl = [f"--cacert={made.ca}", f"--cert={certificate}", f"--key={key}"]
        with Cluster(1, "https", options, ctl) as etcd:
            mine = [f"certificate={certificate}", f"key={key}"]
            with Client(test, *etcd.urls, f"ca={made.ca}", *mine) as client:
                revision = client.must_write(1, "a", 0)
                equal(client.read(), (True, revision, 1, "a"), "with TLS")
                equal(client.hold("me", 2), "held", "with TLS")
            for words in ([f"ca={made.ca}"], [f"ca={made.other}", *mine], mine, [f"ca={folder / 'none'}", *mine]):
                with Client(test, *etcd.urls, *words) as client:
                    equal(client.read()[0], False, words)
                    equal(client.write(2, "b", revision)[0], "unknown", words)
            with Client(test, etcd.urls[0].replace("https", "http"), *mine) as client:
                equal(client.read()[0], False, "without TLS")
            # A name that is not the certificate's.
            with Client(test, etcd.urls[0].replace("127.0.0.1", "localhost"), f"ca={made.ca}", *mine) as client:
                equal(client.read()[0], False, "another name")
    finally:
        shutil.rmtree(folder)


def users(test):
    with Cluster(client_options=["--bcrypt-cost", "4"]) as etcd:
        for words in (["user", "add", "root:word"], ["user", "grant-role", "root", "root"], ["role", "add", "r"],
                      ["role", "grant-permission", "r", "--prefix=true", "readwrite", "/nvcache/mirror/"],
                      ["user", "add", "mirror:other"], ["user", "grant-role", "mirror", "r"], ["auth", "enable"]):
            etcd.ctl(*words)
        etcd.ctl_options = ["--user=root:word"]
        with Client(test, *etcd.urls, "user=mirror", "password=other") as client:
            revision = client.must_write(1, "a", 0)
            equal(client.hold("me", 2), "held", "with a password")
            equal(client.read(), (True, revision, 1, "a"), "with a password")
            # It forgets the tokens.
            etcd.restart()
            revision = client.must_write(2, "b", revision)
            etcd.restart()
            equal(client.read(), (True, revision, 2, "b"), "with a new token")
            client.tell("release")
            client.must_begin("release", "done")
        for words in (["user=mirror", "password=wrong"], []):
            with Client(test, *etcd.urls, *words) as client:
                equal(client.read()[0], False, words)
                equal(client.write(3, "c", revision)[0], "unknown", words)


def at_the_end(test):
    """A client ends at once, whatever is outstanding."""
    with Fake(silent) as fake, Client(test, fake.url, timeout=20000) as client:
        for line in ("read m", "write m 1 a 0", "read m", "hold m me 5", "release"):
            client.tell(line)
        until(lambda: len(fake.requests) == 2, "requests are outstanding")
        before = time.monotonic()
        client.tell("end")
        check(client.process.wait(5) == 0, "it ends with an error")
        check(time.monotonic() - before < 1, f"it has taken {time.monotonic() - before} s to end")
        client.gone = True


class Test:
    def __init__(self, options):
        self.driver = str(pathlib.Path(options.driver).resolve())
        self.scratch = pathlib.Path(options.scratch).resolve()
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.long = options.long
        self.environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}

    def turns(self, count):
        return 25 * count if self.long else count


CASES = (basics, two_writers, killed, no_answer, late, stopped, endpoints, lease, lease_of_dead_etcd, cluster, restored, garbage, once,
         redirected, tls, users, at_the_end)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver", required=True, help="mirror_etcd_driver")
    parser.add_argument("--scratch", required=True, help="a folder for what the clients say")
    parser.add_argument("--long", action="store_true", help="25 times as many turns")
    parser.add_argument("cases", nargs="*", help="names of the cases to run; all when there is none")
    given = parser.parse_args()
    for program in ("etcd", "etcdctl", "openssl"):
        if shutil.which(program) is None:
            skip(f"{program} is not installed; run scripts/install-packages test")
    main(given, cases_of(CASES, Test(given)))
