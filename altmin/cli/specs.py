"""What `altmin bench` measures, from the words of its options: nets, variants of methods, sizes that grow."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from altmin.cli import parse
from altmin.errors import unknown

YARDSTICK = "adam"


@dataclass(frozen=True)
class Net:
    """A model, the data whose shape its samples have, and how many of them make a batch. `text` is what was written."""

    text: str
    model: str
    data: str
    batch_size: int
    size: int | None = None


@dataclass(frozen=True)
class Variant:
    """A method with options of its own; the label tells it from other variants of the same method."""

    label: str
    method: str
    options: Mapping[str, Any]


def nets(text: str, data: str, batch_size: int) -> list[Net]:
    """The nets in a list of NAME, NAME@DATA, NAME:BATCH or NAME@DATA:BATCH.

    >>> [(net.model, net.data, net.batch_size) for net in nets("lenet5,elman-15@mnist-sequential:1024", "mnist", 200)]
    [('lenet5', 'mnist', 200), ('elman-15', 'mnist-sequential', 1024)]
    """
    return [_net(word, data, batch_size) for word in parse.names("--model", text)]


def _net(word: str, data: str, batch_size: int) -> Net:
    found = re.fullmatch(r"([^@:]+)(?:@([^@:]+))?(?::([^@:]+))?", word)
    if not found:
        raise ValueError(
            f"--model {word!r} should be NAME, NAME@DATA, NAME:BATCH or NAME@DATA:BATCH, "
            "such as elman-15@mnist-sequential:1024"
        )
    model, own_data, batch = found.groups()
    if batch is not None and not re.fullmatch(r"[1-9]\d*", batch):
        raise ValueError(
            f"--model {word!r} should have a batch size from 1 after the colon, such as {model}:128, not {batch!r}"
        )
    return Net(word, model, own_data or data, int(batch or batch_size))


def variants(text: str, pairs: Sequence[str], defaults: Callable[[str], Mapping[str, Any]]) -> list[Variant]:
    """The variants in a list of METHOD or METHOD:OPTION=VALUE, the yardstick first.

    An option of the label goes before one of --set, and that before the defaults.

    >>> [v.options for v in variants("adam:fused=true", ["adam.lr=0.01"], lambda method: {})]
    [{'lr': 0.01}, {'lr': 0.01, 'fused': True}]
    """
    labels = parse.words(f"{YARDSTICK},{text}")
    split = {label: label.split(":") for label in labels}
    given = parse.settings_by_method(pairs, [words[0] for words in split.values()])
    found = []
    for label, (method, *own) in split.items():
        options = {**given[method], **parse.settings(own, f"--methods {label}")}
        parse.method_options(method, options)  # refuses what the method does not take
        found.append(Variant(label, method, {**defaults(method), **options}))
    return found


def counts(option: str, text: str) -> list[int]:
    """Whole numbers from 1, at least one of them."""
    found = parse.numbers(option, text)
    if not found or min(found) < 1:
        raise ValueError(f"{option} takes whole numbers from 1, such as 1,8,64, not {text!r}")
    return found


def grown(base: Net, what: str, factors: Sequence[int]) -> list[Net]:
    """The base with its depth, width or batch size so many times as large."""
    if what not in GROWTHS:
        raise unknown("growth in --grow,", what, [*GROWTHS, "members"])
    return [GROWTHS[what](base, factor) for factor in factors]


def _deeper(net: Net, factor: int) -> Net:
    return _renamed(net, r"(\w+-)(\d+)(x\d+)", "depth", "mlp-2x100", factor)


def _wider(net: Net, factor: int) -> Net:
    return _renamed(net, r"(\w+-(?:\d+x)?)(\d+)()", "width", "mlp-2x100 or elman-15", factor)


def _fuller(net: Net, factor: int) -> Net:
    return replace(net, batch_size=factor * net.batch_size, size=factor * net.batch_size)


def _renamed(net: Net, pattern: str, what: str, example: str, factor: int) -> Net:
    found = re.fullmatch(pattern, net.model)
    if not found:
        raise ValueError(
            f"--grow {what} needs a --model whose name tells its {what}, such as {example}, not {net.model}"
        )
    size = factor * int(found[2])
    return replace(net, model=f"{found[1]}{size}{found[3]}", size=size)


GROWTHS: dict[str, Callable[[Net, int], Net]] = {"depth": _deeper, "width": _wider, "batch": _fuller}
