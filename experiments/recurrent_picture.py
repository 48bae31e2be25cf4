"""The picture of docs/recurrent.md: where gradients go, how far they travel, and how the Elman net learns."""

import statistics
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes

import altmin
from altmin.calculus.context import LOCAL
from altmin.cli import output
from altmin.core.losses import adapt
from altmin.core.step import move_codes
from reproduction.figure import load
from reproduction.figures._families import TRUNCATED
from reproduction.folders import FIGURES, RESULTS
from reproduction.results import Results

BLUE, RED, GREEN, GREY = "#1f77b4", "#d62728", "#2ca02c", "#777777"


def draw(path: Path) -> None:
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.4), width_ratios=[1.15, 1, 1])
    _where_it_goes(axes[0])
    _how_far(axes[1])
    _learning(axes[2])
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    print(f"wrote {path.name} (torch {output.environment(torch.device('cpu'))['torch']})")


def _where_it_goes(axes: Axes) -> None:
    axes.set_title("each step of time has codes of its own")
    axes.set_xlim(-0.6, 3.6)
    axes.set_ylim(-1.3, 3.55)
    axes.axis("off")
    for t, name in enumerate(("1", "2", "3", "T")):
        for height, letter, colour in ((0, "x", "white"), (1.05, "c", "#cfe2f3"), (2.1, "z", "#d9ead3")):
            axes.text(
                *(t, height, f"${letter}_{name}$"),
                **{"ha": "center", "va": "center", "fontsize": 13},
                bbox={"boxstyle": "circle,pad=0.32", "facecolor": colour, "edgecolor": GREY},
            )
        _arrow(axes, (t - 0.07, 0.27), (t - 0.07, 0.75), GREY, "U" if t == 0 else "")
        _arrow(axes, (t - 0.1, 1.36), (t - 0.1, 1.8), GREY, "V" if t == 0 else "")
        _arrow(axes, (t + 0.1, 1.8), (t + 0.1, 1.36), BLUE)
        _arrow(axes, (t, 3.0), (t, 2.42), GREEN)
        if t < 3:
            _arrow(axes, (t + 0.3, 1.13), (t + 0.7, 1.13), GREY, "W" if t == 0 else "")
            _arrow(axes, (t + 0.7, 0.95), (t + 0.3, 0.95), RED)
    axes.text(1.5, 3.2, "loss", ha="center", fontsize=12, bbox={"boxstyle": "round,pad=0.3", "facecolor": "#fff2cc"})
    axes.plot([0, 3], [3.0, 3.0], color=GREEN, lw=1)
    for height, colour, words in (
        (-0.55, GREEN, "every $z_t$ gets its gradient from the loss"),
        (-0.87, BLUE, "from $z_t$ to $c_t$: all at once, in round 1"),
        (-1.19, RED, "from $c_{t+1}$ to $c_t$: in a loop, or one step further each round"),
    ):
        axes.text(-0.4, height, words, color=colour, fontsize=10)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, label: str = "") -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.6})
    if label:
        across = 0.0 if start[1] == end[1] else -0.17
        axes.text(
            (start[0] + end[0]) / 2 + across, (start[1] + end[1]) / 2 + 0.07, f"${label}$", ha="center", color=GREY
        )


def _how_far(axes: Axes) -> None:
    """The gradients that reach c_t when only the last step's z matters to the loss."""
    torch.manual_seed(0)
    length = 16
    model = altmin.models.elman(15, length)
    with torch.no_grad():
        model[-1].weight[:, :-1] = 0
        model[1].weight.abs_()
        model[0].weight_hh_l0 *= 2
    x, y = torch.randn(256, length, 1), torch.randint(10, (256,))
    sweeps = {
        "parallel, 1 round": altmin.RecurrentCodes("parallel"),
        "parallel, 4 rounds": altmin.RecurrentCodes("parallel", rounds=4),
        "parallel, 8 rounds": altmin.RecurrentCodes("parallel", rounds=8),
        "exact": altmin.RecurrentCodes(),
    }
    looks = (("o", 12, BLUE), ("s", 8, RED), ("^", 5, GREEN), ("", 0, "black"))
    for (name, codes), (marker, size, colour) in zip(sweeps.items(), looks, strict=True):
        sizes = [size if size > 0 else float("nan") for size in _sizes(model, codes, x, y)]
        line = {"linestyle": "-" if marker else ":", "lw": 1.2, "marker": marker, "ms": size, "color": colour}
        axes.semilogy(range(1, length + 1), sizes, label=name, markerfacecolor="none", **line)
    axes.set_xticks(range(2, length + 1, 2))
    axes.set_title("gradients travel one step back per round")
    axes.set_xlabel("step t; only the last one matters to the loss")
    axes.set_ylabel("mean size of the gradient at $c_t$")
    axes.legend(frameon=False, fontsize=9)
    axes.grid(alpha=0.3)


@torch.no_grad()
def _sizes(model: torch.nn.Sequential, codes: altmin.RecurrentCodes, x: torch.Tensor, y: torch.Tensor) -> list[float]:
    chain = altmin.split(model)
    loss = adapt(torch.nn.CrossEntropyLoss())
    moved = move_codes(chain, chain.parameters(), codes, loss, x, y, 1.0, LOCAL)
    return moved.problems[0].delta.abs().mean((0, 2)).tolist()


def _learning(axes: Axes) -> None:
    figure, results = load(FIGURES)["fig6"], Results.read(RESULTS / "fig6.jsonl")
    names = {
        "am-adam": "AM-Adam, exact",
        TRUNCATED: "AM-Adam, one parallel round",
        "adam": "backprop through time, Adam",
    }
    for run in figure.runs:
        if run.name in names:
            curves = [[value for _, value in run.points(row, "epochs")] for row in results.of(run)]
            mean = [statistics.mean(at) for at in zip(*curves, strict=True)]
            low, high = ([pick(at) for at in zip(*curves, strict=True)] for pick in (min, max))
            epochs = range(1, len(mean) + 1)
            (line,) = axes.plot(epochs, mean, "o-", label=names[run.name], ms=5)
            axes.fill_between(epochs, low, high, color=line.get_color(), alpha=0.15, lw=0)
    axes.set_title("sequential MNIST, 15 units, tuned rates")
    axes.set_xlabel("epoch")
    axes.set_ylabel("test accuracy, mean and range of 3 seeds")
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    axes.grid(alpha=0.3)
