"""`python -m reproduction speed`: what a training step costs, in time and memory, over that of backprop with Adam."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from altmin import methods as registry
from altmin.cli import output
from altmin.cli.options import Device, Json, Precision, Seed, Threads, command, value, words
from altmin.common import precision as products
from altmin.common.describe import plain
from reproduction.commands import options
from reproduction.speed import modes as ways
from reproduction.speed.run import YARDSTICK, Net, Plan, Variant, measure, table
from reproduction.tables import markdown

MODELS = (
    "NAME@DATA has the shape of other data than MNIST, NAME:BATCH another batch size than 200, as in mlp-50x1024:128."
)
METHODS = "adam, the yardstick, always runs along. NAME:OPTION=VALUE is a variant of a method, as in adam:fused=true."
MODES = "eager, graph (CUDA graphs), compile (of backprop, and of AM on a CPU), or of backprop only checkpoint "
MODES += "(activations are computed again, for less memory); not given, all that the machine allows."
PASSES = "Measure passes over N samples instead of steps, as suits methods that learn from all data at once."


@dataclass(frozen=True, kw_only=True)
class Speed:
    model: Annotated[str, typer.Option(metavar="NAME,NAME,...", help=MODELS)] = "mlp-2x100,mlp-2x500,lenet5"
    methods: Annotated[str, typer.Option(metavar="NAME,NAME,...", help=METHODS)] = "am-adam,adam,adam:fused=true"
    modes: Annotated[str | None, typer.Option(metavar="NAME,NAME,...", help=MODES)] = None
    samples: Annotated[int | None, typer.Option(min=1, help=PASSES)] = None
    seconds: Annotated[float, typer.Option(min=0.1, help="About how long to measure, in all.")] = 60.0
    precision: Precision = "float32"
    device: Device = "cpu"
    threads: Threads = None
    seed: Seed = 0
    json_file: Json = None


@command(Speed)
def speed(given: Speed) -> None:
    """Measure the time and the memory of a step, on random samples of the data's shape, against backprop with Adam."""
    output.check_writable(given.json_file)
    place = options.setting(given.device, given.threads)
    nets = [Net.parse(text) for text in words(given.model)]
    of_all, of_backprop = ways.allowed(place.device)
    if given.modes is not None:
        of_all, of_backprop = words(given.modes), []
    variants = variants_of(words(given.methods), fused=place.device.type == "cuda")
    with products.using(given.precision), output.progress("speed") as tick:
        plan = Plan(variants, of_all, of_backprop, given.seed, place.device, given.samples, given.precision)
        rows, skipped = measure(plan, nets, given.seconds, lambda part, text: tick(round(100 * part), 100, text))
    print(markdown(*table(rows, given.samples)))
    config = {name: getattr(given, name) for name in ("seconds", "samples", "precision")}
    config |= {"modes": [*of_all, *of_backprop], "options": {each.label: plain(each.options) for each in variants}}
    result = {"seed": given.seed, "config": config, "environment": dict(place.environment)}
    output.write_json(given.json_file, {**result, "skipped": skipped, "results": rows})


def variants_of(labels: Sequence[str], fused: bool) -> list[Variant]:
    """Return the variants METHOD or METHOD:OPTION=VALUE, the yardstick first. fused: the default of methods that have
    this option.

    >>> [(v.label, v.options) for v in variants_of(["sgd:lr=0.5"], fused=False)]
    [('adam', {}), ('sgd:lr=0.5', {'lr': 0.5})]
    """
    found: list[Variant] = []
    for label in dict.fromkeys([YARDSTICK, *labels]):
        method, *own = label.split(":")
        usual = {"fused": True} if fused and "fused" in registry.options(method) else {}
        pairs = (pair.partition("=") for pair in own)
        variant = Variant(label, method, {**usual, **{name: value(text) for name, _, text in pairs}})
        if variant[1:] not in [each[1:] for each in found]:  # on a GPU, Adam is fused anyway
            found.append(variant)
    return found
