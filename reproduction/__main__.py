"""`python -m reproduction`: the figures and claims of the paper, and all that is measured. One file per command."""

import sys
from collections.abc import Sequence

from altmin.cli import program

COMMANDS = {
    "figure": ("Make a figure from scratch, with its results and its picture.", "figure fig1 --quick"),
    "search": ("Look for the settings of a figure's runs.", "search fig1 --trials 16"),
    "verify": ("Print the paper's claims beside what was found.", "verify --json claims.json"),
    "report": ("Write a page of the paper's claims and figures.", "report --out report.html"),
    "theory": ("Measure the paper's convergence theorem: error against bound.", "theory --quick"),
    "speed": (
        "Measure the time and the memory of a step against backprop with Adam.",
        "speed --model mlp-2x100,mlp-1x300@higgs --methods am-adam",
    ),
    "tables": ("Fill the tables of the documents from the results.", "tables --check"),
}
"""What each command does, and an example. commands/NAME.py has a function NAME, which is imported, and torch with
it, when the command is called."""


ABOUT = "The paper and all that is measured: figures, claims, settings, theorem, speed."
PROGRAM = program.Program("python -m reproduction", "reproduction.commands", ABOUT, COMMANDS)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code, as `Program.run` has it."""
    return PROGRAM.run(arguments)


if __name__ == "__main__":
    sys.exit(run())
