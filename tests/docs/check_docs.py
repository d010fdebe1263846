#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The documentation says what the code says:

  docs/pool-format.md  its tables against the structures, static_asserts and constants of the format
  docs/disk.md         its tables against the structures of a journal's format
  docs/settings.md     variables, defaults, options and counters against the sources
  docs/posix.md        every wrapped name, once, in a row whose test really calls it; every system call
                       that the kernel's headers have, once, as the code handles it by its number
  CONTRIBUTING.md      every path in it is there
  CHANGELOG.md         its newest version, and the pool format of that, are those of the code
  *.md                 links within the tree lead somewhere

Prints every difference; exit code 1 if there is one."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FORMAT = tuple(f"src/pool/{name}.h" for name in (
    "layout", "superblock", "segment_header", "shared_state", "byte_locks", "statistics", "file_record",
    "name_record")) + ("src/nvlog/record.h",)

wrong = []
checked = 0


def check(ok, text):
    global checked
    checked += 1
    if not ok:
        wrong.append(text)


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def without_comments(source):
    return re.sub(r"//.*", "", source)


def compare(what, documented, actual, where, source):
    """Both are sets of names, or dictionaries by name."""
    for name in sorted(set(actual) - set(documented)):
        check(False, f"{where}: {what}{name} of {source} is missing")
    for name in sorted(set(documented) - set(actual)):
        check(False, f"{where}: {what}{name} is not in {source}")
    for name in sorted(set(documented) & set(actual)):
        same = isinstance(actual, set) or documented[name] == actual[name]
        check(same, "" if same else
              f"{where}: {what}{name}: {documented[name]}, but {actual[name]} in {source}")


def rows(text, header):
    """The cells of every table whose header begins with these words."""
    inside = False
    for line in text.splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not inside and cells[:len(header)] == list(header):
            inside = True
        elif inside and not (cells[0] and set(cells[0]) <= set("-:")):
            yield cells


# ---------------------------------------------------------------------------------------------
# The pool's format.

SIZES = {"char": 1, "uint8_t": 1, "uint16_t": 2, "Kind": 2, "uint32_t": 4, "int32_t": 4,
         "SegmentKind": 4, "Deed": 4, "uint64_t": 8, "int64_t": 8, "Lsn": 8, "Identity": 72}


def evaluate(expression, constants):
    """A constant expression of the format, which is close to Python's."""
    expression = re.sub(r"\b(?:pool::)", "", expression)
    expression = re.sub(r"uint64_t\{(\w+)\}", r"\1", expression)
    expression = re.sub(r"\b(0x[0-9a-fA-F]+|\d+)[uUlL]*\b", r"\1", expression)
    if not re.fullmatch(r"[\w\s+*<>()~/-]+", expression):
        return None
    try:
        return eval(expression.replace("/", "//"), {"__builtins__": {}}, dict(constants))
    except (NameError, SyntaxError):
        return None


def format_of_sources(paths=FORMAT):
    """Constants, and per structure: size, {field: (offset, size)}, {field: asserted offset}."""
    constants, structures = {}, {}
    for path in paths:
        source = without_comments(read(path))
        for name, value in re.findall(r"inline constexpr \w+ (k\w+) = ([^;]+);", source):
            number = evaluate(value, constants)
            if number is not None:
                constants[name] = number
        for name, body in re.findall(r"struct (?:alignas\([\w:]+\) )?(\w+) \{(.*?)\n\};", source, re.S):
            fields, end = {}, 0
            for kind, field, count in re.findall(r"(\w+) (\w+)(?:\[(\w+)\])?;", body):
                size = SIZES[kind]
                unit = min(size, 8)  # aligned to
                end = (end + unit - 1) // unit * unit
                length = size * (evaluate(count, constants) if count else 1)
                fields[field] = (end, length)
                end += length
            asserts = {field: evaluate(value, constants) for field, value in
                       re.findall(rf"static_assert\(offsetof\({name}, (\w+)\) == ([^)]+)\);", source)}
            size = re.search(rf"static_assert\(sizeof\({name}\) == ([\w:]+)", source)
            size = evaluate(size.group(1), constants) if size else end
            if asserts:  # not Geometry, which is on no medium
                structures[name] = (size, fields, asserts)
    return constants, structures


def check_format():
    where, source = "docs/pool-format.md", " and ".join(FORMAT)
    text = read(where)
    constants, structures = format_of_sources()

    documented = {cells[0].strip("`"): int(cells[1], 0) for cells in rows(text, ("constant", "value"))}
    compare("constant ", documented,
            {name: constants.get(name) for name in documented if name in constants}, where, source)
    missing = [name for name in constants if name not in text
               and name not in ("kMaxHandle", "kMaxPath")]
    check(not missing, f"{where}: constants are missing: {', '.join(missing)}")

    # Each structure's table stands behind a line "`Name`, N bytes".
    parts = re.split(r"^`(\w+)`, (\d+) bytes", text, flags=re.M)
    tables = {name: (int(size), part) for name, size, part in zip(parts[1::3], parts[2::3], parts[3::3])}
    compare("structure ", set(tables), set(structures), where, source)
    for name in sorted(set(tables) & set(structures)):
        documented_size, part = tables[name]
        size, fields, asserts = structures[name]
        check(documented_size == size, f"{where}: {name} has {documented_size} bytes, but {size} in {source}")
        table = {cells[2].strip("`"): (int(cells[0]), int(cells[1]))
                 for cells in rows(part, ("offset", "size", "field"))}
        compare(f"offset and size of {name}.", table, fields, where, source)
        compare(f"offset of {name}.", {field: table[field][0] for field in asserts if field in table},
                asserts, where, "the static_asserts")
        # The other way: what the table says is asserted, but for reserved fields: what lies between.
        for field in table:
            check(field in asserts or field == "zero",
                  f"{source}: no static_assert for the offset of {name}.{field}")


def check_journal():
    where, source = "docs/disk.md", "src/journal/format.h"
    text = read(where)
    _, structures = format_of_sources((source,))
    for name, what in (("Header", "header"), ("BatchHeader", "batch")):
        size, fields, asserts = structures[name]
        table = {cells[2].strip("`"): (int(cells[0]), int(cells[1]))
                 for cells in rows(text, ("offset", "size", f"field of a {what}")) if cells[2] and cells[0] != str(size)}
        compare(f"offset and size of {name}.", table, fields, where, source)
        compare(f"offset of {name}.", {field: table[field][0] for field in asserts if field in table}, asserts, where,
                "the static_asserts")


# ---------------------------------------------------------------------------------------------
# Settings.

def parse_size(text):
    number = re.fullmatch(r"(\d+)([kMGT]?)", text)
    return int(number.group(1)) << {"": 0, "k": 10, "M": 20, "G": 30, "T": 40}[number.group(2)]


def check_settings():
    where = "docs/settings.md"
    text = read(where)
    table = {cells[0].strip("`"): cells for cells in rows(text, ("variable",))}
    known = {f"NVCACHE_{name}" for name in
             re.findall(r'\bis\("(\w+)"\)', read("src/settings/settings.cc"))}
    check(len(known) > 5, "src/settings/settings.cc: the settings cannot be found any more")
    compare("setting ", set(table), known, where, "src/settings/settings.cc")
    declared = re.findall(r"^  (?:bool|uint64_t) \w+ = ([^;]+);\s*// (NVCACHE_\w+)",
                          read("src/settings/settings.h"), re.M)
    check(len(declared) > 5, "src/settings/settings.h: the defaults cannot be found any more")
    for value, name in declared:
        actual = {"true": 1, "false": 0}.get(value)
        actual = evaluate(value, {}) if actual is None else actual
        documented = table.get(name, ["", "", "none"])[2]
        documented = re.split(r"[;\s]", documented.replace("`", ""))[0]
        documented = 0 if documented == "none" else parse_size(documented)
        check(documented == actual, f"{where}: default of {name}: {documented}, but {actual} in the code")
    # Every variable that users are told of is a setting, or an option of CMake's; contributors hear of macros.
    others = set(re.findall(r"^(?:option|set)\((NVCACHE_\w+)", read("CMakeLists.txt"), re.M))
    for folder in ("src", "libc-shim"):
        for path in (ROOT / folder).rglob("*.[ch]*"):
            others |= set(re.findall(r"^ *#define (NVCACHE_\w+[A-Z])\b", path.read_text(encoding="utf-8"), re.M))
    check(len(others) > 10, "the options of CMakeLists.txt cannot be found any more")
    for path in documents():
        if "/" in path and not path.startswith("docs/"):
            continue
        for name in set(re.findall(r"\bNVCACHE_[A-Z][A-Z_]*[A-Z]\b", read(path))):
            check(name in known or name in others, f"{path}: {name} is not a setting")

    run = read("recovery/tool/run.cc")
    options = dict((setting, option) for option, setting in re.findall(r'value\("(--[\w-]+)", "(\w+)"', run))
    for setting, option in options.items():
        cell = table.get(f"NVCACHE_{setting}", ["", ""])[1]
        check(f"`{option} " in cell, f"{where}: NVCACHE_{setting}: {option} is missing")
    for option in set(re.findall(r'"(--[a-z-]+[a-z])"', run)):
        check(option in text, f"{where}: the option {option} of nvcache run is missing")

    counters = dict(re.findall(r'\{"(\w+)", "([^"]+)",\s*&pool::Statistics::', read("recovery/tool/counters.h")))
    check(len(counters) > 5, "recovery/tool/counters.h: the counters cannot be found any more")
    documented = {cells[1].strip("`"): cells[0] for cells in rows(text, ("counter", "in JSON"))}
    compare("counter ", documented, counters, where, "recovery/tool/counters.h")


# ---------------------------------------------------------------------------------------------
# Calls.

def check_calls():
    where, source = "docs/posix.md", "libc-shim/preload/wrapped.def"
    wrapped = re.findall(r"^NVCACHE_\w+\((\w+)", read(source), re.M)
    check(len(wrapped) > 100, f"{source}: the names cannot be found any more")
    documented = []
    for calls, what, tests in rows(read(where), ("calls", "what happens", "test")):
        names = re.findall(r"`(\w+)`", calls)
        check(" ".join(f"`{name}`" for name in names) == calls, f"{where}: more than names: {calls}")
        check(what != "", f"{where}: nothing is said of {calls}")
        documented += names
        paths = [path for path in re.findall(r"\(\.\./(tests/[^)]+)\)", tests) if (ROOT / path).is_file()]
        check(bool(paths), f"{where}: no test for {calls}")
        called = [set(re.findall(r"\w+", without_comments(read(path)))) for path in paths]
        for path, words in zip(paths, called):
            check(not words.isdisjoint(names), f"{where}: {path} calls nothing of {calls}")
        for name in names:
            check(any(name in words for words in called), f"{where}: {name} is not in {', '.join(paths)}")
    compare("", set(documented), set(wrapped), where, source)
    for name in sorted({name for name in documented if documented.count(name) > 1}):
        check(False, f"{where}: {name} has more than one row")


# The system calls of the machine that this runs on; without its headers, what is known is compared.
HEADER = pathlib.Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")


def check_numbers():
    where, source = "docs/posix.md", "libc-shim/calls/by_number.cc"
    handled = set(re.findall(r"\bNVCACHE_ON\(SYS_(\w+)", read(source)))
    check(len(handled) > 100, f"{source}: the numbers cannot be found any more")
    table = list(rows(read(where), ("by number", "what happens", "why, or how")))
    documented = {}
    for calls, what, why in table:
        names = re.findall(r"`(\w+)`", calls)
        check(" ".join(f"`{name}`" for name in names) == calls, f"{where}: more than names: {calls}")
        check(what != "" and why != "", f"{where}: nothing is said of {calls}")
        for name in names:
            check(name not in documented, f"{where}: the system call {name} has more than one row")
            documented[name] = what
    compare("system call ", {name for name, what in documented.items() if what != "the kernel's"},
            handled, where, source)
    if HEADER.exists():
        known = set(re.findall(r"^#define __NR_(\w+) ", HEADER.read_text(), re.M))
        check(len(known) > 300, f"{HEADER}: the numbers cannot be found any more")
        for name in sorted(known - set(documented)):
            check(False, f"{where}: {name} of {HEADER} has no row by number")
    called = {word for path in ROOT.glob("tests/preload/*.c")
              for word in re.findall(r"\bSYS_(\w+)", without_comments(path.read_text(encoding="utf-8")))}
    # A child that shares its parent's stack would return from syscall() twice.
    for name in sorted(handled - called - {"vfork"}):
        check(False, f"tests/preload: no program calls {name} by its number")


# ---------------------------------------------------------------------------------------------
# For contributors.

def check_contributing():
    where = "CONTRIBUTING.md"
    paths = re.findall(r"(?:^|[ `])((?:bench|docs|libc-shim|packaging|recovery|scripts|src|tests)/[\w./-]*\w)",
                       read(where), re.M)
    check(len(paths) > 50, f"{where}: the paths cannot be found any more")
    for path in set(paths):
        check((ROOT / path).exists(), f"{where}: there is no {path}")

    where = "CHANGELOG.md"
    newest = re.search(r"^## (\S+) - \d{4}-\d\d-\d\d\n\s*Pool format (\d+)\.", read(where), re.M)
    check(newest is not None, f"{where}: the newest version and its pool format cannot be found any more")
    if newest:
        version = re.search(r"project\(nvcache VERSION (\S+)", read("CMakeLists.txt")).group(1)
        pool = re.search(r"\bkVersion = (\d+);", read("src/pool/layout.h")).group(1)
        # A format that is newer than the newest version is said before it.
        latest = re.search(r"^Pool format (\d+)\.", read(where), re.M).group(1)
        check((newest[1], latest) == (version, pool),
              f"{where}: version {newest[1]}, format {latest}, but {version}, {pool} in the code")


# ---------------------------------------------------------------------------------------------
# Links.

def documents():
    """Not those of build folders, which change meanwhile."""
    for place in sorted(ROOT.iterdir()):
        if not place.name.startswith((".", "build")):
            for path in sorted(place.rglob("*.md")) if place.is_dir() else [place] if place.suffix == ".md" else []:
                yield path.relative_to(ROOT).as_posix()


def anchors(text):
    """As GitHub makes them of headings."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    found = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        found.add(re.sub(r"[^\w\- ]", "", heading).replace(" ", "-"))
    return found


def check_links():
    for path in documents():
        text = read(path)
        prose = re.sub(r"^```.*?^```|^ {4}[^\n]*$|`[^`\n]*`", "", text, flags=re.M | re.S)
        links = re.findall(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)", prose)
        links += re.findall(r"(?:src|srcset|href)=\"([^\"]+)\"", prose)
        for link in links:
            if re.match(r"[a-z][a-z+.-]*:", link):
                continue
            target, _, anchor = link.partition("#")
            file = ((ROOT / path).parent / target).resolve() if target else ROOT / path
            check(file.exists(), f"{path}: link to {link}: there is no {target}")
            if anchor and file.suffix == ".md" and file.exists():
                check(anchor in anchors(file.read_text(encoding="utf-8")),
                      f"{path}: link to {link}: no heading makes #{anchor}")


def main():
    check_format()
    check_journal()
    check_settings()
    check_calls()
    check_numbers()
    check_contributing()
    check_links()
    print("\n".join(wrong) if wrong else f"documentation: {checked} statements, all as in the code")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
