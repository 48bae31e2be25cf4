"""`altmin bench`: what a training step costs, in time and memory, over that of backprop with Adam."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from altmin.cli import options

if TYPE_CHECKING:
    from altmin.cli.measure import Batch
    from altmin.methods import Method

YARDSTICK = "adam"


def bench(
    model: Annotated[
        str, typer.Option(metavar="NAME,NAME,...", help="The models, separated by commas.")
    ] = "mlp-2x100,mlp-2x500,lenet5",
    methods: Annotated[
        str,
        typer.Option(metavar="NAME,NAME,...", help="The methods; adam, the yardstick, always runs along."),
    ] = "am-adam,adam",
    set_: options.SetByMethod = None,
    batch_size: options.BatchSize = 200,
    data: Annotated[
        str, typer.Option(metavar="NAME", help="The data set whose shape the random samples have.")
    ] = "mnist",
    seconds: Annotated[float, typer.Option(min=0.1, help="About how long to measure, in all.")] = 60.0,
    seed: options.Seed = 0,
    device: options.Device = "cpu",
    threads: options.Threads = None,
    json_file: options.Json = None,
) -> None:
    """Measure the time and the memory of a step against backprop with Adam."""
    from altmin import data as sets
    from altmin.cli import measure, output, parse, running

    output.check_writable(json_file)
    chosen = running.prepare(device, threads)
    models, names = parse.names("--model", model), parse.words(f"{YARDSTICK},{methods}")
    given = parse.settings_by_method(set_ or [], names)
    full = {name: parse.plain(parse.method_options(name, given[name])) for name in names}
    known = sets.dataset(data)
    make = {
        each: {name: partial(running.build, each, known, name, given[name], seed, chosen) for name in names}
        for each in models
    }
    for each in models:  # every one is tried before any is measured
        for build in make[each].values():
            build()
    batches = measure.synthetic(known.sample_shape, known.classes, batch_size, chosen)
    rows: list[dict[str, Any]] = []
    with output.progress("bench", 100 * len(models)) as tick:
        for done, each in enumerate(models):

            def report(part: float, done: int = done, each: str = each) -> None:
                tick(round(100 * (done + part)), each)

            rows += [
                {"model": each, **row}
                for row in against_yardstick(make[each], batches, seconds / len(models), seed, report)
            ]
    output.console().print(table(rows))
    output.write_json(
        json_file,
        {
            "data": data,
            "models": models,
            "methods": names,
            "seed": seed,
            "config": {"batch_size": batch_size, "seconds": seconds, "yardstick": YARDSTICK, "options": full},
            "environment": output.environment(chosen),
            "results": rows,
        },
    )


def against_yardstick(
    make: "Mapping[str, Callable[[], Method]]",
    batches: "Sequence[Batch]",
    seconds: float,
    seed: int,
    report: Callable[[float], None],
) -> list[dict[str, Any]]:
    """A row for each method on one model. A round's ratio is between two blocks that ran side by side."""
    from altmin.cli import measure

    sizes = {name: measure.step_bytes(build, batches[0]) for name, build in make.items()}
    methods = {name: build() for name, build in make.items()}
    times, steps = measure.step_seconds(methods, batches, seconds, seed, report)
    return [
        {
            "method": name,
            "step_seconds": measure.spread(times[name]),
            "time_ratio": measure.spread([a / b for a, b in zip(times[name], times[YARDSTICK], strict=True)]),
            "rounds": len(times[name]),
            "steps_per_round": steps,
            "kept_bytes": kept,
            "peak_bytes": peak,
            "memory_ratio": peak / sizes[YARDSTICK][1],
        }
        for name, (kept, peak) in sizes.items()
    ]


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Times as median and, in brackets, the quartiles."""
    drawn = Table("model", "method", header_style="bold")
    for name in ("ms per step", f"time / {YARDSTICK}", "MB kept", "MB at peak", f"memory / {YARDSTICK}"):
        drawn.add_column(name, justify="right")
    for i, row in enumerate(rows):
        time, ratio = row["step_seconds"], row["time_ratio"]
        drawn.add_row(
            row["model"],
            row["method"],
            f"{1e3 * time['median']:.3f} ({1e3 * time['q1']:.3f} to {1e3 * time['q3']:.3f})",
            f"{ratio['median']:.2f} ({ratio['q1']:.2f} to {ratio['q3']:.2f})",
            f"{row['kept_bytes'] / 1e6:.2f}",
            f"{row['peak_bytes'] / 1e6:.2f}",
            f"{row['memory_ratio']:.2f}",
            end_section=i + 1 < len(rows) and rows[i + 1]["model"] != row["model"],
        )
    return drawn
