#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""git, and a compiler with make: the same repositories and programs with and without NVCache."""

from kit import comparison

UNITS = 6
MAKEFILE = f"""\
objects = {' '.join(f'unit{i}.o' for i in range(UNITS))}
CFLAGS = -O1 -g
program: main.o libunits.a libshared.so
\t$(CC) -o $@ main.o libunits.a -Wl,--build-id=sha1
libunits.a: $(objects)
\t$(AR) rcs $@ $(objects)
libshared.so: $(objects)
\t$(CC) -shared -o $@ $(objects)
%.o: %.c unit.h
\t$(CC) $(CFLAGS) -fPIC -c -o $@ $< -save-temps=obj
%.d: %.c
\t$(CC) -MM -MF $@ $<
"""


def prepare(folder):
    comparison.source_tree(folder / "source")
    project = folder / "project"
    project.mkdir()
    (project / "Makefile").write_text(MAKEFILE)
    (project / "unit.h").write_text("".join(f"int unit{i}(int);\n" for i in range(UNITS)))
    for i in range(UNITS):
        table = ",".join(str(i * n % 251) for n in range(5000))
        (project / f"unit{i}.c").write_text(
            f'#include "unit.h"\nstatic const unsigned char t[] = {{{table}}};\n'
            f"int unit{i}(int x) {{ return t[x % 5000] + x; }}\n")
    calls = " + ".join(f"unit{i}(n * {i + 7})" for i in range(UNITS))
    (project / "main.c").write_text(
        '#include <stdio.h>\n#include "unit.h"\nint main(void) {\n'
        f'  for (int n = 0; n < 20; ++n) printf("%d\\n", {calls});\n}}\n')


CASES = {
    "git": ["git init -q repo", "cp -a source/. repo", "cd repo",
            "git add -A", "git commit -q -m first", "sed -i 's/1/one/' words",
            "git commit -q -a -m second", "git branch side HEAD~1", "git checkout -q side",
            "echo side > side", "git add side", "git commit -q -m side", "git checkout -q main",
            "git merge -q --no-edit side", "git tag -a -m tagged v1",
            "git stash list", "git rm -q deep/file7", "git commit -q -m removed",
            "git gc -q", "git fsck --full --strict", "git log --format=%H%s", "git status --short",
            "cd ..", "git clone -q repo local", "git clone -q --no-local --bare repo bare",
            "git -C local config gc.autoDetach false",
            "for i in $(seq 8); do echo $i >> local/words; git -C local commit -q -a -m $i; done",
            "git -C local repack -adq", "git -C local push -q origin HEAD:pushed",
            "for r in repo local bare; do git -C $r fsck --full --strict",
            "git -C $r cat-file --batch-all-objects --batch-check; git -C $r show-ref",
            "git -C $r reflog | cat; done",
            # Only what git promises; its index holds times and inode numbers, and its packs depend on
            # how its threads shared the work.
            "git -C repo archive HEAD > archive.tar", "git -C local bundle create -q ../b --all",
            "git bundle list-heads b", "rm -rf repo/.git local/.git bare b"],
    "build": ["cd project", "make -s -j2", "./program", "make -s -j2", "touch -d @1700000000 unit.h",
              "echo '/* changed */' >> unit3.c", "make -s", "./program", "ar tO libunits.a", "nm -g program | grep unit",
              "make -s unit0.d", "cat unit0.d", "strip -o stripped program", "objcopy --strip-debug program",
              "./stripped", "./program"],
}
ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "C", "GIT_COMMITTER_EMAIL": "c@example.org",
    "GIT_AUTHOR_DATE": "1600000000 +0000", "GIT_COMMITTER_DATE": "1600000000 +0000",
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "init.defaultBranch", "GIT_CONFIG_VALUE_0": "main",
}

if __name__ == "__main__":
    comparison.main(__doc__, CASES, prepare, env=ENVIRONMENT)
