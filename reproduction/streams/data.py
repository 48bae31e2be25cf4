"""Streams of river: data sets that it includes, and generated ones. It is imported when samples are taken."""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from altmin.common.optional import need

Samples = list[tuple[dict[Any, Any], Any]]


def river(module: str = "") -> ModuleType:
    """A module of river. ModuleNotFoundError, with the remedy, if it is not installed."""
    return need(f"river.{module}".strip("."), "stream", "a run on a stream")


class Stream(NamedTuple):
    """make(seed): the samples, of which `length` are taken; a data set does not depend on the seed."""

    make: Callable[[int], Any]
    length: int
    about: str
    regression: bool = False


def _rbf_drift(seed: int) -> Any:
    made = {"n_classes": 4, "n_features": 10, "n_centroids": 40, "n_drift_centroids": 40, "change_speed": 0.001}
    return river("datasets.synth").RandomRBFDrift(seed_model=seed, seed_sample=seed + 50, **made)


def _agrawal(seed: int) -> Iterator[Any]:
    """Another rule after every 1,250 samples."""
    synth = river("datasets.synth")
    for k in range(4):
        yield from synth.Agrawal(classification_function=k, seed=seed + 10 * k, perturbation=0.05).take(1250)


def _sea(seed: int) -> Iterator[Any]:
    """Another threshold after every 1,250 samples, a tenth of the labels wrong."""
    synth = river("datasets.synth")
    for k in range(4):
        yield from synth.SEA(variant=k, noise=0.1, seed=seed + 10 * k).take(1250)


def _rotated(seed: int) -> Iterator[Any]:
    """A plane that turns slowly, then jumps."""
    synth = river("datasets.synth")
    for k in range(2):
        plane = synth.Hyperplane(seed=seed + 7 * k, n_features=10, n_drift_features=5, mag_change=0.001)
        yield from plane.take(2500)


def _friedman(seed: int) -> Any:
    return river("datasets.synth").FriedmanDrift("gra", (700, 1400), seed=seed)


def _included(name: str) -> Callable[[int], Any]:
    """A data set of river by its class."""
    return lambda seed: getattr(river("datasets"), name)()


def _dated(name: str, feature: str) -> Callable[[int], Iterator[Any]]:
    """A series whose only feature is a date, which becomes four: position, month, weekday and hour."""

    def make(seed: int) -> Iterator[Any]:
        for t, (x, y) in enumerate(_included(name)(seed)):
            date = x[feature]
            yield {"number": t, "month": date.month, "weekday": date.weekday(), "hour": date.hour}, y

    return make


def _stocks(seed: int) -> Iterator[Any]:
    """Without what is no number."""
    for x, y in river("datasets").SP500Stocks():
        yield {name: value for name, value in x.items() if isinstance(value, int | float)}, y


STREAMS = {
    "bananas": Stream(_included("Bananas"), 5300, "two classes in two dimensions"),
    "rbf-drift": Stream(_rbf_drift, 5000, "four classes around 40 centres that move all the time"),
    "phishing": Stream(_included("Phishing"), 1250, "web pages, honest or not"),
    "image-segments": Stream(_included("ImageSegments"), 2310, "seven kinds of image patches"),
    "agrawal": Stream(_agrawal, 5000, "a new rule every 1,250 samples, features of very different scales"),
    "sea": Stream(_sea, 5000, "a threshold that jumps every 1,250 samples, 10% wrong labels"),
    "shuttle": Stream(_included("Shuttle"), 5000, "sensors of a shuttle, 7% abnormal"),
    "hyperplane": Stream(_rotated, 5000, "a plane that turns, and jumps after 2,500 samples, 5% wrong labels"),
    "trump-approval": Stream(_included("TrumpApproval"), 1001, "approval from polls", True),
    "chick-weights": Stream(_included("ChickWeights"), 578, "weight by age and diet", True),
    "sp500": Stream(_stocks, 1257, "prices of a stock", True),
    "airline": Stream(_dated("AirlinePassengers", "month"), 144, "passengers by month", True),
    "water-flow": Stream(_dated("WaterFlow", "Time"), 1268, "flow by hour", True),
    "friedman": Stream(_friedman, 2000, "gradual drift", True),
}


def samples(name: str, seed: int, limit: int | None = None) -> Samples:
    """The samples of a stream; with a limit, at most so many, from the first."""
    length = STREAMS[name].length if limit is None else min(limit, STREAMS[name].length)
    return [(dict(x), y) for (x, y), _ in zip(STREAMS[name].make(seed), range(length), strict=False)]
