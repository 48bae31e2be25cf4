"""`python -m reproduction speed`: what a training step costs, in time and memory, over that of backprop with Adam."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from altmin.cli import options, output
from altmin.common.describe import plain
from altmin.runners import precision as products
from reproduction.speed import cases
from reproduction.speed import modes as ways
from reproduction.speed.cases import YARDSTICK, Net, Variant, grown
from reproduction.speed.run import Plan, measure
from reproduction.speed.table import table

MODELS = "mlp-2x100,mlp-2x500,lenet5"
FACTORS = "1,2,5,10,20,50"
ABOUT_MODELS = (
    "NAME@DATA has the shape of other data, NAME:BATCH another batch size, as in elman-15@mnist-sequential:1024."
)
ABOUT_METHODS = "adam, the yardstick, always runs along. NAME:OPTION=VALUE is a variant, as in am-adam:share=1."
ABOUT_MODES = "eager, graph (CUDA graphs), compile, or of backprop only checkpoint; all is what the machine allows."


@dataclass(frozen=True, kw_only=True)
class Speed:
    data: options.Data = "mnist"
    model: Annotated[str, typer.Option(metavar="NAME,NAME,...", help=ABOUT_MODELS)] = MODELS
    methods: Annotated[str, typer.Option(metavar="NAME,NAME,...", help=ABOUT_METHODS)] = "am-adam,adam,adam:fused=true"
    set_: options.Set = None
    batch_size: Annotated[int, typer.Option(min=1, help="Samples in a mini-batch.")] = 200
    modes: Annotated[str, typer.Option(metavar="NAME,NAME,...", help=ABOUT_MODES)] = ways.ALL
    ensemble: Annotated[str, typer.Option(metavar="N,N,...", help="How many members run as one, as in 1,8,64.")] = "1"
    grow: Annotated[str | None, typer.Option(help="Measure one model as its depth, width, batch or members grow.")] = (
        None
    )
    sizes: Annotated[str, typer.Option(metavar="N,N,...", help="How many times as large --grow makes it.")] = FACTORS
    samples: Annotated[
        int | None, typer.Option(min=1, help="Measure passes over N samples instead of steps, as for offline methods.")
    ] = None
    seconds: Annotated[float, typer.Option(min=0.1, help="About how long to measure, in all.")] = 60.0
    seed: options.Seed = 0
    device: options.Device = "cpu"
    precision: options.Precision = "float32"
    threads: options.Threads = None
    json_file: options.Json = None
    plot: options.Plot = None


@options.command(Speed)
def speed(given: Speed) -> None:
    """Measure the time and the memory of a step, on random samples of the data's shape, against backprop with Adam."""
    output.check_writable(given.json_file, picture=given.plot)
    device = options.prepare(given.device, given.threads, given.precision)
    members = _counts(given.ensemble)
    base = "mlp-2x100" if given.grow is not None and given.model == MODELS else given.model
    nets = cases.nets(base, given.data, given.batch_size)
    if given.grow is not None:
        nets, members = _grown(nets, given.grow, _counts(given.sizes), members)
    elif given.sizes != FACTORS:
        raise ValueError("--sizes says how far to grow; say what grows too: --grow depth, width, batch or members")
    names, rivals = options.words(given.modes), list[str]()
    if names == [ways.ALL]:
        names, rivals = ways.allowed(device) if given.grow is None else (["eager"], [])
    for name in names:
        ways.check(name, device)
    variants = _distinct(cases.variants(given.methods, given.set_ or [], fused=device.type == "cuda"))
    counts = list(dict.fromkeys([1, *members]))
    plan = Plan(variants, names, counts, given.seed, device, given.samples, of_backprop=rivals)
    with products.using(given.precision) as context, output.progress("bench") as tick:
        plan = plan._replace(context=context)
        rows, skipped = measure(plan, nets, given.seconds, lambda part, text: tick(round(100 * part), 100, text))
    if given.grow == "members":
        rows = [{**row, "size": row["members"]} for row in rows]
    result = {
        "data": given.data,
        "models": list(dict.fromkeys(net.text for net in nets)),
        "methods": [variant.label for variant in variants],
        "seed": given.seed,
        "config": {
            **{name: getattr(given, name) for name in ("batch_size", "seconds", "samples")},
            "yardstick": YARDSTICK,
            "options": {variant.label: plain(variant.options) for variant in variants},
            "modes": [*names, *rivals],
            "ensemble": plan.members,
            "precision": given.precision,
            "grow": given.grow,
        },
        "environment": output.environment(device),
        "skipped": skipped,
        "results": rows,
    }
    output.console().print(table(result))
    output.write_json(given.json_file, result)
    if given.plot is not None:
        from reproduction.speed import picture  # matplotlib takes a second to import

        output.write(given.plot, picture.draw(result, given.plot.suffix[1:]))


def _counts(text: str) -> list[int]:
    counts = [int(word) for word in options.words(text)]
    if min(counts, default=0) < 1:
        raise ValueError(f"whole numbers from 1 are expected, such as 1,8,64, not {text!r}")
    return counts


def _distinct(variants: Sequence[Variant]) -> list[Variant]:
    """Without those that differ from an earlier one in their label alone: on a GPU, Adam is fused anyway."""
    found: list[Variant] = []
    for variant in variants:
        if not any((each.method, each.options) == (variant.method, variant.options) for each in found):
            found.append(variant)
    return found


def _grown(nets: list[Net], what: str, factors: list[int], members: list[int]) -> tuple[list[Net], list[int]]:
    """The nets and the numbers of members as one net, or its number of members, grows by these factors."""
    if len(nets) > 1:
        given = ",".join(net.text for net in nets)
        raise ValueError(f"--grow measures one model as it grows; give one --model as its base, not {given}")
    if what != "members":
        return [grown(nets[0], what, factor) for factor in factors], members
    if members != [1]:
        raise ValueError("--grow members takes its numbers of members from --sizes; leave --ensemble out")
    return nets, factors
