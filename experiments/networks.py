"""The figures of docs/networks-measured.md: `python experiments/networks.py resnet`, `... gpt`, `... residual`,
`... dial`, `... cost`, then `... table`.

AM beside backprop with the same recipe, the same first weights and the same batches. `resnet`: ResNet-18 on CIFAR-10.
`gpt`: transformers on tiny Shakespeare, with every rate of a grid. `residual`: residual MLPs of depth 8 to 512 on
Fashion-MNIST, and the time of their steps. `dial`: the share, the order and the grain of the cuts. `cost`: time and
memory of a step. `table` fills docs/networks-measured.md from the files and trains nothing.

Each run is one line of benchmarks/networks/PART.jsonl, or of --out, a file or a folder. A run that is there already is
not made again, so what was stopped goes on. --list shows the runs, --only some of them, by their words:

    python experiments/networks.py gpt --only gpt-6x128/am/seed0,gpt-12x128 --device cuda --out runs/a.jsonl

`merge FILE...` adds rows from other files, or from all *.jsonl in folders, to those of --out. --quick makes tiny runs,
into runs/networks.
"""

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import HERE
from network_grains import CannotCut
from network_plans import ORDERS, PLANS, Run, selected
from network_rows import append, file_for, key, known, merge
from network_runs import Where
from network_table import fill_tables

import altmin
from altmin.cli import output
from altmin.cli.options import prepare
from reproduction.speed import modes

RESULTS, QUICK = HERE / "benchmarks/networks", HERE / "runs/networks"
SEEDS = (0, 1)


OPTIONS: dict[str, dict[str, Any]] = {
    "order": {"choices": ORDERS, "help": "of AM; weights-first for gpt, else codes-first"},
    "share": {"type": float, "help": "of AM; 0.1 if not given"},
    "lr": {"type": float, "help": "in place of the recipe's, or of the grid of gpt"},
    "batch-size": {"type": int, "help": "in place of the recipe's"},
    "mode": {"choices": ["eager", "graph"], "help": "how training runs: as it is, or recorded"},
    "modes": {"type": lambda text: text.split(","), "help": "what is timed: of eager, graph, compile, compile+graph"},
    "seconds": {"type": float, "default": 30.0, "help": "to time a net for, 30 if not given"},
    "width": {"type": int, "help": "64 if not given"},
    "epochs": {"type": int, "help": "16 if not given, at most 30"},
    "whole": {"action": "store_true", "default": None, "help": "train on the validation samples too, all 50,000"},
}
RECIPE = ("order", "share", "lr", "batch-size", "mode")
OWN = {
    "resnet": (*RECIPE, "width", "epochs", "whole"),
    "gpt": RECIPE,
    "residual": (*RECIPE, "modes", "seconds"),
    "dial": ("mode",),
    "cost": ("modes", "seconds"),
}
"""Which of them a part takes."""


def seeds(text: str) -> list[int]:
    """Whole numbers with commas between them."""
    return [int(part) for part in text.split(",")]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = made.add_subparsers(dest="what", required=True, metavar="PART")
    for part in PLANS:
        of = parts.add_parser(part, help=f"run the part {part}")
        of.add_argument("--device", default="cpu", help="cpu or cuda")
        of.add_argument("--threads", type=int, help="of the processor; torch's own number if not given")
        of.add_argument("--seed", "--seeds", dest="seeds", type=seeds, default=SEEDS, help="0,1 if not given")
        of.add_argument("--only", help="words of runs, as WORD/WORD,WORD; --list shows them")
        of.add_argument("--list", action="store_true", help="show the runs, make none")
        of.add_argument("--quick", action="store_true", help="tiny nets and few steps, into runs/networks")
        of.add_argument("--out", type=Path, help="a file *.jsonl, or a folder; benchmarks/networks if not given")
        of.add_argument("--data-dir", help="else $ALTMIN_DATA, else the user's cache")
        of.add_argument("--precision", choices=["float32", "tf32", "bf16"], help="tf32 on a GPU, else float32")
        for name in OWN[part]:
            of.add_argument(f"--{name}", **OPTIONS[name])
    merging = parts.add_parser("merge", help="add the rows of other files")
    merging.add_argument("sources", nargs="+", type=Path)
    merging.add_argument("--out", type=Path, default=RESULTS, help="the folder to add to")
    parts.add_parser("table", help="fill docs/networks-measured.md")
    return made


def run_all(runs: Sequence[Run], out: Path, where: Where) -> int:
    """Appends a line for every run that is not in the file of its part yet; how many were made."""
    made = 0
    for number, run in enumerate(runs, 1):
        path, name = file_for(out, run.part), "/".join(run.words)
        try:
            row = run.identity()
        except CannotCut as reason:
            print(f"networks.py: {name} is left out: {reason}", file=sys.stderr)
            continue
        if key(row) in {key(each) for each in known(path)}:
            print(f"networks.py: {name} is in {path.name} already", file=sys.stderr)
            continue
        print(f"networks.py: {name}, {number} of {len(runs)}", file=sys.stderr, flush=True)
        row |= run.execute(where) | {"environment": output.environment(where.device)}
        append(path, row)
        made += 1
        print(f"{name}: {summary(row)}", flush=True)
    return made


def summary(row: dict[str, Any]) -> str:
    """A run in one line, for whoever watches."""
    if "diverged" in row:
        return row["diverged"]
    if "results" in row:
        ratios = [
            f"{each['method']} {each['mode']} {each['over_backprop'][each['mode']]['median']:.2f}"
            for each in row["results"]
            if each["mode"] in each["over_backprop"]
        ]
        return f"time of a step over backprop's in the same mode: {', '.join(ratios)}"
    last = {name: value for name, value in row["rows"][-1].items() if name.startswith(("validation", "test"))}
    return ", ".join(f"{name} {value:.4f}" for name, value in last.items()) + f" ({row['seconds']} s)"


def train(given: argparse.Namespace) -> int:
    device = prepare(given.device, given.threads, given.precision or "float32")
    given.device = device
    if getattr(given, "epochs", None) is not None and not 1 <= given.epochs <= 30:
        raise ValueError(f"--epochs is 1 to 30, given {given.epochs}")
    altmin.GradientCodes(
        share=0.1 if getattr(given, "share", None) is None else given.share
    )  # or it says what is wrong
    for mode in [*(getattr(given, "modes", None) or ()), getattr(given, "mode", None) or "eager"]:
        modes.check(mode, device)
    runs = selected(list(PLANS[given.what](given)), given.only)
    if given.list:
        print("\n".join("/".join(run.words) for run in runs))
        return 0
    out = given.out or (QUICK if given.quick else RESULTS)
    warnings.simplefilter("ignore")  # of data sets that are there in part, and of smaller last batches
    try:
        run_all(runs, out, Where(device, given.data_dir))
    except KeyboardInterrupt:
        print(f"networks.py: stopped; {file_for(out, given.what)} has what was done", file=sys.stderr)
        return 130
    return 0


def main(arguments: list[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    try:
        if given.what == "table":
            return fill_tables(HERE / "docs/networks-measured.md", RESULTS)
        if given.what == "merge":
            new = merge(given.sources, given.out, list(PLANS))
            print("new rows:", ", ".join(f"{part} {count}" for part, count in new.items()) or "none")
            return 0
        return train(given)
    except (ValueError, OSError) as error:
        print(f"networks.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
