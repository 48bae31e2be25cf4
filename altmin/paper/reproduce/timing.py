"""`Timing`: what training takes, in seconds and in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from statistics import median
from typing import Any

from altmin.paper.bench.measure import step_bytes
from altmin.paper.reproduce.measurement import Row, Setting, Tick
from altmin.paper.reproduce.run import Run
from altmin.runners import precision
from altmin.training.config import RunConfig
from altmin.training.trial import Trial


@dataclass(frozen=True)
class Timing(Run):
    """A run that is measured, one seed after the other and alone. recorded: with recorded steps, on a GPU only. The
    first epoch, in which kernels are loaded and steps recorded, does not count."""

    recorded: bool = False

    def config(self) -> dict[str, Any]:
        return {"measured": "time", **super().config(), "recorded": self.recorded}

    def lacking(self, setting: Setting) -> str:
        no_gpu = self.recorded and setting.device.type != "cuda"
        return "recorded steps need a GPU (--device cuda)" if no_gpu else super().lacking(setting)

    def make(self, seeds: Sequence[int], setting: Setting, tick: Tick) -> list[Row]:
        """Rows as of a run, with "peak_memory": the most bytes of the GPU that model, optimizer and a few steps take;
        None elsewhere."""
        trial, rows = self.trial(setting, self.recorded), []
        for seed in seeds:
            run = replace(trial.run, seed=seed)
            peak = _peak_memory(trial, run)
            rows += [{**row, "peak_memory": peak} for row in trial.in_turn([run], tick)]
        return [{**setting.about(trial.train), **row} for row in rows]

    def points(self, row: Row, axis: str) -> list[tuple[float, float]]:
        """Seconds since the end of the first epoch against "batches" or "epochs" since then."""
        per_epoch = -(-row["rows"] // self.batch_size)
        seconds = accumulate((point["seconds"] for point in row["epochs"][1:]), initial=0.0)
        return [(n * per_epoch if axis == "batches" else n, at) for n, at in enumerate(seconds)]


def seconds_per_epoch(row: Row) -> float:
    """The median over all epochs but the first."""
    return float(median(point["seconds"] for point in row["epochs"][1:]))


def unevenness(row: Row) -> float:
    """The largest distance of the time since the first epoch from a straight line, as a part of the whole: 0 if time is
    linear in batches.

    >>> unevenness({"epochs": [{"seconds": s} for s in (9, 1, 3)]})
    0.25
    """
    times = list(accumulate((point["seconds"] for point in row["epochs"][1:]), initial=0.0))
    return max(abs(at / times[-1] - n / (len(times) - 1)) for n, at in enumerate(times))


def _peak_memory(trial: Trial, run: RunConfig) -> int | None:
    if run.device.type != "cuda":
        return None
    x, y = (part[: run.batch_size] for part in trial.train)
    recorded, plain = (partial(trial.build, run, record) for record in (bool(run.record), False))
    with precision.using(run.precision or "float32"):
        return step_bytes(recorded, (x, y), plain, bool(run.record))[2]
