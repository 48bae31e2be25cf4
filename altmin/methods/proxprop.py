"""ProxProp: backprop that moves the weights of each hidden layer by an implicit instead of an explicit step.

With z_l = W_l a_{l-1} + b_l and a_l = s(z_l), ProxProp descends, one variable after the other,

    E = loss(W_L a_{L-1} + b_L, y) + gamma / 2 sum_l |s(z_l) - a_l|^2 + rho / 2 sum_l |W_l a_{l-1} + b_l - z_l|^2

from the point that a forward pass finds, with gamma = rho = 1 / tau. Explicit steps of length tau, from the output down,
bring a_l and z_l to a_l - tau dloss/da_l and z_l - tau dloss/dz_l: they carry backprop's gradients. The weights
theta_l = (W_l, b_l) follow by an implicit step on the last term,

    theta_l <- argmin 1/2 |theta (a_{l-1}, 1) - (z_l - tau dloss/dz_l)|^2 + 1 / (2 tau_theta) |theta - theta_l|^2
             = theta_l - tau (dloss/dtheta_l) (A^T A + I / tau_theta)^-1,

in which the rows of A are (a_{l-1}, 1) of every sample. What is multiplied by tau is a direction of descent of the loss.
It is handed to a torch optimizer as if it were the gradient, with tau as the learning rate. The output layer, which the
loss itself follows, takes an explicit step.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from altmin.calculus import CLOSED_FORMS, Elementwise, Linear, ReLU, map_of, products
from altmin.errors import demand, unknown
from altmin.losses import LossFunction, adapt
from altmin.methods.backprop import LossOnly
from altmin.methods.layered import check_batch, demand_step, layers_of, options_text
from altmin.methods.protocol import register
from altmin.state import check_optimizer, demand_entries, load_optimizer

ACTIVATIONS = [kind for kind, form in CLOSED_FORMS.items() if issubclass(form, ReLU | Elementwise)]
SOLVERS = ("cholesky", "cg")
OPTIMIZERS = ("adam", "sgd")


def by_cholesky(A: Tensor, delta: Tensor, tau_theta: float, wide: bool | None = None) -> Tensor:
    """delta^T A (A^T A + I / tau_theta)^-1, for A of shape (samples, inputs) and delta of (samples, outputs).

    wide: whether to factorise the matrix of samples instead of that of inputs, by (A^T A + c I)^-1 A^T = A^T (A A^T +
    c I)^-1; None for the smaller of the two.
    """
    samples, inputs = A.shape
    if samples <= inputs if wide is None else wide:
        return products.matmul(torch.cholesky_solve(delta, _factor(A @ A.mT, tau_theta)).mT, A)
    return torch.cholesky_solve(products.matmul(A.mT, delta), _factor(A.mT @ A, tau_theta)).mT.contiguous()


def _factor(gram: Tensor, tau_theta: float) -> Tensor:
    """The Cholesky factor of gram + I / tau_theta."""
    # Rounding may take away as much as eps times the trace from the smallest eigenvalue: that much is added.
    rounding = torch.finfo(gram.dtype).eps * gram.trace()
    gram.diagonal().add_(rounding + 1 / tau_theta)
    return torch.linalg.cholesky_ex(gram).L


def by_cg(A: Tensor, delta: Tensor, tau_theta: float, steps: int) -> Tensor:
    """As `by_cholesky`, after some iterations of conjugate gradients for each output, which start at zero."""
    residual = products.matmul(delta.mT, A)
    found, direction = torch.zeros_like(residual), residual
    square = residual.square().sum(1, keepdim=True)
    tiny = torch.finfo(A.dtype).tiny
    for _ in range(steps):
        image = torch.add(products.matmul(products.matmul(direction, A.mT), A), direction, alpha=1 / tau_theta)
        length = square / (direction * image).sum(1, keepdim=True).clamp_min(tiny)  # a residual of 0 stays 0
        found = torch.addcmul(found, length, direction)
        residual = torch.addcmul(residual, length, image, value=-1)
        before, square = square, residual.square().sum(1, keepdim=True)
        direction = torch.addcmul(residual, square / before.clamp_min(tiny), direction)
    return found


class ProxProp:
    """A forward pass, backprop's gradients at the outputs of all layers, and an implicit step for each hidden one.

    options: what the factory was given; see `proxprop`.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, options: dict[str, Any]):
        self.model, self.optimizer, self.options = model, optimizer, options
        self.layers = layers_of(model, "proxprop", ACTIVATIONS)
        self.loss = adapt(options["loss"] or nn.CrossEntropyLoss())
        self._lowest = next(l for l, layer in enumerate(self.layers) if layer.trained)

    def __repr__(self) -> str:
        return options_text(self)

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor) -> LossOnly:
        """One mini-batch. ValueError or TypeError if it does not fit the model, `Diverged` if loss or weights would not
        be finite; then nothing has changed."""
        check_batch(self.model, self.loss, x, y)
        loss, inputs, deltas = self.backward(x, y)
        for l, layer in enumerate(self.layers):
            if layer.trained:
                weight, bias = self.direction(l, inputs[l], deltas[l])
                layer.linear.weight.grad = weight
                if layer.linear.bias is not None:
                    layer.linear.bias.grad = bias
        demand_step(loss, self.optimizer)
        self.optimizer.step()
        return LossOnly(loss)

    def backward(self, x: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """The loss, the input a_{l-1} of each layer and the gradient dloss/dz_l; empty below the first trained one."""
        maps = [(map_of(layer.linear), layer.activation and map_of(layer.activation)) for layer in self.layers]
        inputs, kept, a = [], [], x.flatten(1)
        for linear, activation in maps:
            inputs.append(a)
            a, _ = linear.forward(tuple(linear.module.parameters()), a)
            if activation is not None:
                a, saved = activation.forward((), a)
                kept.append(saved)
        loss, delta, _ = self.loss.at(a, self.loss.prepare(a, y))
        deltas = [delta]
        for l in range(len(maps) - 1, self._lowest, -1):
            below = maps[l - 1][1]
            assert below is not None
            v = maps[l][0].vjp((self.layers[l].linear.weight,), inputs[l], deltas[0])
            deltas.insert(0, below.vjp((), kept[l - 1], v))
        return loss, inputs, [x.new_empty(0)] * self._lowest + deltas

    def direction(self, l: int, a: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        """What layer l's weight and bias are to move against, given its input and the gradient at its output: for a
        hidden layer the implicit step divided by tau, for the last one the gradient."""
        biased = self.layers[l].linear.bias is not None
        if l == len(self.layers) - 1:
            return products.matmul(delta.mT, a), delta.sum(0)
        A = F.pad(a, (0, 1), value=1.0) if biased else a
        tau_theta = self.options["tau_theta"]
        if self.options["solver"] == "cg":
            found = by_cg(A, delta, tau_theta, self.options["cg_steps"])
        else:
            found = by_cholesky(A, delta, tau_theta)
        return (found[:, :-1].contiguous(), found[:, -1].contiguous()) if biased else (found, delta.new_empty(0))

    def end_epoch(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict()}

    def check_state(self, state: Any) -> None:
        """ValueError unless `load_state_dict` can take the state: then it takes all of it."""
        demand_entries(state, ("optimizer",), "a ProxProp")
        check_optimizer(self.optimizer, state["optimizer"], complete=True)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from another's `state_dict`; one that does not fit is a ValueError, and nothing changes."""
        self.check_state(state)
        load_optimizer(self.optimizer, state["optimizer"])


@register("proxprop")
def proxprop(
    model: nn.Module,
    lr: float = 1e-3,
    tau_theta: float = 0.05,
    solver: str = "cholesky",
    cg_steps: int = 3,
    optimizer: str = "adam",
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    loss: LossFunction | None = None,
) -> ProxProp:
    """Minimises a quadratic penalty energy: a forward pass, explicit steps on activations from the output down, then an
    implicit (proximal) step on the weights of each hidden layer and an explicit one on those of the output layer.

    lr: the optimizer's; with "sgd" and momentum 0 it is tau, the length of explicit steps, and the step is the paper's
    algorithm. tau_theta: the length of the implicit steps, on sums over the mini-batch; towards 0 they become those of
    gradient descent. solver: of the implicit steps, "cholesky" (exact) or "cg", so many iterations of conjugate
    gradients. optimizer: what the directions are handed to, "adam" or "sgd" with Nesterov's momentum.

    Frerix, Moellenhoff, Moeller, Cremers 2018, "Proximal Backpropagation".
    """
    options = dict(locals())
    del options["model"]
    for name in ("lr", "weight_decay", "momentum"):
        demand("proxprop", name, options[name])
    demand("proxprop", "tau_theta", tau_theta, above=True)
    demand("proxprop", "cg_steps", cg_steps, low=1, whole=True)
    if solver not in SOLVERS:
        raise unknown("solver of proxprop,", solver, SOLVERS)
    if optimizer not in OPTIMIZERS:
        raise unknown("optimizer of proxprop,", optimizer, OPTIMIZERS)
    layers_of(model, "proxprop", ACTIVATIONS)
    if optimizer == "adam":
        chosen: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr, weight_decay=weight_decay)
    else:
        nesterov = momentum > 0
        chosen = torch.optim.SGD(model.parameters(), lr, momentum, weight_decay=weight_decay, nesterov=nesterov)
    return ProxProp(model, chosen, options)
