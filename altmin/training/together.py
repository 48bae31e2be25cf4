"""The ranks of a run outside their steps: what must agree, which rank writes, and how the failure of one stops all."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from altmin.common.describe import digest
from altmin.common.errors import Diverged
from altmin.runners.ranks import RankFailed, Ranks


class Together:
    """The ranks that a method is trained on, as `Distributed` has them; of any other method one rank, which sends
    nothing. first: whether this rank writes for all. spread: its number and how many there are, for a method that takes
    its own rows of a batch; else None."""

    def __init__(self, method: Any):
        ranks = getattr(method, "ranks", None)
        self.ranks = ranks if isinstance(ranks, Ranks) and ranks.size > 1 else None
        self.size = 1 if self.ranks is None else self.ranks.size
        self.first = self.ranks is None or self.ranks.rank == 0
        own = self.ranks is not None and hasattr(method, "step_share")
        self.spread = (self.ranks.rank, self.ranks.size) if own and self.ranks is not None else None

    def total(self, *numbers: float) -> list[float]:
        """Numbers summed over ranks, which all wait here for one another. `RankFailed` if one has failed."""
        return list(numbers) if self.ranks is None else self.ranks.total(*numbers)

    def demand_same(self, value: Any, otherwise: str) -> None:
        """ValueError with this text unless a value, by its `repr`, is the same on all ranks."""
        number = int(digest(repr(value))[:5], 16)  # such that sums of its square are exact
        total, squares = self.total(number, number**2)
        if self.size * squares != total**2:
            raise ValueError(otherwise)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """An error inside, outside of a step, is published to the other ranks, which raise `RankFailed` where they next
        wait for this one; here it is raised with the rank's name. Divergence is the same on all, and a step publishes
        its own errors."""
        try:
            yield
        except Exception as error:
            ranks = self.ranks
            failed = isinstance(error, RankFailed)
            if ranks is None or isinstance(error, Diverged) or (ranks.broken and not failed):
                raise
            ranks.steps += not failed  # those that wait for this rank are in the next step
            found = ranks.publish(error)
            if found is error:
                raise
            raise found from error
