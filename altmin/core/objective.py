"""The objective f(W, C; mu).

    f(W, C) = sum_t loss(y_t, W_{L+1} s_L(c_t^L)) + mu * sum_t sum_l || c_t^l - W_l s_{l-1}(c_t^{l-1}) ||^2

(the paper's eq. 3). It is reported divided by the number of samples, like PyTorch's losses; with a loss that sums, it
is not divided.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from altmin.core.chain import Chain
from altmin.core.losses import LossFunction, adapt, loss_of


def objective(chain: Chain, codes: Sequence[Tensor], x: Any, y: Tensor, mu: float, loss: LossFunction) -> Tensor:
    """Return f(W, C; mu) per sample, from its definition, for given codes c_1..c_L and the model's present weights.

    ValueError for a chain with codes in time, whose blocks depend on their own codes (their f is in a step's
    metrics), and for codes whose number is not that of its hidden blocks.
    """
    if chain.recurrent:
        raise ValueError("f of codes in time is not computed from given codes; a step's metrics.objective has it")
    x = chain.blocks[0].begin(chain.read(x))
    below, misfit = [x, *codes], chain.parameters()[0][0].new_zeros(())
    for block, p, c, moved in zip(chain.blocks[:-1], chain.parameters()[:-1], below[:-1], codes, strict=True):
        misfit = misfit + (moved - block.forward(p, c)[0]).square().sum()
    output = chain.blocks[-1].forward(chain.parameters()[-1], below[-1])[0]
    term = adapt(loss_of(loss, chain.outputs))
    return term.at(output, term.prepare(output, y)).value + mu / term.samples(output) * misfit
