"""The `altmin` command. Each command has one file; `program` starts them, options and output are shared."""

import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout

from altmin import __version__
from altmin.cli import program, torchrun

COMMANDS = {
    "train": ("Train a model and report how well it does.", "train --model mlp-2x100 --method am-adam --json run.json"),
    "compare": ("Compare how several methods learn.", "compare --methods am-adam,am-mem,adam --plot curves.png"),
    "predict": (
        "Predict the target of every row of a table.",
        "predict flats.altmin --data new.csv --out new-prices.csv",
    ),
    "evaluate": ("Measure a trained model on a table or a data set.", "evaluate flats.altmin --data sold.csv"),
    "doctor": ("Show what one step does to each block of a model, and advice.", "doctor mlp-20x100 --data mnist"),
    "data": ("List, fetch or verify the data sets.", "data fetch fashion-mnist"),
}
"""Description and example of each command."""


ABOUT = (
    "Train neural networks without backpropagation, by online alternating minimization; --version shows the version."
)
PROGRAM = program.Program("altmin", "altmin.cli", ABOUT, COMMANDS)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code, as `Program.run` has it."""
    if "" not in sys.path:
        sys.path.append("")  # for models of the user's own, in the folder in which the command runs
    if list(sys.argv[1:] if arguments is None else arguments) == ["--version"]:
        print(f"altmin {__version__}")
        return 0
    return PROGRAM.run(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and end the process. Warnings are one line each. Under torchrun the first process prints."""
    first = torchrun.first()
    warnings.showwarning = lambda message, *_, **__: program.say("altmin", f"note: {message}") if first else None
    with nullcontext() if first else redirect_stdout(open(os.devnull, "w")):
        sys.exit(run(arguments))
