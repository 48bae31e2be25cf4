"""Predictive coding with multipliers: inference ends where every block predicts its code, with backprop's gradients.

The forward pass is a constraint, z_l = f_l(z_{l-1}), and training minimises the loss subject to it. Its augmented
Lagrangian for a mini-batch of n samples, with r_l = f_l(z_{l-1}) - z_l, is

    A(z, lambda, W) = n loss(f_L(z_{L-1}), y) + sum_{l<L} <lambda_l, r_l> + rho/2 |r_l|^2.

In the terms of `predictive_coding` delta_l = lambda_l + rho r_l, and all else is as there. What follows from the
equations: where codes and multipliers have converged all r_l are 0, so that codes are those of the forward pass, and

    lambda_l = J_{l+1}^T lambda_{l+1},        lambda_L = n (gradient of the loss at the output):

lambda_l is n times backprop's gradient at z_l, and dA/dW_l over n is backprop's gradient of the weights. The energy of
predictive coding, A with lambda = 0 and rho = 1, has its minimum elsewhere.

As published, by the authors' code: multipliers that start at 0 and gather every block's error, one gradient step of the
codes between two updates of the multipliers, and weights that follow A with the multipliers of the last step. Chosen
here: multipliers move by rho times the error, as in the method of multipliers, which for rho = 1 is their setting; and
codes by inference_rate over rho, so that a rate that is stable stays so when rho changes. The larger rho, the less
codes move.
"""

from torch import nn

from altmin.common.errors import demand
from altmin.core.losses import LossFunction
from altmin.methods.base import without_model
from altmin.methods.predictive_coding import PredictiveCoding
from altmin.methods.protocol import register


@register("pc-alm")
def pc_alm(
    model: nn.Module,
    lr: float = 1e-3,
    inference_steps: int | None = None,
    inference_rate: float = 0.1,
    rho: float = 1.0,
    weight_decay: float = 0.0,
    loss: LossFunction | None = None,
) -> PredictiveCoding:
    """Minimises the loss over the weights subject to z_l = f_l(z_{l-1}), by the augmented Lagrangian: for every
    mini-batch codes descend and multipliers ascend in turn, then the weights descend.

    Each of `inference_steps` steps adds rho times its error to the multiplier of every layer, then moves all codes by
    one gradient step of size `inference_rate` / rho; at the end each block's weights take one step of Adam along their
    own gradient of the Lagrangian. inference_steps and inference_rate are as in predictive coding; the largest stable
    rate is about half as large, since a step sees every error twice, in the multiplier and in the square.

    Seely and Gould (2026), "Augmented Lagrangian Predictive Coding".
    """
    demand("pc-alm", "rho", rho, above=True)
    return PredictiveCoding("pc-alm", model, without_model(locals()), rho=rho, dual=rho)
