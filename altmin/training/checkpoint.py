"""State in files: nested dicts, lists and tuples of tensors, numbers and strings, as `torch.save` writes them, behind a
line with the format and a digest. A file is whole or not there, and one that has changed since is refused."""

import io
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from altmin.common.files import replacing

FORMAT = "altmin state 1"


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

    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(part.file_size for part in archive.infolist()) > len(content):
                raise ValueError("it is packed, and may be of any size")
        return torch.load(io.BytesIO(content), map_location=place, weights_only=True)
    except Exception as error:  # of any type: a content that `save` has not written, with its digest
        words = " ".join(str(error).split())
        raise ValueError(f"{path} is no state that altmin wrote: {words:.200}") from error


def _plain(value: Any, where: str) -> Any:
    """Return a copy of `value` that `torch.load` reads without running code. Tensors are themselves, unless they are
    views, with which all that they look into would be written."""
    match value:
        case Tensor():
            whole = value.untyped_storage().nbytes() == value.nbytes
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
