# SPDX-License-Identifier: BSD-3-Clause
"""What was measured over time: [[end of the window in seconds, number], ...], windows without gaps."""

import bisect
import statistics

from harness import model

POINTS = 160  # of a line that is drawn


def after(windows, begin):
    """The mean rate of all that comes after `begin`."""
    amount = time = last = 0.0
    for end, rate in windows:
        part = end - max(last, begin)
        if part > 0:
            amount += rate * part
            time += part
        last = end
    return amount / time if time else 0.0


def progress(windows):
    """MiB/s -> bytes since the start."""
    done, last, found = 0.0, 0.0, []
    for end, rate in windows:
        done += rate * (end - last) * 2**20
        last = end
        found.append([end, done])
    return found


def time_per_block(size):
    """MiB/s -> nanoseconds for each block, with all that is done between two of them."""
    return lambda windows: [[end, size / (rate * 2**20) * 1e9] for end, rate in windows if rate > 0]


def _at(windows, time):
    """The number of the window in which that is."""
    return windows[min(bisect.bisect_left(windows, time, key=lambda w: w[0]), len(windows) - 1)][1]


def line(label, result, metric, system=None, change=None):
    """The median of all runs at each time, with the lowest and the highest; it ends where half of
    the runs have ended."""
    runs = [run["series"][metric] for run in result.runs if run["series"].get(metric)]
    runs = [change(windows) if change else windows for windows in runs]
    runs = [windows for windows in runs if windows]
    if not runs:
        return model.Line(label, [], [], system=system)
    ends = [windows[-1][0] for windows in runs]
    end = statistics.median_low(ends)
    times = sorted({w[0] for w in min(runs, key=lambda windows: abs(windows[-1][0] - end))})
    if len(times) > POINTS:
        times = [times[i * (len(times) - 1) // (POINTS - 1)] for i in range(POINTS)]
    y, low, high = [], [], []
    for time in times:
        values = [_at(windows, time) for windows in runs if windows[-1][0] >= time * 0.999] or [
            _at(runs[0], time)]
        y.append(statistics.median(values))
        low.append(min(values))
        high.append(max(values))
    return model.Line(label, times, y, low, high, system)
