"""The `altmin` command under torchrun: the number of processes, and which of them prints. Nothing here imports
torch."""

import os


def started() -> bool:
    """Return whether torchrun has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def first() -> bool:
    """Return whether this process prints and writes for all."""
    return not started() or os.environ["RANK"] == "0"


def count() -> int:
    """The number of processes that run this command."""
    return int(os.environ["WORLD_SIZE"]) if started() else 1


def device(name: str) -> str:
    """The device of this process: under torchrun "cuda" is the GPU of its number on its machine."""
    return f"cuda:{os.environ['LOCAL_RANK']}" if started() and name == "cuda" else name


def restarted() -> bool:
    """Return whether torchrun has started this process again, after one has failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
