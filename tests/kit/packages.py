# SPDX-License-Identifier: BSD-3-Clause
"""The packages that dpkg installs in tests/power/program_workloads.cc, which says what is in them."""

import pathlib
import tempfile

from .basics import command


def build(folder, last):
    """Each number up to the last that 4 does not divide is a version of one of five packages."""
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(1, last + 1):
        target = folder / f"{i}.deb"
        if i % 4 == 0 or target.exists():
            continue
        control = f"Package: p{i % 5}\nVersion: {i}\nArchitecture: all\nMaintainer: a <a@b>\nDescription: a test\n"
        files = {f"usr/share/p{i % 5}/f{k}": f"{i} {k}\n" * (1 + 37 * k) for k in range(1 + i % 7)}
        files[f"usr/bin/p{i % 5}"] = f"program {i}\n" * 3000
        with tempfile.TemporaryDirectory(dir=folder) as name:
            tree = pathlib.Path(name)
            tree.chmod(0o755)
            for path, content in {"DEBIAN/control": control, **files}.items():
                (tree / path).parent.mkdir(parents=True, exist_ok=True)
                (tree / path).write_text(content)
            command("dpkg-deb", "-Znone", "--root-owner-group", "--build", tree, target)
    return folder
