"""`explain`: what one step does to each block of a network, beside backprop, and advice."""

import copy
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from altmin import layers
from altmin.calculus import Discrete
from altmin.calculus.context import LOCAL
from altmin.calculus.cut_values import shortened
from altmin.calculus.elementwise import ReLU
from altmin.calculus.linear import Convolution
from altmin.common.inputs import Batch, Inputs, call, tensors_of
from altmin.core.chain import Chain
from altmin.core.losses import Loss
from altmin.core.step import encode, move_codes, with_states
from altmin.core.trainer import AltMin
from altmin.core.weights.rule import WeightRule
from altmin.explaining.trainers import random_state, trainer_of

DEAD, LOW, VANISHED, FAST, SLOW = 0.5, 0.9, 1e-3, 0.1, 1e-7
"""Limits of the advice: of dead units, of the cosine, of gradients over the largest, and of |dW| / |W| in one step."""


@dataclass(frozen=True)
class Row:
    """One block, and what one step does to it. A number is None where there is nothing to measure.

    modules, parameters: their names, and the number of entries. output: its shape for one sample. autograd: the modules
    without closed form. Of its code c, None in the last block: movement, |dc| / |c|; dead, the fraction of units that
    the rectifier above holds at 0 for every sample. taken: |delta - r| / |delta|, the part of the gradient delta at its
    output that the code below takes. gradient, backprop: the norms of its weights' gradient and of backprop's. cosine:
    between the two. change: |dW| / |W|.
    """

    block: int
    modules: str
    parameters: int
    output: tuple[int, ...]
    autograd: tuple[str, ...]
    movement: float | None
    dead: float | None
    taken: float
    gradient: float
    backprop: float
    cosine: float | None
    change: float


@dataclass(frozen=True)
class Explanation:
    """The rows of all blocks, the loss of the mini-batch before the step, and advice in one line each.

    estimated: whether `backprop` is the straight-through estimate, as some activation has no derivative.
    """

    method: str
    samples: int
    loss: float
    estimated: bool
    rows: list[Row]
    advice: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as a dict for JSON."""
        return asdict(self)

    def table(self) -> Any:
        """Return the rows as a table of rich."""
        from rich import box
        from rich.table import Table

        reference = "the straight-through estimate" if self.estimated else "backprop"
        title = f"one step of {self.method} beside {reference}, {self.samples} samples, loss {self.loss:.4f}"
        table = Table(title=title, title_justify="left", box=box.SIMPLE)
        for name in ("block", "modules", "output", "parameters", "autograd", "code moved", "dead units", "taken"):
            table.add_column(name, justify="left" if name in ("modules", "autograd") else "right", overflow="fold")
        for name in ("gradient", "cosine", "weights moved"):
            table.add_column(name, justify="right")
        for row in self.rows:
            shape, numbers = " x ".join(map(str, row.output)), (row.taken, row.gradient, row.cosine, row.change)
            cells = [str(row.block), row.modules, shape, f"{row.parameters:,}", ", ".join(row.autograd)]
            dead = "" if row.dead is None else f"{row.dead:.0%}"
            table.add_row(*cells, _number(row.movement), dead, *map(_number, numbers))
        return table

    def __str__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        Console(file=text, width=120, color_system=None).print(self.table())
        return "\n".join([text.getvalue().rstrip(), *(f"- {line}" for line in self.advice)])


def explain(
    subject: nn.Module | AltMin, x: Any = None, y: Any = None, method: str = "am-adam", **options: Any
) -> Explanation:
    """Measure what one step on the mini-batch (x, y) does to each block, and give advice.

    subject: a model, which `method` with its options would begin to train; or a trainer, as it is now. The step is
    taken on a copy, with dropout off: the subject and the state of random numbers do not change. TypeError without a
    mini-batch; ValueError for a method without codes, an unknown option, or one that does not fit the model.

    >>> torch.manual_seed(0) and None
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    >>> found = explain(model, torch.randn(32, 4), torch.arange(32) % 3, share=0.0)
    >>> [round(row.cosine, 6) for row in found.rows]  # codes that stay where they are leave backprop's gradients
    [1.0, 1.0]
    """
    if x is None or y is None:
        raise TypeError("explain measures a step on a mini-batch; give its inputs and targets: explain(model, x, y)")
    am = trainer_of(subject, method, options)
    x, idle = am.chain.read(x), _idle(am.model)
    for module in am.model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.training = False
    stepped = copy.deepcopy(am)
    with random_state(x):
        loss = float(stepped.step(x, y).loss)
    with random_state(x):
        reference = _backprop(am.chain, x, y, am.loss)
    rows = _rows(am, stepped, x, y, reference)
    estimated = any(isinstance(m, Discrete) for block in am.chain for m in block.maps)
    name = f"AltMin with {type(am.weights).__name__}" if isinstance(subject, AltMin) else method
    share = None if estimated or am.chain.recurrent else getattr(am.codes, "share", None)
    advice = [*_of_blocks(rows, share), *_of_weights(rows), *_of_batch(tensors_of(x)[0], y), *idle]
    nothing = ["nothing stands out: every block learns, along gradients near backprop's"]
    return Explanation(name, len(x), loss, estimated, rows, advice or nothing)


@torch.no_grad()
def _rows(am: AltMin, stepped: AltMin, x: Batch, y: Tensor, reference: Mapping[str, Tensor]) -> list[Row]:
    """Return a row for each block of a trainer. stepped: the same after the step. reference: backprop's gradients."""
    chain, rows = am.chain, []
    with random_state(x):
        values = encode(chain.blocks, am.theta, x, LOCAL)[0][1:]
    with random_state(x):
        codes = with_states(am.codes, list(am.code_states.values()))
        moved = move_codes(chain, am.theta, codes, am.loss, x, y, am.penalty.value)
    names = {id(p): name for name, p in am.model.named_parameters()}
    for l, (block, theta, problem) in enumerate(zip(chain, am.theta, moved.problems, strict=True)):
        gradients = WeightRule().measure(problem.block, theta, problem, 0)
        trained = [(g.to_dense(), p) for g, p in zip(gradients, theta, strict=True) if p.requires_grad]
        mine = [g for g, _ in trained]
        theirs = [reference.get(names[id(p)], torch.zeros_like(p)) for _, p in trained]
        g, b, hidden = norm(mine), norm(theirs), l < len(chain) - 1
        product = sum(float((p * q).sum()) for p, q in zip(mine, theirs, strict=True))
        change = norm([new - old for new, old in zip(stepped.theta[l], theta, strict=True)])
        rows.append(
            Row(
                block=l,
                modules=shortened([m.module._get_name() for m in block.maps]),
                parameters=sum(p.numel() for p in theta),
                output=tuple(values[l].shape[1:]),
                autograd=tuple(m.module._get_name() for part in block.maps for m in part.inner if m.uses_autograd),
                movement=_over(math.sqrt(moved.squares[l]), norm([values[l]])) if hidden else None,
                dead=_dead(chain, l, values[l]) if hidden else None,
                taken=_over(norm([problem.upstream - problem.delta]), norm([problem.upstream])),
                gradient=g,
                backprop=b,
                cosine=product / g / b if g and b else None,
                change=_over(change, norm(theta)),
            )
        )
    return rows


def norm(tensors: Sequence[Tensor]) -> float:
    """Return the Euclidean norm of all entries together, computed in double precision."""
    return math.sqrt(sum(float(t.detach().double().square().sum()) for t in tensors))


def _over(a: float, b: float) -> float:
    return a / b if b else 0.0


def _backprop(chain: Chain, x: Batch, y: Tensor, loss: Loss) -> dict[str, Tensor]:
    """Return backprop's gradients by autograd, through activations without derivative by the straight-through
    estimate. The gradient at the output is the loss's own."""
    model = copy.deepcopy(chain.model)
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    with torch.enable_grad():
        inputs = Inputs(dict(zip(chain.inputs, x.tensors, strict=True))) if isinstance(x, Inputs) else x
        output = call(layers.straight_through(model), inputs)
        output = output if chain.outputs is None else chain.outputs.flat(output)
    if not named or not output.requires_grad:
        return {}
    value = output.detach()
    delta = loss.at(value, loss.prepare(value, y)).delta
    grads = torch.autograd.grad(output, list(named.values()), delta, allow_unused=True)
    return {name: grad.to_dense() for name, grad in zip(named, grads, strict=True) if grad is not None}


def _dead(chain: Chain, l: int, value: Tensor) -> float | None:
    """Return the fraction of block l's units that are not above 0 for any sample or place; None if no rectifier
    follows."""
    for m in chain.blocks[l + 1].prelude.maps:
        if isinstance(m, ReLU):
            axis = 1 if any(isinstance(part, Convolution) for part in chain.blocks[l].maps) else -1
            units = value.movedim(axis, -1).flatten(0, -2)
            return float((units <= 0).all(0).double().mean())
        if not m.selects:
            return None
    return None


def _of_blocks(rows: Sequence[Row], share: float | None) -> list[str]:
    """Advice about codes and gradients. share: of the code solver, None where it does not bound the cosine."""
    advice = []
    if len(rows) == 1:
        advice.append("the network is one block, so it has no codes and the step is backprop's; cut it with at=")
    for row in rows:
        if row.dead is not None and row.dead > DEAD:
            advice.append(f"{row.dead:.0%} of the units of block {row.block} are dead; lower lr, or use nn.LeakyReLU")
    far = [row for row in rows if row.cosine is not None and row.cosine < LOW]
    if far and share:
        least = min(far, key=lambda row: row.cosine or 0.0)
        advice.append(f"codes move far: cosine {least.cosine:.2f} in block {least.block}; lower the share, {share:g}")
    sizes = {row.block: row.backprop / math.sqrt(row.parameters) for row in rows if row.backprop}
    largest = max(sizes.values(), default=0.0)
    if small := [block for block, size in sizes.items() if size < VANISHED * largest]:
        weakest = min(small, key=lambda block: sizes[block])
        times = f"{largest / sizes[weakest]:.0e} times smaller"
        advice.append(f"gradients vanish with depth, in backprop too: block {weakest}'s is {times}; use normalisation")
    return advice


def _of_weights(rows: Sequence[Row]) -> list[str]:
    trained = [row for row in rows if row.gradient > 0]
    fastest = max(trained, key=lambda row: row.change, default=None)
    if fastest is None:
        return ["no block has a gradient"]
    if fastest.change > FAST:
        return [f"one step changes the weights of block {fastest.block} by {fastest.change:.0%}; take shorter steps"]
    return ["one step hardly changes any weight; take longer steps"] if fastest.change < SLOW else []


def _of_batch(x: Tensor, y: Tensor) -> list[str]:
    advice = []
    if x.is_floating_point():
        mean, std = float(x.double().mean()), float(x.double().std(correction=0))
        if abs(mean) > 2 or not 0.05 < std < 10:
            advice.append(f"the inputs have mean {mean:.3g} and deviation {std:.3g}; standardise them to 0 and 1")
    if y.is_floating_point() and (std := float(y.double().std(correction=0))) > 30:
        advice.append(f"the targets have deviation {std:.3g}; divide them by it, and multiply outputs by it")
    return advice


def _idle(model: nn.Module) -> list[str]:
    """Return advice about modules that act as in a test."""
    kinds = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)
    names = dict.fromkeys(type(m).__name__ for m in model.modules() if isinstance(m, kinds) and not m.training)
    return [f"{', '.join(names)} in eval mode: call model.train() before training"] if names else []


def _number(value: float | None) -> str:
    """Format a number with three digits."""
    return "" if value is None else f"{value:.3g}"
