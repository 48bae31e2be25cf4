"""`altmin data`: what data sets there are, and getting and checking their files."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from altmin import data
from altmin.cli.options import DataDir, Json
from altmin.cli.output import check_writable, console, write_json
from altmin.data.base import megabytes

app = typer.Typer(add_completion=False)
Name = Annotated[str, typer.Argument(help=f"One of {', '.join(data.names())}.")]
OptionalName = Annotated[str | None, typer.Argument(help="Leave it out to verify all that is there.")]


@app.callback()
def data_sets() -> None:
    """List, fetch and verify the data sets."""


@app.command("list", epilog="Example: altmin data list --data-dir ~/data")
def list_(data_dir: DataDir = None, json_file: Json = None) -> None:
    """Show the data sets and where their files are."""
    check_writable(json_file)
    known = [data.describe(name, data_dir) for name in data.names()]
    rows = []
    for each in known:
        samples = "\n".join(f"{size:,} {split}" for split, size in each.splits.items())
        form = f"{'x'.join(map(str, each.sample_shape))}\n{each.classes} classes"
        source = f"{megabytes(each.download_size)} from {each.source}\nlicence: {each.licence}"
        rows.append((each.name, samples, form, f"{each.state}: {each.where}\n{source}"))
    _show(("name", "samples", "form", "files"), rows)
    write_json(json_file, [asdict(each) for each in known])


@app.command(epilog="Example: altmin data fetch fashion-mnist")
def fetch(name: Name, data_dir: DataDir = None) -> None:
    """Download a data set from its official source, and check it."""
    for path in data.fetch(name, data_dir):
        print(f"fetched and verified {path}")
    print(f"{name} is at {data.describe(name, data_dir).where}")


@app.command(epilog="Example: altmin data verify cifar10")
def verify(name: OptionalName = None, data_dir: DataDir = None, json_file: Json = None) -> None:
    """Check files against their checksums; exit with 1 if one is damaged or missing."""
    check_writable(json_file)
    checks = [
        (each, state, str(path))
        for each in ([name] if name else data.names())
        for states in [data.verify(each, data_dir)]
        for path, state in states.items()
        if name or set(states.values()) != {"missing"}
    ]
    _show(("name", "state", "file"), checks)
    write_json(json_file, [dict(zip(("name", "state", "path"), row, strict=True)) for row in checks])
    if any(state != "sound" for _, state, _ in checks):
        print(f"`altmin data fetch {name or 'NAME'}` downloads what is damaged or missing")
        raise typer.Exit(1)


def _show(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(header_style="bold", show_lines=any("\n" in cell for row in rows for cell in row))
    for name in head:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    console().print(table)
