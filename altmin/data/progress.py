"""A progress bar on a terminal, and nothing elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[int, int | None], None]
"""Called with the bytes done and, where known, the bytes in all."""


def silent(done: int, total: int | None) -> None:
    """Report nothing."""


@contextmanager
def progress(label: str) -> Iterator[Report]:
    """Yield a function that shows progress on standard error if that is a terminal, else one that does nothing."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield silent
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
