# SPDX-License-Identifier: BSD-3-Clause
"""The systemd units: as they are installed, as systemd reads them, and that what they forbid is not
needed."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

from kit import LATE, disks

import machine
from machine import GROUP, USER, run, tool

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOCUMENT = ROOT / "docs" / "recovery-at-boot.md"
UNITS = ("nvcache-recover.service", "nvcache-recover@.service")
CHECKPOINTER = "nvcache-checkpointer@.service"
MIRROR, OF_MIRROR = "nvcache-mirror@.service", "nvcache-recover-mirror@.service"
SERVE = "nvcache-serve.service"


class BootTest(machine.MachineTest):
    def setUp(self):
        super().setUp()
        self.prefix = self.base / "installed"
        run("cmake", "--install", tool.BUILD, "--component", "command", "--prefix", self.prefix)
        self.units = self.prefix / "lib" / "systemd" / "system"

    def settings(self, unit):
        """Name to values, in their order."""
        found = {}
        for line in (self.units / unit).read_text().splitlines():
            if "=" in line and not line.startswith("#"):
                name, value = line.split("=", 1)
                found.setdefault(name, []).append(value)
        return found

    def verify(self, *units):
        return tool.run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *map(str, units),
                        env={"SYSTEMD_UNIT_PATH": f"{self.units}:"})

    def assert_verified(self, *units):
        result = self.verify(*units)
        self.assertEqual((result.returncode, result.stdout + result.stderr), (0, ""))

    def test_systemd_reads_them(self):
        self.assert_verified(self.units / UNITS[0])
        self.assert_verified(self.units / SERVE)
        for template in (UNITS[1], CHECKPOINTER, OF_MIRROR, MIRROR):
            instance = self.units / template.replace("@", "@mnt-pmem-db")
            shutil.copy(self.units / template, instance)
            self.assert_verified(instance)

    def test_systemd_finds_errors(self):
        """Or the test above proves nothing."""
        unit = self.units / UNITS[0]
        good = unit.read_text()
        for old, new in (("RemainAfterExit", "RemainAfterwards"), ("/bin/nvcache", "/bin/no"),
                         ("oneshot", "onceshot")):
            unit.write_text(good.replace(old, new))
            result = self.verify(unit)
            self.assertNotEqual(result.stdout + result.stderr, "", new)

    def test_a_service_that_waits(self):
        """The drop-ins of the documentation, at a service."""
        drop_ins = re.findall(r"(?m)^    \[Unit\]\n(?:    .+\n)+", DOCUMENT.read_text("utf-8"))
        self.assertEqual(len(drop_ins), 3)
        for number, drop_in in enumerate(drop_ins):
            service = self.units / f"database{number}.service"
            service.write_text("[Service]\nExecStart=/bin/true\n")
            folder = self.units / f"database{number}.service.d"
            folder.mkdir()
            (folder / "nvcache.conf").write_text(re.sub(r"(?m)^    ", "", drop_in))
            self.assert_verified(service)

    def test_what_is_installed(self):
        stay = (*UNITS, OF_MIRROR)
        for unit in (*stay, CHECKPOINTER, MIRROR, SERVE):
            path = self.units / unit
            self.assertEqual(path.stat().st_mode & 0o777, 0o644)
            settings = self.settings(unit)
            self.assertNotIn("@", settings["ExecStart"][0])
            command = settings["ExecStart"][0].split()[0]
            self.assertEqual(command, str(self.prefix / "bin" / "nvcache"))
            self.assertTrue(os.access(command, os.X_OK))
            document = settings["Documentation"][0].split()[-1]
            self.assertTrue(pathlib.Path(document.removeprefix("file:")).exists(), document)
            self.assertEqual(settings.get("RemainAfterExit"), ["yes"] if unit in stay else None)
        one, two = (self.settings(unit) for unit in UNITS)
        for name in set(one) - {"Description", "ExecStart", "ConditionPathExists"}:
            self.assertEqual(one[name], two[name])

    def test_a_program_of_a_mirrored_pool(self):
        """The drop-in of the documentation; and the pool is recovered before it has a mirror."""
        drop_ins = re.findall(r"(?m)^    \[Unit\]\n(?:    .+\n)+", (ROOT / "docs/mirror.md").read_text("utf-8"))
        self.assertEqual(len(drop_ins), 1)
        self.assertIn(OF_MIRROR.replace("@", "@db1"), drop_ins[0])
        service = self.units / "database.service"
        service.write_text("[Service]\nExecStart=/bin/true\n" + re.sub(r"(?m)^    ", "", drop_ins[0]))
        self.assert_verified(service)
        for name in ("Requires", "After"):
            self.assertIn(OF_MIRROR.replace("@", "@%i"), " ".join(self.settings(MIRROR)[name]).split())

    def test_what_the_units_of_a_mirror_say_is_understood(self):
        """Their commands, with what the example of a file has, as systemd makes words of it; there is no etcd."""
        example = dict(re.findall(r"(?m)^#   ([A-Z]+)=(.*)$", (self.units / OF_MIRROR).read_text()))
        self.assertEqual(set(example), {"POOL", "ETCD", "CREATE", "SERVERS", "OPTIONS"})
        example.update(POOL=str(self.pools / "mirrored"), ETCD="--mirror http://127.0.0.1:1", METRICS=str(self.base / "metrics"))
        key = self.base / "key"
        key.write_text("db1:" + "ab" * 32 + "\n")
        key.chmod(0o600)

        def words(line):
            line = line.replace("%i", "db1").replace("%d/key", str(key))
            for name, value in example.items():
                line = line.replace(f"${{{name}}}", value).replace(f"${name}", value)
            return line.split()

        recover, create = self.settings(OF_MIRROR)["ExecStart"]
        script = re.fullmatch(r"/bin/sh -c '(.*)'", create)[1]
        for _ in range(2):
            self.assertEqual(tool.run("sh", "-c", script, env=example).returncode, 0)
        self.assertIn("mirrored", run(self.prefix / "bin/nvcache", "status", example["POOL"]).stdout)
        for line in (recover, self.settings(MIRROR)["ExecStart"][0]):
            with subprocess.Popen(words(line), stderr=subprocess.PIPE, text=True) as process:
                said = []
                while not said or "127.0.0.1:1" not in said[-1]:
                    said.append(process.stderr.readline())
                    self.assertNotEqual(said[-1], "", said)
                process.kill()
        self.assertIn(example["METRICS"], said[0])

    def test_staged_as_by_a_package(self):
        stage = self.base / "stage"
        subprocess.run(
            ["cmake", "--install", tool.BUILD, "--component", "command", "--prefix", "/usr"],
            env={**os.environ, "DESTDIR": str(stage)}, check=True, capture_output=True)
        unit = stage / "usr/lib/systemd/system" / UNITS[0]
        self.assertIn("ExecStart=/usr/bin/nvcache recover", unit.read_text())

    def make_work(self):
        """A pool of root's and one of a user's, with files to find in all ways."""
        pools = []
        for owner in (0, USER):
            pool = self.make_pool(owner, self.pools / str(owner))
            folder = self.files / str(owner)
            folder.mkdir()
            os.chown(folder, owner, owner)
            with machine.image.Image(pool) as image:
                for number in range(3):
                    group = GROUP if owner == USER else 0
                    path = self.make_file(folder / str(number), b"old", owner, group)
                    image.add_file(number, path)
                    image.add_write(number, 0, b"new")
                    if number == 1:
                        path.rename(folder / "renamed")
                    elif number == 2:
                        path.chmod(0o444)
                image.set_dirty()
            pools.append(pool)
        self.journals = [self.make_journal(owner) for owner in (0, USER)]
        list_file = self.base / "pools"
        list_file.write_text("".join(f"{pool}\n" for pool in pools + self.journals))
        return list_file

    def make_journal(self, owner):
        """Of a pool whose memory is gone, as after a start of the machine. Only the log has what was synced."""
        folder = self.base / f"journal{owner}"
        folder.mkdir()
        os.chown(folder, owner, owner)
        pool, path = folder / "pool", self.files / str(owner) / "journaled"
        shutil.copy(tool.LIBRARY, self.base)
        self.make_file(path, b"old", owner, GROUP if owner == USER else 0)
        result = self.as_user(owner, "create", pool, "--size", "1M", "--commit", "write")
        if result.returncode != 0:
            self.skipTest(f"no journal can lie in {folder}: {result.stderr.strip()}")
        script = 'exec 3<>"$0"; printf new >&3; kill -9 $$'
        self.assert_status(self.as_user(owner, "run", "--pool", pool, "--required", "--checkpointer", "never", "--", "sh", "-c",
                                        script, path, env=LATE), -9)
        self.assertEqual(path.read_bytes(), b"old")
        uuid = self.json("status", pool)["uuid"].replace("-", "")
        memory, = pathlib.Path("/dev/shm").glob(f"nvcache-{uuid}-*")
        self.assertEqual(memory.stat().st_uid, owner)
        memory.unlink()
        return pool

    def check_work(self):
        for owner in (0, USER):
            for name in ("0", "renamed", "2", "journaled"):
                path = self.files / str(owner) / name
                self.assertEqual(path.read_bytes(), b"new", path)
                self.assertEqual(path.stat().st_uid, owner)
        # Each has memory again, which its owner can use.
        for owner, pool in zip((0, USER), self.journals):
            self.assert_status(self.as_user(owner, "run", "--pool", pool, "--required", "--checkpointer", "never", "--", "true"), 0)

    def command_line(self, list_file):
        words = self.settings(UNITS[0])["ExecStart"][0].split()
        place = "--list=-/etc/nvcache/pools"
        self.assertEqual(words.count(place), 1)
        return [f"--list=-{list_file}" if word == place else word for word in words]

    def test_the_default_pool(self):
        """It is recovered whether it is listed or not, and whether there is a list or not."""
        default = pathlib.Path("/var/lib/nvcache/pool")
        self.assertEqual(self.settings(UNITS[0])["ConditionPathExists"], ["|/etc/nvcache/pools", f"|{default}"])
        if not disks.own_mounts():
            self.skipTest("nothing can be mounted here")
        (self.base / "state").mkdir()
        self.assertEqual(subprocess.run(["mount", "--bind", self.base / "state", "/var/lib"], check=False).returncode, 0)
        self.addCleanup(subprocess.run, ["umount", "/var/lib"], check=False)
        list_file = self.base / "pools"
        result = tool.run(*self.command_line(list_file))
        self.assert_status(result, 0)
        self.assertEqual(result.stdout, f"{default}: not there\n")
        path = self.files / "file"
        script = 'exec 3<>"$0"; printf %s "$1" >&3; kill -9 $$'
        for text, listed in (("none", None), ("empty", ""), ("named", f"{default}\n")):
            path.write_bytes(b"old")
            result = tool.run(tool.COMMAND, "run", "--size", "4M", "--required", "--checkpointer", "never", "--", "sh", "-c",
                              script, path, text, env=LATE)
            self.assert_status(result, -9)
            if listed is not None:
                list_file.write_text(listed)
            result = tool.run(*self.command_line(list_file))
            self.assert_status(result, 0)
            self.assertEqual(result.stdout.count(f"{default}: recovered 1 record"), 1, result.stdout)
            self.assertTrue(path.read_bytes().startswith(text.encode()), text)
        user = self.start([tool.COMMAND, "run", "--required", "--", *tool.IN_NEED, path])
        self.assertEqual(user.stdout.readline(), "ready\n")
        list_file.unlink()
        result = tool.run(*self.command_line(list_file))
        self.assert_status(result, 0)
        self.assertEqual(result.stdout, f"{default}: in use\n")

    def test_the_capabilities_are_enough(self):
        list_file = self.make_work()
        names = " ".join(self.settings(UNITS[0])["CapabilityBoundingSet"]).split()
        bound = "-all," + ",".join("+" + name.removeprefix("CAP_").lower() for name in names)
        result = tool.run("setpriv", "--bounding-set", bound, "--no-new-privs", *self.command_line(list_file))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.check_work()

    def test_the_system_calls_are_allowed(self):
        list_file = self.make_work()
        log = self.base / "calls"
        self.assert_status(tool.run("strace", "-f", "-qq", "-o", log, *self.command_line(list_file)), 0)
        self.check_work()
        used = set(re.findall(r"(?m)^\d+ +(\w+)\(", log.read_text()))
        self.assertIn("open_by_handle_at", used)
        filters = self.settings(UNITS[0])["SystemCallFilter"][0].split()
        allowed = set()
        pending = [name for name in filters]
        while pending:
            name = pending.pop()
            if not name.startswith("@"):
                allowed.add(name)
                continue
            for line in run("systemd-analyze", "syscall-filter", name).stdout.splitlines():
                word = line.split("#")[0].strip()
                if word and word != name:
                    pending.append(word)
        self.assertEqual(used - allowed, set())


if __name__ == "__main__":
    unittest.main()
