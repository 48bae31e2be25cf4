"""ADMM without gradients: a split network with a multiplier for its outputs only."""

from torch import Tensor, nn

from altmin.methods.base import without_model
from altmin.methods.protocol import register
from altmin.methods.rivals.layers import layers_of
from altmin.methods.rivals.proximal import CLAMPS
from altmin.methods.rivals.splitting import Penalties, Splitting


class ADMM(Splitting):
    """Splitting with the output term loss(z_L, y) + <lambda, z_L - W_L a_(L-1) - b_L>, rho = 2 beta and 2 gamma."""

    extra = "multiplier"

    def _move_output(self, z: Tensor, extra: Tensor, m: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        rho = self.penalties.rho[-1]
        z = self.prox(m - extra / rho, rho, targets, z)
        if self.passes >= self.options["warmup"]:
            extra = extra + rho / 2 * (z - m)
        return z, extra


@register("admm")
def admm(
    model: nn.Module,
    gamma_prod: float = 0.03,
    gamma_nonlin: float = 0.03,
    shrink: float = 0.3,
    warmup: int = 10,
    ridge: float = 1e-3,
    start: float = 0.15,
    loss: str = "cross-entropy",
) -> ADMM:
    """ADMM: minimises, over weights W_l, pre-activations z_l and activations a_l of all samples, in turn,

        sum loss(z_L, y) + <lambda, z_L - W_L a_(L-1)> + beta_L |z_L - W_L a_(L-1)|^2
            + sum_(l<L) gamma_l |a_l - h(z_l)|^2 + beta_l |z_l - W_l a_(l-1)|^2,

    each block by its closed form; then lambda += beta_L (z_L - W_L a_(L-1)). Taylor, Burmeister, Xu, Singh, Patel and
    Goldstein, 2016, "Training Neural Networks Without Gradients: A Scalable ADMM Approach". The paper goes through the
    layers from the input up, and through all the data for each of them. Here one pass with fixed weights moves z_L,
    lambda, then a_l and z_l from the last hidden layer down, and all weights are fitted after it.

    gamma_prod, gamma_nonlin: beta and gamma, at the output; both are multiplied by `shrink` for every layer below it,
    and shrink=1 gives all layers the same, as in the paper. warmup: iterations before lambda moves. ridge: of the
    least squares, for each sample. start: by what the model's initial weights are multiplied. loss: of z_L,
    "cross-entropy", "hinge" (the paper's) or "squared".
    """
    options = without_model(locals())
    depth = len(layers_of(model, "admm", CLAMPS))
    factors = [2 * shrink ** (depth - l) for l in range(1, depth + 1)]
    penalties = Penalties([gamma_prod * f for f in factors], [gamma_nonlin * f for f in factors], [0.0] * depth)
    return ADMM("admm", model, options, penalties, ridge=ridge)
