# SPDX-License-Identifier: BSD-3-Clause
"""Draws figures: as files (PNG, SVG), and each panel by itself for the page."""

import io
import re
import textwrap

import matplotlib

matplotlib.use("Agg")
# pylint: disable=wrong-import-position
import matplotlib.pyplot as plt
import matplotlib.ticker as ticker

from harness import systems, units
from report import style

INK, SOFT, GRID = (style.INK[name][0] for name in ("ink", "soft", "grid"))
MARKERS = "osD^vP"
MANY_POINTS = 14  # with more the spread is a band, else whiskers
WIDE, HALF = 9.4, 5.0  # inches; panels of figures with one column, with several
LINE_HEIGHT, BAR_HEIGHT = 2.7, 0.24
LABEL_POINTS = 8.5
STYLE = {
    "font.family": "sans-serif", "font.size": 9, "text.color": INK, "axes.labelcolor": SOFT,
    "axes.edgecolor": GRID, "axes.linewidth": 0.8, "axes.axisbelow": True, "axes.grid": True,
    "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False,
    "grid.color": GRID, "grid.linewidth": 0.7, "xtick.color": GRID, "ytick.color": GRID,
    "xtick.labelcolor": SOFT, "ytick.labelcolor": SOFT, "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5, "ytick.left": False, "ytick.minor.left": False,
    "xtick.minor.bottom": False, "svg.fonttype": "none", "svg.hashsalt": "nvcache",
    "figure.facecolor": "white", "axes.facecolor": "none", "savefig.facecolor": "white",
}


def _system(name):
    """The system that a label names, or None."""
    for system, title in systems.SYSTEMS.items():
        if name in (system, title, systems.SHORT.get(system)):
            return system
    return None


def _names(panel):
    """Each line's system, or the label where it has none."""
    return [line.system or _system(line.label) or line.label for line in panel.lines]


def _colours(figure):
    """Name (of _names) -> colour, the same in all panels of the figure. Lines that are no systems, and
    not beside one, are steps of a parameter."""
    found, steps, others = {}, [], []
    for panel in figure.panels:
        names = _names(panel)
        beside = any(name in style.SYSTEMS for name in names)
        for name in names:
            if name in style.SYSTEMS:
                found[name] = style.SYSTEMS[name][0]
            else:
                (others if beside else steps).append(name)
    steps = [name for name in dict.fromkeys(steps) if name not in others]
    if len(steps) > len(style.STEPS):
        others, steps = others + steps, []
    found |= dict(zip(steps, style.steps(len(steps))))
    return found | {name: style.OTHERS[i % len(style.OTHERS)][0]
                    for i, name in enumerate(dict.fromkeys(others))}


def _short(line, name):
    """The label beside a line."""
    if line.label in systems.SYSTEMS.values() or line.label in systems.SYSTEMS:
        return systems.SHORT.get(name, systems.SYSTEMS.get(name, line.label))
    return line.label


def _axis(axis, values, unit, logarithmic):
    """Ticks in one unit. Returns by what values are divided."""
    values = [value for value in values if value is not None]
    top = max(values, default=1) or 1
    if logarithmic and not units.is_binary(unit):
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: units.text(value, unit)))
        return 1
    if logarithmic:
        factor, name = units.step(2**20 if unit == "B" else 1, unit)
    else:
        factor, name = units.step(top, unit)
    axis.set_major_formatter(ticker.FuncFormatter(
        lambda value, _: f"{units.digits(round(value, 9))} {name}".strip()))
    return factor


def _log_ticks(axis, low, high):
    decades = high / low if low > 0 else 10
    axis.set_major_locator(ticker.LogLocator(
        base=10, subs=(1,) if decades > 30 else (1, 2, 5), numticks=8))
    axis.set_minor_locator(ticker.NullLocator())


def _label_lines(ax, ends, width):
    """Labels to the right of the axes, as near to the ends of their lines as there is room. `ends`:
    (text, colour, whether the text has it, too, x, y)."""
    ax.figure.canvas.draw()
    height = ax.get_window_extent().height / ax.figure.dpi * 72
    to_points = ax.transAxes.inverted()
    placed = []
    for text, colour, coloured, x, y in ends:
        at = to_points.transform(ax.transData.transform((x, y)))
        text = textwrap.fill(text, width)
        placed.append([min(max(at[1], 0), 1) * height, (text.count("\n") + 1) * (LABEL_POINTS + 2),
                       text, colour, colour if coloured else SOFT, at])
    placed.sort(key=lambda entry: entry[0])
    # Pushed up out of each other, then down again from the upper end.
    bottom = -height * 0.08
    for entry in placed:
        entry[0] = max(entry[0], bottom + entry[1] / 2)
        bottom = entry[0] + entry[1] / 2
    top = height * 1.06
    for entry in reversed(placed):
        entry[0] = min(entry[0], top - entry[1] / 2)
        top = entry[0] - entry[1] / 2
    for y, _, text, colour, text_colour, at in placed:
        ax.annotate(text, (at[0], at[1]), (1.025, y / height), xycoords="axes fraction",
                    textcoords="axes fraction", color=text_colour, fontsize=LABEL_POINTS,
                    va="center", ha="left", linespacing=1.1, annotation_clip=False,
                    arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.7, "alpha": 0.6,
                                "shrinkA": 1, "shrinkB": 2})


def _draw_lines(ax, panel, colours, wide):
    lines = [(line, name) for line, name in zip(panel.lines, _names(panel)) if line.x]
    if not lines:
        return
    xs = [x for line, _ in lines for x in line.x]
    ys = [y for line, _ in lines for values in (line.y, line.low, line.high) for y in values or ()]
    if panel.log_x:
        ax.set_xscale("log")
    if panel.log_y:
        ax.set_yscale("log")
    by_x = _axis(ax.xaxis, xs, panel.x_unit, panel.log_x)
    by_y = _axis(ax.yaxis, ys, panel.y_unit, panel.log_y)
    ends = []
    few = max(len(line.x) for line, _ in lines) <= MANY_POINTS
    for number, (line, name) in enumerate(lines):
        colour = colours[name]
        x, y = [v / by_x for v in line.x], [v / by_y for v in line.y]
        order = 3 if name == "nvcache" else 2
        ax.plot(x, y, color=colour, linewidth=1.9 if order == 3 else 1.5, zorder=order + 0.2,
                marker=MARKERS[number % len(MARKERS)] if few else None, markersize=4.2,
                markeredgewidth=0, solid_capstyle="round")
        if line.low and line.high:
            low, high = [v / by_y for v in line.low], [v / by_y for v in line.high]
            if few:
                ax.vlines(x, low, high, color=colour, linewidth=1.1, alpha=0.55, zorder=order)
            else:
                ax.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0, zorder=order - 1)
        if line.label:
            ends.append((_short(line, name), colour, name in style.SYSTEMS, x[-1], y[-1]))
    positive = [y / by_y for y in ys if y > 0]
    if panel.log_y and positive:
        _log_ticks(ax.yaxis, min(positive), max(positive))
    elif not panel.log_y:
        ax.set_ylim(bottom=0)
        ax.yaxis.set_major_locator(ticker.MaxNLocator(5))
    choices = sorted({x / by_x for x in xs})
    if len(choices) <= 8:
        ax.set_xticks(choices)
        ax.xaxis.set_minor_locator(ticker.NullLocator())
    elif panel.log_x:
        _log_ticks(ax.xaxis, choices[0], choices[-1])
    else:
        ax.set_xlim(left=min(0, choices[0]), right=choices[-1])
    ax.grid(axis="x", visible=False)
    ax.set_xlabel(panel.x_title)
    _label_lines(ax, ends, 30 if wide else 17)


def _draw_bars(ax, panel, colours):
    """Horizontal: names have room. On a logarithmic axis, where bars would have no beginning, dots."""
    lines = [(line, name) for line, name in zip(panel.lines, _names(panel)) if line.x]
    if not lines:
        return
    groups = list(dict.fromkeys(x for line, _ in lines for x in line.x))
    values = [y for line, _ in lines for part in (line.y, line.high) for y in part or ()
              if y is not None]
    by = _axis(ax.xaxis, values, panel.y_unit, panel.log_y)
    if panel.log_y:
        ax.set_xscale("log")
    thick = 0.8 / len(lines)
    for number, (line, name) in enumerate(lines):
        for at, (group, y) in enumerate(zip(line.x, line.y)):
            if y is None:
                continue
            colour = colours[name]
            if len(lines) == 1 and _system(str(group)):
                colour = style.SYSTEMS[_system(str(group))][0]
            place = groups.index(group) + (number - (len(lines) - 1) / 2) * thick
            low = line.low[at] if line.low else y
            high = line.high[at] if line.high else y
            if panel.log_y:
                ax.plot([y / by], [place], marker="o", markersize=6, color=colour, markeredgewidth=0,
                        zorder=3)
            else:
                ax.barh(place, y / by, height=thick * 0.86, color=colour, linewidth=0, zorder=2)
            ax.hlines(place, low / by, high / by, color=INK if not panel.log_y else colour,
                      linewidth=1.1, alpha=0.75, zorder=4)
            ax.annotate(units.text(y, panel.y_unit), (high / by, place), (5, 0),
                        textcoords="offset points", va="center", fontsize=8, color=SOFT)
    ax.set_yticks(range(len(groups)), [textwrap.fill(str(group), 26) for group in groups],
                  color=INK)
    ax.set_ylim(len(groups) - 0.45, -0.55)
    ax.grid(axis="y", visible=False)
    if panel.log_y:
        positive = [y / by for y in values if y > 0]
        low, high = ax.get_xlim()
        ax.set_xlim(low, high * (high / low)**0.18)
        _log_ticks(ax.xaxis, min(positive), max(positive))
    else:
        ax.set_xlim(0, max(values) / by * 1.17)
        ax.xaxis.set_major_locator(ticker.MaxNLocator(5))
    ax.set_xlabel(panel.y_title)
    if len(lines) > 1:
        marks = [plt.Line2D([], [], marker="s", linestyle="", color=colours[name],
                            label=_short(line, name)) for line, name in lines]
        ax.legend(handles=marks, loc="lower left", bbox_to_anchor=(0, 1.0), ncol=min(3, len(lines)),
                  frameon=False, fontsize=LABEL_POINTS, handletextpad=0.2, borderaxespad=0.1,
                  columnspacing=1.4)


def _margins(panel, wide):
    """(left, right, top, bottom) of the axes, in inches."""
    if panel.bars:
        groups = [textwrap.fill(str(x), 26) for line in panel.lines for x in line.x]
        longest = max((len(part) for group in groups for part in group.split("\n")), default=4)
        legend = (len(panel.lines) - 1) // 3 + 1 if len(panel.lines) > 1 else 0
        return 0.25 + longest * 0.066, 0.15, 0.12 + 0.32 * bool(panel.title) + 0.2 * legend, 0.5
    shown = [textwrap.fill(_short(line, name), 30 if wide else 17)
             for line, name in zip(panel.lines, _names(panel)) if line.label]
    longest = max((len(part) for label in shown for part in label.split("\n")), default=0)
    title = 0.3 * bool(panel.title) + 0.18 * bool(panel.y_title)
    return 0.85, 0.2 + longest * 0.068, 0.14 + title, 0.5


def _height(panel):
    if panel.bars:
        _, _, top, bottom = _margins(panel, False)
        groups = len({x for line in panel.lines for x in line.x})
        bars = sum(len(line.x) for line in panel.lines)
        return top + bottom + max(1.0, bars * BAR_HEIGHT + groups * 0.12)
    return LINE_HEIGHT


def _draw(figure, panel, colours, area, size, wide):
    """Into the part `area` (left, bottom, width, height in inches) of a picture of that size."""
    left, right, top, bottom = _margins(panel, wide)
    ax = figure.add_axes(((area[0] + left) / size[0], (area[1] + bottom) / size[1],
                          (area[2] - left - right) / size[0], (area[3] - top - bottom) / size[1]))
    if panel.bars:
        _draw_bars(ax, panel, colours)
    else:
        _draw_lines(ax, panel, colours, wide)
    height = area[1] + area[3]
    figure.text((area[0] + 0.12) / size[0], (height - 0.08) / size[1], panel.title, va="top",
                fontsize=10, fontweight="bold", color=INK)
    if panel.y_title and not panel.bars:
        figure.text((area[0] + 0.12) / size[0], (height - 0.08 - 0.2 * bool(panel.title)) / size[1],
                    panel.y_title, va="top", fontsize=8.5, color=SOFT)


def _svg(figure):
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def write(figure, folder):
    """All panels as one picture: NAME.png and NAME.svg."""
    columns = min(figure.columns, len(figure.panels))
    wide = columns == 1
    width = WIDE if wide else HALF
    rows = [figure.panels[i:i + columns] for i in range(0, len(figure.panels), columns)]
    heights = [max(_height(panel) for panel in row) for row in rows]
    title = 0.45
    size = (width * columns, sum(heights) + title)
    colours = _colours(figure)
    with matplotlib.rc_context(STYLE):
        drawn = plt.figure(figsize=size)
        drawn.text(0.12 / size[0], 1 - 0.12 / size[1], figure.title, va="top", fontsize=12.5,
                   fontweight="bold", color=INK)
        below = size[1] - title
        for row, height in zip(rows, heights):
            below -= height
            for column, panel in enumerate(row):
                own = _height(panel)
                _draw(drawn, panel, colours, (column * width, below + height - own, width, own), size,
                      wide)
        drawn.savefig(folder / f"{figure.name}.png", dpi=160)
        (folder / f"{figure.name}.svg").write_text(_svg(drawn), encoding="utf-8")
        plt.close(drawn)


def inline(figure):
    """The panels as SVG for a page: colours are the page's variables, and nothing is behind."""
    wide = figure.columns == 1 or len(figure.panels) == 1
    colours = _colours(figure)
    names = {pair[0]: name for name, pair in style.variables().items()}
    found = []
    with matplotlib.rc_context(STYLE | {"savefig.facecolor": "none", "figure.facecolor": "none"}):
        for number, panel in enumerate(figure.panels):
            size = (WIDE if wide else HALF, _height(panel))
            drawn = plt.figure(figsize=size)
            _draw(drawn, panel, colours, (0, 0, *size), size, wide)
            text = _svg(drawn)
            plt.close(drawn)
            text = text[text.index("<svg"):]
            text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
            text = re.sub(r' id="[A-Za-z]+[\w.]*_\d+"', "", text)
            # Shapes that are used again have names: in one page they must differ.
            prefix = f"{re.sub('[^a-z0-9]', '', figure.name.lower())}{number}-"
            text = re.sub(r'(id="|url\(#|href="#)([mp][0-9a-f]+)', rf"\g<1>{prefix}\g<2>", text)
            text = re.sub(r"#[0-9a-f]{6}\b", lambda m: f"var(--{names[m.group()]})"
                          if m.group() in names else m.group(), text)
            text = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', "", text, count=1)
            text = re.sub(r"font: ([\w. ]*?)([\d.]+)px [^;\"]*", r"font: \1\2px var(--sans)", text)
            found.append(text)
    return found
