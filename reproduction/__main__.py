"""`python -m reproduction`: the figures and claims of the paper, and all that is measured. One file per command."""

import sys
from collections.abc import Sequence

import typer

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


class Commands(program.Commands):
    program, package, table = "python -m reproduction", "reproduction.commands", COMMANDS


app = typer.Typer(cls=Commands, add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)


@app.callback()
def top() -> None:
    """The paper and all that is measured: figures, claims, settings, theorem, speed."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code, as `altmin.cli.program.run` has it."""
    return program.run(app, Commands.program, arguments)


if __name__ == "__main__":
    sys.exit(run())
