"""The objective f(W, C; mu).

    f(W, C) = sum_t loss(y_t, W_{L+1} s_L(c_t^L)) + mu * sum_t sum_l || c_t^l - W_l s_{l-1}(c_t^{l-1}) ||^2

(the paper's eq. 3). It is reported divided by the number of samples, like PyTorch's losses; with a loss that sums, it
is not divided.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from altmin.common.errors import demand
from altmin.core.chain import Chain
from altmin.core.losses import LossFunction
from altmin.core.outputs import loss_of


def objective(chain: Chain, codes: Sequence[Tensor], x: Any, y: Tensor, mu: float, loss: LossFunction) -> Tensor:
    """f(W, C; mu) per sample, from its definition, for given codes c_1..c_L and the model's present weights.

    ValueError for a chain with codes in time, whose blocks depend on their own codes (their f is in a step's
    metrics), and for codes whose number or shapes are not those of its hidden blocks.
    """
    if chain.recurrent:
        raise ValueError("f of codes in time is not computed from given codes; a step's metrics.objective has it")
    demand("objective", "mu", mu)
    if len(codes) != len(chain) - 1:
        raise ValueError(f"the chain has {len(chain) - 1} hidden codes, given {len(codes)}")
    x = chain.blocks[0].begin(chain.read(x))
    below, misfit = [x, *codes], chain.parameters()[0][0].new_zeros(())
    for l, (block, p, c, c_next) in enumerate(zip(chain, chain.parameters(), below, codes, strict=False)):
        value = block.forward(p, c)[0]
        if not isinstance(c_next, Tensor) or c_next.shape != value.shape:
            given = tuple(c_next.shape) if isinstance(c_next, Tensor) else type(c_next).__name__
            raise ValueError(f"code {l} has the shape {tuple(value.shape)}, given {given}")
        misfit = misfit + (c_next - value).square().sum()
    output = chain.blocks[-1].forward(chain.parameters()[-1], below[-1])[0]
    term = loss_of(loss, chain)
    return term.at(output, term.prepare(output, y)).value + mu / term.samples(output) * misfit
