"""The picture of `speed`, from its result alone: ratios of time as bars, or as lines where something grows."""

from collections.abc import Mapping
from typing import Any

from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from altmin.cli import plot
from altmin.cli.plot import COLOURS, MARKERS

HATCHES = {"eager": "", "graph": "///", "compile": "..."}
STYLES = {"eager": "-", "graph": "--", "compile": ":"}
UNITS = {"depth": "hidden layers", "width": "units in a layer", "batch": "samples in a batch", "members": "members"}
PLATE = {"facecolor": "white", "linewidth": 0, "pad": 0.6}  # so that a number can be read over the yardstick's line
NUMBERS = [m * 10**e for e in range(-3, 9) for m in (1, 2, 5)]


def draw(result: Mapping[str, Any], file_format: str = "png") -> bytes:
    """The picture as a file: of `lines` if something grows, else of `bars`."""
    return plot.content(lines(result) if result["config"]["grow"] else bars(result), file_format)


def bars(result: Mapping[str, Any]) -> Figure:
    """A group of bars for each net, a bar for each method, mode and number of members; the yardstick is the line."""
    yardstick = result["config"]["yardstick"]
    series = {name: rows for name, rows in _series(result).items() if rows[0]["method"] != yardstick}
    nets = list(result["models"])
    width = 0.84 / max(1, len(series))
    wide = min(18, max(7.5, 1.2 + len(nets) * max(1.2, 0.5 * len(series))))
    figure = Figure(figsize=(wide, 5), layout="constrained")
    axes = figure.subplots()
    for i, (name, rows) in enumerate(series.items()):
        places = [nets.index(row["net"]) + (i - (len(series) - 1) / 2) * width for row in rows]
        middle, low, high = ([row["time_ratio"][key] for row in rows] for key in ("median", "q1", "q3"))
        errors = [[m - a for m, a in zip(middle, low, strict=True)], [b - m for m, b in zip(middle, high, strict=True)]]
        drawn = axes.bar(places, middle, 0.92 * width, yerr=errors, label=name, color=_colour(result, rows[0]))
        drawn.errorbar.lines[2][0].set(color="0.15", linewidth=1.2)  # type: ignore[union-attr]
        for bar in drawn:
            bar.set(hatch=HATCHES.get(rows[0]["mode"], "xx"), edgecolor="white", linewidth=0)
        for place, value, top in zip(places, middle, high, strict=True):
            text = axes.annotate(f"{value:.2f}", (place, top), (0, 4), textcoords="offset points", bbox=PLATE, zorder=4)
            text.set(ha="center", fontsize=8)
    axes.axhline(1, color="0.15", linewidth=1.2, zorder=3, label=yardstick)
    about = {row["net"]: f"{row['model']}\n{row['data']}\nbatch {row['batch_size']}" for row in result["results"]}
    axes.set_xticks(range(len(nets)), [about.get(net, net) for net in nets], fontsize=9)
    axes.set_ylabel(f"time of a step / that of {yardstick} in the same mode")
    axes.set_title(_title(result), loc="left", fontsize=10)
    axes.set_xlim(-0.6, len(nets) - 0.4)
    axes.set_ylim(0, 1.06 * axes.get_ylim()[1])
    axes.tick_params(axis="x", length=0)
    plot.tidy(axes, "y")
    longest = max(map(len, [yardstick, *series]))
    columns = min(1 + len(series), max(1, int(wide / (0.7 + 0.08 * longest))))  # as many as there is room for
    figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    return figure


def lines(result: Mapping[str, Any]) -> Figure:
    """Two panels over the size that grows: the ratio to the yardstick, and the samples seen in a second."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    ratios, samples = figure.subplots(1, 2)
    yardstick, grow = result["config"]["yardstick"], result["config"]["grow"]
    for name, rows in _series(result).items():
        method, sizes, colour = rows[0]["method"], [row["size"] for row in rows], _colour(result, rows[0])
        seen = [row["batch_size"] * row["members"] for row in rows]
        rates = [
            [n / row["step_seconds"][q] for n, row in zip(seen, rows, strict=True)] for q in ("median", "q3", "q1")
        ]
        panels = {samples: rates}
        if method != yardstick:
            panels[ratios] = [[row["time_ratio"][q] for row in rows] for q in ("median", "q1", "q3")]
        wide = int(method == yardstick)  # lines that coincide stay visible: the yardstick's is wider, and lies below
        for axes, (middle, low, high) in panels.items():
            (line,) = axes.plot(sizes, middle, color=colour, linewidth=1.5 + wide, zorder=3 - wide / 10, label=name)
            line.set(linestyle=STYLES.get(rows[0]["mode"], "-."), markersize=5 + wide)
            line.set_marker(MARKERS[result["methods"].index(method) % len(MARKERS)])
            axes.fill_between(sizes, low, high, color=colour, alpha=0.2, linewidth=0)
    ratios.axhline(1, color="0.15", linewidth=1.2, zorder=1, label=yardstick)
    ratios.set_ylabel(f"time of a step / that of {yardstick} in the same mode")
    samples.set_ylabel("samples a second" + (", of all members" if grow == "members" else ""))
    figure.suptitle(_title(result), x=0.01, ha="left", fontsize=10)
    marks = sorted({row["size"] for row in result["results"]})
    for axes in (ratios, samples):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(UNITS[grow])
        plot.mark(axes.xaxis, marks)
        plot.tidy(axes)
        axes.legend(frameon=False, fontsize=9, handlelength=3.5)
    bottom, top = ratios.get_ylim()
    ratios.set_ylim(min(bottom, 0.6), max(top, 1.8))  # a ratio that hardly moves should not fill the picture
    for axes, numbers in (ratios, [*NUMBERS, 0.7, 1.5, 3]), (samples, NUMBERS):
        low, high = axes.get_ylim()
        plot.mark(axes.yaxis, [n for n in numbers if low <= n <= high])
    return figure


def _series(result: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The rows that belong together, each under the name that tells them from the others."""
    rows = result["results"]
    several = len({row["mode"] for row in rows}) > 1
    ensembles = result["config"]["grow"] != "members" and len({row["members"] for row in rows}) > 1
    found: dict[str, list[Any]] = {}
    for row in rows:
        name = row["method"] + (f", {row['mode']}" if several else "")
        name += f", {row['members']} member{'s' * (row['members'] > 1)}" if ensembles else ""
        found.setdefault(name, []).append(row)
    return {name: sorted(rows, key=lambda row: row.get("size", 0)) for name, rows in found.items()}


def _colour(result: Mapping[str, Any], row: Mapping[str, Any]) -> Any:
    """A colour for each method, and paler the more members it has."""
    members = sorted({r["members"] for r in result["results"]}) if result["config"]["grow"] != "members" else []
    base = COLOURS[(result["methods"].index(row["method"]) - 1) % len(COLOURS)]  # the yardstick's is the last: black
    pale = 0.6 * members.index(row["members"]) / len(members) if members else 0.0
    return tuple(pale + (1 - pale) * part for part in to_rgb(base))


def _title(result: Mapping[str, Any]) -> str:
    about = result["environment"]
    threads = about["threads"]
    where = about["gpu"] or f"{about['cpu']}, {threads} thread{'s' * (threads > 1)}"
    what = f"{result['models'][0]}, growing in {result['config']['grow']}; " if result["config"]["grow"] else ""
    modes = {row["mode"] for row in result["results"]}
    mode = f", {modes.pop()} mode" if len(modes) == 1 else ""
    return f"{what}median and quartiles{mode}, {result['config']['precision']}\n{where}, torch {about['torch']}"
