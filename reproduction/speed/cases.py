"""What is measured: networks, methods with their options, and sizes that grow."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from altmin import methods as registry
from altmin.cli import options
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


def nets(text: str, data: str, batch_size: int) -> list[Net]:
    """The nets in a list of NAME, NAME@DATA, NAME:BATCH or NAME@DATA:BATCH.

    >>> [(net.model, net.data, net.batch_size) for net in nets("lenet5,elman-15@mnist-sequential:1024", "mnist", 200)]
    [('lenet5', 'mnist', 200), ('elman-15', 'mnist-sequential', 1024)]
    """
    found = []
    for word in options.words(text):
        parts = re.fullmatch(r"([^@:]+)(?:@([^@:]+))?(?::([^@:]+))?", word)
        if not parts:
            raise ValueError(f"--model {word!r} should be NAME, NAME@DATA, NAME:BATCH or NAME@DATA:BATCH")
        model, own_data, batch = parts.groups()
        if batch is not None and not re.fullmatch(r"[1-9]\d*", batch):
            raise ValueError(f"--model {word!r} should have a batch size from 1, as in {model}:128, not {batch!r}")
        found.append(Net(word, model, own_data or data, int(batch or batch_size)))
    return found


def variants(text: str, pairs: Sequence[str], fused: bool = False) -> list[Variant]:
    """The variants in a list of METHOD or METHOD:OPTION=VALUE, the yardstick first.

    An option of the label overrides one of `pairs`, and that the default, which is a fused optimizer if `fused`.

    >>> [(v.label, v.options["lr"]) for v in variants("sgd:lr=0.5,sgd", ["sgd.lr=0.01"])]
    [('adam', 0.001), ('sgd:lr=0.5', 0.5), ('sgd', 0.01)]
    """
    split = {label: label.split(":") for label in options.words(f"{YARDSTICK},{text}")}
    methods = list(dict.fromkeys(method for method, *_ in split.values()))
    usual = [f"{method}.fused=true" for method in methods if fused and "fused" in registry.options(method)]
    return [
        Variant(
            label, method, options.of_methods([*usual, *pairs, *(f"{method}.{pair}" for pair in own)], methods)[method]
        )
        for label, (method, *own) in split.items()
    ]
