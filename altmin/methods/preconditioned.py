"""Backprop with optimizers that precondition a matrix of gradients from both sides: SOAP and Shampoo.

Both are those of the package pytorch-optimizer, which is needed only where one of them is made.
"""

from typing import Any

from torch import nn

from altmin.common.errors import demand, demand_fraction, unknown
from altmin.common.optional import need
from altmin.methods.backprop import Backprop, demand_dense, parameter_groups
from altmin.methods.protocol import register


def _package(of: str, model: nn.Module, precondition_frequency: int, **betas: float) -> Any:
    """The module with the optimizers. ModuleNotFoundError without the package, ValueError for bad options."""
    need("pytorch_optimizer", what=of)
    demand_dense(of, model)
    demand(of, "precondition_frequency", precondition_frequency, low=1, whole=True)
    demand_fraction(of, **betas)
    from altmin.methods import pytorch_optimizers

    return pytorch_optimizers


@register("soap")
def soap(  # noqa: PLR0913  (its options are those of the command line)
    model: nn.Module,
    lr: float = 3e-3,
    weight_decay: float = 0.01,
    momentum: float = 0.95,
    beta2: float = 0.95,
    precondition_frequency: int = 10,
    loss: nn.Module | None = None,
    clip_norm: float | None = None,
    decay_biases: bool = True,
) -> Backprop:
    """Backprop with SOAP: Adam in the eigenbases of Shampoo's two matrices, averages of G G^T and G^T G over steps;
    tensors of more dimensions have more of them, vectors none. The first step only sets the bases.

    momentum, beta2: of the averages of gradients, and of their squares and matrices. precondition_frequency: steps from
    one update of the bases to the next. Weight decay is decoupled. clip_norm, decay_biases: as in `adam`. Needs the
    package pytorch-optimizer; defaults are the package's.

    Vyas et al. 2024, "SOAP: Improving and Stabilizing Shampoo using Adam"."""
    package = _package("soap", model, precondition_frequency, momentum=momentum, beta2=beta2)
    chosen = package.SOAP(
        parameter_groups("soap", model, decay_biases, lr=lr, weight_decay=weight_decay),
        lr=lr,
        betas=(momentum, beta2),
        weight_decay=weight_decay,
        precondition_frequency=int(precondition_frequency),
    )
    return Backprop(model, chosen, loss, clip_norm)


@register("shampoo")
def shampoo(  # noqa: PLR0913  (its options are those of the command line)
    model: nn.Module,
    lr: float = 0.1,
    weight_decay: float = 0.0,
    momentum: float = 0.9,
    beta2: float = 0.999,
    precondition_frequency: int = 10,
    graft: str = "sgd",
    loss: nn.Module | None = None,
    clip_norm: float | None = None,
    decay_biases: bool = True,
) -> Backprop:
    """Backprop with Shampoo: the direction L^-1/4 G R^-1/4 with L and R the averages of G G^T and G^T G, in blocks of
    512 x 512, with the length of another optimizer's step.

    graft: that optimizer, "sgd", "adagrad", "rmsprop", "sqrtn" or "none"; lr is on its scale. precondition_frequency:
    steps from one update of the inverse roots, by singular value decompositions, to the next; until the first the
    step is the other optimizer's. momentum: Nesterov's. beta2: of the averages. Weight decay is decoupled. clip_norm,
    decay_biases: as in `adam`. Needs the package pytorch-optimizer, whose default frequency is 1,000 steps; lr is that
    of `sgd` here, and the rest are the package's defaults.

    Gupta, Koren, Singer 2018, "Shampoo: Preconditioned Stochastic Tensor Optimization"; Anil et al. 2020, "Scalable
    Second Order Optimization for Deep Learning"."""
    package = _package("shampoo", model, precondition_frequency, momentum=momentum, beta2=beta2)
    if graft not in package.GRAFTS:
        raise unknown("graft of shampoo,", graft, package.GRAFTS)
    frequency = int(precondition_frequency)
    chosen = package.Shampoo(
        parameter_groups("shampoo", model, decay_biases, lr=lr, weight_decay=weight_decay),
        lr=lr,
        betas=(momentum, beta2),
        weight_decay=weight_decay,
        decoupled_weight_decay=True,
        start_preconditioning_step=frequency,
        preconditioning_compute_steps=frequency,
        graft_type=package.GRAFTS[graft],
        use_svd=True,  # the iteration draws random numbers
    )
    return Backprop(model, chosen, loss, clip_norm, {"precondition_frequency": frequency, "graft": graft})
