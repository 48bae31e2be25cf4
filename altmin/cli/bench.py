"""`altmin bench`: what a training step costs, in time and memory, over that of backprop with Adam."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from altmin.cli import options

if TYPE_CHECKING:
    from altmin.cli.pool import Plan
    from altmin.cli.specs import Net

MODELS = "mlp-2x100,mlp-2x500,lenet5"
BASE = "mlp-2x100"
FACTORS = "1,2,5,10,20,50"


def bench(
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,...",
            help="The models, separated by commas. NAME@DATA has the shape of other data than --data, NAME:BATCH "
            "another batch size, as in mlp-50x1024:128 or elman-15@mnist-sequential:1024.",
            show_default=MODELS,
        ),
    ] = None,
    methods: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME,...",
            help="The methods; adam, the yardstick, always runs along. NAME:OPTION=VALUE is a variant of a method, as "
            "in am-adam,adam,adam:fused=true.",
        ),
    ] = "am-adam,adam",
    set_: options.SetByMethod = None,
    modes: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME,...",
            help="How steps run: eager, graph (recorded as a CUDA graph), compile (by torch.compile; backprop only).",
        ),
    ] = "eager",
    ensemble: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="How many members run as one, as in 1,8,64; 1 always runs along."),
    ] = None,
    precision: options.Precision = "float32",
    grow: Annotated[
        str | None,
        typer.Option(metavar="WHAT", help="Measure one model as its depth, width, batch or members grow."),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="How many times as large --grow makes it.", show_default=FACTORS),
    ] = None,
    batch_size: options.BatchSize = 200,
    data: Annotated[
        str, typer.Option(metavar="NAME", help="The data set whose shape the random samples have.")
    ] = "mnist",
    seconds: Annotated[float, typer.Option(min=0.1, help="About how long to measure, in all.")] = 60.0,
    seed: options.Seed = 0,
    device: options.Device = "cpu",
    threads: options.Threads = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the ratios: .png, .svg or .pdf.")] = None,
    json_file: options.Json = None,
) -> None:
    """Measure the time and the memory of a step against backprop with Adam."""
    from altmin.cli import bench_table, output, parse, running, specs
    from altmin.cli import modes as ways
    from altmin.cli.pool import Plan
    from altmin.execution import precision as products

    output.check_writable(plot, json_file)
    if plot is not None:
        from altmin import plot as picture
        from altmin.cli import bench_picture

        picture.check_format(plot)
    chosen = running.prepare(device, threads, precision)
    nets, members = _sizes(model, data, batch_size, ensemble, grow, sizes)
    variants = specs.variants(methods, set_ or [], lambda method: _usual(method, chosen.type))
    plan = Plan(variants, ways.modes(modes, chosen), members, seed, chosen)
    with products.using(precision):
        without = _tried(plan, nets)
        rows = _measured(plan, nets, seconds)
    if grow == "members":
        rows = [{**row, "size": row["members"]} for row in rows]
    result = {
        "data": data,
        "models": list(dict.fromkeys(net.text for net in nets)),
        "methods": [variant.label for variant in variants],
        "seed": seed,
        "config": {
            "batch_size": batch_size,
            "seconds": seconds,
            "yardstick": specs.YARDSTICK,
            "options": {v.label: parse.plain(parse.method_options(v.method, v.options)) for v in variants},
            "modes": plan.modes,
            "ensemble": members,
            "precision": precision,
            "grow": grow,
        },
        "environment": output.environment(chosen),
        "skipped": without,
        "results": rows,
    }
    output.console().print(bench_table.table(result))
    _doubt(rows)
    output.write_json(json_file, result)
    if plot is not None:
        output.write(plot, bench_picture.draw(result, plot.suffix[1:]))


def _sizes(
    model: str | None, data: str, batch_size: int, ensemble: str | None, grow: str | None, sizes: str | None
) -> "tuple[list[Net], list[int]]":
    """The nets, and the numbers of members."""
    from altmin.cli import specs

    members = [1, *specs.counts("--ensemble", ensemble)] if ensemble is not None else [1]
    if grow is None:
        if sizes is not None:
            raise ValueError("--sizes says how far to grow; say what grows too: --grow depth, width, batch or members")
        return specs.nets(model or MODELS, data, batch_size), list(dict.fromkeys(members))
    base = specs.nets(model or BASE, data, batch_size)
    if len(base) > 1:
        raise ValueError(f"--grow measures one model as it grows; give one --model as its base, not {model}")
    factors = specs.counts("--sizes", FACTORS if sizes is None else sizes)
    if grow != "members":
        return specs.grown(base[0], grow, factors), list(dict.fromkeys(members))
    if ensemble is not None:
        raise ValueError("--grow members takes its numbers of members from --sizes; leave --ensemble out")
    return base, list(dict.fromkeys([1, *factors]))


def _usual(method: str, device: str) -> Mapping[str, Any]:
    """On a GPU nobody who cares for speed takes an optimizer that is not fused."""
    from altmin import methods

    return {"fused": True} if device == "cuda" and "fused" in methods.options(method) else {}


def _tried(plan: "Plan", nets: "Sequence[Net]") -> list[dict[str, Any]]:
    """Every method on every net, before any is measured; what is left out, with a note for each reason."""
    left_out = {(net.text, *entry): why for net in nets for entry, why in plan.entries(net)[1].items()}
    notes = {(label, mode, why): None for (_, label, mode, _), why in left_out.items()}
    for label, mode, why in notes:
        warnings.warn(f"{label} is not measured in mode {mode}: {why}")
    names = ("net", "method", "mode", "members", "reason")
    return [dict(zip(names, (*entry, why), strict=True)) for entry, why in left_out.items()]


def _doubt(rows: Sequence[Mapping[str, Any]]) -> None:
    """The yardstick does the same in every round; if its times vary, so does the machine."""
    from altmin.cli.specs import YARDSTICK

    times = [(row["model"], row["step_seconds"]) for row in rows if row["method"] == YARDSTICK]
    shaky = dict.fromkeys(model for model, time in times if time["q3"] > 1.5 * time["q1"])
    if shaky:
        warnings.warn(
            f"the times of {YARDSTICK} itself vary by more than a half on {', '.join(shaky)}: something else was "
            "running, or --threads is more than the machine has to spare; measure again"
        )


def _measured(plan: "Plan", nets: "Sequence[Net]", seconds: float) -> list[dict[str, Any]]:
    from altmin.cli import output
    from altmin.cli.pool import measured

    rows: list[dict[str, Any]] = []
    with output.progress("bench", 100 * len(nets)) as tick:
        for done, net in enumerate(nets):

            def report(share: float, done: int = done, net: "Net" = net) -> None:
                tick(round(100 * (done + share)), f"{net.model}, batches of {net.batch_size}")

            rows += measured(plan, net, seconds / len(nets), report)
    return rows
