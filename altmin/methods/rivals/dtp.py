"""Difference target propagation: every layer has a target, not a gradient, by learned inverses of the layers.

A hidden layer l keeps a continuous state s_l and sends a message m_l to the layer above:

    s_l = state(W_l m_{l-1} + b_l),    m_l = message(s_l),    m_0 = x.

For Tanh, Sigmoid and ReLU the message is the state. For `Sign` and `Staircase` the state is tanh of the pre-activation
and the message one of the levels, so that layers exchange discrete values and nothing is differentiated through them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from altmin.calculus import products
from altmin.calculus.context import LOCAL, Context, sum_tree
from altmin.common.errors import Diverged
from altmin.common.state import matched
from altmin.core.losses import AdaptedLoss, LossFunction
from altmin.core.reweighted import of_batch
from altmin.layers import Sign, Staircase, Stepwise
from altmin.methods.base import LossOnly, OptimizerMethod, without_model
from altmin.methods.protocol import register
from altmin.methods.rivals.layers import Layer, check_batch, layers_of

TANH = torch.tanh, torch.ops.aten.tanh_backward
STATES: dict[type[nn.Module], tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    nn.Tanh: TANH,
    nn.Sigmoid: (torch.sigmoid, torch.ops.aten.sigmoid_backward),
    nn.ReLU: (torch.relu, lambda v, s: torch.ops.aten.threshold_backward(v, s, 0)),
    Sign: TANH,
    Staircase: TANH,
}
"""Functions by the activation: the state at a pre-activation, and (v, s) -> v times its derivative, at the state s."""


class Units:
    """Units of a hidden layer. module: the activation in the model, from pre-activations to messages."""

    def __init__(self, module: nn.Module):
        self.module: Any = module
        self.discrete = isinstance(module, Stepwise)

    def state(self, z: Tensor) -> Tensor:
        return STATES[type(self.module)][0](z)

    def vjp(self, v: Tensor, s: Tensor) -> Tensor:
        return STATES[type(self.module)][1](v, s)

    def message(self, s: Tensor) -> Tensor:
        """Return the message at a state, or at one that noise or a target has moved."""
        if not self.discrete:
            return s
        largest = 1 - torch.finfo(s.dtype).eps
        return self.module.values(s.clamp(-largest, largest).atanh())

    def both(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the state and the message at a pre-activation; the message is exactly the module's output."""
        s = self.state(z)
        return s, self.module.values(z) if self.discrete else s


class Encoded(NamedTuple):
    """A batch in the network: the inputs m_0, ..., m_{L-1} of all layers, the states s_1, ..., s_{L-1} of hidden ones,
    and the output."""

    inputs: list[Tensor]
    states: list[Tensor]
    output: Tensor


def affine(linear: nn.Linear, x: Tensor, context: Context) -> Tensor:
    return products.linear(x, linear.weight, linear.bias)


def affine_gradient(linear: nn.Linear, x: Tensor, v: Tensor, context: Context) -> list[Tensor]:
    """Return the gradient of <v, W x + b> for each parameter of the layer."""
    return [products.matmul(v.mT, x), v.sum(0)][: 1 if linear.bias is None else 2]


def encode(layers: Sequence[Layer], units: Sequence[Units], x: Tensor, context: Context = LOCAL) -> Encoded:
    """Compute the forward pass of the model, with states beside messages."""
    inputs, states = [x], []
    for layer, kind in zip(layers, units, strict=False):
        s, m = kind.both(affine(layer.linear, inputs[-1], context))
        states.append(s)
        inputs.append(m)
    return Encoded(inputs, states, affine(layers[-1].linear, inputs[-1], context))


def targets(states: Sequence[Tensor], inverses: Sequence[Callable[[Tensor], Tensor]], top: Tensor) -> list[Tensor]:
    """Return targets of these states, from that of the last one downwards: t_{l-1} = s_{l-1} - g_l(s_l) + g_l(t_l).

    inverses: g_l for every state but the first. Where g_l is not an exact inverse, the difference still leaves a state
    alone that has nothing to gain: t_l = s_l gives t_{l-1} = s_{l-1}.
    """
    result = [top]
    for s_below, s, g in zip(reversed(states[:-1]), reversed(states[1:]), reversed(inverses), strict=True):
        result.append(s_below + (g(result[-1]) - g(s)))
    return result[::-1]


def state_gradient(
    linear: nn.Linear, units: Units, x: Tensor, s: Tensor, t: Tensor, context: Context = LOCAL
) -> list[Tensor]:
    """Return the gradient of the mean over samples of |s - t|^2, s = state(W x + b), for each parameter of a layer."""
    return affine_gradient(linear, x, units.vjp((s - t).mul_(2 / context.count(len(s))), s), context)


class Inverse(nn.Linear):
    """Inverse g(s) = state(V s + c): from the states of a layer to those of the layer below, whose units these are."""

    def __init__(self, layer: Layer, below: Units):
        weight = layer.linear.weight
        super().__init__(layer.linear.out_features, layer.linear.in_features, device=weight.device, dtype=weight.dtype)
        nn.init.xavier_normal_(self.weight)
        nn.init.zeros_(self.bias)
        self.below = below

    def forward(self, s: Tensor, context: Context = LOCAL) -> Tensor:
        return self.below.state(affine(self, s, context))

    def gradient(self, layer: Layer, units: Units, s_below: Tensor, context: Context = LOCAL) -> list[Tensor]:
        """Return the gradient of the mean over samples of |g(f(s_below)) - s_below|^2 for V and c, where f is the layer
        that g inverts; s_below is a state with noise added."""
        s = units.state(affine(layer.linear, self.below.message(s_below), context))
        return state_gradient(self, self.below, s, self(s, context), s_below, context)


class DifferenceTargetPropagation(OptimizerMethod):
    """Method of `dtp`. inverses: g_l of the layers above the lowest one that is trained, from below."""

    loss = AdaptedLoss()

    def __init__(self, model: nn.Module, options: dict[str, Any]):
        self.eta, self.noise = options["eta"], options["noise"]
        self.loss = options["loss"] or nn.CrossEntropyLoss()
        self.layers = layers_of(model, "dtp", STATES)
        self.units = [Units(layer.activation) for layer in self.layers[:-1] if layer.activation]
        if self.units and self.units[-1].discrete:
            raise TypeError(
                "the target of the last hidden layer is a step along the gradient of the loss, so its activation has "
                f"to have a derivative; {type(self.units[-1].module).__name__} has none, put it into a layer below"
            )
        self.lowest = next(l for l, layer in enumerate(self.layers) if layer.trained)
        above = zip(self.layers[self.lowest + 1 : -1], self.units[self.lowest :], strict=False)
        self.inverses = nn.ModuleList(Inverse(layer, below) for layer, below in above)
        forward = [p for layer in self.layers if layer.trained for p in layer.linear.parameters()]
        inverse = {"params": list(self.inverses.parameters()), "lr": options["lr_inverse"]}
        super().__init__(model, options, torch.optim.RMSprop([{"params": forward, "lr": options["lr"]}, inverse]))

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor, *, context: Context = LOCAL) -> LossOnly:
        """Take one step of all weights and of all inverses; `Diverged`, and nothing has changed, if a gradient is not
        finite."""
        check_batch(self.layers, self.model, x, y)
        at = encode(self.layers, self.units, x.flatten(1), context)
        loss = of_batch(self.loss, context)
        value, delta, _ = loss.at(at.output, loss.prepare(at.output, y))
        gradients = self.weight_gradients(at, delta, loss.samples(at.output), context)
        for l, inverse in enumerate(self.inverses, self.lowest + 1):
            below = at.states[l - 1]
            noise = context.draw(below.shape, lambda shape: at.output.new_empty(shape).normal_())
            noisy = noise.mul_(self.noise).add_(below)
            gradients += inverse.gradient(self.layers[l], self.units[l], noisy, context)  # type: ignore[operator]
        gradients = sum_tree(gradients, context)
        sizes = [torch.linalg.vector_norm(g) for g in gradients]
        if not bool(torch.stack([value, *sizes]).isfinite().all()):
            raise Diverged("the loss" if not bool(value.isfinite()) else "a gradient", "lower the learning rate")
        params = [p for group in self.optimizer.param_groups for p in group["params"]]
        for p, g in zip(params, gradients, strict=True):
            p.grad = g
        self.optimizer.step()
        self.optimizer.zero_grad()
        return LossOnly(value)

    def weight_gradients(self, at: Encoded, delta: Tensor, samples: float, context: Context = LOCAL) -> list[Tensor]:
        """Return the gradients of all trained layers, in their order, each of its own layer's loss. delta: the
        gradient of the mean loss at the output; a target moves by its own sample's loss, `samples` times as much."""
        output, hidden = self.layers[-1], range(self.lowest, len(self.units))
        gradients = []
        if hidden:
            pulled = products.matmul(delta, output.linear.weight)
            top = at.states[-1] - pulled.mul_(self.eta * samples)
            inverses = [partial(g, context=context) for g in self.inverses]
            wanted = targets(at.states[self.lowest :], inverses, top)
            for l, t in zip(hidden, wanted, strict=True):
                if (layer := self.layers[l]).trained:
                    gradients += state_gradient(layer.linear, self.units[l], at.inputs[l], at.states[l], t, context)
        return gradients + (affine_gradient(output.linear, at.inputs[-1], delta, context) if output.trained else [])

    def state_dict(self) -> dict[str, Any]:
        return {"inverses": self.inverses.state_dict(), **super().state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from another's `state_dict`; one that does not fit is a ValueError, and nothing changes."""
        inverses = matched(state.get("inverses"), self.inverses.state_dict(), "inverses")
        super().load_state_dict(state)
        self.inverses.load_state_dict(inverses)


@register("dtp")
def dtp(
    model: nn.Module,
    lr: float = 1e-3,
    lr_inverse: float = 1e-3,
    eta: float = 1.0,
    noise: float = 0.3,
    loss: LossFunction | None = None,
) -> DifferenceTargetPropagation:
    """Difference target propagation (Lee, Zhang, Fischer and Bengio, 2015, "Difference Target Propagation").

    Minimises |s_l - t_l|^2 in every hidden layer, the loss in the output layer, and in the inverses g_l, which are
    learned, |g_l(f_l(s_{l-1} + e)) - (s_{l-1} + e)|^2: per mini-batch first the targets from the last hidden layer,
    t = s - eta d(loss)/ds, downwards, t_{l-1} = s_{l-1} - g_l(s_l) + g_l(t_l); then one RMSprop step of all together.

    lr, lr_inverse: of the weights and of the inverses. eta: how far the last target goes along the gradient of a
    sample's own loss. noise: the standard deviation of e. Hidden activations are Tanh, Sigmoid or ReLU, and below
    the last one also `Sign` and `Staircase`, without a straight-through estimator.
    """
    return DifferenceTargetPropagation(model, without_model(locals()))
