"""One default for everything: `python experiments/defaults.py choose`, `... report`, `... share`, then `... table`.

`choose` trains the tasks of default_tasks.py with AM-Adam over a grid of shares, orders and penalties, and with Adam,
measures on validation data and ranks the settings: benchmarks/defaults-choice.jsonl. `report` trains with the library's
defaults and with Adam and measures on test data: benchmarks/defaults.jsonl. `share` measures along the share, in both
orders, on some of the tasks: benchmarks/share.jsonl. `table` fills docs/defaults.md from these files and draws
docs/images/share.png; it trains nothing. `run` makes any runs, into the file given by --out:

    python experiments/defaults.py run --tasks sine,higgs --share 0.05,0.1 --penalty 1:0.2:100,10 --out runs/try.jsonl

Every command takes --tasks, --seeds, --device, --threads and --data-dir. A run that is in the file already is not made
again, so what was stopped goes on. All methods start from the same weights and see the same batches.
"""

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from common import HERE, SEEDS
from default_runs import Plan, Setting, Where, run_all, settings
from default_table import fill_tables, ranking
from default_tasks import TASKS

CHOICE, REPORT, SHARE = (HERE / f"benchmarks/{name}.jsonl" for name in ("defaults-choice", "defaults", "share"))
ORDERS = ("codes-first", "weights-first")
GROWING = (10.0, 0.2, 100.0)
GRID = [
    *settings((0.1,), ("codes-first",), ((1.0, 0.2, 100.0), GROWING, (100.0, 0.0, 100.0))),
    *settings((0.03, 0.3), ("codes-first",), (GROWING,)),
    *settings((0.1,), ("weights-first",), (GROWING,)),
]
ALONG = settings((0.0, 0.01, 0.03, 0.1, 0.3, 1.0), ORDERS, (None,))
CHOICE_TASKS = [name for name in TASKS if name != "residual-128"]  # hours by itself, and residual-32 is its like
SHARE_TASKS = ("mlp-2x100", "mlp-20x100", "lenet5", "higgs", "sine", "transformer")
COMMANDS: dict[str, tuple[Path | None, str, Sequence[str], Sequence[Setting]]] = {
    "run": (None, "validation", tuple(TASKS), [Setting()]),
    "choose": (CHOICE, "validation", CHOICE_TASKS, GRID),
    "report": (REPORT, "test", tuple(TASKS), [Setting()]),
    "share": (SHARE, "test", SHARE_TASKS, ALONG),
}
"""Of each command that trains: its file, the split it measures on, its tasks, and the settings of AM-Adam."""


def penalty(text: str) -> tuple[float, float, float | None]:
    """`start`, `start:increment` or `start:increment:maximum`.

    >>> penalty("1:0.2:100"), penalty("10")
    ((1.0, 0.2, 100.0), (10.0, 0.0, None))
    """
    start, increment, maximum = (*map(float, text.split(":")), *(0.0, None)[text.count(":") :])
    return start, increment, maximum


def several(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """A parser of values with commas between them."""

    def parse(text: str) -> list[Any]:
        return [kind(part) for part in text.split(",")]

    parse.__name__ = f"list of {kind.__name__}"
    return parse


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("what", choices=[*COMMANDS, "table"])
    made.add_argument("--tasks", type=several(str), help=f"of {', '.join(TASKS)}; all of the command's if not given")
    made.add_argument("--seeds", type=several(int), default=SEEDS, help="0,1,2 if not given")
    made.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    made.add_argument("--threads", type=int, default=1)
    made.add_argument("--data-dir", help="else $ALTMIN_DATA, else the user's cache")
    made.add_argument("--out", type=Path, help="the file to append to; the command's own if not given")
    made.add_argument("--on", choices=["validation", "test"], help="run: what to measure on (validation)")
    made.add_argument("--methods", type=several(str), default=["am-adam", "adam"], help="run: am-adam,adam")
    made.add_argument("--share", type=several(float), default=[None], help="run: shares, the library's if not given")
    made.add_argument("--order", type=several(str), default=[None], help=f"run: of {', '.join(ORDERS)}")
    made.add_argument("--penalty", type=several(penalty), default=[None], help="run: each start:increment:maximum")
    return made


def main(arguments: list[str] | None = None) -> int:
    of = parser()
    given = of.parse_args(arguments)
    for task in given.tasks or ():
        if task not in TASKS:
            of.error(f"there is no task {task!r}; the tasks are: {', '.join(TASKS)}")
    if given.what == "table":
        return fill_tables(HERE / "docs/defaults.md", CHOICE, REPORT, SHARE)
    file, measured_on, tasks, chosen = COMMANDS[given.what]
    methods = {"am-adam": chosen, "adam": [Setting()]}
    if given.what == "run":
        asked = settings(given.share, given.order, given.penalty)
        methods = {name: asked if name.startswith("am-") else [Setting()] for name in given.methods}
    if not (path := given.out or file):
        of.error("run needs --out FILE")
    torch.set_num_threads(given.threads)
    warnings.simplefilter("ignore")  # of data sets that are there in part
    plan = Plan(given.tasks or tasks, methods, given.seeds, given.on or measured_on)
    run_all(path, plan, Where(given.device, given.data_dir))
    if given.what == "choose":
        print(ranking(path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
