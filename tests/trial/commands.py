"""Command lines with drawn options, many wrong: the outputs promised, or one clear line and nothing left behind.

Case number i of a run with seed s is case 0 of a run with seed s + i. Every 25th runs in a process of its own.
"""

import contextlib
import functools
import io
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor

from altmin import cli, data

from .judge import UNCLEAR

SAMPLES = 60
ROOT = Path(__file__).resolve().parent.parent.parent
OLD = b'{"what was here": "before"}\n'
TORN = b"\x08\0\0\0\0\0\0\0{}"

Table = dict[str, tuple[tuple[str, ...], tuple[str, ...]]]
"""Of each option values that it takes, and values that it does not."""

WRONG_NUMBERS = ("0", "-1", "many", "1.5", "", "nan", "1e30")
RUN: Table = {
    "--data": (("mnist", "mnist"), ("mnits", "", "../mnist", "cifar10", "higgs", "fashion-mnist", "MNIST")),
    "--model": (
        ("mlp-1x4", "mlp-2x3", "binary-4"),
        ("mlp", "mlp-0x4", "mlp-1x0", "mlp--1x3", "elman-3", "lenet6", "", "mlp-1x1000000000", "binary-0", "4"),
    ),
    "--epochs": (("1", "2"), WRONG_NUMBERS),
    "--batch-size": (("20", "7", "100000"), WRONG_NUMBERS),
    "--set": (
        ("weight_decay=0.01", "lr=0.02"),
        ("lr", "lr=", "=3", "lr=fast", "lr=-1", "lr=nan", "lr=[1]", "lrr=1", "x.lr=1"),
    ),
    "--codes": (("gradient", "straight-through"), ("gradent", "", "parallel", "discret", "0.1")),
    "--schedule": (("constant", "cosine", "linear/epoch"), ("cosin", "", "cosine/batch", "/epoch")),
    "--seed": (("0", "5"), ("-1", "9223372036854775808", "1" + "0" * 30, "x", "1.5")),
    "--seeds": (("1", "2"), WRONG_NUMBERS[:4]),
    "--eval-batches": (("1", "1,2", ""), ("0", "-1", "a", "99", "1.5", ",,", "1;2")),
    "--limit": (("60", "41"), WRONG_NUMBERS[:5]),
    "--data-dir": (("data",), ("nowhere", "old.json", "")),
    "--device": (("cpu",), ("cuda", "cuda:9", "meta", "gpu", "", "cpu:7", "cuda:-1")),
    "--precision": (("float32", "bf16"), ("tf32", "bf61", "")),
    "--threads": (("1",), ("0", "-1", "x")),
    "--json": (
        ("new.json", "old.json", "a**b.json", "*.json", f"{'n' * 250}.json"),
        ("folder", "nowhere/new.json", "", "folder/..", "/proc/new.json", f"{'n' * 251}.json"),
    ),
}
METHODS = (
    "am-adam",
    "am-sgd",
    "am-mem",
    "am-mem-fitted",
    "am-mem-printed",
    "adam",
    "sgd",
    "am-adam-offline",
    "am-mem-offline",
)
PICTURE = {"--plot": (("new.png", "new.svg"), ("new.bmp", "nowhere/new.png", "folder", "png", ""))}
TABLES: dict[str, Table] = {
    "train": {
        **RUN,
        "--method": (METHODS, ("adm", "", "AM-ADAM", "am_adam")),
        "--lr": (("0.01", "1e30", "1e30"), ("-1", "fast", "nan", "inf", "")),
        "--checkpoint": (("new",), ("torn", "folder", "nowhere/new", "old.json")),
        "--checkpoint-every": (("1",), ("0", "x")),
    },
    "compare": {**RUN, **PICTURE, "--methods": (("am-adam,adam", "sgd"), ("adam,sgdd", ",", "", "adam;sgd"))},
    "bench": {
        **{name: RUN[name] for name in ("--data", "--seed", "--device", "--precision", "--json")},
        **PICTURE,
        "--batch-size": (("20", "7"), WRONG_NUMBERS),
        "--model": (("mlp-1x4", "mlp-1x4:8", "mlp-1x4@higgs"), ("mlp", "mlp-1x4@", "mlp-1x4:0", ",", "lenet5@higgs")),
        "--methods": (("am-adam", "adam", "adam:fused=true"), ("adm", "adam:fused=maybe", "adam:", "")),
        "--modes": (("eager",), ("graph", "eagre", "")),
        "--ensemble": (("1", "1,2"), ("0", "x", "")),
        "--grow": (("depth", "members"), ("dept", "")),
        "--sizes": (("1,2",), ("0", "x", "")),
    },
    "theory": {
        **PICTURE,
        "--blocks": (("2", "2,3"), ("1", "9", "x", "", "0")),
        "--coupling": (("0", "0,0.5"), ("-1", "x", "nan", "", "2")),
        "--condition": (("1", "4"), ("0", "-1", "x", "nan", "inf")),
        "--noise": (("0", "1"), ("-1", "x", "nan", "inf")),
        "--steps": (("10", "40"), ("0", "9", "x")),
        "--runs": (("8", "64"), ("7", "x", "-8")),
        "--seed": (("0", "3"), ("-1", "x", "1" + "0" * 30)),
        "--json": RUN["--json"],
    },
    "data list": {"--json": RUN["--json"], "--data-dir": RUN["--data-dir"]},
    "data verify": {"--json": RUN["--json"], "--data-dir": RUN["--data-dir"]},
}
SMALL = {
    "train": ["--limit", str(SAMPLES), "--epochs", "1", "--batch-size", "20", "--model", "mlp-1x4"],
    "compare": ["--limit", str(SAMPLES), "--epochs", "1", "--batch-size", "20", "--model", "mlp-1x4"],
    "bench": ["--seconds", "0.1", "--model", "mlp-1x4", "--sizes", "1,2"],
    "theory": ["--steps", "20", "--runs", "16", "--blocks", "2", "--coupling", "0.5", "--condition", "4"],
}
FLAGS = {
    "train": ("--resume", "--freeze-first", "--validation", "--record"),
    "compare": ("--freeze-first", "--validation"),
    "theory": ("--quick",),
}
WORDS = {
    "data verify": ("mnist", "mnits", "cifar10", ""),
    "data fetch": ("mnist", "mnits", ""),
}
STRAY = ("--config=run.toml", "--colour", "--epoch", "extra", "-x", "--", "--json", "--help", "--set")
NONSENSE = (["trian"], ["--colour"], ["data", "lst"], [""], ["train", "compare"], ["--version"], [], ["data"], ["-h"])


class Ended(NamedTuple):
    """How a command ended; status: its exit code, or what it raised."""

    status: Any
    out: str
    error: str


def trial(count: int, seed: int, failures: list[str]) -> dict[str, int]:
    """Runs `count` command lines, each in an empty folder of its own."""
    counters = {"command lines": 0, "in a process": 0, "done": 0, "refused": 0, "diverged": 0}
    threads = torch.get_num_threads()
    for number in range(seed, seed + count):
        with tempfile.TemporaryDirectory() as name:
            ended = case(number, Path(name), failures)
        torch.set_num_threads(threads)
        counters["command lines"] += 1
        counters["in a process"] += own_process(number)
        kind = {0: "done", 1: "diverged"}.get(ended.status, "refused")
        counters[kind] += 1
    return counters


def own_process(number: int) -> bool:
    return number % 25 == 12


def case(number: int, folder: Path, failures: list[str]) -> Ended:
    line = draw(Random(number))
    prepare(folder)
    before = contents(folder)
    ended = (in_a_process if own_process(number) else in_this_process)(line, folder)
    for what in faults(line, ended, before, folder):
        failures.append(f"commands --seed {number}: altmin {' '.join(map(repr, line))} {what}")
    return ended


def draw(r: Random) -> list[str]:
    """The words of a command line."""
    if r.random() < 0.05:
        return r.choice(NONSENSE)
    commands = ("train",) * 10 + ("compare",) * 3 + ("theory", "theory", "bench", "data list", "data verify")
    command, table = (each := r.choice((*commands, "data fetch"))), TABLES.get(each, {})
    line = [*command.split(), *SMALL.get(command, [])]
    mistakes = r.sample(sorted(table), min(len(table), r.choice((0, 0, 1, 1, 1, 1, 3))))  # several hide each other
    for option, (good, bad) in table.items():
        if option in mistakes or r.random() < 0.15:
            line += [option, r.choice(bad if option in mistakes else good)]
    if "--checkpoint-every" in line and "--checkpoint" not in line and "--checkpoint-every" not in mistakes:
        line += ["--checkpoint", "new"]
    line += [flag for flag in FLAGS.get(command, ()) if r.random() < 0.05]
    if command in WORDS and (command == "data fetch" or r.random() < 0.5):
        line.append(r.choice(WORDS[command]))
    if not mistakes and r.random() < 0.2:
        line.insert(r.randint(1, len(line)), r.choice(STRAY))
    return line


def prepare(folder: Path) -> None:
    """What a command may find: a folder, a file of results, something that is no checkpoint, no data but MNIST."""
    (folder / "folder").mkdir()
    (folder / "data").mkdir()
    (folder / "old.json").write_bytes(OLD)
    (folder / "torn").write_bytes(TORN)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def in_this_process(line: list[str], folder: Path) -> Ended:
    out, error = io.StringIO(), io.StringIO()
    status: Any
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(mock.patch.dict(os.environ, {"ALTMIN_DATA": str(folder / "data")}))
        stack.enter_context(mock.patch.object(data, "load", few))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(error))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        try:
            status = cli.run(line)
        except BaseException as raised:
            if isinstance(raised, KeyboardInterrupt):
                raise
            status = raised
    return Ended(status, out.getvalue(), error.getvalue())


real = functools.cache(data.load)


def few(name: str, split: str, data_dir: Any = None) -> tuple[Tensor, Tensor]:
    """The first samples of MNIST, read once; other data are looked for each time."""
    load = real if name == "mnist" and data_dir is None else data.dataset(name) and load_all
    x, y = load(name, split, data_dir)
    return x[:300], y[:300]


load_all = data.load


def in_a_process(line: list[str], folder: Path) -> Ended:
    environment = {**os.environ, "ALTMIN_DATA": str(folder / "data"), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "altmin.cli", *line]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, cwd=folder, env=environment, timeout=300, check=False
        )
    except subprocess.TimeoutExpired as error:
        return Ended(error, "", "")
    return Ended(done.returncode, done.stdout, done.stderr)


def faults(line: list[str], ended: Ended, before: dict[str, bytes], folder: Path) -> list[str]:
    """What is wrong with how a command ended, and with what it has left in its folder."""
    status, _, error = ended
    if status not in (0, 1, 2):
        return [f"ended with {status!r}"]
    found = []
    said = [each for each in error.splitlines() if not each.startswith("altmin: note:")]
    if "Traceback" in error:
        found.append(f"showed a traceback: {said[-1]}")
    elif status == 0 and said:
        found.append(f"ended well but complained: {said[0]}")
    elif status == 2 and (len(said) != 1 or not said[0].startswith("altmin: ") or len(said[0]) < 20):
        found.append(f"was refused in other than one clear line: {error!r}")
    elif status == 2 and any(word in said[0] for word in (*UNCLEAR, "Overflow when unpacking", ".tmp")):
        found.append(f"was refused in words that are not the library's: {said[0]}")
    elif status == 1 and not (said or ended.out):
        found.append("ended with 1 and did not say why")
    after = contents(folder)
    promised = {line[i + 1] for i, word in enumerate(line[:-1]) if word in ("--json", "--plot", "--checkpoint")}
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    if stray := changed - promised:
        found.append(f"left or changed {sorted(stray)}, which it was not to write")
    if status == 2 and changed - {"new"}:
        found.append(f"was refused but wrote {sorted(changed)}")
    if status == 0 and "--help" not in line and "--" not in line:
        last = {line[i]: line[i + 1] for i in range(len(line) - 1) if line[i] in ("--json", "--plot", "--checkpoint")}
        for name in last.values():
            if name not in changed:
                found.append(f"ended well and did not write {name}")
    return [*found, *(fault for name in sorted(changed) if name in after for fault in broken(name, after[name]))]


def broken(name: str, content: bytes) -> list[str]:
    """Whether an output is whole."""
    if name.endswith(".json"):
        try:
            json.loads(content, parse_constant=_refuse)
        except ValueError as error:
            return [f"wrote {name}, which is no JSON: {error}"]
    starts = {".png": b"\x89PNG", ".svg": b"<?xml"}
    for suffix, start in starts.items():
        if name.endswith(suffix) and not content.startswith(start):
            return [f"wrote {name}, which is no picture"]
    return []


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
