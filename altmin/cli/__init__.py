"""The command line: one file per command, and what several of them share (options, parse, training, output)."""

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from typer.core import TyperGroup

from altmin import __version__
from altmin.cli import ranks
from altmin.cli.bench import bench
from altmin.cli.compare import compare
from altmin.cli.data import app as data_app
from altmin.cli.doctor import doctor
from altmin.cli.merge import merge
from altmin.cli.report import report
from altmin.cli.reproduce import reproduce
from altmin.cli.search import search
from altmin.cli.theory import theory
from altmin.cli.train import train
from altmin.cli.verify import verify
from altmin.common import startup
from altmin.common.errors import Diverged


class Commands(TyperGroup):
    """The commands. Ctrl-C ends with exit code 130 and a line that says how to go on, if the run can."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with startup.lifted():
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            if ranks.count() > 1:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # torchrun passes on what the terminal has sent already
            if ranks.first():
                _say(str(stop) or "stopped")
            raise typer.Exit(130) from None


app = typer.Typer(cls=Commands, add_completion=False, pretty_exceptions_enable=False, invoke_without_command=True)
app.command(epilog="Example: altmin train --data mnist --model mlp-2x100 --method am-adam --epochs 3")(train)
app.command(epilog="Example: altmin compare --methods am-adam,am-mem,adam --epochs 2 --plot curves.png")(compare)
app.command(epilog="Example: altmin doctor mlp-20x100 --data mnist")(doctor)
app.command(epilog="Example: altmin bench --model mlp-2x100,mlp-1x300@higgs --methods am-adam --plot speed.png")(bench)
app.command(epilog="Example: altmin theory --quick --plot theory.png")(theory)
app.command(epilog="Example: altmin reproduce fig1 --quick")(reproduce)
app.command(epilog="Example: altmin search fig1 --trials 16")(search)
app.command(epilog="Example: altmin verify --json claims.json")(verify)
app.command(epilog="Example: altmin merge site1.safetensors site2.safetensors --out merged.safetensors")(merge)
app.command(epilog="Example: altmin report --out report.html")(report)
app.add_typer(data_app, name="data", epilog="Example: altmin data list")


@app.callback()
def top(
    ctx: typer.Context, version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False
) -> None:
    """Train neural networks without backpropagation, by online alternating minimization."""
    ranks.check(ctx.invoked_subcommand)
    if not ranks.first() and ctx.invoked_subcommand is None:
        return
    if version:
        print(f"altmin {__version__}")
    elif ctx.invoked_subcommand is None:
        print(ctx.get_help(), end="")


def main(arguments: Sequence[str] | None = None) -> None:
    """The `altmin` command: runs it and ends the process. Warnings are one line each on standard error.

    Of several processes under torchrun the first one speaks for all; a mistake ends each of them with 1, at once, since
    a message to a process that is gone would never leave."""
    warnings.showwarning = lambda message, *_, **__: _say(f"note: {message}") if ranks.first() else None
    if ranks.count() == 1:
        sys.exit(run(arguments))
    try:
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(sys.stdout if ranks.first() else nowhere):
            code = run(arguments)
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if code in (0, 130) else 1)


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code: 0 when all went well, 1 when training diverged, 2 for a mistake, 130
    after Ctrl-C. A user error is printed as one line on standard error; a defect of altmin raises."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        result = typer.main.get_command(app).main(words, prog_name="altmin", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except Diverged as error:
        _tell(str(error), error)
        return 1
    except torch.OutOfMemoryError as error:
        _tell(f"{error} Lower --batch-size, or choose another --device.", error)
    except OSError as error:
        _tell(f"{error.filename}: {error.strerror}" if error.strerror and error.filename else str(error), error)
    except (ValueError, TypeError, ImportError, MemoryError) as error:
        _tell(str(error) or type(error).__name__, error)
    except Exception as error:
        if not hasattr(error, "format_message"):  # which typer's errors about options have, whatever their class
            raise
        _tell(error.format_message(), error)
    return 2


def _tell(message: str, error: Exception) -> None:
    """Says what went wrong, once for all processes."""
    if ranks.speaks(message, error):
        _say(message)


def _say(message: str) -> None:
    print("altmin:", " ".join(message.split()), file=sys.stderr)
