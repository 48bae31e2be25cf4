"""`altmin data`: what data sets there are, getting and checking them, and making shards of a table."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from altmin import data
from altmin.cli.options import DataDir, Json
from altmin.cli.output import check_writable
from altmin.data.atomic import replacing
from altmin.data.base import megabytes
from altmin.data.folders import data_folder

app = typer.Typer(add_completion=False)
Name = Annotated[str, typer.Argument(metavar="NAME", help=f"One of: {', '.join(data.names())}.")]
SomeName = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Leave it out to verify all that is there.")]


@app.callback(invoke_without_command=True)
def data_sets(ctx: typer.Context) -> None:
    """List, fetch and verify the data sets; make shards of a table."""
    if ctx.invoked_subcommand is None:
        print(ctx.get_help(), end="")


@app.command("list", epilog="Example: altmin data list --data-dir ~/data")
def list_(data_dir: DataDir = None, json_file: Json = None) -> None:
    """Show the data sets and where their files are."""
    check_writable(json_file)
    described = [data.describe(name, data_dir) for name in data.names()]
    table = Table("name", "samples", "form", "files", header_style="bold", show_lines=True)
    head = f"name {' '.join(data.SPLITS)} shape classes state where download licence source".split()
    rows = []
    for each in described:
        sizes, shape = each.splits, "x".join(map(str, each.sample_shape))
        samples = "\n".join(f"{size:,} {split}" for split, size in sizes.items())
        origin = f"{megabytes(each.download_size)} from " if each.download_size else "from "
        files = f"{each.state}: {each.where}\n{origin}{each.source}\nlicence: {each.licence}"
        table.add_row(each.name, samples, f"{shape}\n{each.classes} classes", escape(files))
        facts = (each.classes, each.state, each.where, each.download_size, each.licence, each.source)
        rows.append([each.name, *map(str, sizes.values()), shape, *map(str, facts)])
    _show(table, head, rows)
    _write(json_file, [asdict(each) for each in described])


@app.command(epilog="Example: altmin data fetch fashion-mnist")
def fetch(name: Name, data_dir: DataDir = None) -> None:
    """Download a data set from its official source, and check it.

    An interrupted download goes on where it broke off. Files that are there and sound are left alone.
    """
    before = data.describe(name, data_dir)
    if not before.download_size:
        typer.echo(f"{name} comes with altmin: nothing to fetch")
        return
    fetched = data.fetch(name, data_dir)
    for path in fetched:
        typer.echo(f"fetched and verified {path}")
    if not fetched:
        typer.echo(f"{name} is already at {before.where}, and sound")


@app.command(epilog="Example: altmin data verify cifar10")
def verify(name: SomeName = None, data_dir: DataDir = None, json_file: Json = None) -> None:
    """Check files against their checksums; exit with 1 if one is damaged or missing."""
    check_writable(json_file)
    checks = {each: data.verify(each, data_dir) for each in ([name] if name else data.names())}
    if name and not checks[name]:
        known, root = data.dataset(name), data_folder(data_dir)
        raise FileNotFoundError(known.help_missing(known.missing(root)[0], root))
    results = [(each, check) for each in checks for check in checks[each]]
    head = ("name", "state", "file", "detail")
    rows = [(each, check.state, str(check.path), check.detail) for each, check in results]
    table = Table(*head, header_style="bold")
    for row in rows:
        table.add_row(*map(escape, row))
    _show(table, head, rows)
    _write(json_file, [{"name": each} | asdict(check) | {"path": str(check.path)} for each, check in results])
    if not all(check.state == "sound" for _, check in results):
        raise typer.Exit(1)


@app.command(epilog="Example: altmin data shards HIGGS.csv.gz ~/data/higgs-shards")
def shards(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A text of numbers, *.csv or *.csv.gz.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the shards go; it is made if need be.")],
    rows: Annotated[
        int | None, typer.Option("--rows", min=1, help="Rows of a shard; 262,144, or fewer that have 256 MB.")
    ] = None,
    values: Annotated[bool, typer.Option("--values", help="Targets are real numbers, not labels.")] = False,
) -> None:
    """Turn a table into shards, which can be trained on without having them in memory.

    The first column is the target, the others are features. Memory does not grow with the number of rows: a shard and
    some megabytes of text are in memory.
    """
    written = data.write_shards(folder, data.csv_batches(source, labels=not values), rows)
    typer.echo(f"wrote {len(written):,} rows in {len(written.files)} shards to {folder}")


def _show(table: Table, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """The table for people on a terminal; fields between tabs for programs in a pipe."""
    console = Console()
    if console.is_terminal:
        for column in table.columns:
            column.overflow = "fold"
        console.print(table)
    else:
        for row in (head, *rows):
            typer.echo("\t".join(row))


def _write(target: Path | None, content: list[dict[str, Any]]) -> None:
    if target is not None:
        with replacing(target) as file:
            file.write(json.dumps(content, indent=2).encode() + b"\n")
