# SPDX-License-Identifier: BSD-3-Clause
"""The pool itself: opening it, what it absorbs, what it needs beside it."""

import json

from harness import model, systems, units

PAGE = 4096
RECORD = 100
MOST_RECORDS = 12_000_000  # a writer that has not waited by then will not
# The cleanup thread waits until a quarter of the log is full, or somebody for room in it.
HELD_BACK = {"BATCH_MIN": 1 << 20, "BATCH_MAX": 1 << 20, "BATCH_DELAY": 60000}
# Where the pending pages are: all over a file of so many bytes.
FILES = {1 << 30: "1 GiB", 64 << 30: "64 GiB"}
# A quarter of the log is more than what is pending.
PENDING_POOL, PENDING_PAGES = 1280 << 20, 65536
PENDING_POOL_SMOKE, PENDING_PAGES_SMOKE = 64 << 20, 2048


class Pool(model.Suite):
    name = "pool"
    title = "The pool"
    about = (
        "Opening: the first `nvcache_open` of a process, through the C API, which reads the settings, "
        "maps the pool, makes its threads and tables, and opens the file; of a clean pool of 1 GiB that "
        "was just made, and of one whose log was written twice over. Absorbing: 100-byte records at "
        "random places of a file, in batches as large as they can be, until a writer has to wait "
        "for room in a log of 1 GiB; what counts is how many were in the log at one time, written less "
        "freed. Memory: 65,536 pages of 4 KiB are pending, none of them in DRAM; counted is what is "
        "`Private_Dirty` in the private mappings of the process, less the same of the same program "
        "without NVCache. The pool's own pages are a shared mapping, and not counted; page tables are "
        "the kernel's, and shown apart.")

    def cases(self, scale):
        size = scale.choose("64M", "1G", "1G")
        cases = [model.Case("open", ("nvcache",), {"pool": size}, seconds=1),
                 model.Case("absorb", ("nvcache",), {"pool": size}, seconds=scale.choose(1, 10, 10),
                            repetitions=scale.choose(1, 3, 5))]
        for file in FILES:
            cases.append(model.Case("memory", ("pagecache", "nvcache"), {"file": file}, seconds=2,
                                    repetitions=scale.choose(1, 3, 5)))
        return cases

    def run(self, bench, case, system, scale):
        return getattr(self, f"_{case.name}")(bench, case, system, scale)

    @staticmethod
    def _driver(bench, place, *words):
        return json.loads(place.run([bench.program("nvcache_pool"), *words]))

    def _open(self, bench, case, system, scale):
        outcomes = []
        library = bench.program("libnvcache-api.so")
        bytes_twice = scale.choose(128 << 20, 2 << 30, 2 << 30)
        with bench.place(system, pool=case.parameters["pool"]) as place:
            file = place.folder / "file"
            self._driver(bench, place, "fill", file, 0)
            for state in ("new", "used"):
                if state == "used":
                    self._driver(bench, place, "fill", file, bytes_twice)
                    if not systems.went_round(bench.counters(place)):
                        raise systems.Broken("the log was not written as a whole")
                if bench.counters(place)["state"] != "clean":
                    raise systems.Broken("the pool is not clean")
                preloaded = place.environment.pop("LD_PRELOAD")
                found = self._driver(bench, place, "open", library, file)
                place.environment["LD_PRELOAD"] = preloaded
                if bench.counters(place)["statistics"]["bytes_cleaned"] != PAGE:
                    raise systems.Broken("the pool was not in use")
                for name in ("open", "write"):
                    outcomes.append(model.Outcome(
                        name, {"pool": case.parameters["pool"], "state": state},
                        {"seconds": found[name]}))
        return outcomes

    def _absorb(self, bench, case, system, scale):
        with bench.place(system, pool=case.parameters["pool"], dram="1M",
                         settings=HELD_BACK) as place:
            found = self._driver(bench, place, "absorb", place.folder / "file",
                                 scale.choose(64 << 20, 1 << 30, 1 << 30), MOST_RECORDS)
            cleaned = bench.counters(place)["statistics"]["entries_cleaned"]
        if cleaned != found["written"]:
            raise systems.Broken(f"{found['written']} records were written, {cleaned} reached the disk")
        if not found["full_waits"]:
            raise systems.Broken(f"the log was never full: {found['written']} records, of which at "
                                 f"most {found['absorbed']} were in it at one time")
        return [model.Outcome("absorb", dict(case.parameters), {"count": found["absorbed"]})]

    def _memory(self, bench, case, system, scale):
        pages = scale.choose(PENDING_PAGES_SMOKE, PENDING_PAGES, PENDING_PAGES)
        pool = scale.choose(PENDING_POOL_SMOKE, PENDING_POOL, PENDING_POOL)
        with bench.place(system, pool=str(pool), dram="1M", settings=HELD_BACK) as place:
            found = self._driver(bench, place, "pending", place.folder / "file",
                                 case.parameters["file"], pages)
            if system == "nvcache":
                cleaned = bench.counters(place)["statistics"]["entries_cleaned"]
                if found["cleaned"] or cleaned != pages:
                    raise systems.Broken(f"of {pages} records {found['cleaned']} were not pending any "
                                         f"more, and {cleaned} reached the disk")
                if found["frames"]:
                    raise systems.Broken(f"{found['frames']} pages were in DRAM")
        parameters = case.parameters | {"pending": pages * PAGE}
        return [model.Outcome("memory", parameters, {"bytes": found["own"]}),
                model.Outcome("page tables", parameters, {"bytes": found["page_tables"]})]

    # -----------------------------------------------------------------------------------------------

    def _opened(self, results, name, state):
        return next(iter(results.select(self.name, name, "nvcache", state=state)), None)

    def _more(self, results, name, file):
        """Bytes that NVCache takes more: the median and the runs', and those that are pending."""
        ours, others = (next(iter(results.select(self.name, name, system, file=file)), None)
                        for system in ("nvcache", "pagecache"))
        if not (ours and others):
            return None
        pairs = others.by_turn("bytes")
        return (ours.median("bytes") - others.median("bytes"),
                [value - pairs[turn] for turn, value in ours.by_turn("bytes").items()
                 if turn in pairs],
                ours.parameters["pending"])

    def goals(self, results):
        opened = self._opened(results, "open", "used")
        what = "opening a clean pool of 1 GiB"
        if opened and opened.parameters["pool"] == "1G":
            low, high = opened.spread("seconds")
            goals = [model.Goal(what, 5, True, 1e3 * opened.median("seconds"), 1e3 * low, 1e3 * high,
                                "ms", "its log was written before")]
        else:
            goals = [model.Goal(what, 5, True, None, unit="ms")]
        absorbed = results.find(self.name, "absorb", "nvcache", pool="1G")
        goals.append(model.Goal("100-byte records in a log of 1 GiB", 5e6, False,
                                absorbed and absorbed.median("count"),
                                *(absorbed.spread("count") if absorbed else ()), unit=""))
        share, low, high, note = None, None, None, ""
        if dense := self._more(results, "memory", 1 << 30):
            share = 100 * dense[0] / dense[2]
            low, high = (100 * end(dense[1]) / dense[2] for end in (min, max))
            if sparse := self._more(results, "memory", 64 << 30):
                note = f"pages of a file of 1 GiB; of 64 GiB: {100 * sparse[0] / sparse[2]:.1f} %"
        goals.append(model.Goal("memory beside DRAM cache and pool, of the pending bytes", 2, True,
                                share, low, high, "%", note))
        return goals

    def tables(self, results):
        tables, rows = [], []
        for state, text in (("new", "just made"), ("used", "log written twice over")):
            found = [self._opened(results, name, state) for name in ("open", "write")]
            if all(found):
                rows.append([text, *(units.text(r.median("seconds"), "s") for r in found)])
        if rows:
            tables.append(model.Table("Opening a clean pool",
                                      ["pool", "first open", "first 4 KiB write"], rows))
        rows = []
        for file, text in FILES.items():
            own, page_tables = (self._more(results, name, file) for name in ("memory", "page tables"))
            if own and page_tables:
                rows.append([f"anywhere in {text}", units.text(own[2], "B"), units.text(own[0], "B"),
                             f"{100 * own[0] / own[2]:.2f} %", units.text(page_tables[0], "B")])
        if rows:
            tables.append(model.Table(
                "Memory", ["4 KiB writes", "pending", "private memory", "share", "page tables"], rows,
                "What NVCache takes more than the same program without it, neither DRAM cache nor "
                "pool. Neighbouring pages share a node of the radix tree."))
        absorbed = results.select(self.name, "absorb", "nvcache")
        if absorbed:
            tables.append(model.Table(
                "Room", ["pool", "100-byte records at one time"],
                [[r.parameters["pool"], units.digits(r.median("count"))] for r in absorbed]))
        return tables
