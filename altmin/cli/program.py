"""Programs of several commands: each command is imported when it is called, and errors are one line."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from altmin.common.errors import Diverged


class Stopped(TyperGroup):
    """Group of commands that exit with one line and code 130 after Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            say(ctx.command_path, str(stop) or "stopped")
            raise typer.Exit(130) from None


@dataclass(frozen=True)
class Program:
    """Commands by name: the function of that name in the module of that name in `package`.

    about: what the program is for. table: for each command what it does, and an example.
    """

    name: str
    package: str
    about: str
    table: Mapping[str, tuple[str, str]]

    def group(self, called: str) -> Any:
        """Return the commands, of which the one that is called is imported."""
        app = typer.Typer(cls=Stopped, add_completion=False, pretty_exceptions_enable=False, help=self.about)
        for name, (text, example) in self.table.items():
            function = self._imported(name) if name == called else lambda: None
            app.command(name, help=None if name == called else text, epilog=f"Example: {self.name} {example}")(function)
        return typer.main.get_command(app)

    def run(self, arguments: Sequence[str] | None = None) -> int:
        """Run a command and return its exit code: 0 if all went well, 1 if training diverged, 2 for a user's mistake,
        which is one line on standard error, 130 after Ctrl-C. A defect raises."""
        args = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
        try:
            code = self.group(args[0]).main(args, prog_name=self.name, standalone_mode=False)
            return code if isinstance(code, int) else 0
        except Diverged as error:
            say(self.name, str(error))
            return 1
        except (OSError, ValueError, TypeError, ImportError, MemoryError) as error:
            say(self.name, str(error) or type(error).__name__)
        except Exception as error:
            if not hasattr(error, "format_message"):  # typer's errors about options have no public base class
                raise
            say(self.name, error.format_message())
        return 2

    def _imported(self, name: str) -> Any:
        usual = signal.signal(signal.SIGINT, self._stop)  # an exception could be lost in the middle of an import
        try:
            return getattr(import_module(f"{self.package}.{name}"), name)
        finally:
            signal.signal(signal.SIGINT, usual)

    def _stop(self, *_: object) -> None:
        say(self.name, "stopped")
        sys.stderr.flush()
        os._exit(130)


def say(program: str, message: str) -> None:
    """Print one line on standard error."""
    print(f"{program.split()[-1]}:", " ".join(message.split()), file=sys.stderr)
