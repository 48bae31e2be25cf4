"""Alternating minimization by name: one code solver, several ways for the weights to follow, online, offline (the whole
training set is one mini-batch, seen in parts) and as the paper prints it.

The printed ones are Algorithms 1 to 3. They are slower and less accurate than the library's own methods, and are what
the paper's claims are held against. Each choice, with its place in the paper:

| choice | value | from |
|---|---|---|
| codes | values, moved one after the other from the last, by steps of fixed length | Algorithm 2, eqs. 4 and 5 |
| norms, loss | sums over units and samples | eq. 3 |
| steps on each code | 5 | text: a hyper-parameter; public code: 5; appendix: 1 (LeNet-5), 5 (RNN) |
| their momentum | 0.9, Nesterov's | public code |
| weights of the last layer | SGD (AM-mem, AM-SGD), Adam (AM-Adam) | Algorithm 3, step 1; public code |
| hidden weights | Adam or SGD on mu times the mean of the layer's squared residual | Algorithm 3, step 10 |
| the same with memory | sweeps over the columns, A and B sums since the first sample | Algorithm 3, steps 4 to 6 |
| mu | starts at 0.01, grows with batches and epochs, at most 1.5 | appendix (LeNet-5) |
| l1 | off; proximal, after each step or column | footnote 1; public code (columns) |
| biases | as any weight, with an input of 1 | the paper has none, its public code in the last layer |
"""

from collections.abc import Callable, Sequence
from functools import partial
from inspect import Signature, signature
from typing import Any

from torch import Tensor, nn

from altmin.calculus.context import LOCAL, Context
from altmin.core.codes.choose import choose
from altmin.core.codes.printed import PrintedCodes
from altmin.core.cutting import split
from altmin.core.labels import LossFunction
from altmin.core.penalty import Penalty
from altmin.core.trainer import AltMin, Codes, Metrics, WeightRule
from altmin.core.weights.local import LocalAdam, LocalSGD
from altmin.core.weights.memory import CoActivationMemory
from altmin.core.weights.sums import FittedMemory
from altmin.methods.protocol import register
from altmin.methods.wrapper import Wrapper


def trainer(  # noqa: PLR0913
    model: nn.Module,
    rule: WeightRule,
    loss: LossFunction | None = None,
    codes: Codes = None,
    share: float | None = None,
    order: str | None = None,
    penalty: Penalty | float | None = None,
    at: Sequence[str] | None = None,
    inputs: Sequence[str] | None = None,
) -> AltMin:
    """Return an `AltMin` with this weight rule. share, order: options of the code solver, as in `GradientCodes`; None
    for its own, and a ValueError if codes is a solver already. at, inputs: as in `split`."""
    if share is not None or order is not None:
        codes = choose(codes, split(model, at, inputs), share, order)
    return AltMin(model, loss, codes, rule, penalty, at, inputs=inputs)


def as_printed(  # noqa: PLR0913
    model: nn.Module,
    rule: WeightRule,
    loss: LossFunction | None = None,
    code_lr: float = 0.1,
    code_steps: int = 5,
    momentum: float = 0.9,
    code_l1: float = 0.0,
    mean: bool = False,
    anchored: bool = True,
    mu: float = 0.01,
    increment: float = 0.0,
    growth: float = 1.0,
    maximum: float | None = 1.5,
    at: Sequence[str] | None = None,
) -> AltMin:
    """Return an `AltMin` with this weight rule and the paper's codes and mu: the options of `PrintedCodes` and of
    `Penalty`. at: as in `split`."""
    codes = PrintedCodes(code_steps, code_lr, momentum, code_l1, mean, anchored)
    return AltMin(model, loss, codes, rule, Penalty(mu, increment, growth, maximum), at)


class Offline(Wrapper):
    """Offline training: `step` moves the codes of a part of the data and gathers what the weights need of it, holding
    no more; `end_epoch` moves the weights."""

    method: AltMin
    moves_by_epoch = True
    """Weights move after an epoch's last batch, when a schedule by batch has brought the rate of a run's end to 0."""

    def step(self, x: Tensor, y: Tensor, *, context: Context = LOCAL) -> Metrics:
        return self.method.gather(x, y, context)

    def end_epoch(self) -> None:
        self.method.apply()
        self.method.end_epoch()


def register_rule(
    name: str, text: str, rule: Callable[..., WeightRule], build: Callable[..., AltMin] = trainer, **defaults: Any
) -> None:
    """Register a method whose factory takes the model, the options of a weight rule and those of `build`, which makes
    an `AltMin` of both.

    text: the factory's docstring. defaults: of options that have others here. Options that a `partial` has set are not
    the method's. With "offline" in the name it is `Offline`.
    """
    fixed = set(rule.keywords) if isinstance(rule, partial) else set()
    options = {option: p for option, p in signature(rule).parameters.items() if option not in fixed}
    model, _, *parts = signature(build).parameters.values()
    every = [p.replace(default=defaults.get(p.name, p.default)) for p in (*options.values(), *parts)]
    accepted = Signature([p.replace(kind=model.kind) for p in (model, *every)])

    def factory(*args: Any, **kwargs: Any) -> Any:
        arguments = {**defaults, **accepted.bind(*args, **kwargs).arguments}
        made = rule(**{option: arguments.pop(option) for option in options if option in arguments})
        am = build(rule=made, **arguments)
        return Offline(am) if "offline" in name else am

    factory.__doc__, factory.__signature__ = text, accepted  # type: ignore[attr-defined]
    register(name)(factory)


def fitted(
    lr: float = 2e-3,
    forget: float = 0.9,
    damping: float = 30.0,
    rate: float | None = 300.0,
    steps: int | None = 1,
) -> FittedMemory:
    return FittedMemory(forget, damping, None, rate, LocalAdam(lr), steps)


def swept(lr: float = 0.1, sweeps: int = 1, l1: float = 0.0) -> FittedMemory:
    return FittedMemory(1.0, sweeps=sweeps, rate=None, rest=LocalSGD(lr, momentum=0.0), l1=l1)


register_rule(
    "am-adam", "AM-Adam: one step for every code, every block's weights by Adam on its own residual.", LocalAdam
)
register_rule("am-sgd", "AM-SGD: as AM-Adam, the weights by stochastic gradient descent with momentum.", LocalSGD)
register_rule("am-mem", "AM-mem: every layer's regression is solved with a memory of its inputs.", CoActivationMemory)
register_rule(
    "am-mem-fitted",
    "AM-mem-fitted: hidden weights fitted to sums of inputs and targets (`FittedMemory`), with forgetting and one "
    "conjugate gradient step per mini-batch; the output block by Adam (`lr`). For streams and continual learning. Its "
    "`rate` suits cross-entropy; for a squared error lower it.",
    fitted,
)
register_rule(
    "am-adam-offline",
    "AM-Adam-off: one Adam step per epoch on every block's problem over all the data.",
    partial(LocalAdam, steps=1),
    lr=0.01,
)
register_rule(
    "am-mem-offline",
    "AM-mem-off: per epoch one solve of every layer's regression over all the data; the memory holds this epoch's "
    "inputs alone.",
    partial(CoActivationMemory, forget=0.0, every=1, rows=2000),
    lr=0.03,
    beta=0.5,
)
register_rule(
    "am-mem-fitted-offline",
    "AM-mem-fitted-off: per epoch one fit of every hidden block to the codes of all the data.",
    partial(fitted, forget=0.0),
    lr=0.01,
    damping=1.0,
    rate=100.0,
    steps=None,
)
register_rule(
    "am-adam-printed",
    "AM-Adam as the paper prints it: every layer's weights by `steps` steps of Adam on its own term of f.",
    LocalAdam,
    as_printed,
)
register_rule(
    "am-sgd-printed",
    "AM-SGD as the paper prints it: as AM-Adam, by stochastic gradient descent, whose steps in hidden layers have the "
    "factor mu of their term.",
    partial(LocalSGD, momentum=0.0),
    as_printed,
)
register_rule(
    "am-mem-printed",
    "AM-mem as the paper prints it: hidden weights by sweeps of coordinate descent on the sums A and B over all "
    "samples since the first, the last layer by SGD (`lr`).",
    swept,
    as_printed,
)
register_rule(
    "am-adam-offline-printed",
    "AM-Adam-off as the paper prints it: all the data are one mini-batch, so that an epoch is one step.",
    partial(LocalAdam, steps=1),
    as_printed,
    lr=0.01,
)
register_rule(
    "am-mem-offline-printed",
    "AM-mem-off as the paper prints it: all the data are one mini-batch, and A and B their sums over all epochs.",
    swept,
    as_printed,
)
