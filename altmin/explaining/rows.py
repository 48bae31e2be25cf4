"""What is found out about each block, and about the mini-batch."""

from dataclasses import dataclass
from typing import NamedTuple


class Milliseconds(NamedTuple):
    """Of one block in one step: its forward pass, its part of moving the codes, by the time of its own products, and
    its weights' gradient."""

    forward: float
    codes: float
    weights: float


@dataclass(frozen=True)
class Row:
    """One block and what one step did to it. A number is None where there is nothing to measure.

    modules: its modules. names: of its parameters in the model. parameters: how many numbers these hold. output: the
    shape of what it computes for one sample, which is a code but in the last block. through_autograd: the modules
    without closed form; avoidable: those of them that would have one, and what keeps them from it. frozen: whether none
    of its parameters is trained. time: see `Milliseconds`.

    Of its code c, None in the last block: movement, |dc| / |c| for its offset dc. length: a, by which the line search
    multiplied the gradient, beside the lengths of the codes above. residual: |c - F(c_below)| / |c| once all codes had
    moved. dead: the part of its units that the rectifier above holds at zero for every sample, None if there is none.

    Of its weights: taken, the part |delta - r| / |delta| of the gradient at its output that the code below took; the
    line search keeps it near `share` at most. gradient, backprop: the norms of the block's gradient and of backprop's.
    cosine: between the two, None where one is zero. change: |dW| / |W|.
    """

    block: int
    modules: str
    names: tuple[str, ...]
    parameters: int
    output: tuple[int, ...]
    through_autograd: tuple[str, ...]
    avoidable: tuple[str, ...]
    frozen: bool
    time: Milliseconds
    movement: float | None
    length: float | None
    residual: float | None
    dead: float | None
    taken: float | None
    gradient: float
    backprop: float
    cosine: float | None
    change: float


@dataclass(frozen=True)
class Facts:
    """What holds for the whole step.

    loss: of the mini-batch before it. classes: of a cross-entropy, else None. input_mean, input_std: of all entries of
    x, None for integers. widest: the largest standard deviation of a feature over their median. target_std: of targets
    that are numbers, else None. share, order: the code solver's, None where it has none. step: a fixed step of the
    codes, None if they take exact ones. truncated: whether deltas go back through fewer steps of time than there are.
    estimated: whether an estimate stands in for derivatives that the net lacks. idle: modules that act as in a test
    because the model is in eval mode. rounding: the relative rounding of the model's numbers. smallest_group: with
    batch norm in training, over how many values it takes a mean, at the least. update: the milliseconds of the
    optimizer's step on all weights.
    """

    method: str
    samples: int
    loss: float
    classes: int | None
    input_mean: float | None
    input_std: float | None
    widest: float | None
    target_std: float | None
    share: float | None
    step: float | None
    order: str | None
    truncated: bool
    estimated: bool
    idle: tuple[str, ...]
    rounding: float
    smallest_group: int | None
    update: float
