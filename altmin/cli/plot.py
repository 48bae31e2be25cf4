"""What all pictures share: colours, markers, axes with few lines, and the file."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which people with any kind of colour vision can distinguish; markers help in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def style(i: int, variant: int = 0) -> dict[str, Any]:
    """Colour, marker and line of curve i; those that share a colour, and its variants, have another line.

    >>> style(0)["linestyle"], style(7)["linestyle"], style(0)["color"] == style(7)["color"]
    ('-', '--', True)
    >>> style(0, 1) == style(7)
    True
    """
    return {
        "color": COLOURS[i % len(COLOURS)],
        "marker": MARKERS[i % len(MARKERS)],
        "linestyle": LINES[(i // len(COLOURS) + variant) % len(LINES)],
    }


def tidy(axes: "Axes", grid: Literal["both", "y"] = "both") -> None:
    """Pale lines behind what is drawn, and no box around it."""
    axes.grid(axis=grid, color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def mark(axis: "Axis", numbers: Sequence[float]) -> None:
    """Ticks at these numbers only, written out in full whatever the scale is."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_major_locator(FixedLocator(numbers))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"))


def content(figure: "Figure", file_format: str) -> bytes:
    """The figure as a file of a format: png, svg or pdf."""
    file = io.BytesIO()
    figure.savefig(file, format=file_format, dpi=150)
    return file.getvalue()
