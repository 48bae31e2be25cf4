"""State in files: nested dicts, lists and tuples of tensors, numbers and strings, as `torch.save` writes them, behind a
line with the format and a digest. A file is whole or not there, and one that has changed since is refused."""

import io
from collections import Counter, OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from altmin.common.files import replacing

FORMAT = "altmin state 1"
LONG = 160
"""The number of characters of a setting that an error message shows."""


def save(path: str | Path, state: Any) -> None:
    """Write `state` to `path`, whole or not at all: nested dicts, lists and tuples of tensors, numbers, strings and
    None. ValueError for anything else."""
    content = io.BytesIO()
    torch.save(_plain(state, "state"), content)
    with replacing(Path(path)) as file:
        file.write(f"{FORMAT} {sha256(content.getbuffer()).hexdigest()}\n".encode())
        file.write(content.getbuffer())


def load(path: str | Path, device: torch.device | str = "cpu") -> Any:
    """Return what `save` was given, bit for bit; ValueError for a file that is damaged or of another kind. Tensors that
    lived on an accelerator go to `device`, the others to the CPU. Nothing in a file is run."""
    with open(path, "rb") as file:
        header, content = file.readline(200), file.read()
    if not header.startswith(FORMAT.encode()):
        raise ValueError(f"{path} is not a file of {FORMAT!r}: another program or another version of altmin wrote it")
    if header.split()[-1].decode(errors="replace") != sha256(content).hexdigest():
        raise ValueError(f"{path} is damaged: it no longer holds what was written; go back to an earlier copy of it")

    def place(storage: Any, location: str) -> Any:
        there = "cpu" if location == "cpu" else str(torch.device(device))
        return torch.serialization.default_restore_location(storage, there)

    return torch.load(io.BytesIO(content), map_location=place, weights_only=True)


def _plain(value: Any, where: str) -> Any:
    """Return a copy of `value` that `torch.load` reads without running code. Tensors are themselves, unless they are
    views, with which all that they look into would be written."""
    match value:
        case Tensor():
            whole = value.is_sparse or value.untyped_storage().nbytes() == value.nbytes
            return value.detach() if whole else value.detach().clone()
        case None | bool() | int() | float() | str() | Counter():
            return value
        case list() | tuple():
            items = [_plain(v, f"{where}.{i}") for i, v in enumerate(value)]
            return items if isinstance(value, list) else tuple(items)
        case Mapping():
            kind = OrderedDict if isinstance(value, OrderedDict) else dict
            return kind((_plain(k, where), _plain(v, f"{where}.{k}")) for k, v in value.items())
    raise ValueError(f"a file of state cannot hold {where}, which is of type {type(value).__name__}")


class CheckpointFile:
    """A run's checkpoint file, if it has one, and the settings that must be the same to resume from it.

    every: the number of batches between checkpoints inside an epoch, or None for none. config: what a run that goes
    on must have in common with the one that wrote the file, by the one who says so and the setting's name.
    """

    def __init__(self, path: str | Path | None, every: int | None, config: Mapping[tuple[str, str], Any]):
        if every is not None and (every < 1 or path is None):
            raise ValueError("checkpoint_every needs a checkpoint file, and a number of batches of at least 1")
        self.path, self.every, self.config = path, every, dict(config)
        self.written = False

    @property
    def exists(self) -> bool:
        """Whether there is such a file."""
        return self.path is not None and Path(self.path).exists()

    def demand_place(self, seen: float, ranks: int, resume: bool) -> None:
        """A `ValueError` if the file exists and the run is not to go on from it, so that no earlier run is lost, or if
        only some of the ranks can. seen: how many of them see the file."""
        if resume and 0 < seen < ranks:
            raise ValueError(f"{seen:g} of {ranks} ranks see {self.path}; put it on a disc that all machines share")
        if not resume and seen:
            raise ValueError(f"{self.path} exists already: resume from it, or choose another checkpoint file")

    def due(self, batch: int) -> bool:
        """Whether to save after this batch, counted from 1 over the run."""
        return self.every is not None and batch % self.every == 0

    def save(self, state: Mapping[str, Any], write: bool = True) -> None:
        """Write `state` and the config, if there is a file to write to. write: False for a rank for which another one
        writes."""
        if self.path is not None:
            if write:
                save(self.path, {"config": self.config, **state})
            self.written = True

    def load(self, device: torch.device) -> dict[str, Any]:
        """The state last saved; a `ValueError` if there is none, or if its config is another."""
        if self.path is None:
            raise ValueError("to resume, say from which checkpoint file")
        state = load(self.path, device)
        there = state.get("config")
        if not isinstance(there, dict) or not all(isinstance(key, tuple) and len(key) == 2 for key in there):
            raise ValueError(f"{self.path} is not the checkpoint of a run: it has no settings to compare")
        for key in (*self.config, *there):
            if (was := there.get(key, "absent")) != (here := self.config.get(key, "absent")):
                a, b = apart(str(was), str(here))
                raise ValueError(f"{self.path} belongs to another run: its {key[1]} is {a}, here it is {b}")
        return state

    def hint(self, kind: str = "last good") -> str:
        """The end of an error message: where the last checkpoint is."""
        return f"; the {kind} checkpoint is {self.path}" if self.written else ""


def apart(a: str, b: str) -> tuple[str, str]:
    """Two texts on one line each; of long ones the part where they begin to differ."""
    a, b = (" ".join(text.split()) for text in (a, b))
    if max(len(a), len(b)) <= LONG:
        return a, b
    same = next((i for i, (p, q) in enumerate(zip(a, b, strict=False)) if p != q), min(len(a), len(b)))
    start = max(0, a.rfind(", ", 0, same) + 2) if same > LONG // 2 else 0

    def cut(text: str) -> str:
        return f"{'... ' * (start > 0)}{text[start : start + LONG]}{' ...' * (len(text) > start + LONG)}"

    return cut(a), cut(b)
