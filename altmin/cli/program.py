"""Programs of several commands: each command is imported when it is called, and errors are one line."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from altmin.common.errors import Diverged


class Commands(TyperGroup):
    """Commands by name: the function of that name in the module of that name in `package`.

    table: for each command what it does, and an example.
    """

    program: ClassVar[str]
    package: ClassVar[str]
    table: ClassVar[Mapping[str, tuple[str, str]]]

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=text) for name, (text, _) in self.table.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in self.table:
            self.commands[args[0]] = self._imported(args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            say(self.program, str(stop) or "stopped")
            raise typer.Exit(130) from None

    def _imported(self, name: str) -> Any:
        usual = signal.signal(signal.SIGINT, self._stop)  # an exception could be lost in the middle of an import
        try:
            module = import_module(f"{self.package}.{name}")
        finally:
            signal.signal(signal.SIGINT, usual)
        alone = typer.Typer(add_completion=False)
        alone.command(name, epilog=f"Example: {self.program} {self.table[name][1]}")(getattr(module, name))
        return typer.main.get_command(alone)

    def _stop(self, *_: object) -> None:
        say(self.program, "stopped")
        sys.stderr.flush()
        os._exit(130)


def run(app: typer.Typer, program: str, arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 if all went well, 1 if training diverged, 2 for a user's mistake, which
    is one line on standard error, 130 after Ctrl-C. A defect raises."""
    try:
        code = typer.main.get_command(app).main(arguments, prog_name=program, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except Diverged as error:
        say(program, str(error))
        return 1
    except (OSError, ValueError, TypeError, ImportError, MemoryError) as error:
        say(program, str(error) or type(error).__name__)
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's errors about options, which have no public base class
            say(program, error.format_message())
        elif type(error).__name__ == "OutOfMemoryError":  # torch's, which need not be imported here
            say(program, f"{error} Lower --batch-size.")
        else:
            raise
    return 2


def say(program: str, message: str) -> None:
    """Print one line on standard error."""
    print(f"{program.split()[-1]}:", " ".join(message.split()), file=sys.stderr)
