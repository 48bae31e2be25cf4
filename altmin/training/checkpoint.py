"""Checkpoints: nested state in one safetensors file, nothing pickled.

Tensors are stored as such, all else as JSON in the same file's header. One file and one rename mean that a
checkpoint is whole or not there, and that its tensors never belong to another moment than its numbers.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from altmin.common.describe import digest
from altmin.common.devices import usable
from altmin.data.atomic import discard, replacing

FORMAT = "altmin checkpoint 4"
LONG = 160
"""The number of characters of a setting that an error message shows."""


def save(path: str | Path, state: Mapping[str, Any]) -> None:
    """Write `state` to `path`, whole or not at all.

    It may nest dicts, lists and tuples of tensors, numbers, strings, booleans and None: what the `state_dict`
    of a module or an optimizer holds. Anything else is a `ValueError`.
    """
    tensors: dict[str, Tensor] = {}
    tree = json.dumps(_encode(state, "state", tensors))
    data = to_bytes(tensors, {"format": FORMAT, "state": tree, "digest": _digest(tree, tensors)})
    with replacing(Path(path)) as file:
        file.write(data)


def load(path: str | Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """What `save` was given, bit for bit: a file that has changed since is a `ValueError`, and so is a device that this
    machine lacks. Tensors that lived on an accelerator go to `device`, the others to the CPU."""
    place = usable("device of a checkpoint", device)
    tensors, header = read(path, "a checkpoint")
    if header.get("format") != FORMAT:
        raise ValueError(f"{path} is not a checkpoint written by this version of altmin, which is {FORMAT!r}")
    if header.get("digest") != _digest(header.get("state", ""), tensors):
        raise ValueError(f"{path} is damaged: it no longer holds what was written; go back to an earlier copy of it")
    state: dict[str, Any] = _decode(json.loads(header["state"]), tensors, place)
    return state


def read(path: str | Path, what: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the header of a safetensors file; ValueError, which says what it should be, for another file."""
    with open(path, "rb"):  # raises for a missing or forbidden file
        pass
    try:
        with safe_open(path, framework="pt") as file:
            # Copies, since the file's own memory must not change under a training run.
            return {name: file.get_tensor(name).clone() for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except Exception as error:  # a damaged file may raise anything
        raise ValueError(f"{path} cannot be read as {what}: it is damaged or of another kind") from error


def _digest(tree: str, tensors: Mapping[str, Tensor]) -> str:
    """The digest of a checkpoint: the tree, and names, types, shapes and bytes of tensors."""
    parts: list[Tensor | str] = [tree]
    for name, x in sorted(tensors.items()):
        parts += [f"\0{name}\0{x.dtype}\0{tuple(x.shape)}\0", x]
    return digest(*parts, size=32)


def _encode(value: Any, where: str, tensors: dict[str, Tensor]) -> Any:
    """JSON for `value`: plain values and lists are unchanged; other types are objects that name the type."""
    match value:
        case Tensor() if value.is_sparse:
            parts = value.coalesce()
            held = [parts.indices(), parts.values()]
            return {"sparse": [_encode(part, where, tensors) for part in held], "shape": list(value.shape)}
        case Tensor():
            name = f"{len(tensors)} {where}"
            tensors[name] = value.detach().to("cpu", copy=True).contiguous()
            return {"tensor": name, "accelerator": value.device.type != "cpu"}
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [_encode(v, f"{where}.{i}", tensors) for i, v in enumerate(value)]
        case tuple():
            return {"tuple": [_encode(v, f"{where}.{i}", tensors) for i, v in enumerate(value)]}
        case Mapping():
            pairs = value.items()
            return {"dict": [[_encode(k, where, tensors), _encode(v, f"{where}.{k}", tensors)] for k, v in pairs]}
    raise ValueError(f"a checkpoint cannot hold {where}, which is of type {type(value).__name__}")


def _decode(tree: Any, tensors: Mapping[str, Tensor], device: torch.device) -> Any:
    match tree:
        case {"tensor": name, "accelerator": moved}:
            return tensors[name].to(device) if moved else tensors[name]
        case {"sparse": parts, "shape": shape}:
            indices, values = (_decode(part, tensors, device) for part in parts)
            return torch.sparse_coo_tensor(indices, values, shape, check_invariants=True, is_coalesced=True)
        case {"tuple": items}:
            return tuple(_decode(v, tensors, device) for v in items)
        case {"dict": pairs}:
            return {_decode(k, tensors, device): _decode(v, tensors, device) for k, v in pairs}
        case list():
            return [_decode(v, tensors, device) for v in tree]
    return tree


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

    def tidy(self) -> None:
        """Delete what a run that was killed left of a checkpoint: the file is this run's now."""
        if self.path is not None:
            discard(Path(self.path))

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
