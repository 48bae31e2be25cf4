"""`explain`: what a network's blocks are, what one step does to them, where its time goes, and what to do about it."""

import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from altmin.calculus.context import LOCAL, Context
from altmin.core.trainer import AltMin
from altmin.explaining.advice import advise
from altmin.explaining.measure import measure
from altmin.explaining.rows import Facts, Row

WIDTH = 120
LEGEND = (
    "code moved: |dc| / |c| of the block's code c; length: of its line search; residual: |c - F(c below)| / |c|; "
    "taken: the part of the gradient at its output that the code below took; weights moved: |dW| / |W|"
)


@dataclass(frozen=True)
class Explanation:
    """What `explain` has found: a row for each block, facts about the whole step, and advice in sentences."""

    rows: list[Row]
    facts: Facts
    advice: list[str]

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON can hold it."""
        rows = [{**asdict(row), "time": row.time._asdict()} for row in self.rows]
        return {"facts": asdict(self.facts), "rows": rows, "advice": self.advice}

    def tables(self) -> list[Any]:
        """The blocks and their cost, and what one step did to them, as tables of rich."""
        total = sum(map(sum, (row.time for row in self.rows))) + self.facts.update
        count, size = len(self.rows), sum(row.parameters for row in self.rows)
        blocks = _table(
            f"{count} block{'s' * (count > 1)}, {size:,} parameters",
            self.rows,
            {
                "modules": lambda row: row.modules,
                "output": lambda row: " x ".join(map(str, row.output)),
                "parameters": lambda row: f"{row.parameters:,}",
                "derivatives": lambda row: _derivatives(row),
                "forward ms": lambda row: f"{row.time.forward:.2f}",
                "codes ms": lambda row: f"{row.time.codes:.2f}",
                "weights ms": lambda row: f"{row.time.weights:.2f}",
                "of the step": lambda row: f"{sum(row.time) / total:.0%}" if total else "",
            },
            f"updating all weights: {self.facts.update:.2f} ms"
            + (f", {self.facts.update / total:.0%}" if total else ""),
        )
        kind = "the straight-through estimate" if self.facts.estimated else "backprop"
        step = _table(
            f"one step of {self.facts.method}, {self.facts.samples} samples, loss {self.facts.loss:.4f}",
            self.rows,
            {
                "code moved": lambda row: _number(row.movement),
                "length": lambda row: _number(row.length),
                "residual": lambda row: _number(row.residual),
                "dead units": lambda row: "" if row.dead is None else f"{row.dead:.0%}",
                "taken": lambda row: _number(row.taken),
                "gradient": lambda row: _number(row.gradient),
                f"cosine to {kind}": lambda row: "" if row.cosine is None else f"{row.cosine:.4f}",
                "weights moved": lambda row: _number(row.change),
            },
            LEGEND,
        )
        return [blocks, step]

    def __str__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        screen = Console(file=text, width=WIDTH, color_system=None, highlight=False)
        for part in [*self.tables(), *(f"- {sentence}" for sentence in self.advice)]:
            screen.print(part, markup=False) if isinstance(part, str) else screen.print(part)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def explain(
    subject: nn.Module | AltMin, x: Any, y: Tensor, method: str = "am-adam", context: Context = LOCAL, **options: Any
) -> Explanation:
    """What one step on the mini-batch (x, y) would do to each block of a model, and advice.

    subject: a model, which `method` would train from the optimizer's first state, with options such as loss, lr, share,
    order, penalty and at; or a trainer, `altmin.AltMin`, as it is now. context: of the step, such as one in which
    products are rounded (`altmin.runners.precision.using`). The step is made on a copy: the subject, its
    mode and the state of random numbers stay as they are. ValueError for a method without codes, an unknown option, or
    a mini-batch that does not fit the model.

    >>> import torch
    >>> torch.manual_seed(0) and None
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    >>> found = explain(model, torch.randn(32, 4), torch.arange(32) % 3, share=0.0)
    >>> [round(row.cosine, 6) for row in found.rows]  # codes that stay where they are leave backprop's gradients
    [1.0, 1.0]
    """
    rows, facts = measure(subject, x, y, method, options, context)
    return Explanation(rows, facts, advise(rows, facts))


def _table(title: str, rows: Sequence[Row], columns: dict[str, Callable[[Row], str]], caption: str = "") -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    table.add_column("block", justify="right")
    for name in columns:
        text = name in ("modules", "derivatives")
        table.add_column(name, justify="left" if text else "right", overflow="fold")
    for row in rows:
        table.add_row(str(row.block), *(show(row) for show in columns.values()))
    return table


def _derivatives(row: Row) -> str:
    return "autograd" if row.through_autograd else "closed forms"


def _number(value: float | None) -> str:
    """Three digits, as a person reads them."""
    return "" if value is None else f"{value:.3g}"
