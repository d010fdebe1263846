# SPDX-License-Identifier: BSD-3-Clause
"""Numbers with units, as people read them: 1.46 µs, 512 MiB, 123 k/s."""

_LADDERS = {
    "ns": ((1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")),
    "s": ((1e-6, "µs"), (1e-3, "ms"), (1, "s")),
    "1/s": ((1, "/s"), (1e3, "k/s"), (1e6, "M/s")),
    "MiB/s": ((2**-10, "KiB/s"), (1, "MiB/s"), (2**10, "GiB/s")),
    "B": ((1, "B"), (2**10, "KiB"), (2**20, "MiB"), (2**30, "GiB"), (2**40, "TiB")),
    "x": ((1, "×"),),
    "%": ((1, "%"),),
    "": ((1, ""),),
}


def digits(number):
    """Three that count; never more than the number has."""
    if number == 0:
        return "0"
    size = abs(number)
    if size >= 100 or float(number).is_integer():
        return f"{number:,.0f}"
    text = f"{number:.3g}"
    return text if "e" not in text else f"{number:.6f}".rstrip("0")


def step(number, unit):
    """(factor, name) in which the number is best written."""
    factor, name = 1, unit
    for factor, name in reversed(_LADDERS.get(unit, ((1, unit),))):
        # A number that rounds up to the next step is written as that one.
        if abs(number) >= factor * 0.9995:
            break
    return factor, name


def is_binary(unit):
    return unit in ("B", "MiB/s")


def text(number, unit=""):
    """With a no-break space before the unit. Units that are not known are written behind."""
    if number is None:
        return "–"
    factor, name = step(number or 1, unit)  # zero has the plain unit
    value = digits(number / factor)
    return f"{value}\u00a0{name}" if name else value


def duration(seconds):
    """For progress: 12 s, 3 min, 1 h 5 min."""
    seconds = round(seconds)
    if seconds < 90:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
