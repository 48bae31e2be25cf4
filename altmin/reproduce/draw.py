"""A figure's picture from its results alone: mean and spread over seeds, the paper's stated values as marks."""

from collections.abc import Sequence
from statistics import mean

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from altmin.plot import content, style, tidy
from altmin.reproduce.figure import Figure, Run
from altmin.reproduce.results import Results


def draw(figure: Figure, results: Results, file_format: str, note: str = "") -> bytes:
    """The picture as a file of a format. note: said below the title, such as that the runs are reduced ones."""
    panels = list(dict.fromkeys(run.panel for run in figure.runs))
    names = list(dict.fromkeys(run.name for run in figure.runs))
    picture = Picture(figsize=(1.2 + 4.8 * len(panels), 4.2), layout="constrained")
    for axes, panel in zip(picture.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _panel(axes, [run for run in figure.runs if run.panel == panel], figure.axis, results, names)
        for mark in figure.marks:
            if mark.panel == panel:
                axes.plot(mark.x, mark.y, marker="*", markersize=12, linestyle="none", color="0.4", zorder=5)
                axes.annotate(f" paper: {mark.name}", (mark.x, mark.y), fontsize=8, color="0.4", va="center")
        axes.set_title(panel, loc="left", fontweight="bold")
        axes.set(xlabel=figure.axis, ylabel="test accuracy")
        if axes.lines:
            axes.legend(loc="lower right", framealpha=0.9, edgecolor="0.8", fontsize=8)
    picture.suptitle(figure.title + (f"\n{note}" if note else ""), x=0.01, ha="left")
    return content(picture, file_format)


def _panel(axes: Axes, runs: Sequence[Run], axis: str, results: Results, names: Sequence[str]) -> None:
    for run in runs:
        curve = results.curve(run, axis)
        if not curve:
            continue
        i = names.index(run.name)
        where = [x for x, _ in curve]
        low, middle, high = ([f(values) for _, values in curve] for f in (min, mean, max))
        (line,) = axes.plot(where, middle, markevery=max(1, len(where) // 8), label=run.name, **style(i))
        axes.fill_between(where, low, high, color=line.get_color(), alpha=0.18, linewidth=0)
    tidy(axes)
