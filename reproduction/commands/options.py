"""What several commands share: an option, and the device."""

from pathlib import Path
from typing import Annotated

import typer

from altmin.cli import output
from altmin.cli.options import prepare
from reproduction.results import Setting

ONLY = "Some of its runs alone, by words of each: a model, a method or a curve, as lenet5/adam,mlp-2x100."
Only = Annotated[str | None, typer.Option(metavar="WORD/WORD,...", help=ONLY)]


def setting(device: str, threads: int | None, data_dir: Path | None = None) -> Setting:
    """Return where measurements are made, with the number of CPU threads set. ValueError if the machine lacks the
    device."""
    place = prepare(device, threads)
    return Setting(place, data_dir, output.environment(place))
