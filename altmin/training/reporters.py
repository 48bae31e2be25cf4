"""A bar on the terminal that shows how far a run is."""

import time
from typing import Any


class Bar:
    """A bar on the terminal, gone when done; nothing in a pipe. No thread draws it, so none disturbs a timing.

    console: a `rich.console.Console`; None for one on stderr. hidden: whether it is not to be shown on a terminal."""

    def __init__(self, what: str, console: Any = None, hidden: bool = False):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        screen = console or Console(stderr=True)
        count = TextColumn("{task.completed}/{task.total} {task.fields[text]}")
        columns = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
        hidden = hidden or not screen.is_terminal
        self.progress = Progress(*columns, console=screen, transient=True, disable=hidden, auto_refresh=False)
        self.progress.start()
        self.task, self.drawn = self.progress.add_task(what, total=None, text=""), 0.0

    def update(self, done: int, total: int | None, text: str) -> None:
        self.progress.update(self.task, completed=done, total=total, text=text)
        if time.monotonic() - self.drawn > 0.2:
            self.progress.refresh()
            self.drawn = time.monotonic()

    def stop(self) -> None:
        self.progress.stop()


class ProgressBar:
    """A callback that shows a `Bar`."""

    first_rank_only = True

    def __init__(self, text: str = "training", console: Any = None):
        self.text, self.console = text, console
        self.bar: Bar | None = None

    def on_start(self, progress: Any) -> None:
        self.bar = Bar(self.text, self.console)

    def on_batch_end(self, progress: Any) -> None:
        if self.bar is not None:
            self.bar.update(progress.batch, progress.batches, f"loss {progress.train_loss:.4f}")

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
