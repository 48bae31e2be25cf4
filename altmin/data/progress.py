"""A progress bar where somebody watches, silence where nobody does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[int, int | None], None]
"""Called with the bytes done and, where known, the bytes in all."""


def silent(done: int, total: int | None) -> None:
    """Report nothing."""


@contextmanager
def progress(label: str) -> Iterator[Report]:
    """Report on a bar on standard error if that is a terminal, and not at all in a pipe."""
    from rich.console import Console
    from rich.errors import LiveError
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield silent
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(label, total=None)
    try:
        bar.start()
    except LiveError:  # the caller already draws something live: leave the terminal to it
        yield silent
        return
    try:
        yield lambda done, total: bar.update(task, completed=done, total=total)
    finally:
        bar.stop()
