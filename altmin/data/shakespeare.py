"""Tiny Shakespeare: plays as characters; the task is to predict the next one. The text is part of the package."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from altmin.common.errors import demand
from altmin.data.base import SPLITS, Dataset, verified

NAME = "input.txt"


def windows(tokens: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """A sequence as consecutive windows (n, context), and for each of their tokens the next one.

    A rest that is too short for a window is dropped. Raises ValueError if there is no window.

    >>> windows(torch.arange(6), 2)
    (tensor([[0, 1],
            [2, 3]]), tensor([[1, 2],
            [3, 4]]))
    """
    demand("windows", "context", context, low=1, whole=True)
    n = (len(tokens) - 1) // context
    if n < 1:
        raise ValueError(f"a window of {context} tokens and the one after it are more than the {len(tokens)} given")
    return tokens[: n * context].view(n, context), tokens[1 : n * context + 1].view(n, context)


@dataclass(frozen=True, kw_only=True)
class Text(Dataset):
    """A text of known characters; consecutive parts of it are training, validation and test.

    A sample is a window of `sample_shape[0]` characters as tokens, its labels are the characters that follow each.
    """

    alphabet: str
    """The characters, in the order of their tokens."""
    parts: tuple[int, int, int]
    """Number of characters of training, validation and test."""
    sha256: str

    def encode(self, text: str) -> Tensor:
        """Return the tokens of a text, int64. Raises ValueError for a character that the alphabet does not have."""
        if strange := sorted(set(text) - set(self.alphabet)):
            raise ValueError(f"{self.name} has no character {strange[0]!r}; it has {self.alphabet!r}")
        return torch.tensor([self.alphabet.index(character) for character in text], dtype=torch.int64)

    def decode(self, tokens: Iterable[int] | Tensor) -> str:
        """Return the text of tokens."""
        return "".join(self.alphabet[int(i)] for i in tokens)

    def files(self, root: Path) -> list[Path]:
        path = root / self.name / NAME
        return [path if self.embedded is None or path.is_file() else self.embedded / f"{NAME}.gz"]

    def check(self, path: Path) -> None:
        verified(path, self.sha256)

    def _load(self, split: str, root: Path) -> tuple[Tensor, Tensor]:
        table = np.zeros(256, np.int64)
        table[np.frombuffer(self.alphabet.encode(), np.uint8)] = np.arange(len(self.alphabet))
        tokens = torch.from_numpy(table[np.frombuffer(verified(self.files(root)[0], self.sha256), np.uint8)])
        part = tokens.split(self.parts)[SPLITS.index(split)]
        return windows(part, *self.sample_shape)


CONTEXT = 64
PARTS = (1_003_854, 55_770, 55_770)  # nine tenths, and the halves of the rest

SHAKESPEARE = Text(
    name="shakespeare",
    sample_shape=(CONTEXT,),
    classes=65,
    tokens=True,
    splits={name: (size - 1) // CONTEXT for name, size in zip(SPLITS, PARTS, strict=True)},
    licence="public domain",
    url="https://github.com/karpathy/char-rnn",
    alphabet="\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
    parts=PARTS,
    sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    embedded=Path(__file__).parent / "files" / "shakespeare",
)
