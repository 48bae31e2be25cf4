"""Whether torchrun has started this process, as one of how many. Nothing here imports torch."""

import os


def started() -> bool:
    """Whether torchrun has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def count() -> int:
    """The processes that run this command."""
    return int(os.environ["WORLD_SIZE"]) if started() else 1


def first() -> bool:
    """Whether this one prints and writes for all."""
    return not started() or os.environ["RANK"] == "0"


def check(command: str | None) -> None:
    """ValueError for a command that several processes would do several times."""
    if count() > 1 and command not in (None, "train"):
        raise ValueError(f"altmin {command} runs in one process, and torchrun has started {count()}; leave it out")
