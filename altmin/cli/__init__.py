"""The command line: one file per command. What only a running command needs is imported by that command."""

import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from altmin.cli.bench import bench
from altmin.cli.compare import compare
from altmin.cli.theory import theory
from altmin.cli.train import train
from altmin.errors import Diverged


class Commands(TyperGroup):
    """The commands; a run that was interrupted says how to go on before the exit code does."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            _say(str(stop) or "stopped")
            raise typer.Exit(130) from None


app = typer.Typer(cls=Commands, add_completion=False, pretty_exceptions_enable=False, invoke_without_command=True)
app.command(epilog="Example: altmin train --data mnist --model mlp-2x100 --method am-adam --epochs 3")(train)
app.command(epilog="Example: altmin compare --methods am-adam,am-mem,adam --epochs 2 --plot curves.png")(compare)
app.command(
    epilog="Example: altmin bench --model mlp-2x100,mlp-1x300@higgs --methods am-adam,adam:fused=true --plot speed.png"
)(bench)
app.command(epilog="Example: altmin theory --quick --plot theory.png")(theory)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    epilog="Example: altmin data list",
)
def data(ctx: typer.Context) -> None:
    """List, fetch and verify the data sets."""
    from altmin.cli.data import app as data_app

    raise typer.Exit(_invoke(data_app, ctx.args or ["--help"], "altmin data"))


@app.callback()
def top(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Train neural networks without backpropagation, by online alternating minimization."""
    if version:
        from altmin import __version__

        print(f"altmin {__version__}")
    elif ctx.invoked_subcommand is None:
        raise typer.Exit(_invoke(app, ["--help"], "altmin"))


def main(arguments: Sequence[str] | None = None) -> None:
    """The `altmin` command. What is the user's to mend or to know is said in one line, without a traceback."""
    warnings.showwarning = lambda message, *_, **__: _say(f"note: {message}")
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 when all went well, 1 when training diverged, 2 for a mistake, 130 after Ctrl-C."""
    try:
        return _invoke(app, sys.argv[1:] if arguments is None else arguments, "altmin")
    except Diverged as error:
        _say(str(error))
        return 1
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        _say(_describe(error))
        return 2
    except Exception as error:
        if hasattr(error, "format_message"):  # a wrong use of the options, as typer tells it
            _say(error.format_message())
        elif type(error).__name__ == "OutOfMemoryError":  # torch's, which is not imported for this alone
            _say(f"{error} Lower --batch-size, or choose another --device.")
        else:
            raise
        return 2


def _invoke(commands: typer.Typer, arguments: Sequence[str], name: str) -> int:
    result = typer.main.get_command(commands).main(list(arguments), prog_name=name, standalone_mode=False)
    return result if isinstance(result, int) else 0


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def _say(message: str) -> None:
    print("altmin:", " ".join(message.split()), file=sys.stderr)
