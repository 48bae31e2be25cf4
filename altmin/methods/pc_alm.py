"""Predictive coding with multipliers: inference ends where every block predicts its code, with backprop's gradients.

The forward pass is a constraint, z_l = f_l(z_{l-1}), and training minimises the loss subject to it. Its augmented
Lagrangian for a mini-batch of n samples, with e_l = z_l - f_l(z_{l-1}), is

    A(z, lambda, W) = n loss(f_L(z_{L-1}), y) + sum_{l<L} <lambda_l, e_l> + rho/2 |e_l|^2.

In the terms of `predictive_coding` the tension of a block is t_l = lambda_l + rho e_l, and all else is as there. What
follows from the equations: where inference stands still, e_l = 0, so codes are those of the forward pass, and

    lambda_l = J_{l+1}^T lambda_{l+1},        lambda_L = -n (gradient of the loss at the output):

lambda_l is minus n times backprop's gradient at z_l, and dA/dW_l over n is backprop's gradient of the weights. The
energy of predictive coding, which is A with lambda = 0, has its minimum elsewhere.

From the paper: multipliers that start at 0 and gather each block's error, one gradient step of the codes between two
updates of the multipliers, both steps as many as predictive coding has, and weights that follow A at the end, before
another update of the multipliers. Chosen here: multipliers move by rho times the error, as in the method of multipliers
(the paper's setting, a step of 1 with rho = 1, among them), and codes by inference_rate over rho, so that the length
of a step keeps its meaning when rho changes.
"""

from torch import nn

from altmin.errors import demand
from altmin.losses import LossFunction
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
    one gradient step of size `inference_rate` / rho; then each block's weights take one step of Adam along their own
    gradient of the Lagrangian. Seely and Gould (2026), "Augmented Lagrangian Predictive Coding". Half of predictive
    coding's largest stable rate is safe, since a step sees every error twice: in the multiplier and in the square.
    """
    demand("pc-alm", "rho", rho, above=True)
    options = {name: value for name, value in locals().items() if name != "model"}
    return PredictiveCoding(model, options, rho=rho, dual=rho)
