"""The files of experiments/networks.py: one line of JSON for each run, found again by what the run was."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from common import Row, read

IDENTITY = ("part", "model", "method", "seed", "config")
"""What tells one run from another."""


def key(row: Row) -> str:
    return json.dumps([row[name] for name in IDENTITY], sort_keys=True)


def append(path: Path, row: Row) -> None:
    """Adds a line in a single write at the end of the file, so that several processes may write to one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(file, (json.dumps(row) + "\n").encode())
        os.fsync(file)
    finally:
        os.close(file)


def known(path: Path) -> list[Row]:
    """The rows of a file, none if it is not there. ValueError for a file with other lines."""
    try:
        rows = read(path) if path.exists() else []
        for row in rows:
            key(row)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} has a line that is no run of experiments/networks.py ({error!r}); delete it"
        ) from None
    return rows


def file_for(out: Path, part: str) -> Path:
    """The file of a part: `out` itself if it is named as one, else PART.jsonl in that folder."""
    return out if out.suffix == ".jsonl" else out / f"{part}.jsonl"


def merge(sources: Iterable[Path], out: Path, parts: Sequence[str]) -> dict[str, int]:
    """Adds the rows of the given files, and of all *.jsonl in the given folders, to the files of their parts; how many
    were new, by part. A run that is there already is not added again."""
    files = [path for source in sources for path in (sorted(source.rglob("*.jsonl")) if source.is_dir() else [source])]
    for path in files:
        if not path.is_file():
            raise FileNotFoundError(f"{path} is not there; give files or folders that experiments/networks.py wrote")
    new: dict[str, int] = {}
    done = {part: {key(row) for row in known(file_for(out, part))} for part in parts}
    for row in (row for path in files for row in known(path)):
        part = row["part"]
        if part not in done:
            raise ValueError(f"there is no part {part!r}; the parts are: {', '.join(parts)}")
        if key(row) not in done[part]:
            append(file_for(out, part), row)
            done[part].add(key(row))
            new[part] = new.get(part, 0) + 1
    return new
