"""Block coordinate descent on a network split in three: weights, pre-activations, activations."""

import torch
from torch import Tensor, nn

from altmin.methods.base import without_model
from altmin.methods.protocol import register
from altmin.methods.rivals.layers import layers_of
from altmin.methods.rivals.proximal import CLAMPS
from altmin.methods.rivals.splitting import Penalties, Splitting


class BCD(Splitting):
    """Splitting with outputs V_L of their own: the output term is loss(V_L, y) + gamma / 2 |V_L - z_L|^2."""

    extra = "output"

    def _begin(self, z: Tensor) -> Tensor:
        return z.clone()

    def _move_output(self, z: Tensor, extra: Tensor, m: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return V_L from the prox of the loss, close to its old value; then z_L between it and m."""
        rho, gamma, alpha = (values[-1] for values in self.penalties)
        extra = self.prox(torch.lerp(z, extra, alpha / (gamma + alpha)), gamma + alpha, targets, extra)
        return torch.lerp(m, extra, gamma / (gamma + rho)), extra


@register("bcd")
def bcd(
    model: nn.Module,
    rho: float = 1.0,
    gamma: float = 1.0,
    alpha: float = 0.1,
    ridge: float = 1e-3,
    start: float = 0.2,
    loss: str = "squared",
) -> BCD:
    """BCD: minimises, over weights W_i, b_i, pre-activations U_i and activations V_i of all samples, in turn,

        sum loss(V_N, y) + gamma / 2 sum_i |V_i - sigma(U_i)|^2 + rho / 2 sum_i |U_i - W_i V_(i-1) - b_i|^2,

    each block by its closed form, with alpha / 2 |new - old|^2 added for weights, V_N and hidden U_i: the three-way
    splitting of Zeng, Lau, Lin and Yao, 2019, "Global Convergence of Block Coordinate Descent in Deep Learning". As in
    the paper the order is from the output down; there each layer's weights follow its U_i at once, here one pass with
    fixed weights moves V_N, U_N, V_(N-1), U_(N-1) and so on, and all weights are fitted after it.

    rho, gamma, alpha: as above. ridge: a regulariser, ridge rho / 2 |[W_i, b_i]|^2 for every sample, as the paper's
    theory allows. start: by what the model's initial weights are multiplied, since BCD needs small ones. loss: of V_N,
    "squared" (half the squared distance to the one-hot label, as in the paper), "cross-entropy" or "hinge". The loss
    that is reported is the model's cross-entropy in any case.
    """
    options = without_model(locals())
    depth = len(layers_of(model, "bcd", CLAMPS))
    penalties = Penalties([rho] * depth, [gamma] * depth, [alpha] * depth)
    return BCD("bcd", model, options, penalties, ridge=ridge, proximal=alpha)
