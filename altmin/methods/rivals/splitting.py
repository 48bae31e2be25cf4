"""Full-batch training of a network that is split into a pre-activation and an activation of every layer and sample."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from altmin.calculus.context import LOCAL, Context
from altmin.common.errors import Diverged
from altmin.common.state import matched, overwrite
from altmin.core.losses import IGNORED, CrossEntropy
from altmin.core.weights.sums import Sums
from altmin.methods.base import LossOnly, options_text
from altmin.methods.rivals.layers import Layer, check_batch, layers_of
from altmin.methods.rivals.per_sample import (
    Table,
    demand_whole_pass,
    over_ranks,
    own_rows,
    part_of_state,
    whole_state,
)
from altmin.methods.rivals.proximal import CLAMPS, clamp_of, output_prox, preactivations


class Penalties(NamedTuple):
    """The weights of `Splitting`'s terms: for every layer rho, and for every hidden layer gamma and alpha."""

    rho: Sequence[float]
    gamma: Sequence[float]
    alpha: Sequence[float]


class Fixed(NamedTuple):
    """Constants of a pass: weights and biases, and for every hidden layer the matrix K of `_move`."""

    weights: list[Tensor]
    biases: Sequence[Tensor | None]
    gains: list[Tensor]

    def linear(self, l: int, a: Tensor) -> Tensor:
        return nn.functional.linear(a, self.weights[l], self.biases[l])


class Splitting:
    """Block descent, one block after the other, on the sum over samples of

        output term + sum_l rho_l / 2 (|z_l - W_l a_(l-1) - b_l|^2 + ridge |[W_l, b_l]|^2)
                    + sum_(l<L) gamma_l / 2 |a_l - h(z_l)|^2,       a_0 = x,

    with variables z_l, a_l for every sample. One pass over the data is one iteration. `step` moves the variables of
    its samples with the weights fixed: the output's, then a_l and z_l from the last hidden layer to the first. Samples
    do not see each other there, so a pass in parts is the pass as a whole. `end_epoch` fits the weights of all layers
    by least squares, for which `step` has summed what is needed. Hidden z_l and weights may stay close to their old
    values, by alpha_l / 2 |z_l - old|^2 and proximal / 2 |[W_l, b_l] - old|^2.

    The variables start with a forward pass of the model with its weights times `start`, which count as the weights of
    the first pass; frozen layers keep theirs. Under `Distributed` all ranks are given all samples of a batch, and each
    moves those whose number in the data, modulo the number of ranks, is its own. A subclass has the output term and
    the variable `extra` of outputs.
    """

    takes_rows = True
    optimizer = None
    extra: str
    """The name of a variable for every sample that has the output's shape."""

    def __init__(
        self,
        name: str,
        model: nn.Module,
        options: Mapping[str, Any],
        penalties: Penalties,
        ridge: float = 0.0,
        proximal: float = 0.0,
    ):
        self.model, self.options, self.penalties = model, dict(options), penalties
        self.ridge, self.proximal, self.start = ridge, proximal, float(options["start"])
        self.prox, self.reported = output_prox(options["loss"]), CrossEntropy()
        self.layers = layers_of(model, name, CLAMPS)
        self.activations = [clamp_of(layer.activation) for layer in self.layers if layer.activation is not None]
        widths = [layer.linear.out_features for layer in self.layers]
        self.names = [f"z{l + 1}" for l in range(len(widths))] + [f"a{l + 1}" for l in range(len(widths) - 1)]
        first = self.layers[0].linear.weight
        self.table = Table(
            dict(zip([*self.names, self.extra], [*widths, *widths[:-1], widths[-1]], strict=True)), first
        )
        self.sums = [_sums(layer) for layer in self.layers]
        self.passes = 0
        self._fixed: Fixed | None = None

    def __repr__(self) -> str:
        return options_text(self)

    @property
    def depth(self) -> int:
        return len(self.layers)

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor, rows: Tensor | None = None, *, context: Context = LOCAL) -> LossOnly:
        """Move the variables of a batch, those of new samples from where the model puts them.

        rows: the samples' numbers in the data; without them the batch is all of it. The loss is the mean cross-entropy
        of the model, whose weights move in `end_epoch`. ValueError or TypeError, and no change, for a bad batch.
        """
        check_batch(self.layers, self.model, x, y)
        if y.dtype != torch.int64 or bool((y == IGNORED).any()):
            raise ValueError(f"{type(self).__name__} takes a label from 0 on for every sample, given others")
        rows = self.table.find(rows, len(x))
        length = int(rows.max()) + 1
        if context.shard is not None:
            mask = own_rows(length, context.shard, rows.device)[rows]
            x, y, rows = x[mask], y[mask], rows[mask]
        x = x.flatten(1)
        fixed = self._fixed = self._fixed or self._fix()
        m = self.layers[0].linear(x)
        loss = self._reported_loss(m, y)
        new = self.table.new(rows)
        m = m if self._scale(self.layers[0]) == 1 else fixed.linear(0, x)
        variables = self._variables(fixed, m, rows, new)
        targets = nn.functional.one_hot(y, self.layers[-1].linear.out_features).to(m.dtype)
        self._move(fixed, m, targets, variables)
        checked = torch.stack([loss, *(value.sum() for value in variables.values())])
        if context.shard is not None:
            total, samples, finite = context.sum_numbers(loss.item() * len(x), len(x), checked.sum().item())
            loss, checked = loss.new_tensor(total / samples), loss.new_tensor(finite)
        if not bool(checked.isfinite().all()):
            raise Diverged("the loss or a variable of a sample", "standardise the input, or change the penalties")
        self._gather(x, variables, new)
        self.table.write(rows, variables, length)
        return LossOnly(loss)

    @torch.no_grad()
    def end_epoch(self, context: Context = LOCAL) -> None:
        """Fit the weights of all layers to the variables. ValueError, and no change, if samples of earlier passes were
        left out; `Diverged`, the weights as they were, if a fit is not finite. Without samples nothing happens."""
        sums, counts = over_ranks(self.sums, *self.table.counts(), context=context)
        if not (seen := demand_whole_pass(*counts)):
            return
        fixed = self._fixed or self._fix()
        fits = {l: self._fit(l, sums[l], fixed, seen) for l, layer in enumerate(self.layers) if layer.trained}
        if not all(bool(part.isfinite().all()) for parts in fits.values() for part in parts):
            raise Diverged("a weight", "raise the ridge or the proximal term")
        for l, (weight, bias) in fits.items():
            linear = self.layers[l].linear
            linear.weight.copy_(weight)
            if linear.bias is not None:
                linear.bias.copy_(bias)
        A = self.sums[0].A
        self.sums = [_sums(layer) for layer in self.layers]
        self.sums[0].A = A  # those of the data, the same in every pass
        self.table.end_pass()
        self.passes += 1
        self._fixed = None

    def _begin(self, z: Tensor) -> Tensor:
        """Return the first value of the extra variable, for outputs z of the model."""
        return z.new_zeros(z.shape)

    def _move_output(self, z: Tensor, extra: Tensor, m: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return z_L and the extra variable once they have moved."""
        raise NotImplementedError

    def _scale(self, layer: Layer) -> float:
        """Return the factor of the model's weights in this pass."""
        return self.start if self.passes == 0 and layer.trained else 1.0

    def _fix(self) -> Fixed:
        """Compute K_l = rho W^T (rho W W^T + gamma I)^-1, with rho and W of layer l + 1, in float64."""
        scales = [(layer.linear, self._scale(layer)) for layer in self.layers]
        weights = [linear.weight.detach() * scale for linear, scale in scales]
        biases = [None if linear.bias is None else linear.bias.detach() * scale for linear, scale in scales]
        gains = []
        for l, weight in enumerate(weights[1:]):
            w = weight.double()
            ratio = self.penalties.rho[l + 1] / self.penalties.gamma[l]
            matrix = ratio * (w.mT @ w)
            matrix.diagonal().add_(1)
            gains.append(torch.cholesky_solve(ratio * w.mT, torch.linalg.cholesky(matrix)).to(weight.dtype))
        return Fixed(weights, biases, gains)

    def _reported_loss(self, m: Tensor, y: Tensor) -> Tensor:
        """Return the mean cross-entropy of the model, from the first layer's pre-activations on; 0 of no samples."""
        for layer, h in zip(self.layers[1:], self.activations, strict=True):
            m = layer.linear(h(m))
        return nn.functional.cross_entropy(m, y) if len(y) else m.new_zeros(())

    def _variables(self, fixed: Fixed, m: Tensor, rows: Tensor, new: Tensor) -> dict[str, Tensor]:
        """Return a copy of the samples' variables, new ones by a forward pass; m: the first layer's pre-activations."""
        if not bool(new.any()):
            return self.table.read(rows)
        z, a = [m], []
        for l, h in enumerate(self.activations):
            a.append(h(z[-1]))
            z.append(fixed.linear(l + 1, a[-1]))
        forward = dict(zip([*self.names, self.extra], [*z, *a, self._begin(z[-1])], strict=True))
        if bool(new.all()):
            return forward
        stored = self.table.read(torch.where(new, 0, rows))
        return {name: torch.where(new.unsqueeze(1), forward[name], stored[name]) for name in forward}

    def _move(self, fixed: Fixed, m: Tensor, targets: Tensor, variables: dict[str, Tensor]) -> None:
        """Move every variable in turn to the minimum of its own problem, from the output down; m: W_1 x + b_1.

        a_l has the minimum h + K_l (z_(l+1) - W_(l+1) h - b_(l+1)) with h = h(z_l).
        """
        last = self.depth - 1
        output = fixed.linear(last, variables[f"a{last}"]) if last else m
        top = f"z{self.depth}"
        variables[top], variables[self.extra] = self._move_output(
            variables[top], variables[self.extra], output, targets
        )
        for l in reversed(range(last)):
            z_name, a_name, above = f"z{l + 1}", f"a{l + 1}", variables[f"z{l + 2}"]
            z, h = variables[z_name], self.activations[l]
            hz = h(z)
            a = torch.addmm(hz, above - fixed.linear(l + 1, hz), fixed.gains[l].mT)
            linear = fixed.linear(l, variables[f"a{l}"]) if l else m
            rho, gamma, alpha = (values[l] for values in self.penalties)
            if alpha:
                linear = torch.lerp(linear, z, alpha / (rho + alpha))
            variables[a_name], variables[z_name] = a, preactivations(h, a, linear, gamma, rho + alpha)

    def _gather(self, x: Tensor, variables: Mapping[str, Tensor], new: Tensor) -> None:
        """Add samples to the sums. Those of the data itself are added once for each sample."""
        for l, (layer, sums) in enumerate(zip(self.layers, self.sums, strict=True)):
            if layer.trained:
                below = variables[f"a{l}"] if l else x
                sums.add(below, variables[f"z{l + 1}"], None if l or bool(new.all()) else below[new])

    def _fit(self, l: int, sums: Sums, fixed: Fixed, samples: int) -> tuple[Tensor, ...]:
        """Return the weight and the bias of the least squares of layer l over all samples, which change nothing yet."""
        parts = [fixed.weights[l], *([] if (bias := fixed.biases[l]) is None else [bias.unsqueeze(1)])]
        proximal = self.proximal / self.penalties.rho[l]
        solved = sums.solve(self.ridge * samples, proximal, torch.cat(parts, 1).double())
        inputs = fixed.weights[l].shape[1]
        return tuple(part.to(fixed.weights[l].dtype) for part in (solved[:, :inputs], solved[:, inputs:].squeeze(1)))

    def state_dict(self, context: Context = LOCAL) -> dict[str, Any]:
        """Return the state of all samples. Where they are spread over ranks, all ranks have to call it."""
        sums = [s.state_dict() for s in self.sums]
        state = {"passes": self.passes, "samples": self.table.state_dict(), "sums": sums}
        return state if context.shard is None else whole_state(state, context)

    def load_state_dict(self, state: dict[str, Any], context: Context = LOCAL) -> None:
        """Continue from another's `state_dict`; one that does not fit is a ValueError, and nothing changes. Where
        samples are spread over ranks, each rank continues with its own."""
        name, sums = type(self).__name__, [s.state_dict() for s in self.sums]
        if set(state) != {"passes", "samples", "sums"}:
            raise ValueError(f"this is no state of {name}: {state!r:.60}")
        samples = self.table.matched(state["samples"], f"samples of {name}")
        new = matched({**state, "samples": 0}, {"passes": 0, "samples": 0, "sums": sums}, name) | {"samples": samples}
        new = new if context.shard is None else part_of_state(new, context.shard)
        self.passes, self._fixed = new["passes"], None
        self.table.set_state(new["samples"])
        overwrite(sums, new["sums"])


def _sums(layer: Layer) -> Sums:
    linear = layer.linear
    if not layer.trained:
        return Sums(0, 0, False, linear.weight.device)
    return Sums(linear.in_features, linear.out_features, linear.bias is not None, linear.weight.device)
