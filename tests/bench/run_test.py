#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""run_test.py BUILD [SUITE...]: bench/run --smoke works, for these suites or for all, and what it writes is whole. Not
how fast anything is."""

import csv
import html.parser
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MEMORY = pathlib.Path("/dev/shm")
LEFT = "nvcache-test-bench-*"
# What a smoke run is too short for: many calls, a large pool.
TOO_MUCH = ("percentile", "1 GiB")
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Nesting(html.parser.HTMLParser):
    """That every element is closed, and that nothing is from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.wrong = [], set(), []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and not value.startswith("#"):
                self.wrong.append(f"{tag} {name}={value}")
            if name == "id":
                if value in self.ids:
                    self.wrong.append(f"id {value} twice")
                self.ids.add(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> in {self.open[-3:]}, line {self.getpos()[0]}")


def left(folder):
    return {path for parent in (MEMORY, folder) for path in parent.glob(LEFT)}


def check(condition, text):
    if not condition:
        sys.exit(f"run_test: {text}")


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    suites = [word for suite in sys.argv[2:] for word in ("--only", suite)]
    before = left(build)
    with tempfile.TemporaryDirectory() as output:
        output = pathlib.Path(output) / "results"
        command = [ROOT / "bench/run", "--smoke", "--build", build, "--output", output]
        status = subprocess.run([*command, *suites], check=False).returncode
        check(status == 0, f"bench/run ended with status {status}")

        document = json.loads((output / "results.json").read_text(encoding="utf-8"))
        check((document["format"], document["version"]) == ("nvcache-bench", 1), "another format")
        check(not document["failures"] and not document["interrupted"], document["failures"])
        ran = set()
        for suite in document["suites"]:
            if suite["state"] == "run":
                ran.add(suite["name"])
                check(0 < suite["planned"] == suite["done"],
                      f"{suite['name']}: {suite['done']} of {suite['planned']} runs")
        expected = {"fio", "overhead", "recovery"}
        if re.search(r"^NVCACHE_MUSL:BOOL=(ON|1)$", (build / "CMakeCache.txt").read_text(), re.M):
            expected.add("frontends")
        check(expected <= ran, f"suites that ran: {sorted(ran)}")
        check(ran == {result["suite"] for result in document["results"]}, "suites without results")
        for goal in document["goals"]:
            small = any(words in goal["what"] for words in TOO_MUCH)
            check(goal["suite"] not in ran or small or goal["met"] in (True, False),
                  f"{goal['suite']}: not evaluated: {goal['what']}")
        check(any(goal["suite"] == "fio" for goal in document["goals"]), "no goals")

        numbers = sum(len(run["metrics"]) for result in document["results"] for run in result["runs"])
        with open(output / "results.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        check(len(rows) == 1 + numbers and {len(row) for row in rows} == {8}, "results.csv")

        figures = sorted(path.stem for path in output.glob("*.svg"))
        check(figures == sorted(path.stem for path in output.glob("*.png")), "PNG and SVG differ")
        check({"fio-log-size", "fio-batch", "fio-systems", "recovery"} <= set(figures), figures)
        for name in figures:
            xml.etree.ElementTree.parse(output / f"{name}.svg")
            check((output / f"{name}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n", f"{name}.png")

        text = (output / "report.html").read_text(encoding="utf-8")
        page = Nesting()
        page.feed(text)
        page.close()
        check(not page.open and not page.wrong, f"report.html: {page.wrong[:3]} {page.open}")
        drawings = re.findall(r"<svg.*?</svg>", text, re.S)
        check(len(drawings) >= len(figures) + len(document["goals"]) // 2, "report.html: no figures")
        for drawing in drawings:
            xml.etree.ElementTree.fromstring(drawing)
        check(all(f'id="{name}"' in text for name in ran), "report.html: a suite is missing")

        for more, expected in ((["--from", output, "--only", "fio"], 0), (["--only", "nothing"], 2),
                               (["--folder", MEMORY], 2)):
            done = subprocess.run([*command, *more], stdout=subprocess.DEVNULL, check=False,
                                  stderr=subprocess.DEVNULL)
            check(done.returncode == expected, f"bench/run {more}: status {done.returncode}")
    check(left(build) <= before, f"left behind: {left(build) - before}")
    print(f"{len(ran)} suites, {numbers} numbers, {len(figures)} figures")


if __name__ == "__main__":
    main()
