"""f(W, C; mu): the one place where it is written down.

    f(W, C) = sum_t loss(y_t, W_{L+1} s_L(c_t^L)) + mu * sum_t sum_l || c_t^l - W_l s_{l-1}(c_t^{l-1}) ||^2

(the paper's eq. 3). It is reported divided by the number of samples, like PyTorch's losses; with a loss that sums, as
it stands here.
"""

from collections.abc import Sequence

from torch import Tensor

from altmin.chain import Chain
from altmin.losses import LossFunction, adapt


def objective(chain: Chain, codes: Sequence[Tensor], x: Tensor, y: Tensor, mu: float, loss: LossFunction) -> Tensor:
    """f(W, C; mu) per sample, from its definition, for given codes c_1..c_L and the model's present weights.

    ValueError for a chain with codes in time, whose blocks depend on their own codes; a step's metrics have their f.
    """
    if chain.recurrent:
        raise ValueError("f of codes in time is not computed from given codes; a step's metrics.objective has it")
    below, misfit = [x, *codes], x.new_zeros(())
    for block, p, c, c_next in zip(chain, chain.parameters(), below, codes, strict=False):
        misfit = misfit + (c_next - block.forward(p, c)[0]).square().sum()
    output = chain.blocks[-1].forward(chain.parameters()[-1], below[-1])[0]
    term = adapt(loss)
    return term.at(output, term.prepare(output, y)).value + mu / term.samples(output) * misfit
