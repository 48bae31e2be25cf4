"""What judges of claims share: the values of several runs beside each other, in words."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import mean, stdev

from altmin.paper.reproduce.claims import Finding
from altmin.paper.reproduce.results import Results, words
from altmin.paper.reproduce.run import Run


@dataclass(frozen=True)
class Compared:
    """The accuracies of runs by name, one for each seed. about: what they have in common, such as the net."""

    about: str
    values: Mapping[str, list[float]]

    def __getitem__(self, name: str) -> float:
        """The mean over seeds."""
        return mean(self.values[name])

    def __str__(self) -> str:
        return f"{self.about}: " + ", ".join(f"{name} {words(values)}" for name, values in self.values.items())

    @property
    def spread(self) -> float:
        """The largest standard deviation over seeds."""
        return max((stdev(values) for values in self.values.values() if len(values) > 1), default=0.0)


def compared(
    results: Results, runs: Iterable[Run], about: str, *, batch: int | None = None, epoch: int | None = None
) -> Compared:
    """What runs came to after a batch or an epoch (-1: the last). KeyError if one has not been made."""
    return Compared(about, {run.name: results.values(run, batch=batch, epoch=epoch) for run in runs})


def on_each_net(
    results: Results, runs: Mapping[tuple[str, str], Run], names: Iterable[str], epoch: int = -1
) -> list[Compared]:
    """What the runs of these names came to after an epoch, for each net. runs: as `runs_of` gives them."""
    nets = dict.fromkeys(net for net, _ in runs)
    return [compared(results, [runs[net, name] for name in names], net, epoch=epoch) for net in nets]


def over(results: Results, runs: Iterable[Run], about: str, batches: Iterable[int]) -> Compared:
    """The mean over several batches, of every seed. KeyError if a run has not been made."""
    found, places = {}, list(batches)
    for run in runs:
        each = zip(*(results.values(run, batch=n) for n in places), strict=True)
        found[run.name] = [mean(values) for values in each]
    return Compared(about, found)


def finding(groups: Iterable[Compared], against: Mapping[str, bool], more: str = "") -> Finding:
    """A claim holds if nothing speaks against it. against: in words, whether each thing that could does. more: said
    beside the numbers."""
    known = list(groups)
    reasons = [why for why, true in against.items() if true]
    text = "; ".join([*map(str, known), *([more] if more else [])])
    return Finding(text, not reasons, max((group.spread for group in known), default=None), " and ".join(reasons))
