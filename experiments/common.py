"""What the experiments share: rows in files, means with their spread, tables in documents."""

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent.parent
SEEDS = (0, 1, 2)

Row = dict[str, Any]


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, rows: Sequence[Row]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def parallel(function: Callable[..., Row], tasks: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[Row]:
    """function(*task) for every task, in their order, by `jobs` processes at once."""
    if jobs == 1 or not tasks:
        yield from (function(*task) for task in tasks)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from pool.map(function, *zip(*tasks, strict=True))


def jobs_given(arguments: Sequence[str]) -> int:
    """The number after --jobs, else 1."""
    return int(arguments[arguments.index("--jobs") + 1]) if "--jobs" in arguments else 1


def spread(values: Sequence[float | None]) -> str:
    """Mean and standard deviation; nothing where there is nothing."""
    known = [v for v in values if v is not None]
    return f"{statistics.mean(known):.4f} ± {statistics.stdev(known):.4f}" if known else ""


def best(rows: Sequence[Row], key: str) -> Any:
    """The value of option `key` with the best mean accuracy."""
    values = {row["options"][key] for row in rows}
    mean = {v: statistics.mean(row["accuracy"] for row in rows if row["options"][key] == v) for v in values}
    return max(mean, key=lambda v: mean[v])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]) + "\n"


def ratio(row: Row) -> str:
    """A time ratio of `python -m reproduction speed`: median and quartiles."""
    return f"{row['median']:.2f} ({row['q1']:.2f} to {row['q3']:.2f})"


def fill(document: Path, text: str, name: str = "results") -> None:
    """Puts text between the marks of this name in a document."""
    whole = document.read_text()
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    document.write_text(whole[: whole.index(begin) + len(begin)] + "\n" + text + whole[whole.index(end) :])
