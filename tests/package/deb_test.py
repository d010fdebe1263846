#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Builds the Debian package, installs it into an empty root, uses what is there, and removes it."""

import argparse
import os
import pathlib
import shutil
import tempfile

from kit import command

WANTED = (
    "usr/bin/nvcache",
    "usr/bin/nvcache-mirror",
    "usr/lib/libnvcache.so",
    "usr/lib/libnvcache-api.so",
    "usr/include/nvcache.h",
    "usr/lib/pkgconfig/nvcache.pc",
    "usr/lib/cmake/nvcache/nvcache-config.cmake",
    "usr/lib/cmake/nvcache/nvcache-config-version.cmake",
    "usr/lib/systemd/system/nvcache-recover.service",
    "usr/lib/systemd/system/nvcache-recover@.service",
    "usr/lib/systemd/system/nvcache-serve.service",
    "usr/lib/systemd/system/nvcache-mirror@.service",
    "usr/lib/systemd/system/nvcache-recover-mirror@.service",
    "usr/share/bash-completion/completions/nvcache",
    "usr/share/doc/nvcache/copyright",
    "usr/share/man/man1/nvcache.1",
    "usr/share/man/man5/nvcache-pool.5",
    "usr/share/man/man7/libnvcache.7",
    "usr/share/nvcache/nvcache.supp",
)
SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
EXAMPLE = SOURCE / "src/api/example.c"
PROJECT = SOURCE / "tests/api/project"


def files_below(root):
    return {path.relative_to(root).as_posix() for path in root.rglob("*")
            if not path.is_dir() and "var/lib/dpkg" not in path.as_posix()}


def build_package(build, folder):
    command("cpack", "--config", build / "CPackConfig.cmake", "-B", folder, cwd=folder)
    packages = list(folder.glob("*.deb"))
    assert len(packages) == 1, packages
    return packages[0]


def check_contents(package):
    fields = command("dpkg-deb", "--field", package)
    assert "Package: nvcache\n" in fields and "libc6" in fields, fields
    assert "libncursesw6" in fields and "libgnutls30" in fields, fields
    for line in command("dpkg-deb", "--contents", package).splitlines():
        mode, owner, name = line.split()[0], line.split()[1], line.split()[5]
        assert owner == "root/root", line
        assert mode[0] == "l" or "w" not in mode[4:], f"others may write to it: {line}"
        assert name.startswith(("./usr/", "./")), line


def dpkg(root, *arguments):
    """As dpkg does on a machine, but its database and the files are below `root`; nothing of this
    machine is touched. What the package depends on is not there, and does not have to be."""
    return command("dpkg", f"--root={root}", "--force-depends", "--force-script-chrootless",
               "--force-not-root", "--force-bad-path", "--log=/dev/null", *arguments)


def use(root, folder):
    """The command finds its library, a program runs on the cache, another is built and runs."""
    pool = folder / "pool"
    tool = root / "usr/bin/nvcache"
    copied = folder / "copied"
    command(tool, "run", "--pool", pool, "--size", "1M", "--emulate", "--required", "--include", f"{folder}/*",
        "--write-back", "always", "--checkpointer", "never", "--no-drain", "--", "dd", "if=/dev/zero", f"of={copied}", "bs=4k", "count=3", "conv=fsync")
    assert "dirty" in command(tool, "status", pool)
    command(tool, "recover", pool)
    assert copied.read_bytes() == bytes(3 * 4096)

    environment = dict(os.environ, PKG_CONFIG_PATH=str(root / "usr/lib/pkgconfig"))
    flags = command("pkg-config", "--cflags", "--libs", "nvcache", env=environment).split()
    program = folder / "example"
    command("cc", EXAMPLE, "-o", program, *flags)
    environment = dict(os.environ, LD_LIBRARY_PATH=str(root / "usr/lib"))
    linked = command("ldd", program, env=environment)
    assert str(root / "usr/lib/libnvcache-api.so") in linked, linked

    project = folder / "project"
    shutil.copytree(PROJECT, project)
    shutil.copy(EXAMPLE, project)
    command("cmake", "-S", project, "-B", project / "out", f"-DCMAKE_PREFIX_PATH={root}/usr")
    command("cmake", "--build", project / "out")
    linked = command("ldd", project / "out/journal")
    assert str(root / "usr/lib/libnvcache-api.so") in linked, linked

    for unit in (root / "usr/lib/systemd/system").iterdir():
        text = unit.read_text()
        assert "ExecStart=/usr/bin/nvcache " in text, text
        assert str(root) not in text, text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True, type=pathlib.Path)
    build = parser.parse_args().build.resolve()
    scratch = build / "test-data"
    scratch.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="package-", dir=scratch) as name:
        folder = pathlib.Path(name)
        package = build_package(build, folder)
        check_contents(package)
        root = folder / "root"
        for part in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"):
            (root / part).mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()
        (root / "var/lib/dpkg/available").touch()
        before = files_below(root)
        dpkg(root, "--install", package)
        missing = [name for name in WANTED if not (root / name).exists()]
        assert not missing, f"not installed: {missing}"
        use(root, folder)
        dpkg(root, "--install", package)  # over itself, as an upgrade
        dpkg(root, "--remove", "nvcache")
        assert files_below(root) == before, f"left behind: {files_below(root) - before}"
        dpkg(root, "--purge", "nvcache")
        shutil.rmtree(root)


main()
