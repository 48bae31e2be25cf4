"""What is measured: networks, methods with their options, and sizes that grow."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from altmin.common.errors import unknown

YARDSTICK = "adam"
"""The method that every other one is measured against."""
GROWTHS = ("depth", "width", "batch", "members")


class Net(NamedTuple):
    """A model, the data set whose shape its samples have, and the batch size.

    text: the net as the user wrote it. size: the depth, width or batch size, where that is what grows.
    """

    text: str
    model: str
    data: str
    batch_size: int
    size: int | None = None


class Variant(NamedTuple):
    """A method with options; the label tells it from other variants of the same method."""

    label: str
    method: str
    options: Mapping[str, Any]


class Entry(NamedTuple):
    """One thing to measure on a net: a variant, by its label, the mode in which it runs, and its number of members."""

    method: str
    mode: str
    members: int


def grown(net: Net, what: str, factor: int) -> Net:
    """The net with its depth, width or batch size `factor` times as large.

    Raises ValueError for another `what`, or if the model's name does not contain its depth or width.

    >>> grown(Net("mlp-2x100", "mlp-2x100", "mnist", 200), "depth", 5).model
    'mlp-10x100'
    """
    if what == "batch":
        return net._replace(batch_size=factor * net.batch_size, size=factor * net.batch_size)
    patterns = {
        "depth": (r"(\w+-)(\d+)(x\d+)", "mlp-2x100"),
        "width": (r"(\w+-(?:\d+x)?)(\d+)()", "mlp-2x100 or elman-15"),
    }
    if what not in patterns:
        raise unknown("growth in --grow,", what, GROWTHS)
    pattern, example = patterns[what]
    found = re.fullmatch(pattern, net.model)
    if not found:
        raise ValueError(
            f"--grow {what} needs a --model whose name tells its {what}, such as {example}, not {net.model}"
        )
    size = factor * int(found[2])
    return net._replace(model=f"{found[1]}{size}{found[3]}", size=size)
