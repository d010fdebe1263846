# SPDX-License-Identifier: BSD-3-Clause
"""What NVCache costs where it has nothing to do."""

import os
import statistics
import time

from harness import model, units

EXECS = 50
CALLS = ("read", "write", "pread", "lseek")


def _exec_seconds(program, environment):
    """From fork to the end of a program that does nothing. Spawned from here, so that both kinds pay
    the same for Python."""
    begin = time.perf_counter()
    os.waitpid(os.posix_spawn(program, [program], environment), 0)
    return time.perf_counter() - begin


class Overhead(model.Suite):
    name = "overhead"
    title = "Where NVCache has nothing to do"
    about = ("A program that opens no file for writing, from its start to its end, and calls on "
             "descriptors that are not cached; without and with the library.")

    def cases(self, scale):
        turns = scale.choose(1, 20, 60)
        yield model.Case("overhead", ("pagecache", "passthrough"), seconds=0.3, repetitions=turns)

    def run(self, bench, case, system, scale):
        program = str(bench.program("nvcache_overhead"))
        with bench.place(system, pool="64M") as place:
            execs = [_exec_seconds(program, place.environment)
                     for _ in range(scale.choose(5, EXECS, EXECS))]
            calls = dict(line.split() for line in place.run([program, "calls"]).splitlines())
        return [model.Outcome("exec", {}, {"seconds": statistics.median(execs)})] + [
            model.Outcome("call", {"call": name}, {"ns": float(calls[name])}) for name in CALLS]

    def _pairs(self, results):
        for name, metric, parameters in (("exec", "seconds", {}),
                                         *(("call", "ns", {"call": call}) for call in CALLS)):
            pair = [results.find(self.name, name, system, **parameters)
                    for system in ("pagecache", "passthrough")]
            if all(pair):
                what = "start and end of a program" if name == "exec" else f"`{parameters['call']}`"
                yield what, metric, *pair

    def summary(self, results):
        found = {what: (metric, with_it.median(metric) - without.median(metric))
                 for what, metric, without, with_it in self._pairs(results)}
        if len(found) < 1 + len(CALLS):
            return None
        metric, first = found.pop("start and end of a program")
        most = max(more for _, more in found.values())
        return (f"A program takes {units.text(first, model.METRICS[metric].unit)} longer to start and "
                f"end, and a call on a file that is not cached at most {units.text(most, 'ns')}.")

    def tables(self, results):
        rows = []
        for what, metric, without, with_it in self._pairs(results):
            unit = model.METRICS[metric].unit
            more = with_it.median(metric) - without.median(metric)
            rows.append([what, *(units.text(r.median(metric), unit) for r in (without, with_it)),
                         f"{'+' if more >= 0 else '−'}{units.text(abs(more), unit)}"])
        return [model.Table("Where NVCache has nothing to do", ["", "without", "with", "more"], rows)]
