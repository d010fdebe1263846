# SPDX-License-Identifier: BSD-3-Clause
"""Colours of the report. One system has one colour, everywhere: those of Okabe and Ito, which people
with a colour-blindness can tell apart; in the dark the ones that would be too dark are lighter."""

# What is drawn -> (colour on white, colour in the dark). The names are those of the page's variables.
INK = {
    "ink": ("#1c2733", "#e6ebf0"),
    "soft": ("#5f6b77", "#9aa7b4"),
    "grid": ("#dfe4e9", "#2c3742"),
}
SYSTEMS = {
    "through": ("#0072b2", "#4aa8e0"),
    "nvcache": ("#12609d", "#97c9ec"),
    "tmpfs": ("#e69f00", "#f0b429"),
    "fsync": ("#d55e00", "#f07f3c"),
    "eatmydata": ("#009e73", "#2cc298"),
    "fsync1000": ("#cc79a7", "#e094bd"),
    "pagecache": ("#8a8f94", "#a3a9ae"),
    "passthrough": ("#56b4e9", "#7cc6ef"),
    "limit": ("#3b3f44", "#d8dce0"),
    "inpool": ("#7b5ea7", "#a98bd4"),
    "inslowpool": ("#a6761d", "#cfa04a"),
}
# A suite's own systems, in their order.
OTHERS = (("#7b5ea7", "#a98bd4"), ("#a6761d", "#cfa04a"), ("#1b8a8f", "#45bcc1"),
          ("#b0413e", "#dd7471"), ("#6b8e23", "#9cc24a"))
# Steps of one parameter, from the least to the most.
STEPS = (("#93c1e1", "#356a97"), ("#6aaad8", "#3d84ba"), ("#3387c4", "#62a8db"),
         ("#12609d", "#97c9ec"), ("#073763", "#d3e8f8"))


def variables():
    """Name of the page's variable -> (light, dark)."""
    return (INK | {f"system-{name}": pair for name, pair in SYSTEMS.items()}
            | {f"other-{i}": pair for i, pair in enumerate(OTHERS)}
            | {f"step-{i}": pair for i, pair in enumerate(STEPS)})


def steps(count):
    """So many of STEPS, far from each other."""
    if count == 0:
        return []
    if count == 1:
        return [SYSTEMS["nvcache"][0]]
    last = len(STEPS) - 1
    return [STEPS[round(i * last / (count - 1))][0] for i in range(count)]
