"""`Progressive`: a model on a stream, every sample of which is predicted before it is learnt."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from statistics import mean
from typing import Any, ClassVar

from reproduction.results import Row, Setting, Tick
from reproduction.streams.data import STREAMS, Samples, samples
from reproduction.streams.models import create

PARTS = 50
"""The parts of equal length into which a run is divided, as far as it has as many samples."""
WINDOW = 5
"""The parts that a point of a curve is the mean of."""
QUICK_SAMPLES = 300
RECENT, OVERALL = "samples", "all samples so far"
"""The axes that a run can be drawn against."""


def progressive(
    learner: Any, given: Samples, regression: bool, after: Callable[[int], None] = lambda done: None
) -> Row:
    """Each sample is predicted, then learnt. `value`: the accuracy, or the mean absolute error, over all samples, where
    a number that is not predicted counts as 0; `curve`: the same over each part, without the samples behind the last
    part; `seconds` taken. after: is told how many samples are done."""
    scores, started = list[float](), time.perf_counter()
    for x, y in given:
        predicted = learner.predict_one(x)
        scores.append(abs(y - (predicted or 0.0)) if regression else float(predicted == y))
        learner.learn_one(x, y)
        after(len(scores))
    seconds, parts = time.perf_counter() - started, min(PARTS, len(scores))
    part = len(scores) // parts
    return {
        "samples": len(scores),
        "value": round(mean(scores), 5),
        "curve": [round(mean(scores[k * part : (k + 1) * part]), 4) for k in range(parts)],
        "seconds": round(seconds, 1),
    }


@dataclass(frozen=True)
class Progressive:
    """One curve: a model on a stream, with as many seeds, counted from 0, which random streams and models depend on.
    limit: the number of samples to take, from the first. shown: whether it is drawn against "samples", as only some
    models are, so that the picture can be read. It is made on the CPU."""

    stream: str
    model: str
    seeds: int = 3
    limit: int | None = None
    shown: bool = True
    together: ClassVar[bool] = False

    @property
    def panel(self) -> str:
        return self.stream

    @property
    def name(self) -> str:
        return self.model

    @property
    def words(self) -> tuple[str, ...]:
        """By which `--only` selects it: stream and model, this also in small letters without other signs."""
        return self.stream, self.model, re.sub("[^a-z0-9]+", "-", self.model.lower()).strip("-")

    @property
    def regression(self) -> bool:
        return STREAMS[self.stream].regression

    @property
    def measure(self) -> str:
        """The measure that its curve shows."""
        return "mean absolute error" if self.regression else "accuracy"

    def config(self) -> dict[str, Any]:
        length = STREAMS[self.stream].length
        taken = min(self.limit or length, length)
        return {"measured": "stream", "stream": self.stream, "model": self.model, "samples": taken}

    def lacking(self, setting: Setting) -> str:
        return "" if find_spec("river") else "a run on a stream needs river, which is not installed"

    def reduced(self) -> "Progressive":
        """Return it with one seed, the first `QUICK_SAMPLES` samples."""
        return replace(self, seeds=1, limit=min(self.limit or QUICK_SAMPLES, QUICK_SAMPLES))

    def make(self, seeds: Sequence[int], setting: Setting, tick: Tick) -> list[Row]:
        """Return a row for each seed, as `progressive` gives it."""
        rows = []
        for i, seed in enumerate(seeds):
            given = samples(self.stream, seed, self.limit)

            def after(done: int, i: int = i, total: int = len(given)) -> None:
                if done % PARTS == 0 or done == total:
                    tick(i * total + done, len(seeds) * total, f"seed {seeds[i]}, {done} samples")

            learner = create(self.model, self.regression, seed)
            rows.append({"seed": seed, **progressive(learner, given, self.regression, after)})
        return rows

    def points(self, row: Row, axis: str) -> list[tuple[float, float]]:
        """Return what is measured, at the end of each part: against "samples" over the last `WINDOW` parts, none unless
        it is `shown`; against "all samples so far" over these, at the end over all that there are."""
        if axis == RECENT and not self.shown:
            return []
        curve = row["curve"]
        part, window = row["samples"] // len(curve), WINDOW if axis == RECENT else len(curve)
        found = {k * part: mean(curve[max(0, k - window) : k]) for k in range(1, len(curve) + 1)}
        if axis == OVERALL:
            found[row["samples"]] = row["value"]
        return [(float(at), value) for at, value in found.items()]
