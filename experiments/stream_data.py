"""The streams of docs/streams.md: those that river brings with it, and some that it makes."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from river import datasets
from river.datasets import synth

Samples = list[tuple[dict[Any, Any], Any]]


class Stream(NamedTuple):
    """make(seed): the samples, of which `length` are taken; one without random numbers does not use the seed."""

    make: Callable[[int], Any]
    length: int
    about: str
    regression: bool = False


def _rbf_drift(seed: int) -> Any:
    made = {"n_classes": 4, "n_features": 10, "n_centroids": 40, "n_drift_centroids": 40, "change_speed": 0.001}
    return synth.RandomRBFDrift(seed_model=seed, seed_sample=seed + 50, **made)


def _agrawal(seed: int) -> Iterator[Any]:
    """Another rule after every 1,250 samples."""
    for k in range(4):
        yield from synth.Agrawal(classification_function=k, seed=seed + 10 * k, perturbation=0.05).take(1250)


def _sea(seed: int) -> Iterator[Any]:
    """Another threshold after every 1,250 samples, a tenth of the labels wrong."""
    for k in range(4):
        yield from synth.SEA(variant=k, noise=0.1, seed=seed + 10 * k).take(1250)


def _rotated(seed: int) -> Iterator[Any]:
    """A plane that turns slowly, then jumps."""
    for k in range(2):
        plane = synth.Hyperplane(seed=seed + 7 * k, n_features=10, n_drift_features=5, mag_change=0.001)
        yield from plane.take(2500)


def _dated(dataset: Any, name: str) -> Iterator[Any]:
    """A series whose samples have a date alone: its number, month, weekday and hour."""
    for t, (x, y) in enumerate(dataset):
        date = x[name]
        yield {"number": t, "month": date.month, "weekday": date.weekday(), "hour": date.hour}, y


def _stocks(seed: int) -> Iterator[Any]:
    """Without what is no number."""
    for x, y in datasets.SP500Stocks():
        yield {name: value for name, value in x.items() if isinstance(value, int | float)}, y


STREAMS = {
    "bananas": Stream(lambda seed: datasets.Bananas(), 5300, "two classes in two dimensions"),
    "rbf-drift": Stream(_rbf_drift, 5000, "four classes around 40 centres that move all the time"),
    "phishing": Stream(lambda seed: datasets.Phishing(), 1250, "web pages, honest or not"),
    "image-segments": Stream(lambda seed: datasets.ImageSegments(), 2310, "seven kinds of image patches"),
    "agrawal": Stream(_agrawal, 5000, "a new rule every 1,250 samples, features of very different scales"),
    "sea": Stream(_sea, 5000, "a threshold that jumps every 1,250 samples, 10% wrong labels"),
    "shuttle": Stream(lambda seed: datasets.Shuttle(), 5000, "sensors of a shuttle, 7% abnormal"),
    "hyperplane": Stream(_rotated, 5000, "a plane that turns, and jumps after 2,500 samples, 5% wrong labels"),
    "trump-approval": Stream(lambda seed: datasets.TrumpApproval(), 1001, "approval from polls", True),
    "chick-weights": Stream(lambda seed: datasets.ChickWeights(), 578, "weight by age and diet", True),
    "sp500": Stream(_stocks, 1257, "prices of a stock", True),
    "airline": Stream(lambda seed: _dated(datasets.AirlinePassengers(), "month"), 144, "passengers by month", True),
    "water-flow": Stream(lambda seed: _dated(datasets.WaterFlow(), "Time"), 1268, "flow by hour", True),
    "friedman": Stream(lambda seed: synth.FriedmanDrift("gra", (700, 1400), seed=seed), 2000, "gradual drift", True),
}


def samples(name: str, seed: int) -> Samples:
    """All samples of a stream, as numbers: of what is counted or named the numbers that river gives."""
    stream, made = STREAMS[name], STREAMS[name].make(seed)
    return [(dict(x), y) for (x, y), _ in zip(made, range(stream.length), strict=False)]
