"""`altmin data`: what data sets there are, getting and checking them."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from altmin import data
from altmin.cli import output
from altmin.cli.options import DataDir, Json
from altmin.data.base import megabytes

app = typer.Typer(add_completion=False)
Name = Annotated[str, typer.Argument(metavar="NAME", help=f"One of: {', '.join(data.names())}.")]
SomeName = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Leave it out to verify all that is there.")]


@app.callback(invoke_without_command=True)
def data_sets(ctx: typer.Context) -> None:
    """List, fetch and verify the data sets."""
    if ctx.invoked_subcommand is None:
        print(ctx.get_help(), end="")


@app.command("list", epilog="Example: altmin data list --data-dir ~/data")
def list_(data_dir: DataDir = None, json_file: Json = None) -> None:
    """Show the data sets and where their files are."""
    output.check_writable(json_file)
    found = [data.describe(name, data_dir) for name in data.names()]
    rows = []
    for each in found:
        samples = "\n".join(f"{size:,} {split}" for split, size in each.splits.items())
        form = f"{'x'.join(map(str, each.sample_shape))}\n{each.classes} classes"
        size = f"{megabytes(each.download_size)} from " if each.download_size else "from "
        rows.append(
            (
                each.name,
                samples,
                form,
                f"{each.state}: {each.where}\n{size}{each.source}\nlicence: {each.licence}",
            )
        )
    _show(("name", "samples", "form", "files"), rows)
    output.write_json(json_file, [asdict(each) for each in found])


@app.command(epilog="Example: altmin data fetch fashion-mnist")
def fetch(name: Name, data_dir: DataDir = None) -> None:
    """Download a data set from its official source, and check it. Files that are there and sound are left alone."""
    fetched = data.fetch(name, data_dir)
    for path in fetched:
        print(f"fetched and verified {path}")
    if not fetched:
        print(f"{name} is at {data.describe(name, data_dir).where}: nothing to fetch")


@app.command(epilog="Example: altmin data verify cifar10")
def verify(name: SomeName = None, data_dir: DataDir = None, json_file: Json = None) -> None:
    """Check files against their checksums; exit with 1 if one is damaged or missing."""
    output.check_writable(json_file)
    checks = {each: data.verify(each, data_dir) for each in ([name] if name else data.names())}
    rows = [
        (each, state, str(path))
        for each, states in checks.items()
        for path, state in states.items()
        if name or set(states.values()) != {"missing"}
    ]
    _show(("name", "state", "file"), rows)
    output.write_json(json_file, [dict(zip(("name", "state", "path"), row, strict=True)) for row in rows])
    if any(state != "sound" for _, state, _ in rows):
        print(f"`altmin data fetch {name or 'NAME'}` downloads what is damaged or missing")
        raise typer.Exit(1)


def _show(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(*head, header_style="bold", show_lines=any("\n" in cell for row in rows for cell in row))
    for column in table.columns:
        column.overflow = "fold"
    for row in rows:
        table.add_row(*map(escape, row))
    output.console().print(table)
