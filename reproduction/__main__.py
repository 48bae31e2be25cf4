"""`python -m reproduction`: the figures and claims of the paper, and all that is measured. One file per command."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

COMMANDS = {
    "figure": ("Make a figure from scratch, with its results and its picture.", "figure fig1 --quick"),
    "search": ("Look for the settings of a figure's runs.", "search fig1 --trials 16"),
    "verify": ("Print the paper's claims beside what was found.", "verify --json claims.json"),
    "report": ("Write a page of the paper's claims and figures.", "report --out report.html"),
    "theory": ("Measure the paper's convergence theorem: error against bound.", "theory --quick --plot theory.png"),
    "speed": (
        "Measure the time and the memory of a step against backprop with Adam.",
        "speed --model mlp-2x100,mlp-1x300@higgs --methods am-adam --plot speed.png",
    ),
}
"""What each command does, and an example. commands/NAME.py has a function NAME, which is imported, and torch with
it, when the command is called."""


class Commands(TyperGroup):
    """The commands, each imported when it is called."""

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=text) for name, (text, _) in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in COMMANDS:
            module = import_module(f"reproduction.commands.{args[0]}")
            alone = typer.Typer(add_completion=False)
            epilog = f"Example: python -m reproduction {COMMANDS[args[0]][1]}"
            alone.command(args[0], epilog=epilog)(getattr(module, args[0]))
            self.commands[args[0]] = typer.main.get_command(alone)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            _tell(str(stop) or "stopped")
            raise typer.Exit(130) from None


app = typer.Typer(cls=Commands, add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)


@app.callback()
def top() -> None:
    """The paper and all that is measured: figures, claims, settings, theorem, speed."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 where a result contradicts a theorem, 2 for a user's mistake, which
    is printed as one line, 130 after Ctrl-C."""
    try:
        result = typer.main.get_command(app).main(arguments, prog_name="python -m reproduction", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except (OSError, ValueError, ImportError) as error:
        _tell(str(error))
    except Exception as error:
        if not hasattr(error, "format_message"):  # which typer's errors about options have, whatever their class
            raise
        _tell(error.format_message())
    return 2


def _tell(message: str) -> None:
    print("reproduction:", " ".join(message.split()), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(run())
