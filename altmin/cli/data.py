"""`altmin data`: list the data sets, and download and verify their files."""

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from altmin import data as datasets
from altmin.cli import output
from altmin.cli.options import DataDir, Json
from altmin.data.base import Description, megabytes

What = Annotated[Literal["list", "fetch", "verify"], typer.Argument(help="Show what there is, download, or check.")]
Name = Annotated[str | None, typer.Argument(help=f"One of {', '.join(datasets.names())}.")]


def data(what: What, name: Name = None, data_dir: DataDir = None, json_file: Json = None) -> None:
    """List the data sets and their files, fetch one from its official source, or verify files against their checksums;
    exit with 1 if one is damaged or missing."""
    output.check_writable(json_file)
    names = [name] if name else datasets.names()
    if what == "fetch":
        for path in datasets.fetch(name or "", data_dir):
            print(f"fetched and verified {path}")
        print(f"{name} is at {datasets.describe(name or '', data_dir).where}")
    elif what == "list":
        known = [datasets.describe(dataset, data_dir) for dataset in names]
        output.show([_row(description) for description in known])
        output.write_json(json_file, [asdict(description) for description in known])
    else:
        checks = []
        for dataset in names:
            states = datasets.verify(dataset, data_dir)
            if name or set(states.values()) != {"missing"}:
                checks += [{"name": dataset, "state": state, "path": str(path)} for path, state in states.items()]
        output.show(checks)
        output.write_json(json_file, checks)
        if any(row["state"] != "sound" for row in checks):
            print(f"`altmin data fetch {name or 'NAME'}` downloads what is damaged or missing")
            raise typer.Exit(1)


def _row(known: Description) -> dict[str, str]:
    source = f"{megabytes(known.download_size)} from {known.source}\nlicence: {known.licence}"
    return {
        "name": known.name,
        "samples": "\n".join(f"{size:,} {split}" for split, size in known.splits.items()),
        "form": f"{'x'.join(map(str, known.sample_shape))}\n{known.classes} classes",
        "files": f"{known.state}: {known.where}\n{source}",
    }
