"""ProxProp: backprop that moves the weights of each hidden layer by an implicit instead of an explicit step.

With z_l = W_l a_{l-1} + b_l and a_l = s(z_l), ProxProp descends, one variable after the other,

    E = loss(W_L a_{L-1} + b_L, y) + gamma / 2 sum_l |s(z_l) - a_l|^2 + rho / 2 sum_l |W_l a_{l-1} + b_l - z_l|^2

from the point that a forward pass finds, with gamma = rho = 1 / tau. Explicit steps of length tau, from the output
down, bring a_l and z_l to a_l - tau dloss/da_l and z_l - tau dloss/dz_l: they carry backprop's gradients. The weights
theta_l = (W_l, b_l) follow by an implicit step on the last term,

    theta_l <- argmin 1/2 |theta (a_{l-1}, 1) - (z_l - tau dloss/dz_l)|^2 + 1 / (2 tau_theta) |theta - theta_l|^2
             = theta_l - tau (dloss/dtheta_l) (A^T A + I / tau_theta)^-1,

in which the rows of A are (a_{l-1}, 1) of every sample. The loss descends along what is multiplied by tau there. It is
handed to a torch optimizer as if it were the gradient, with tau as the learning rate. The output layer, on which the
loss itself depends, takes an explicit step.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from altmin.calculus import CLOSED_FORMS, Elementwise, ReLU, map_of, products
from altmin.calculus.context import LOCAL, Context, sum_tree
from altmin.common.errors import unknown
from altmin.core.losses import AdaptedLoss, LossFunction
from altmin.core.reweighted import of_batch
from altmin.methods.base import LossOnly, OptimizerMethod, demand_step, without_model
from altmin.methods.protocol import register
from altmin.methods.rivals.layers import check_batch, layers_of

ACTIVATIONS = [kind for kind, form in CLOSED_FORMS.items() if issubclass(form, (ReLU, Elementwise))]
OPTIMIZERS = ("adam", "sgd")


def among_samples(a: Tensor, delta: Tensor, bias: bool, tau_theta: float) -> tuple[Tensor, Tensor]:
    """Return delta^T A (A^T A + I / tau_theta)^-1, as its columns for the weights and the one for the bias.

    a: inputs of a layer, one row a sample; A is a with a column of ones if there is a bias. delta: the gradient at its
    outputs. Since (A^T A + c I)^-1 A^T = A^T (A A^T + c I)^-1, the matrix A A^T is factorised.
    """
    gram = a @ a.mT  # never rounded to shorter numbers: it could lose its positive eigenvalues
    v = torch.cholesky_solve(delta, _factor(gram.add_(1) if bias else gram, tau_theta))
    return products.matmul(v.mT, a), v.sum(0)


def normal(a: Tensor, delta: Tensor, bias: bool) -> tuple[Tensor, Tensor]:
    """Return A^T A and A^T delta: of samples in parts, the sums over the parts."""
    A = F.pad(a, (0, int(bias)), value=1.0)
    return A.mT @ A, products.matmul(A.mT, delta)


def solved(gram: Tensor, right: Tensor, bias: bool, tau_theta: float) -> tuple[Tensor, Tensor]:
    """Return what `among_samples` does, from A^T A, which is written over, and A^T delta."""
    solution = torch.cholesky_solve(right, _factor(gram, tau_theta)).mT
    weights = solution.shape[1] - bias
    return solution[:, :weights].contiguous(), solution[:, weights:].flatten()


def _factor(gram: Tensor, tau_theta: float) -> Tensor:
    """Return the Cholesky factor of gram + I / tau_theta."""
    # Rounding may take away as much as eps times the trace from the smallest eigenvalue: that much is added.
    gram.diagonal().add_(torch.finfo(gram.dtype).eps * gram.trace() + 1 / tau_theta)
    return torch.linalg.cholesky_ex(gram).L


def _optimizer(model: nn.Module, options: dict[str, Any]) -> torch.optim.Optimizer:
    shared = {"lr": options["lr"], "weight_decay": options["weight_decay"], "fused": True}
    if options["optimizer"] == "adam":
        return torch.optim.Adam(model.parameters(), **shared)
    momentum = options["momentum"]
    return torch.optim.SGD(model.parameters(), momentum=momentum, nesterov=momentum > 0, **shared)


class ProxProp(OptimizerMethod):
    """A forward pass, backprop's gradients at the outputs of all layers, and an implicit step for each hidden one.

    options: the factory's arguments; see `proxprop`.
    """

    loss = AdaptedLoss()

    def __init__(self, model: nn.Module, options: dict[str, Any]):
        self.layers = layers_of(model, "proxprop", ACTIVATIONS)
        super().__init__(model, options, _optimizer(model, options))
        self.loss = options["loss"] or nn.CrossEntropyLoss()
        self.activations = [map_of(layer.activation) for layer in self.layers if layer.activation is not None]

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor, *, context: Context = LOCAL) -> LossOnly:
        """Take one mini-batch. ValueError or TypeError if it does not fit the model, `Diverged` if loss or weights
        would not be finite; then nothing has changed."""
        check_batch(self.layers, self.model, x, y)
        self.optimizer.zero_grad()
        loss, inputs, deltas = self.backward(x, y, context)
        for l, direction in self.directions(inputs, deltas, context).items():
            for p, grad in zip(self.layers[l].linear.parameters(), direction, strict=False):
                # a fused optimizer takes a gradient to lie in memory as its weight does
                p.grad = grad if grad.stride() == p.stride() else torch.empty_like(p).copy_(grad)
        demand_step(loss, self.optimizer)
        self.optimizer.step()
        return LossOnly(loss)

    def backward(
        self, x: Tensor, y: Tensor, context: Context = LOCAL
    ) -> tuple[Tensor, list[Tensor], dict[int, Tensor]]:
        """Return the loss, the input a_{l-1} of every layer, and dloss/dz_l from the lowest trained layer upwards."""
        inputs, saved, z = [x.flatten(1)], [], x
        for l, layer in enumerate(self.layers):
            z = products.linear(inputs[-1], layer.linear.weight, layer.linear.bias)
            if l < len(self.activations):
                a, state = self.activations[l].forward((), z)
                inputs.append(a)
                saved.append(state)
        known = of_batch(self.loss, context)
        loss, delta, _ = known.at(z, known.prepare(z, y))
        deltas = {len(self.layers) - 1: delta}
        lowest = next((l for l, layer in enumerate(self.layers) if layer.trained), len(self.layers))
        for l in reversed(range(lowest, len(self.activations))):
            above = products.matmul(deltas[l + 1], self.layers[l + 1].linear.weight)
            deltas[l] = self.activations[l].vjp((), saved[l], above)
        return loss, inputs, deltas

    def directions(
        self, inputs: list[Tensor], deltas: dict[int, Tensor], context: Context = LOCAL
    ) -> dict[int, tuple[Tensor, Tensor]]:
        """Return the directions that weight and bias of each trained layer move against: of a hidden layer the implicit
        step divided by tau, of the output layer the gradient.

        A^T A and A^T delta of samples that are spread over ranks are summed over them, in one message, and solved on
        each; they have the size of the inputs of a layer. In one process the smaller of A^T A and A A^T is factorised.
        """
        tau_theta, ready = self.options["tau_theta"], {len(self.layers) - 1}
        result: dict[int, tuple[Tensor, Tensor]] = {}
        for l, delta in deltas.items():
            a, bias = inputs[l], self._biased(l)
            if not self.layers[l].trained:
                continue
            if l in ready:
                result[l] = products.matmul(delta.mT, a), delta.sum(0)
            elif context.shard is None and len(a) <= a.shape[1] + bias:
                result[l] = among_samples(a, delta, bias, tau_theta)
                ready.add(l)
            else:
                result[l] = normal(a, delta, bias)
        return {
            l: (a, b) if l in ready else solved(a, b, self._biased(l), tau_theta)
            for l, (a, b) in sum_tree(result, context).items()
        }

    def _biased(self, l: int) -> bool:
        return self.layers[l].linear.bias is not None


@register("proxprop")
def proxprop(
    model: nn.Module,
    lr: float = 1e-3,
    tau_theta: float = 0.005,
    optimizer: str = "adam",
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    loss: LossFunction | None = None,
) -> ProxProp:
    """Minimises a quadratic penalty energy: a forward pass, explicit steps on activations from the output down, then an
    implicit (proximal) step on the weights of each hidden layer and an explicit one on those of the output layer.

    lr: the optimizer's; with "sgd" and momentum 0 it is tau, the length of explicit steps, and the step is the paper's
    algorithm. tau_theta: the length of the implicit steps, on sums over the mini-batch; towards 0 they become those of
    gradient descent. optimizer: what the directions are handed to, "adam" or "sgd" with Nesterov's momentum.

    Frerix, Moellenhoff, Moeller, Cremers 2018, "Proximal Backpropagation".
    """
    options = without_model(locals())
    if optimizer not in OPTIMIZERS:
        raise unknown("optimizer of proxprop,", optimizer, OPTIMIZERS)
    return ProxProp(model, options)
