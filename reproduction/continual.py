"""A run over a sequence of tasks as a curve of a figure."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from altmin import continual, data, models
from altmin.common import precision
from altmin.common.describe import plain
from altmin.common.errors import Diverged, unknown
from altmin.common.state import MOMENTS
from altmin.training.samples import Samples, fingerprint
from reproduction import opponents  # noqa: F401  (it registers some of the learners)

Row = dict[str, Any]
SEQUENCES = {"split": 5, "permuted": 10}
"""How many tasks each kind of sequence has."""
QUICK_ROWS = {"split": 20_000, "permuted": 4_000}
"""For a quick run: every permuted task has all of them, a split task a fifth."""


@dataclass(frozen=True)
class Stream:
    """One curve: a learner on a sequence of tasks, with as many seeds, counted from 0.

    sequence: "split" or "permuted". limit: the number of training samples to use, from the first. freeze_hidden: only
    the last layer learns, the others stay random. part: the part of the data to evaluate on; "validation" to choose
    options. label: the curve's name in the picture; the learner's if there is none. A seed gives the first weights, the
    order of the samples, the permutations and what a learner draws.
    """

    learner: str
    sequence: str
    options: Mapping[str, Any] = field(default_factory=dict)
    model: str = "mlp-2x100"
    data: str = "mnist"
    epochs: int = 1
    batch_size: int = 200
    seeds: int = 5
    freeze_hidden: bool = False
    limit: int | None = None
    part: str = "test"
    label: str = ""

    def __post_init__(self) -> None:
        if self.sequence not in SEQUENCES:
            raise unknown("sequence of tasks", self.sequence, SEQUENCES)

    @property
    def name(self) -> str:
        return self.label or self.learner

    @property
    def panel(self) -> str:
        return f"{self.sequence} {self.data.upper()}"

    def config(self) -> Row:
        """All that tells it from other runs, as JSON holds it: everything but its name and how many seeds it has."""
        settings = asdict(self) | {"options": dict(self.options)}
        return {name: plain(value) for name, value in settings.items() if name not in ("seeds", "label")}

    def lacking(self, setting: Any) -> str:
        return ""

    def reduced(self) -> "Stream":
        """A run of the same kind for a preview of the figure: one seed, one epoch, few samples."""
        most = QUICK_ROWS[self.sequence]
        return replace(self, seeds=1, epochs=1, limit=min(self.limit or most, most))

    def make(self, seeds: Sequence[int], setting: Any, tick: Callable[[int, int, str], None]) -> list[Row]:
        """A row for each seed: `accuracies`, `a[k][j]` as `run` returns it, `average_accuracy` and `forgetting`, or, if
        it diverged, the reason as `diverged`; `bytes` kept, and `seconds` taken, evaluations included."""
        train, evaluated = setting.samples(self.data, "train", self.limit), setting.samples(self.data, self.part)
        about = {"data": fingerprint(train), "rows": len(train[0])}
        number = SEQUENCES[self.sequence]
        rows = []
        for i, seed in enumerate(seeds):

            def after_task(done: int, i: int = i) -> None:
                tick(i * number + done, len(seeds) * number, f"seed {seeds[i]}, task {done} of {number}")

            with precision.using("float32"):
                measured = self._measured(seed, train, evaluated, setting.device, after_task)
            rows.append({**about, "seed": seed, **measured})
        return rows

    def points(self, row: Row, axis: str = "tasks") -> list[tuple[float, float]]:
        """The number of tasks learnt against the mean accuracy on them; none of a run that diverged."""
        if axis != "tasks":
            raise ValueError(f"a run over tasks is drawn against 'tasks', given {axis!r}")
        return [(float(k), value) for k, value in enumerate(continual.average_so_far(row.get("accuracies", [])), 1)]

    def build(self, seed: int, device: torch.device) -> Any:
        """The learner on a model whose first weights depend on the seed alone."""
        known = data.dataset(self.data)
        torch.manual_seed(seed)
        model = models.create(self.model, known.sample_shape, known.classes, known.tokens).to(device)
        if self.freeze_hidden:
            models.freeze_hidden(model)
        return continual.create(self.learner, model, **self.options)

    def _measured(
        self, seed: int, train: Samples, evaluated: Samples, device: torch.device, after_task: Callable[[int], None]
    ) -> Row:
        learner, started = self.build(seed, device), time.perf_counter()
        if self.sequence == "split":
            sequence = continual.split(train, evaluated, SEQUENCES["split"])
        else:
            sequence = continual.permuted(train, evaluated, SEQUENCES["permuted"], seed)
        how = {"epochs": self.epochs, "batch_size": self.batch_size, "seed": seed}
        try:
            a = continual.run(learner, sequence, **how, after_task=after_task)
        except Diverged as error:
            found: Row = {"diverged": str(error)}
        else:
            found = {
                "accuracies": a,
                "average_accuracy": continual.average_accuracy(a),
                "forgetting": continual.forgetting(a),
            }
        return {**found, "bytes": sizes(learner), "seconds": time.perf_counter() - started}


def sizes(learner: Any) -> dict[str, int]:
    """Bytes of the tensors that a learner keeps: "weights", the model's own; "moments", those of its optimizer;
    "memory", everything else. Single numbers are not counted."""
    state = learner.state_dict()
    moments = _bytes(learner.optimizer.state_dict()["state"] if learner.optimizer is not None else {})
    moments += _bytes([t for path, t in pytree.tree_leaves_with_path(state) if _is_moment(path)])
    memory = _bytes(state) - moments
    return {"weights": _bytes(dict(learner.model.named_parameters())), "moments": moments, "memory": memory}


def _is_moment(path: Sequence[Any]) -> bool:
    """Whether an entry of a learner's state is a moment that a weight rule keeps, outside an optimizer of torch."""
    names = {getattr(key, "key", None) for key in path}
    return "optimizer" not in names and not names.isdisjoint(MOMENTS)


def _bytes(state: Any) -> int:
    tensors = [t for t in pytree.tree_leaves(state) if isinstance(t, Tensor) and t.ndim]
    return sum(t.numel() * t.element_size() for t in tensors)
