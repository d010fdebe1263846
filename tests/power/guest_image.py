#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes the guest: a kernel and an initial RAM disk, from Debian packages and programs that were
built here. Nothing is installed, and there is no root file system but the RAM disk."""

import hashlib
import io
import lzma
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile

from kit import packages

HERE = pathlib.Path(__file__).resolve().parent

# In the order in which the guest loads them: those that find no device, and those that do.
SOFTWARE = """crc32c_generic libcrc32c crc16 mbcache jbd2 ext4 xfs xor raid6_pq blake2b_generic
xxhash_generic zstd_compress btrfs dm-mod dm-flakey dm-delay dm-writecache virtio_ring virtio
virtio_pci_modern_dev virtio_pci_legacy_dev libnvdimm""".split()
DRIVERS = "virtio_pci virtio_blk nfit nd_btt nd_pmem dax_pmem device_dax".split()
MODULES = ["qemu_fw_cfg", *SOFTWARE, *DRIVERS]
TOOLS = ["busybox", "ndctl", "mkfs.ext4", "filefrag", "dmsetup", "git", "dpkg", "dpkg-deb",
         "dpkg-query", "dpkg-split", "tar", "rm"]
PACKAGES = 120
POSTGRES = ("postgres", "pg_ctl", "psql", "pg_amcheck", "pg_checksums")
# It refuses to run as root.
USER, USER_ID = "postgres", 1000
# Little memory and small files, so that pages are written, and the files of its log used again, all the
# time. Its messages have no times, so a saved failure says the same again.
CONFIGURATION = """
shared_buffers=2MB
checkpoint_timeout=30s
max_wal_size=4MB
min_wal_size=2MB
bgwriter_delay=10ms
bgwriter_lru_maxpages=1000
autovacuum=off
max_connections=10
listen_addresses=''
unix_socket_directories='/tmp'
log_line_prefix=''
timezone=GMT
log_timezone=GMT
jit=off
"""
# After a power failure the server syncs each file, so there is one database alone.
TABLES = (
    "UPDATE pg_database SET datistemplate = false",
    "DROP DATABASE template0",
    "DROP DATABASE postgres",
    "CREATE EXTENSION amcheck",
    "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT, changed INTEGER)",
    "CREATE INDEX i ON t(v)",
    "CREATE TABLE balance(total BIGINT, last BIGINT)",
    "INSERT INTO balance VALUES(0, 0)",
)
# The pool's library is loaded by name at run time, so no program lists it.
LIBPMEM = "libpmem.so.1"


class Missing(Exception):
    """Something that the guest is made of is not there; the text says what to do."""


def find(program):
    path = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin")
    if path is None:
        raise Missing(f"{program} is not installed; run scripts/install-packages test")
    return pathlib.Path(path)


# ---------------------------------------------------------------------------------------------
# The kernel.

def kernel_package():
    """The package of the newest kernel, which linux-image-amd64 depends on."""
    for attempt in range(2):
        text = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        if found := re.search(r"Depends: (linux-image-\S+)", text):
            return found.group(1)
        if attempt == 0:
            subprocess.run(["apt-get", "-q", "update"], check=False, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
    raise Missing("apt knows no linux-image-amd64; run apt-get update")


def download(package, folder):
    folder.mkdir(parents=True, exist_ok=True)
    command = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package]
    done = subprocess.run(command, cwd=folder, check=False, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise Missing(f"{package} cannot be downloaded; run apt-get update:\n{done.stdout}")
    return next(folder.glob(package + "_*.deb"))


def unpack_kernel(package, folder):
    """The ELF image, which QEMU starts at once, and the modules, without installing anything."""
    wanted = {f"{name}.ko" for name in MODULES}
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package],
                          stdout=subprocess.PIPE) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                name = pathlib.PurePath(member.name).name
                if name in wanted:
                    (folder / name).write_bytes(archive.extractfile(member).read())
                    wanted.remove(name)
                elif name.startswith("vmlinuz-"):
                    packed = archive.extractfile(member).read()
                    (folder / "vmlinux").write_bytes(unpack_image(packed))
    if wanted:
        raise Missing(f"{package} has no {', '.join(sorted(wanted))}")
    check_order(folder)


def unpack_image(packed):
    start = packed.find(b"\xfd7zXZ\0")
    if start < 0:
        raise Missing("the kernel's image is not packed with XZ")
    return lzma.LZMADecompressor().decompress(packed[start:])


def check_order(folder):
    loaded = set()
    for name in MODULES:
        found = re.search(rb"\0depends=([^\0]*)\0", (folder / f"{name}.ko").read_bytes())
        needs = {word.replace("-", "_") for word in found.group(1).decode().split(",") if word}
        if needs - loaded:
            raise Missing(f"module {name} needs {', '.join(sorted(needs - loaded))} before it")
        loaded.add(name.replace("-", "_"))


def kernel(cache):
    """A folder with the kernel and its modules, made once for each version of the package."""
    package = kernel_package()
    version = hashlib.sha256(repr((package, MODULES)).encode()).hexdigest()[:12]
    folder = cache / f"kernel-{version}"
    if folder.exists():
        return folder
    unfinished = cache / f"kernel-{version}.{os.getpid()}"
    archive = download(package, unfinished)
    unpack_kernel(archive, unfinished)
    archive.unlink()
    unfinished.rename(folder)
    return folder


# ---------------------------------------------------------------------------------------------
# The RAM disk.

class Archive:
    """A cpio archive in the format that the kernel reads ("newc")."""

    def __init__(self):
        self.parts = []
        self.names = set()
        self.inode = 1

    def put(self, name, mode, content=b""):
        if name in self.names:
            return
        parent = str(pathlib.PurePosixPath(name).parent)
        if parent != ".":
            self.put(parent, stat.S_IFDIR | 0o755)
        self.names.add(name)
        self._append(name, mode, content)

    def _append(self, name, mode, content):
        fields = (self.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        head = header + name.encode() + b"\0"
        self.parts += [head, b"\0" * (-len(head) % 4), content, b"\0" * (-len(content) % 4)]
        self.inode += 1

    def folder(self, name):
        self.put(name, stat.S_IFDIR | 0o755)

    def file(self, name, content, mode=0o644):
        self.put(name, stat.S_IFREG | mode, content)

    def program(self, name, path):
        self.file(name, stripped(path), 0o755)
        for library in libraries(path):
            self.file(str(library).lstrip("/"), library.read_bytes(), 0o755)

    def finish(self):
        self._append("TRAILER!!!", 0, b"")
        return b"".join(self.parts)


def stripped(path):
    """A program without what only debuggers read, which the guest would have in its memory."""
    with tempfile.NamedTemporaryFile() as small:
        done = subprocess.run(["strip", "-o", small.name, path], check=False,
                              stderr=subprocess.DEVNULL)
        return pathlib.Path(small.name if done.returncode == 0 else path).read_bytes()


def libraries(path):
    text = subprocess.run(["ldd", path], check=False, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL).stdout
    if "not found" in text:
        raise Missing(f"{path} needs libraries that are not there:\n{text}")
    return [pathlib.Path(found) for found in re.findall(r"(?:=> |^\s+)(/\S+)", text, re.MULTILINE)]


def path_of_library(name):
    text = subprocess.run(["/sbin/ldconfig", "-p"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    found = re.search(rf"{re.escape(name)} .*x86-64.*=> (\S+)", text)
    if not found:
        raise Missing(f"{name} is not installed; run scripts/install-packages build")
    return pathlib.Path(found.group(1))


# ---------------------------------------------------------------------------------------------
# PostgreSQL.

def postgres_folder():
    """Of its programs, which look for their files from there: the guest has them at the same place."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        raise Missing("postgres is not installed; run scripts/install-packages test")
    return found[-1].parent


def database(programs):
    """What it begins with, as an archive: the processor of the guest would be slow at that."""
    user = ["runuser", "-u", USER, "--"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as name:
        if user:
            shutil.chown(name, USER)
        data = pathlib.Path(name) / "data"
        subprocess.run([*user, programs / "initdb", "-D", data, "-U", USER, "-A", "trust", "--no-locale",
                        "-E", "UTF8", "--data-checksums", "--wal-segsize=1", "--no-sync"],
                       check=True, cwd=name, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        (data / "postgresql.conf").write_text(CONFIGURATION)
        subprocess.run([*user, programs / "postgres", "--single", "-j", "-D", data, "template1"],
                       check=True, cwd=name, text=True, input=";\n\n".join(TABLES) + ";\n\n",
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
            archive.add(data, "data", filter=owned)
    return packed.getvalue()


def owned(member):
    member.uid = member.gid = USER_ID
    member.uname = member.gname = ""
    return member


def add_postgres(archive):
    folder = postgres_folder()
    for name in POSTGRES:
        archive.program(str(folder / name).lstrip("/"), folder / name)
    amcheck = folder.parent / "lib/amcheck.so"
    archive.program(str(amcheck).lstrip("/"), amcheck)
    share = pathlib.Path("/usr/share/postgresql") / folder.parent.name / "timezonesets"
    for path in share.iterdir():
        archive.file(str(path).lstrip("/"), path.read_bytes())
    archive.program("bin/setpriv", find("setpriv"))
    archive.file("etc/passwd", f"{USER}:x:{USER_ID}:{USER_ID}::/tmp:/bin/sh\n".encode())
    archive.file("etc/group", f"{USER}:x:{USER_ID}:\n".encode())
    archive.file("database.tar.gz", database(folder))


def ram_disk(modules, build, agent, postgres, tools):
    archive = Archive()
    for folder in ("dev", "proc", "sys", "tmp", "p", "d"):
        archive.folder(folder)
    for name in MODULES:
        archive.file(f"modules/{name}.ko", (modules / f"{name}.ko").read_bytes())
    for name, modules_of in (("software", SOFTWARE), ("drivers", DRIVERS)):
        archive.file(f"modules/{name}", "\n".join(modules_of).encode() + b"\n")
    archive.file("init", (HERE / "guest_init.sh").read_bytes(), 0o755)
    for tool in (*TOOLS, *tools):
        archive.program(f"bin/{tool}", find(tool))
    find("dpkg-deb")
    for path in packages.build(modules.parent / "packages-2", PACKAGES).glob("*.deb"):
        archive.file(f"packages/{path.name}", path.read_bytes())
    archive.file("etc/mke2fs.conf", pathlib.Path("/etc/mke2fs.conf").read_bytes())
    archive.program("nvcache/nvcache", build / "nvcache")
    archive.program("nvcache/libnvcache.so", build / "libnvcache.so")
    archive.program("nvcache/agent", agent)
    libpmem = path_of_library(LIBPMEM)
    archive.program(str(libpmem).lstrip("/"), libpmem)
    if postgres:
        add_postgres(archive)
    return archive.finish()


class Image:
    """What QEMU starts. The kernel is kept in `cache`, the RAM disk goes to `folder`. PostgreSQL and its
    libraries are as large as all the rest."""

    def __init__(self, cache, folder, build, agent, postgres=False, tools=()):
        cache.mkdir(parents=True, exist_ok=True)
        self.folder = kernel(cache)
        self.version = self.folder.name
        self.kernel = self.folder / "vmlinux"
        self.ram_disk = pathlib.Path(folder) / "ram-disk"
        self.ram_disk.write_bytes(ram_disk(self.folder, build, agent, postgres, tools))


def main():
    """Fetches the kernel, for tests have no network of their own."""
    try:
        print(f"kernel of the guest: {kernel(pathlib.Path(sys.argv[1])).name}")
    except Missing as problem:
        print(f"there is no kernel for the guest: {problem}")
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
