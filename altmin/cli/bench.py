"""`altmin bench`: what a training step costs, in time and memory, over that of backprop with Adam."""

from typing import Annotated

import typer

from altmin.cli import options, output, parse, training
from altmin.common.describe import plain
from altmin.paper.bench import modes as ways
from altmin.paper.bench.cases import YARDSTICK, Net, grown
from altmin.paper.bench.run import Plan, measure
from altmin.paper.bench.table import table
from altmin.runners import precision as products

MODELS = "mlp-2x100,mlp-2x500,lenet5"
FACTORS = "1,2,5,10,20,50"


def bench(
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME,...",
            help="The models. NAME@DATA has the shape of other data than --data, NAME:BATCH another batch size, as in "
            "mlp-50x1024:128 or elman-15@mnist-sequential:1024.",
        ),
    ] = MODELS,
    methods: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME,...",
            help="The methods; adam, the yardstick, always runs along. NAME:OPTION=VALUE is a variant of a method, as "
            "in am-adam,adam,adam:fused=true.",
        ),
    ] = "am-adam,adam",
    set_: options.Set = None,
    modes: Annotated[
        str, typer.Option(metavar="NAME,NAME,...", help="eager, graph (CUDA graphs) or compile (backprop only).")
    ] = "eager",
    ensemble: Annotated[str, typer.Option(metavar="N,N,...", help="How many members run as one, as in 1,8,64.")] = "1",
    precision: options.Precision = "float32",
    grow: Annotated[
        str | None, typer.Option(metavar="WHAT", help="Measure one model as its depth, width, batch or members grow.")
    ] = None,
    sizes: Annotated[str, typer.Option(metavar="N,N,...", help="How many times as large --grow makes it.")] = FACTORS,
    batch_size: options.BatchSize = 200,
    data: options.Data = "mnist",
    samples: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Measure passes over so many samples instead of single steps, as suits methods that learn from all of "
            "the data at once.",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="About how long to measure, in all.")] = 60.0,
    seed: options.Seed = 0,
    device: options.Device = "cpu",
    threads: options.Threads = None,
    plot: options.Plot = None,
    json_file: options.Json = None,
) -> None:
    """Measure the time and the memory of a step, on random samples of the data's shape, against backprop with Adam."""
    output.check_writable(json_file, picture=plot)
    chosen = training.prepare(device, threads, precision)
    members = parse.counts("--ensemble", ensemble)
    nets = parse.nets("mlp-2x100" if grow is not None and model == MODELS else model, data, batch_size)
    if grow is not None:
        nets, members = _grown(nets, grow, parse.counts("--sizes", sizes), members)
    elif sizes != FACTORS:
        raise ValueError("--sizes says how far to grow; say what grows too: --grow depth, width, batch or members")
    names = parse.names("--modes", modes)
    for name in names:
        ways.check(name, chosen)
    variants = parse.variants(methods, set_ or [], fused=chosen.type == "cuda")
    plan = Plan(variants, names, list(dict.fromkeys([1, *members])), seed, chosen, samples)
    with products.using(precision), output.progress("bench") as tick:
        rows, skipped = measure(plan, nets, seconds, lambda part, text: tick(round(100 * part), 100, text))
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
            "samples": samples,
            "yardstick": YARDSTICK,
            "options": {variant.label: plain(variant.options) for variant in variants},
            "modes": names,
            "ensemble": plan.members,
            "precision": precision,
            "grow": grow,
        },
        "environment": output.environment(chosen),
        "skipped": skipped,
        "results": rows,
    }
    output.console().print(table(result))
    output.write_json(json_file, result)
    if plot is not None:
        from altmin.paper.bench import picture  # matplotlib takes a second to import

        output.write(plot, picture.draw(result, plot.suffix[1:]))


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
