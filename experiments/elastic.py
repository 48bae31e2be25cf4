"""Runs that lose a process: `python experiments/elastic.py`, then `python experiments/elastic.py --table`.

A short run of `altmin train` under torchrun, on MNIST, is done undisturbed first. Then it is done again many times, and
each time one of its processes, or in every fifth run two of them one after the other, is ended by SIGKILL at a random
moment: of three, one between the start of the processes and the end of the run, which is mostly the time in which
libraries and data are loaded, and two between the first checkpoint and the end. torchrun starts all processes again,
and the run goes on from its checkpoint. The figures at its end (train losses, test accuracies, a digest of weights and
optimizer state) must be those of the undisturbed run, bit for bit. Some runs, which torchrun may not start again, are
continued with another number of processes, up to the rounding of sums in another order (TOLERANCE).

One line of benchmarks/elastic.jsonl for each run; those that the file has are not done again. --runs N: how many.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from common import HERE, Row, fill, read, table, write

from altmin.cli import output
from altmin.common.describe import digest
from altmin.training.checkpoint import load

RESULTS = HERE / "benchmarks/elastic.jsonl"
RANKS, RESTARTS, RUNS, MOVED = 2, 3, 50, 8
"""Processes of a run, how often torchrun may start them again, runs that lose a process, runs that are moved."""
TOLERANCE = 1e-3
"""By how much a loss may differ, in relation to it, and an accuracy, if the number of processes has changed."""
SETTINGS = [*("--data", "mnist", "--model", "mlp-1x30", "--method", "am-adam", "--limit", "300", "--batch-size", "10")]
SETTINGS += [*("--epochs", "2", "--threads", "1", "--checkpoint-every", "10")]
STEP = 0.01
"""Seconds between looks at the processes."""
WORDS = {"start": "before the first checkpoint", "training": "in training", "end": "after the result was written"}
LONGEST = 300
"""Seconds in which a run must have ended."""


def command(folder: Path, ranks: int, restarts: int = 0, *more: str) -> list[str]:
    """The command of a run that is kept in a folder; of one process without torchrun."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    files = ["--checkpoint", str(folder / "run.safetensors"), "--json", str(folder / "run.json")]
    started = [] if ranks == 1 else [*torchrun, "--max-restarts", str(restarts)]
    return [sys.executable, *started, "-m", "altmin", "train", *SETTINGS, *files, *more]


def start(arguments: list[str], folder: Path) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(arguments, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": path})


def workers(process: subprocess.Popen[bytes]) -> list[int]:
    """The processes that torchrun has started and that run."""
    try:
        text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    except OSError:
        return []
    return [int(pid) for pid in text.split() if alive(int(pid))]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def end(process: subprocess.Popen[bytes], folder: Path, wanted: bool = True) -> None:
    """Waits for the end of a run; RuntimeError with what it has said unless it ends well, if that is wanted."""
    try:
        code = process.wait(LONGEST)
    except subprocess.TimeoutExpired:
        for pid in [*workers(process), process.pid]:
            os.kill(pid, signal.SIGKILL)
        raise RuntimeError(f"a run has not ended: {(folder / 'log').read_text()[-2000:]}") from None
    if wanted and code:
        raise RuntimeError(f"a run has failed: {(folder / 'log').read_text()[-4000:]}")


def figures(folder: Path) -> Row:
    """What a run has come to. The digest is of weights, buffers, optimizer, penalty and random numbers."""
    found = json.loads((folder / "run.json").read_text())
    state = load(folder / "run.safetensors")
    parts = _parts({name: state[name] for name in ("model", "method", "random")})
    rows = found["epochs"]
    return {
        "train_loss": [row["train_loss"] for row in rows],
        "test_accuracy": [row["test_accuracy"] for row in rows],
        "digest": digest(*parts, size=16),
    }


def _parts(value: Any) -> Iterator[torch.Tensor | str]:
    if isinstance(value, dict | list | tuple):
        for part in value.items() if isinstance(value, dict) else value:
            yield from _parts(part)
    else:
        yield value if isinstance(value, torch.Tensor) else repr(value)


def undisturbed(folder: Path) -> Row:
    """One run; how long its processes were there, and how long of that after the first checkpoint."""
    process = start(command(folder, RANKS, RESTARTS), folder)
    began = _when(process, lambda: bool(workers(process)))
    trained = _when(process, (folder / "run.safetensors").exists)
    end(process, folder)
    last = time.perf_counter()
    seconds = {"seconds": round(last - began, 2), "training_seconds": round(last - trained, 2)}
    return {**seconds, **figures(folder)}


def _when(process: subprocess.Popen[bytes], so: Callable[[], bool]) -> float:
    """Waits until it is so, or until the run has ended; the time then."""
    while process.poll() is None and not so():
        time.sleep(STEP)
    return time.perf_counter()


def stage(folder: Path) -> str:
    if (folder / "run.json").exists():
        return "end"
    return "training" if (folder / "run.safetensors").exists() else "start"


def kill(
    process: subprocess.Popen[bytes], folder: Path, draw: random.Random, whole: Row, old: list[int], trained: bool
) -> Row | None:
    """Ends one of the processes, other than the old ones, at a random moment, after the first checkpoint if `trained`;
    None if the run ends before that."""

    def own() -> list[int]:
        return [pid for pid in workers(process) if pid not in old]

    def kept() -> bool:
        path = folder / "run.safetensors"
        return path.exists() and path.stat().st_mtime > appeared

    _when(process, lambda: len(own()) == RANKS)
    appeared, found, in_training = time.time(), own(), draw.randrange(3) > 0 or trained
    after = draw.uniform(0, whole["training_seconds" if in_training else "seconds"])
    if in_training:
        _when(process, kept)
    time.sleep(after)
    at, which = stage(folder), draw.randrange(RANKS)
    if len(found) < RANKS or not alive(found[which]):
        return None
    os.kill(found[which], signal.SIGKILL)
    since = "first checkpoint" if in_training else "start"
    return {"process": which, "since": since, "seconds": round(after, 2), "stage": at, "processes": found}


def losing(folder: Path, draw: random.Random, whole: Row, kills: int, restarts: int = RESTARTS) -> list[Row]:
    """A run that loses a process so many times; what was ended, and in which stage of the run. Empty if it ended before
    that; with restarts=0 it does not come to its end, and has a checkpoint."""
    process = start(command(folder, RANKS, restarts), folder)
    done: list[Row] = []
    for _ in range(kills):
        old = [pid for each in done for pid in each["processes"]]
        found = kill(process, folder, draw, whole, old, trained=restarts == 0)
        done += [found] if found else []
    end(process, folder, wanted=restarts > 0)
    return [{name: value for name, value in each.items() if name != "processes"} for each in done]


def disturbed(number: int, whole: Row) -> Row:
    """Run `number`, which loses one process, or every fifth run two."""
    draw = random.Random(f"elastic {number}")
    while True:
        with tempfile.TemporaryDirectory() as name:
            folder, began = Path(name), time.perf_counter()
            lost = losing(folder, draw, whole, 2 if number % 5 == 4 else 1)
            found = figures(folder)
            if lost:
                same = all(found[key] == whole[key] for key in found)
                return {"lost": lost, "same": same, "wall": round(time.perf_counter() - began, 1), **found}


def moved(number: int, whole: Row) -> Row:
    """A run that loses a process for good and goes on with another number of processes: one, or four."""
    draw = random.Random(f"moved {number}")
    ranks = (1, 4)[number % 2]
    while True:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            lost = losing(folder, draw, whole, 1, restarts=0)
            if not lost or stage(folder) != "training":
                continue
            copy = Path(shutil.copytree(folder, folder / "copy"))
            batch = load(copy / "run.safetensors")["at"]
            end(start(command(copy, ranks, 0, "--resume"), copy), copy)
            found = figures(copy)
        pairs = [(a, b) for key in ("train_loss", "test_accuracy") for a, b in zip(found[key], whole[key], strict=True)]
        apart = max(abs(a - b) / max(1.0, abs(b)) for a, b in pairs)
        after = batch["before"] + batch["batch"]
        return {
            "lost": lost,
            "to_ranks": ranks,
            "after_batch": after,
            "apart": apart,
            "same": apart <= TOLERANCE,
            **found,
        }


def run(path: Path, runs: int, moves: int) -> None:
    rows = read(path) if path.exists() else []
    have = {(row["what"], row["number"]) for row in rows}
    environment = output.environment(torch.device("cpu")) | {"threads": 1}

    def keep(what: str, number: int, row: Row) -> None:
        rows.append({"what": what, "number": number, "ranks": RANKS, **row, "environment": environment})
        write(path, rows)
        print({**rows[-1], "environment": ...}, flush=True)

    if ("undisturbed", 0) not in have:
        with tempfile.TemporaryDirectory() as folder:
            keep("undisturbed", 0, undisturbed(Path(folder)))
    whole = next(row for row in rows if row["what"] == "undisturbed")
    whole = {key: whole[key] for key in ("seconds", "training_seconds", "train_loss", "test_accuracy", "digest")}
    for what, function, count in (("disturbed", disturbed, runs), ("moved", moved, moves)):
        for number in range(count):
            if (what, number) not in have:
                keep(what, number, function(number, whole))


def text(path: Path = RESULTS) -> str:
    """The table of docs/scaling-cost.md."""
    if not path.exists():
        return "Not measured yet: `python experiments/elastic.py` writes `benchmarks/elastic.jsonl`.\n"
    rows = read(path)
    lost = [row for row in rows if row["what"] == "disturbed"]
    kills = [each for row in lost for each in row["lost"]]
    where = ", ".join(f"{sum(each['stage'] == s for each in kills)} {words}" for s, words in WORDS.items())
    lines = [["same number of processes", str(len(lost)), str(len(kills)), where, f"{_same(lost)} bit for bit"]]
    for ranks in (1, 4):
        some = [row for row in rows if row["what"] == "moved" and row["to_ranks"] == ranks]
        if some:
            most = max(row["apart"] for row in some)
            name = f"{ranks} process{'es' * (ranks > 1)}"
            count = str(len(some))
            lines.append([name, count, count, f"{count} in training", f"{_same(some)}, difference at most {most:.1e}"])
    return table(["resumed by", "runs", "processes killed", "when", "equal to the uninterrupted run"], lines)


def _same(rows: list[Row]) -> int:
    return sum(row["same"] for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--moves", type=int, default=MOVED)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="fill docs/scaling-cost.md from the file, run nothing")
    given = parser.parse_args()
    if given.table:
        fill(HERE / "docs/scaling-cost.md", text(), "elastic")
        return
    run(given.out, given.runs, given.moves)


if __name__ == "__main__":
    main()
