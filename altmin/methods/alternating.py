"""The online methods: one code solver, several ways for the weights to follow."""

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Signature, signature
from typing import Any

from torch import nn

from altmin.core.codes.choose import choose
from altmin.core.cutting import split
from altmin.core.losses import LossFunction
from altmin.core.penalty import Penalty
from altmin.core.trainer import AltMin, Codes, WeightRule
from altmin.core.weights.local import LocalAdam, LocalSGD
from altmin.core.weights.memory import CoActivationMemory
from altmin.core.weights.sums import FittedMemory
from altmin.methods.protocol import Factory, register


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
    """An `AltMin` with this weight rule. share, order: options of the code solver, as in `GradientCodes`; None for its
    own, and a ValueError if codes is a solver already. at, inputs: as in `split`."""
    if share is not None or order is not None:
        codes = choose(codes, split(model, at, inputs), share, order)
    return AltMin(model, loss, codes, rule, penalty, at, inputs=inputs)


def register_rule(
    name: str, wrap: Any = None, build: Callable[..., AltMin] = trainer, **defaults: Any
) -> Callable[[Callable[..., WeightRule]], Factory]:
    """A decorator that makes a method of a function which returns a weight rule, and registers it under `name`.

    The method's factory takes the model, the function's options and those of `build`, which makes an `AltMin` of a
    model and a rule. wrap: a class of methods made from an `AltMin`; None for the `AltMin` itself. defaults: of the
    options of `build` that have others here.
    """

    def decorate(make_rule: Callable[..., WeightRule]) -> Factory:
        options = signature(make_rule).parameters
        model, _, *parts = signature(build).parameters.values()
        parts = [part.replace(default=defaults.get(part.name, part.default)) for part in parts]
        accepted = Signature([model, *options.values(), *parts], return_annotation=wrap or AltMin)

        @wraps(make_rule)
        def factory(*args: Any, **kwargs: Any) -> Any:
            given = {**defaults, **accepted.bind(*args, **kwargs).arguments}
            rule = make_rule(**{option: given.pop(option) for option in options if option in given})
            am = build(rule=rule, **given)
            return am if wrap is None else wrap(am)

        factory.__signature__ = accepted  # type: ignore[attr-defined]
        factory.__annotations__ = {p.name: p.annotation for p in accepted.parameters.values()}
        return register(name)(factory)

    return decorate


@register_rule("am-adam")
def am_adam(
    lr: float | Sequence[float] = 1e-3,
    weight_decay: float = 0.0,
    l1: float = 0.0,
    steps: int = 1,
    clip_norm: float | None = None,
    decay_biases: bool = True,
) -> WeightRule:
    """AM-Adam: codes by exact line search, every block's weights by Adam on its own residual.

    clip_norm, decay_biases: as in `LocalOptimizer`. share, order: options of the code solver, as in `GradientCodes`;
    None for its own. at, inputs: as in `split`.
    """
    return LocalAdam(lr, weight_decay=weight_decay, l1=l1, steps=steps, clip_norm=clip_norm, decay_biases=decay_biases)


@register_rule("am-sgd")
def am_sgd(
    lr: float | Sequence[float] = 0.1,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    l1: float = 0.0,
    steps: int = 1,
    clip_norm: float | None = None,
    decay_biases: bool = True,
) -> WeightRule:
    """AM-SGD: as AM-Adam, the weights by stochastic gradient descent with momentum."""
    return LocalSGD(lr, momentum, weight_decay, l1, steps, clip_norm, decay_biases)


@register_rule("am-mem")
def am_mem(  # noqa: PLR0913
    lr: float = 0.004,
    length: str = "adam",
    beta: float = 0.9,
    forget: float = 0.95,
    damping: float = 1.0,
    rank: int = 32,
    weight_decay: float = 0.0,
    decay_biases: bool = True,
    clip_norm: float | None = None,
    every: int = 10,
    rows: int = 100,
) -> WeightRule:
    """AM-mem: every layer's regression is solved with a memory of its inputs. The options are those of
    `CoActivationMemory`."""
    return CoActivationMemory(
        lr, beta, forget, damping, length, rank, weight_decay, decay_biases, clip_norm, every, rows
    )


@register_rule("am-mem-fitted")
def am_mem_fitted(
    lr: float = 2e-3,
    forget: float = 0.9,
    damping: float = 30.0,
    sweeps: int | None = None,
    rate: float | None = 300.0,
    steps: int | None = 1,
) -> WeightRule:
    """AM-mem-fitted: hidden weights fitted to sums of inputs and targets (`FittedMemory`), by default with forgetting
    and one conjugate gradient step per mini-batch; the output block by Adam (`lr`). The rule of
    streams and of continual learning. Its `rate` suits cross-entropy; for a squared error lower it."""
    return FittedMemory(forget, damping, sweeps, rate, LocalAdam(lr), steps=steps)
