"""Several values that pass from one block of a chain to the next as one code."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


class Layout(NamedTuple):
    """The shapes of the tensors in a code, and the values passed on beside it."""

    shapes: list[torch.Size]
    aside: list[Any]


class CutValues:
    """A cut through several values. The first `moving` of them are floating-point tensors: their code is one tensor,
    with the entries of each sample side by side in a row; a single value is its own code. The others have no
    derivative, such as masks and sizes: they are passed on unchanged. The last `sizes` of them are not tensors.

    `join` keeps the layout of its code until `take` returns it, once: the forward passes of two blocks follow each
    other.

    >>> cut = CutValues(2, "the cut")
    >>> code = cut.join([torch.ones(4, 2, 3), torch.zeros(4, 5), "mask"])
    >>> code.shape, [tuple(shape) for shape in cut.take().shapes]
    (torch.Size([4, 11]), [(4, 2, 3), (4, 5)])
    """

    def __init__(self, moving: int, where: str, sizes: int = 0, names: Sequence[str] = ()):
        self.moving, self.where, self.sizes, self.names = moving, where, sizes, tuple(names)
        self._layout: Layout | None = None

    def __str__(self) -> str:
        """Return the number of values in the code, and all names: of those beside it after a bar.

        >>> print(CutValues(2, "after 'fc'", names=["fc", "add", "ne", "getitem"]))
        2: fc, add | ne, getitem
        """
        shown = [shortened(names, 3) for names in (self.names[: self.moving], self.names[self.moving :])]
        return f"{self.moving}: {' | '.join(text for text in shown if text)}"

    def join(self, values: Sequence[Any]) -> Tensor:
        """Return the code of these values. ValueError if they cannot be one."""
        tensors, aside = list(values[: self.moving]), list(values[self.moving :])
        if self.moving > 1 and not _alike(tensors):
            shown = ", ".join(f"{t.dtype} {tuple(t.shape)}" if isinstance(t, Tensor) else repr(t) for t in tensors)
            raise ValueError(
                f"several values pass {self.where} and cannot be one code: {shown}; they need one floating-point type "
                "and the samples in the first dimension: cut elsewhere"
            )
        self._layout = Layout([t.shape for t in tensors], aside)
        return flat(tensors)

    def take(self) -> Layout:
        """Return the layout of the code that was joined last, and drop it."""
        assert self._layout is not None, "a block follows the one that made its input"
        layout, self._layout = self._layout, None
        return layout


class Number:
    """Number of a value, in the place of the value."""

    def __init__(self, i: int):
        self.i = i


class OutputValues(CutValues):
    """The outputs of a model that returns several, or one in a tuple, list or dict: its code is the model's output as
    the algorithm has it. form: what the model returns, with `Number`s in the places of its tensors.

    >>> outputs = OutputValues(2, {"a": Number(0), "b": [Number(1), None]})
    >>> code = outputs.join([torch.zeros(4, 2), torch.ones(4, 3)])
    >>> values = outputs.structured(code)
    >>> values["a"].shape, values["b"][0].shape, values["b"][1]
    (torch.Size([4, 2]), torch.Size([4, 3]), None)
    """

    def __init__(self, moving: int, form: Any):
        super().__init__(moving, "at the output")
        self.form = form
        self.shapes: list[torch.Size] = []

    def join(self, values: Sequence[Any]) -> Tensor:
        code = super().join(values)
        self.shapes = [t.shape for t in values]
        return code

    def take(self) -> Layout:
        """Return the layout of the code that was joined last. No block follows to drop it."""
        return Layout(self.shapes, [])

    def flat(self, output: Any) -> Tensor:
        """Return the code of what the model returned."""
        leaves = [t for t in pytree.tree_leaves(output) if isinstance(t, Tensor)]
        return flat(leaves)

    def structured(self, code: Tensor) -> Any:
        """Return a code in the form of what the model returns."""
        tensors = parts(code, [torch.Size((len(code), *shape[1:])) for shape in self.shapes])
        return pytree.tree_map(lambda leaf: tensors[leaf.i] if isinstance(leaf, Number) else leaf, self.form)


def shortened(names: Sequence[str], most: int = 7) -> str:
    """Return names in a row; of more than `most` only the first and the last."""
    return ", ".join([*names[: most - 1], "...", names[-1]] if len(names) > most else names)


def _alike(tensors: Sequence[Any]) -> bool:
    kinds = {
        (t.dtype, t.shape[0]) if isinstance(t, Tensor) and t.is_floating_point() and t.ndim else None for t in tensors
    }
    return len(kinds) == 1 and None not in kinds


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """Return tensors as one: their entries of each sample side by side."""
    return tensors[0] if len(tensors) == 1 else torch.cat([t.reshape(len(t), -1) for t in tensors], 1)


def parts(code: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """Return the tensors that a code consists of."""
    if len(shapes) == 1:
        return [code]
    pieces = code.split([shape[1:].numel() for shape in shapes], 1)
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]
