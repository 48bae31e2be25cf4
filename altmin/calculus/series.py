"""Maps one after the other."""

import itertools
from collections.abc import Sequence

from torch import Tensor

from altmin.calculus.base import Map, Params, Saved


class Series:
    """Maps one after the other. Parameters are passed as a flat list, in the order of the maps."""

    def __init__(self, maps: Sequence[Map]):
        self.maps = tuple(maps)
        ends = [sum(len(m.names) for m in self.maps[:i]) for i in range(len(self.maps) + 1)]
        self.slices = [slice(a, b) for a, b in itertools.pairwise(ends)]
        self.pairs = list(zip(self.maps, self.slices, strict=True))
        self.first_with_parameters = next((i for i, m in enumerate(self.maps) if m.names), len(self.maps))
        self.affine = len(self.maps) == 1 and self.maps[0].affine
        """True if the output is linear in the input and in the parameters."""

    def grads(self, p: Params, saved: Sequence[Saved], v: Tensor) -> list[Tensor]:
        """Return the gradients, as for one map; v is propagated no further than to the first map with parameters."""
        out: list[Tensor] = []
        for i in range(len(self.maps) - 1, self.first_with_parameters, -1):
            v, grads = self.maps[i].vjp_and_grads(p[self.slices[i]], saved[i], v)
            out[:0] = grads
        for i in range(self.first_with_parameters, len(self.maps))[:1]:
            out[:0] = self.maps[i].grads(p[self.slices[i]], saved[i], v)
        return out

    def replay(self, p: Params, saved: Sequence[Saved], x: Tensor | None = None) -> tuple[Tensor, list[Saved]]:
        """Return `forward` with other parameters or another input (None: the saved one of the first map), with the
        random numbers of the saved pass."""
        x, new = self.maps[0].input(saved[0]) if x is None else x, []
        for (m, of), before in zip(self.pairs, saved, strict=True):
            x, state = m.replay(p[of], before, x)
            new.append(state)
        return x, new

    def change(self, old: Params, new: Params, saved: Sequence[Saved]) -> tuple[Tensor, list[Saved]]:
        """Return the change of the output under new parameters, without cancellation where it is linear in them, and
        what the maps save with these."""
        if self.affine:
            return self.replay([b - a for a, b in zip(old, new, strict=True)], saved)[0], list(saved)
        output, changed = self.replay(new, saved)
        return output - self.replay(old, saved)[0], changed
