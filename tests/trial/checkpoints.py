"""Checkpoints that are damaged, edited or of another run: each is refused in one line and leaves all as it was.

Every tenth case is an undamaged one, which must go on to the very numbers of a run without a break.
"""

import copy
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import altmin
from altmin import methods
from altmin.training import EachBatch, Progress, checkpoint, fit

State = dict[str, Any]
METHODS = ("am-adam", "am-sgd", "am-mem", "am-adam-offline", "am-mem-offline", "adam", "sgd")
RUN: dict[str, Any] = {"epochs": 2, "batch_size": 20, "seed": 3, "eval_batches": [2, 5], "schedule": "linear"}


class Stop(Exception):
    """Ends a run after a batch."""


def samples(n: int, seed: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :3].argmax(1)


def learner(name: str, seed: int = 0, width: int = 7, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, 3))
    return methods.create(name, model.to(dtype), **options)


def bits(value: Any) -> Any:
    """A nested state as something that can be compared, tensors by their bytes."""
    if isinstance(value, Tensor):
        return str(value.dtype), tuple(value.shape), value.detach().contiguous().numpy().tobytes()
    if isinstance(value, dict):
        return {key: bits(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [bits(part) for part in value]
    return repr(value)


def whole(method: Any) -> Any:
    """All that a refused checkpoint must leave as it was."""
    return bits((dict(method.model.state_dict()), method.state_dict(), torch.get_rng_state()))


def stopped(name: str, path: Path, batch: int, **run: Any) -> None:
    """A run that is kept after a batch, and ends there."""

    def report(progress: Progress) -> None:
        if progress.batch == batch:
            raise Stop

    try:
        run = {"train": samples(70, 0), "test": samples(30, 1), **RUN, **run}
        fit(
            run.pop("method", None) or learner(name),
            checkpoint=path,
            checkpoint_every=batch,
            callbacks=[EachBatch(report)],
            **run,
        )
    except Stop:
        pass


def leaves(state: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all tensors and numbers in a nested state."""
    if isinstance(state, dict):
        return [place for key, part in state.items() for place in leaves(part, (*at, key))]
    if isinstance(state, list):
        return [place for i, part in enumerate(state) for place in leaves(part, (*at, i))]
    return [at]


def get(state: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        state = state[key]
    return state


def put(state: Any, place: tuple[Any, ...], value: Any) -> None:
    get(state, place[:-1])[place[-1]] = value


def flip(path: Path, draw: Random) -> str:
    data = bytearray(path.read_bytes())
    header = 8 + int.from_bytes(data[:8], "little")
    place = draw.randrange(header) if draw.random() < 0.5 else draw.randrange(header, len(data))
    data[place] ^= 1 << draw.randrange(8)
    path.write_bytes(data)
    return f"a bit of byte {place} flipped"


def truncate(path: Path, draw: Random) -> str:
    data = path.read_bytes()
    length = draw.randrange(len(data))
    path.write_bytes(data[:length])
    return f"cut to {length} bytes"


def overwrite(path: Path, draw: Random) -> str:
    data = bytearray(path.read_bytes())
    start, length = draw.randrange(len(data)), draw.randrange(1, 200)
    data[start : start + length] = draw.randbytes(length)
    path.write_bytes(data)
    return f"{length} bytes from {start} on overwritten"


def swap(path: Path, draw: Random) -> str:
    """Two tensors of one shape change places; the digest is the old one."""
    with safe_open(path, framework="pt") as file:
        header, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    pairs = [
        (a, b)
        for a in tensors
        for b in tensors
        if a < b and tensors[a].shape == tensors[b].shape and bits(tensors[a]) != bits(tensors[b])
    ]
    a, b = draw.choice(pairs)
    save_file({**tensors, a: tensors[b], b: tensors[a]}, path, header)
    return f"{a} and {b} swapped"


NUMBERS: dict[str, Callable[[Any], list[Any]]] = {
    "epoch": lambda v: [-1, v + 7, 0.5, math.nan, "1", None],
    "batch": lambda v: [-1, v + 70, math.inf, [], True],
    "seconds": lambda v: [-1.0, math.nan, "x"],
    "value": lambda v: [-5.0, math.nan, math.inf, "mu", None],
    "lr": lambda v: [100.0, math.nan, -v - 1, "fast", None],
    "eps": lambda v: [-1.0, math.nan, "x"],
    "weight_decay": lambda v: [-1.0, math.inf],
    "momentum": lambda v: [-1.0, math.nan],
    "train_loss": lambda v: [math.nan, "x", None],
    "samples": lambda v: [-3, math.nan, "x"],
}


def edit_number(state: State, draw: Random) -> str:
    """A number that no run can have come to."""
    places = [place for place in leaves(state) if place[-1] in NUMBERS and place[0] != "config"]
    place = draw.choice(places)
    value = draw.choice(NUMBERS[place[-1]](get(state, place)))
    put(state, place, value)
    return f"{place} set to {value!r}"


def edit_tensor(state: State, draw: Random) -> str:
    """A tensor of another shape or type, or one that is not finite."""
    floating = [
        place
        for place in leaves({name: state[name] for name in ("model", "method")})
        if isinstance(get(state, place), Tensor) and get(state, place).is_floating_point()
    ]
    place = draw.choice(floating)
    value = get(state, place)
    kind = draw.choice(["shape", "larger", "double", "integers", "nan", "absent", "none"])
    spoilt = value.clone()
    spoilt.view(-1)[draw.randrange(spoilt.numel())] = math.nan
    changed: dict[str, Any] = {
        "shape": torch.zeros(*value.shape, 2),
        "larger": torch.zeros([size + 5 for size in value.shape] or [5]),
        "double": value.double() if place[-1] != "step" else value.expand(3),
        "integers": value.long(),
        "nan": spoilt,
        "none": None,
    }
    if kind == "absent":
        del get(state, place[:-1])[place[-1]]
    else:
        put(state, place, changed[kind])
    return f"{place}: {kind}"


def edit_structure(state: State, draw: Random) -> str:
    """A part that is missing, one too many, or of another kind."""
    place = draw.choice(
        [("at",), ("history",), ("model",), ("method",), ("random",), ("config",), ("history", "epochs")]
    )
    kind = draw.choice(["absent", "list", "number", "extra"])
    if kind == "absent":
        del get(state, place[:-1])[place[-1]]
    elif kind == "extra" and isinstance(get(state, place), dict):
        get(state, place)["extra" if place != ("config",) else ("run", "extra")] = 1
    else:
        put(state, place, [0.5] if kind == "list" else 7)
    return f"{place}: {kind}"


FOREIGN: dict[str, Callable[[str], dict[str, Any]]] = {
    "another net": lambda name: {"method": learner(name, width=9)},
    "another type": lambda name: {
        "method": learner(name, dtype=torch.float64),
        "train": (samples(70, 0)[0].double(), samples(70, 0)[1]),
        "test": (samples(30, 1)[0].double(), samples(30, 1)[1]),
    },
    "other data": lambda name: {"train": samples(70, 5)},
    "other test data": lambda name: {"test": samples(30, 5)},
    "fewer data": lambda name: {"train": samples(69, 0)},
    "another seed": lambda name: {"seed": 4},
    "another batch size": lambda name: {"batch_size": 21},
    "another rate": lambda name: {"method": learner(name, lr=0.0123)},
    "another loss": lambda name: {"method": learner(name, loss=nn.CrossEntropyLoss(label_smoothing=0.1))},
    "another penalty": lambda name: {"method": learner(name, penalty=altmin.Penalty(2.0))},
    "other codes": lambda name: {"method": learner(name, share=0.3)},
    "another method": lambda name: {"method": learner(next(n for n in METHODS if n != name))},
}
ON_FILE = {"flip": flip, "truncate": truncate, "overwrite": overwrite, "swap": swap}
ON_STATE = {"number": edit_number, "tensor": edit_tensor, "structure": edit_structure}
KINDS = [*ON_FILE, "flip", *ON_STATE, "number", "tensor", "foreign"]


def spoil(kind: str, name: str, path: Path, draw: Random) -> str:
    """Damages the checkpoint; says how."""
    if kind in ON_FILE:
        return ON_FILE[kind](path, draw)
    if kind in ON_STATE:
        state = checkpoint.load(path)
        done = ON_STATE[kind](state, draw)
        checkpoint.save(path, state)  # with a digest that is right
        return done
    mine = name.startswith("am-")
    choice = draw.choice([what for what in FOREIGN if mine or what not in ("another penalty", "other codes")])
    path.unlink()
    stopped(name, path, draw.randrange(1, 8), **FOREIGN[choice](name))
    return choice


def trial(count: int, seed: int, failures: list[str]) -> dict[str, int]:
    """Runs `count` cases drawn with `seed`; adds a sentence to `failures` for each that went wrong."""
    draw = Random(seed)
    counters = {"refused": 0, "resumed": 0} | dict.fromkeys(KINDS, 0)
    expected: dict[str, Any] = {}
    run = {"train": samples(70, 0), "test": samples(30, 1), **RUN}
    with tempfile.TemporaryDirectory() as folder:
        for case in range(count):
            name, kind = draw.choice(METHODS), draw.choice(KINDS)
            path, batch = Path(folder) / f"run{case}", draw.randrange(1, 8)
            stopped(name, path, batch)
            method = learner(name, seed=9)
            method.step(*samples(20, 7))
            kept: dict[str, Any] = {**run, "checkpoint": path, "resume": True}
            if case % 10 == 9:
                if name not in expected:
                    first = learner(name)
                    history = fit(first, **run)
                    expected[name] = bits(
                        (dict(first.model.state_dict()), [row["train_loss"] for row in history.epochs])
                    )
                history = fit(method, **kept)
                if (
                    bits((dict(method.model.state_dict()), [row["train_loss"] for row in history.epochs]))
                    != expected[name]
                ):
                    failures.append(f"case {case} of seed {seed}: {name} resumed after batch {batch} ends otherwise")
                counters["resumed"] += 1
                continue
            what = f"case {case} of seed {seed}: {name}, {kind}: {spoil(kind, name, path, draw)}"
            counters[kind] += 1
            before = copy.deepcopy(whole(method))
            try:
                fit(method, **kept)
                failures.append(f"{what}: was not refused")
            except (ValueError, OSError) as error:
                counters["refused"] += 1
                if "\n" in str(error):
                    failures.append(f"{what}: the message has more than one line: {error}")
            except Exception as error:
                failures.append(f"{what}: {type(error).__name__}: {error}")
            if whole(method) != before:
                failures.append(f"{what}: something has changed")
            path.unlink(missing_ok=True)
    return counters
