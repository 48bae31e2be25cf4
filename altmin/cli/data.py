"""`altmin data`: what data sets there are, and getting and checking their files."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from altmin import data as datasets
from altmin.cli.options import DataDir, Json
from altmin.cli.output import check_writable, console, write_json
from altmin.data.base import megabytes

What = Annotated[Literal["list", "fetch", "verify"], typer.Argument(help="Show what there is, download, or check.")]
Name = Annotated[str | None, typer.Argument(help=f"One of {', '.join(datasets.names())}.")]


def data(what: What, name: Name = None, data_dir: DataDir = None, json_file: Json = None) -> None:
    """List the data sets and their files, fetch one from its official source, or verify files against their checksums;
    exit with 1 if one is damaged or missing."""
    check_writable(json_file)
    if what == "fetch":
        for path in datasets.fetch(name or "", data_dir):
            print(f"fetched and verified {path}")
        print(f"{name} is at {datasets.describe(name or '', data_dir).where}")
        return
    names = [name] if name else datasets.names()
    if what == "list":
        known = [datasets.describe(each, data_dir) for each in names]
        rows = []
        for each in known:
            samples = "\n".join(f"{size:,} {split}" for split, size in each.splits.items())
            form = f"{'x'.join(map(str, each.sample_shape))}\n{each.classes} classes"
            source = f"{megabytes(each.download_size)} from {each.source}\nlicence: {each.licence}"
            rows.append((each.name, samples, form, f"{each.state}: {each.where}\n{source}"))
        _show(("name", "samples", "form", "files"), rows)
        write_json(json_file, [asdict(each) for each in known])
        return
    files = [(each, path, state) for each in names for path, state in datasets.verify(each, data_dir).items()]
    there = {each for each, _, state in files if name or state != "missing"}
    checks = [(each, state, str(path)) for each, path, state in files if each in there]
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
