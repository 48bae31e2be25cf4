"""The figures of docs/scaling-cost.md: `python experiments/scaling.py time`, `... bytes`, `... paper`, `... table`.

`time`: steps of 16-block MLPs by AM and by backprop with Adam, in one process and in two with one thread each, in
one run, one after the other in turns. Backprop's opponents are torch's own: DistributedDataParallel and the pipelines
1F1B and zero bubble of torch.distributed.pipelining with the same micro-batches, whose gradients are first shown to be
those of one process. `bytes`: what data-parallel steps of two processes send, by the cost model, by the ranks' counters
and by the network interface; nothing else may use it meanwhile. `paper`: the cost model on GPUs that were not there.
`table` fills docs/scaling-cost.md from the files and measures nothing.

Each writes benchmarks/scaling/PART.jsonl, or to --out; --quick measures in small, into runs/scaling. Options of `time`
choose another size, as in `scaling.py time --width 512 --out runs/wide`.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from common import HERE, Row, read, write
from rich.console import Console
from rich.table import Table
from scaling_paper import rows as paper_rows
from scaling_ranks import Size, launch, measured, sent, sent_by_layers
from scaling_table import TABLES, fill_tables

from altmin.cli import output

RESULTS, QUICK = HERE / "benchmarks/scaling", HERE / "runs/scaling"
SIZE, LARGE, SMALL = Size(), Size(width=512, batch=4096), Size(blocks=4, width=16, batch=32, micro_batches=2)
"""Of a step that takes a tenth of a second on one core, of one that takes a second, and of a trial."""
SENDERS = {
    "mlp-15x256": ((256,), torch.float32),
    "tanh-3x100": ((784,), torch.float32),
    "lenet5": ((1, 28, 28), torch.float32),
    "resnet18-8": ((3, 32, 32), torch.float64),  # in which the move of no code is lost in rounding
}
LARGEST_DIFFERENCE = 1e-4
"""Of gradients in float32, over the largest of each parameter."""


def times(size: Size, repeats: int, steps: int) -> list[Row]:
    """One row for each contestant. RuntimeError if gradients of several processes are not those of one."""
    found = launch(2, measured, size, repeats, steps)[0]
    wrong = {name: d for name, d in found["differences"].items() if not d < LARGEST_DIFFERENCE}
    if wrong:
        raise RuntimeError(f"gradients differ from those of one process: {wrong}")
    seconds = found["seconds"]
    rows = []
    for name, own in seconds.items():
        one = seconds[name.split()[0]]
        q1, median, q3 = statistics.quantiles([1e3 * s for s in own], n=4, method="inclusive")
        ratios = statistics.quantiles([a / b for a, b in zip(own, one, strict=True)], n=4, method="inclusive")
        rows.append(
            {
                "what": name,
                "ranks": 1 if " " not in name else 2,
                **vars(size),
                "rounds": len(own),
                "steps": steps,
                "milliseconds": {"median": median, "q1": q1, "q3": q3},
                "over_one": dict(zip(("q1", "median", "q3"), ratios, strict=True)),
                "difference": found["differences"].get(name),
            }
        )
    return rows


def bytes_sent(quick: bool) -> list[Row]:
    steps, size = (2, SMALL) if quick else (20, SIZE)
    nets = {"tanh-3x100": SENDERS["tanh-3x100"]} if quick else SENDERS
    common = {"ranks": 2, "steps": steps}
    rows = [{"what": "data-parallel", **common, **row} for row in launch(2, sent, nets, steps)[0]]
    row = launch(2, sent_by_layers, size, steps)[0]
    return [*rows, {"what": "layer-parallel", "method": "am", **common, **vars(size), **row}]


def show(part: str, path: Path) -> None:
    head, rows = TABLES[part](read(path))
    shown = Table(*head, title=part)
    for row in rows:
        shown.add_row(*row)
    Console().print(shown)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["time", "bytes", "paper", "table"])
    parser.add_argument("--quick", action="store_true", help="measure in small, into runs/scaling")
    parser.add_argument("--out", type=Path, help="the folder to write to, or to fill the tables from")
    parser.add_argument("--repeats", type=int, help="rounds of `time`, 15 if not given")
    for name, value in vars(SIZE).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=f"of `time`, {value} if not given")
    given = parser.parse_args(arguments)
    out = given.out or (QUICK if given.quick else RESULTS)
    if given.part == "table":
        fill_tables(HERE / "docs/scaling-cost.md", out)
        return 0
    if given.part == "time":
        changed = {name: getattr(given, name) for name in vars(SIZE) if getattr(given, name)}
        sizes = [replace(SMALL if given.quick else SIZE, **changed)]
        if not given.quick and not changed:
            sizes = [LARGE, SIZE]
        repeats = given.repeats or (2 if given.quick else 15)
        rows = [row for size in sizes for row in times(size, repeats, 3 if size is SIZE else 1)]
    else:
        rows = bytes_sent(given.quick) if given.part == "bytes" else paper_rows()
    environment = output.environment(torch.device("cpu")) | {"threads": 1}
    if given.part != "paper":
        rows = [row | {"environment": environment} for row in rows]
    path = out / f"{given.part}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, rows)
    show(given.part, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
