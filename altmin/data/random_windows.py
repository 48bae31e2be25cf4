"""Windows of a text at random positions instead of consecutive ones."""

import torch
from torch import Tensor


class RandomWindows:
    """Replaces each training window by one at a uniformly random position of the text.

    x, y: all training windows (n, context) and for each token the one after it, as `altmin.data.windows` cuts them.
    Their text is T = n context + 1 tokens long; a window begins at 0, ..., T - context - 1. An epoch
    has as many windows as before, and sees some tokens twice and some not at all. The text stays on the device of x.

    Raises ValueError unless the windows are consecutive.
    """

    def __init__(self, x: Tensor, y: Tensor):
        if x.ndim != 2 or x.shape != y.shape or x.dtype != torch.int64 or y.dtype != torch.int64:
            raise ValueError(
                "random windows are made of windows of tokens and the tokens that follow, both int64 of shape "
                f"(windows, context), given {x.dtype} of {tuple(x.shape)} and {y.dtype} of {tuple(y.shape)}"
            )
        self.text, self.context = torch.cat([x.flatten(), y[-1, -1:]]), x.shape[1]
        if not torch.equal(self.text[1:], y.flatten()):
            raise ValueError(
                "random windows are made of a text: each window must begin where the last one ends, and each target be "
                "the next token, as altmin.data.windows(tokens, context) cuts them"
            )

    def __repr__(self) -> str:
        return f"RandomWindows(context={self.context})"

    def draw(self, samples: int, generator: torch.Generator) -> Tensor:
        """Where each window begins."""
        beginnings = len(self.text) - self.context
        return torch.randint(beginnings, (samples,), generator=generator, device=generator.device)

    def apply(self, x: Tensor, y: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """The windows that begin there, and the tokens that follow each of theirs, on the device of x."""
        text = self.text
        found = text[drawn.to(text.device)[:, None] + torch.arange(self.context + 1, device=text.device)].to(x.device)
        return found[:, :-1].contiguous(), found[:, 1:].contiguous()
