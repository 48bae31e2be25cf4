"""Tasks for recurrent nets in which errors have to travel far: adding and copying. Samples are drawn anew for each
step; validation and test samples have seeds of their own. Rates are the best of `RATES` on validation samples."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import altmin
from altmin.layers import Last, Outputs
from altmin.runners import Recorded
from reproduction.case import Case
from reproduction.figure import Figure, load
from reproduction.measurements import results
from reproduction.results import Row, Setting, words
from reproduction.tables import markdown, table

SYMBOLS, COPIED = 8, 10
RATES = (0.002, 0.005, 0.01)
MODELS: dict[str, Any] = {"gru": nn.GRU, "lstm": nn.LSTM}
"""Of 64 units."""


class Truncated(nn.Module):
    """A recurrent module through whose last steps alone an error travels back."""

    def __init__(self, rnn: nn.RNNBase, steps: int):
        super().__init__()
        self.rnn, self.steps = rnn, steps

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            h, state = self.rnn(x[:, : -self.steps])
        return torch.cat([h, self.rnn(x[:, -self.steps :], state)[0]], 1)


class Task(NamedTuple):
    """draw: samples and targets, from a generator and a number of samples. measure: the error of a model's output."""

    name: str
    inputs: int
    outputs: int
    every_step: bool
    draw: Callable[[torch.Generator, int], tuple[Tensor, Tensor]]
    loss: Callable[[Tensor, Tensor], Tensor]
    measure: Callable[[Tensor, Tensor], Tensor]


def adding(length: int) -> Task:
    """The sum of two of `length` numbers, which are marked, one in each half; the error is the mean square."""

    def draw(generator: torch.Generator, n: int) -> tuple[Tensor, Tensor]:
        device = generator.device
        values, marks = torch.rand(n, length, generator=generator, device=device), torch.zeros(n, length, device=device)
        half = length // 2
        for low, high in ((0, half), (half, length)):
            at = torch.randint(low, high, (n, 1), generator=generator, device=device)
            marks.scatter_(1, at, 1.0)
        return torch.stack([values, marks], 2), (values * marks).sum(1, keepdim=True)

    return Task(f"adding, {length} steps", 2, 1, False, draw, nn.MSELoss(), nn.MSELoss())


def copying(delay: int) -> Task:
    """Ten symbols, to be repeated after `delay` steps and a sign; the error is the part of them that is wrong."""

    def draw(generator: torch.Generator, n: int) -> tuple[Tensor, Tensor]:
        device = generator.device
        symbols = torch.randint(SYMBOLS, (n, COPIED), generator=generator, device=device)
        blank = torch.full((n, delay), SYMBOLS, device=device)
        sign = torch.full((n, 1), SYMBOLS + 1, device=device)
        x = torch.cat([symbols, blank, sign, torch.full((n, COPIED - 1), SYMBOLS, device=device)], 1)
        return nn.functional.one_hot(x, SYMBOLS + 2).float(), symbols

    def loss(output: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output[:, -COPIED:].flatten(0, 1), y.flatten())

    def error(output: Tensor, y: Tensor) -> Tensor:
        return (output[:, -COPIED:].argmax(2) != y).float().mean()

    return Task(f"copying, {delay} steps", SYMBOLS + 2, SYMBOLS, True, draw, loss, error)


TASKS = {"adding-200": adding(200), "copying-50": copying(50)}


def train(case: Case, seed: int, setting: Setting) -> Row:
    """One run: the error on validation or test samples, ten times along the way."""
    task, device, steps = TASKS[case["task"]], setting.device, case["steps"]
    torch.manual_seed(seed)
    rnn = MODELS[case["model"]](task.inputs, 64, batch_first=True)
    body = Truncated(rnn, case["truncated"]) if case["truncated"] else Outputs(rnn)
    readout = [] if task.every_step else [Last()]
    model = nn.Sequential(body, *readout, nn.Linear(64, task.outputs)).to(device)
    trainer = altmin.methods.create(case["method"], model, loss=task.loss, **case.options)
    if device.type == "cuda":
        with suppress(ValueError):  # of what cannot be recorded
            trainer = Recorded(trainer, fuse=False)
    generator = torch.Generator(device).manual_seed(1000 + seed)
    x, y = task.draw(torch.Generator(device).manual_seed({"validation": 1, "test": 2}[case.part]), 1_000)
    errors = []
    for step in range(1, steps + 1):
        trainer.step(*task.draw(generator, 100))
        if step % max(1, steps // 10) == 0:
            with torch.no_grad():
                errors.append(float(task.measure(trainer.model(x), y)))
    return {"errors": errors}


METHODS = {
    ("am-adam", None): "AM-Adam",
    ("adam", None): "backprop through time, Adam",
    ("adam", 25): "backprop through time, Adam, truncated to 25 steps",
}


def case(task: str, model: str, method: tuple[str, int | None], rate: float, part: str, seeds: int) -> Case:
    settings = {"task": task, "model": model, "method": method[0], "truncated": method[1], "steps": 4_000}
    return Case(train, settings, {"lr": rate}, part, seeds, small={"steps": 20})


def chosen(task: str, model: str) -> float:
    """The best rate on validation samples, with seed 0: one for all methods."""
    return 0.002 if (task, model) == ("copying-50", "lstm") else 0.01


KINDS = [(task, model, method) for task in TASKS for model in MODELS for method in METHODS]
TRIED = [case(*kind, rate, "validation", 1) for kind in KINDS for rate in RATES]
CASES = [case(*kind, chosen(*kind[:2]), "test", 3) for kind in KINDS]
FIGURES = [Figure("recurrent", "Adding and copying", [*CASES, *TRIED], axes=(), minutes=30)]


@table("recurrent.tasks")
def errors() -> str:
    lines = []
    for each in CASES:
        ends = ", ".join(f"{row['errors'][-1]:.4f}" for row in results("recurrent").all(each))
        name = METHODS[each["method"], each["truncated"]]
        lines.append([TASKS[each["task"]].name, each["model"], name, f"{each.options['lr']:g}", ends])
    return markdown(["task", "cell, 64 units", "method", "rate", "error of seeds 0, 1, 2"], lines)


@table("recurrent.accuracy")
def accuracies() -> str:
    """Test accuracies of the figures with recurrent nets, of ours and of Adam."""
    lines, known = [], load()
    for name in ("fig6", "rnn50", "rows", "pixels"):
        found = results(name)
        for run in known[name].runs:
            if run.method in ("am-adam", "adam") and "paper" not in run.name and not found.missing(run):
                ends = words(found.values(run, epoch=-1), ".4f")
                lines.append([run.data, run.model, run.name, str(run.epochs), ends])
    return markdown(["data", "net", "method", "epochs", "test accuracy"], lines)
