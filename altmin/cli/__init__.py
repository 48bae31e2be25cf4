"""The command line: one file per command, and what several of them share (options, parse, training, output)."""

import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from altmin import __version__
from altmin.cli import torchrun
from altmin.common import startup
from altmin.common.errors import Diverged

COMMANDS = {
    "train": (
        "Train a model and report how well it does.",
        "altmin train --data flats.csv --target price --save-model flats.altmin",
    ),
    "compare": (
        "Train with several methods and compare how they learn.",
        "altmin compare --methods am-adam,am-mem,adam --epochs 2 --plot curves.png",
    ),
    "predict": (
        "Predict the target of every row of a table with a trained model.",
        "altmin predict flats.altmin --data new.csv --out predictions.csv",
    ),
    "evaluate": (
        "Measure a trained model on a table or a data set.",
        "altmin evaluate flats.altmin --data more.csv",
    ),
    "doctor": (
        "Show a model's blocks, what one step does to each of them, and advice.",
        "altmin doctor mlp-20x100 --data mnist",
    ),
    "data": ("List, fetch and verify the data sets.", "altmin data list"),
}
"""What each command does, and an example. A command is imported, and torch with it, when it is called."""


class Commands(TyperGroup):
    """The commands. Ctrl-C ends with exit code 130 and a line that says how to go on, if the run can."""

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=text) for name, (text, _) in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in COMMANDS:
            self.commands[args[0]] = _imported(args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            with startup.lifted():
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            if torchrun.first():
                _say(str(stop) or "stopped")
            raise typer.Exit(130) from None


def _imported(name: str) -> Any:
    """A command by its name: the function of that name in its module, or the group that it has."""
    with startup.importing():
        module = import_module(f"altmin.cli.{name}")
    epilog = f"Example: {COMMANDS[name][1]}"
    alone = typer.Typer(add_completion=False)
    if hasattr(module, "app"):
        alone.add_typer(module.app, name=name, epilog=epilog)
        return typer.main.get_group(alone).commands[name]
    alone.command(name, epilog=epilog)(getattr(module, name))
    return typer.main.get_command(alone)


app = typer.Typer(cls=Commands, add_completion=False, pretty_exceptions_enable=False, invoke_without_command=True)


@app.callback()
def top(
    ctx: typer.Context, version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False
) -> None:
    """Train neural networks without backpropagation, by online alternating minimization."""
    if version:
        print(f"altmin {__version__}")
    elif ctx.invoked_subcommand is None:
        print(ctx.get_help(), end="")


def main(arguments: Sequence[str] | None = None) -> None:
    """The `altmin` command: runs it and ends the process. Warnings are one line each on standard error.

    Of several processes under torchrun the first one prints; an error ends the one that has it, and torchrun the
    others.
    """
    warnings.showwarning = lambda message, *_, **__: _say(f"note: {message}") if torchrun.first() else None
    if torchrun.first():
        sys.exit(run(arguments))
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code: 0 when all went well, 1 when training diverged, 2 for a mistake, 130
    after Ctrl-C. A user error is printed as one line on standard error; a defect of altmin raises."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        result = typer.main.get_command(app).main(words, prog_name="altmin", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except Diverged as error:
        _say(str(error))
        return 1
    except OSError as error:
        _say(f"{error.filename}: {error.strerror}" if error.strerror and error.filename else str(error))
    except (ValueError, TypeError, ImportError, MemoryError) as error:
        _say(str(error) or type(error).__name__)
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":  # torch's, which need not be imported here
            _say(f"{error} Lower --batch-size, or choose another --device.")
        elif hasattr(error, "format_message"):  # which typer's errors about options have, whatever their class
            _say(error.format_message())
        else:
            raise
    return 2


def _say(message: str) -> None:
    print("altmin:", " ".join(message.split()), file=sys.stderr)
