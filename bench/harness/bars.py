# SPDX-License-Identifier: BSD-3-Clause
"""Bars side by side: a group for each thing measured, in it one for each system."""

from harness import model, systems


def panel(title, groups, names, metric, log=True):
    """`groups`: name -> function from a system's name to its Result, or None. Medians with their
    spread; None where nothing was measured."""
    lines = []
    for system in names:
        found = [find(system) for find in groups.values()]
        found = [result if result and result.values(metric) else None for result in found]
        if not any(found):
            continue
        spread = [result.spread(metric) if result else (None, None) for result in found]
        lines.append(model.Line(systems.SYSTEMS[system], list(groups),
                                [result.median(metric) if result else None for result in found],
                                [low for low, _ in spread], [high for _, high in spread], system))
    if not lines:
        return None
    # A group that no system has is not drawn.
    there = [at for at in range(len(groups)) if any(line.y[at] is not None for line in lines)]
    for line in lines:
        for field in ("x", "y", "low", "high"):
            setattr(line, field, [getattr(line, field)[at] for at in there])
    what = model.METRICS[metric]
    return model.Panel(title, "", what.title, lines, bars=True, log_y=log, y_unit=what.unit)


def figure(name, title, caption, panels):
    """A list, as Suite.figures returns it: empty without panels."""
    panels = [each for each in panels if each]
    return [model.Figure(name, title, caption, panels)] if panels else []
