"""Backprop with optimizers that precondition a matrix of gradients from both sides, those of pytorch-optimizer."""

import torch
from torch import nn

from altmin.common.errors import Diverged
from altmin.common.optional import need
from altmin.methods import register
from altmin.methods.backprop import Backprop


class Preconditioned(Backprop):
    """Backprop with an optimizer that factors matrices, which cannot be done once weights have diverged."""

    def update(self) -> None:
        try:
            super().update()
        except torch.linalg.LinAlgError as error:
            raise Diverged("a matrix of gradients", "lower the learning rate") from error


@register("soap")
def soap(model: nn.Module, lr: float = 3e-3, weight_decay: float = 0.01, loss: nn.Module | None = None) -> Backprop:
    """Backprop with SOAP: Adam in the eigenbases of Shampoo's two matrices, which change every 10 steps.

    Vyas et al. 2024, "SOAP: Improving and Stabilizing Shampoo using Adam"."""
    need("pytorch_optimizer", what="soap")
    from pytorch_optimizer import SOAP

    return Preconditioned(
        model, SOAP(model.parameters(), lr, weight_decay=weight_decay, precondition_frequency=10), loss
    )


@register("shampoo")
def shampoo(model: nn.Module, lr: float = 0.1, loss: nn.Module | None = None) -> Backprop:
    """Backprop with Shampoo: the direction L^-1/4 G R^-1/4 with L and R the averages of G G^T and G^T G, in blocks of
    512 x 512, with the length of the step of SGD. The inverse roots change every 10 steps, by singular values.

    Gupta, Koren, Singer 2018, "Shampoo: Preconditioned Stochastic Tensor Optimization"; Anil et al. 2020, "Scalable
    Second Order Optimization for Deep Learning"."""
    need("pytorch_optimizer", what="shampoo")
    from pytorch_optimizer import ScalableShampoo
    from pytorch_optimizer.optimizer.utils.graft import LayerWiseGrafting

    optimizer = ScalableShampoo(
        model.parameters(),
        lr,
        betas=(0.9, 0.999),
        decoupled_weight_decay=True,
        start_preconditioning_step=10,
        preconditioning_compute_steps=10,
        graft_type=LayerWiseGrafting.SGD,
        use_svd=True,  # the iteration draws random numbers
    )
    return Preconditioned(model, optimizer, loss)
