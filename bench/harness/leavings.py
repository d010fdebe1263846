# SPDX-License-Identifier: BSD-3-Clause
"""What a program has left behind, so that it can be compared: name -> what is there, as text."""

import hashlib
import os
import stat

SHOWN = 3  # differences that a message names


def _content(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _what(path, contents):
    status = path.lstat()
    mode = stat.filemode(status.st_mode)
    if path.is_symlink():
        return f"link to {os.readlink(path)}"
    if not path.is_file() or not contents:
        return mode
    return f"{mode}, {status.st_size} bytes, sha256 {_content(path)}"


def tree(folder, skip=(), contents=True):
    """Kind, mode, content or target of everything below the folder, and of the folder itself. `skip`:
    names below it that are not the same each time."""
    paths = [folder, *sorted(folder.rglob("*"))]
    names = [(str(path.relative_to(folder)), path) for path in paths]
    return {name: _what(path, contents) for name, path in names if name not in skip}


def bag(folder):
    """How many files there are of each content, where names are not the same each time."""
    found = {}
    for path in sorted(folder.rglob("*")):
        kind = f"{path.parent.relative_to(folder)}: {_what(path, True)}"
        if not path.is_dir():
            found[kind] = found.get(kind, 0) + 1
    return {kind: f"{count} files" for kind, count in found.items()}


def lines(name, text):
    """The lines of a dump."""
    return {f"{name}, line {number}": line for number, line in enumerate(text.splitlines(), 1)}


def difference(first, second):
    """One line on where they differ, or None. `first`: without NVCache."""
    names = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    if not names:
        return None
    shown = "; ".join(f"{name}: {second.get(name, 'not there')}, not {first.get(name, 'not there')}"
                      for name in names[:SHOWN])
    more = f"; {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{shown}{more}"
