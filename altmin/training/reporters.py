"""Callbacks that show how a run goes: a bar on the terminal, and curves for TensorBoard."""

import time
from pathlib import Path
from typing import Any

from altmin.common.optional import need


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


class TensorBoard:
    """Writes the numbers of every row to a folder that TensorBoard shows: those of epochs by epoch, under their names,
    and those of `eval_batches` by batch, under "batch/". It needs the package `tensorboard`."""

    first_rank_only = True

    def __init__(self, folder: str | Path):
        self.folder = str(folder)
        self.writer: Any = None

    def on_start(self, progress: Any) -> None:
        """ImportError, before anything is trained, if there is no such package."""
        need("tensorboard", what="TensorBoard")
        from torch.utils.tensorboard import SummaryWriter

        self.make = SummaryWriter

    def on_batch_end(self, progress: Any) -> None:
        for row in progress.history.batches[-1:]:
            if row["batch"] == progress.batch:
                self._write(progress, "batches", row["batch"])

    def on_epoch_end(self, progress: Any) -> None:
        self._write(progress, "epochs", progress.epoch)
        self.writer.flush()

    def _write(self, progress: Any, kind: str, number: int) -> None:
        """The rows that were written last; of an ensemble each member's under its number."""
        if self.writer is None:  # what a run that goes on repeats is cut off
            self.writer = self.make(self.folder, purge_step=number)
        for i, history in enumerate(progress.histories):
            rows = getattr(history, kind)
            for name, value in rows[-1].items() if rows else ():
                if name not in ("epoch", "batch"):
                    parts = ["batch"] * (kind == "batches") + [f"member {i}"] * (len(progress.histories) > 1) + [name]
                    self.writer.add_scalar("/".join(parts), float(value), number)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None
