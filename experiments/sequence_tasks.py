"""Tasks for recurrent nets in which errors have to travel far: adding and copying.

Samples are drawn anew for each step; validation and test samples have seeds of their own.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from common import Row
from torch import Tensor, nn

import altmin
from altmin.layers import Last, Outputs
from altmin.runners import Recorded
from altmin.runners.capture import can_capture

SYMBOLS, COPIED = 8, 10
MODELS: dict[str, Callable[..., nn.Module]] = {
    "gru": lambda inputs: Outputs(nn.GRU(inputs, 64, batch_first=True)),
    "lstm": lambda inputs: Outputs(nn.LSTM(inputs, 64, batch_first=True)),
}


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
    steps: int
    batch: int
    draw: Callable[[torch.Generator, int], tuple[Tensor, Tensor]]
    loss: Callable[[Tensor, Tensor], Tensor]
    measure: Callable[[Tensor, Tensor], float]


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

    def error(output: Tensor, y: Tensor) -> float:
        return float((output - y).square().mean())

    return Task(f"adding, {length} steps", 2, 1, False, 4_000, 100, draw, nn.MSELoss(), error)


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

    def error(output: Tensor, y: Tensor) -> float:
        return float((output[:, -COPIED:].argmax(2) != y).float().mean())

    return Task(f"copying, {delay} steps", SYMBOLS + 2, SYMBOLS, True, 4_000, 100, draw, loss, error)


TASKS = {"adding-200": adding(200), "copying-50": copying(50)}


def train(case: Row, seed: int, part: str, device: torch.device, steps: int | None = None) -> Row:
    """One run: the error on validation or test samples, ten times along the way."""
    task, method = TASKS[case["task"]], case["method"]
    torch.manual_seed(seed)
    body: Any = MODELS[case["model"]](task.inputs)
    body = Truncated(body.rnn, case["truncated"]) if "truncated" in case else body
    readout = [] if task.every_step else [Last()]
    model = nn.Sequential(body, *readout, nn.Linear(64, task.outputs)).to(device)
    trainer = altmin.methods.create(method, model, loss=task.loss, lr=case["lr"])
    if device.type == "cuda" and can_capture(trainer):
        trainer = Recorded(trainer, fuse=False)
    generator = torch.Generator(device).manual_seed(1000 + seed)
    x, y = task.draw(torch.Generator(device).manual_seed({"validation": 1, "test": 2}[part]), 1_000)
    errors, count = [], steps or task.steps
    for step in range(1, count + 1):
        trainer.step(*task.draw(generator, task.batch))
        if step % max(1, count // 10) == 0:
            with torch.no_grad():
                errors.append(task.measure(trainer.model(x), y))
    return {"seed": seed, "measured_on": part, "steps": count, "errors": errors, "error": errors[-1]}
