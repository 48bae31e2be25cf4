"""Backprop with torch's Muon on the matrices of hidden layers, and AdamW on all other parameters."""

import functools
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.adamw import adamw

from altmin.common.errors import demand_fraction
from altmin.core.weights.adam_sgd import BETAS, EPS
from altmin.core.weights.decay import groups, undecayed
from altmin.methods.backprop import Backprop, parameter_groups
from altmin.methods.protocol import register


class MuonAdamW(Optimizer):
    """Two of torch's optimizers in one, so that a scheduler and a checkpoint have one to do with.

    A group that has `ns_steps` takes the step of `torch.optim.Muon`, with weights of convolutions as matrices (output
    channels, all else); any other that of `torch.optim.AdamW`. params: groups, those for Muon with all of its options.
    """

    def __init__(self, params: Any, lr: float, weight_decay: float):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "betas": BETAS, "eps": EPS})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            if moved and "ns_steps" in group:
                self._muon(moved, group)
            elif moved:
                adamw_step(self.state, moved, group)
        return loss

    def _muon(self, params: list[Tensor], group: Mapping[str, Any]) -> None:
        from torch.optim._muon import muon

        matrices = [p.reshape(len(p), -1) for p in params]
        for p, matrix in zip(params, matrices, strict=True):
            if not self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(matrix)
        grads = [p.grad.reshape(len(p), -1) for p in params if p.grad is not None]
        momenta = [self.state[p]["momentum_buffer"] for p in params]
        muon(matrices, grads, momenta, has_complex=False, **{name: group[name] for name in _defaults()})
        for p, matrix in zip(params, matrices, strict=True):
            if matrix.data_ptr() != p.data_ptr():  # a copy, as of channels that lie last
                p.copy_(matrix.view_as(p))


def adamw_step(state: MutableMapping[Tensor, Any], params: list[Tensor], group: Mapping[str, Any]) -> None:
    """A step of torch.optim.AdamW on parameters of a group with these options, and its state of each."""
    for p in params:
        if not state[p]:
            state[p] |= {"step": torch.tensor(0.0), "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
    adamw(
        params,
        [p.grad for p in params if p.grad is not None],
        [state[p]["exp_avg"] for p in params],
        [state[p]["exp_avg_sq"] for p in params],
        [],
        [state[p]["step"] for p in params],
        amsgrad=False,
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        lr=group["lr"],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        maximize=False,
    )


@functools.cache
def _defaults() -> dict[str, Any]:
    """The options of this version's `torch.optim.Muon`, with the length of AdamW's steps."""
    options: dict[str, Any] = torch.optim.Muon([torch.zeros(1, 1)], adjust_lr_fn="match_rms_adamw").defaults
    return options


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """The trained weights of a model that are matrices or convolutions, but for those of embeddings, of normalisation
    and of the last layer that has any.

    >>> net = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 3), nn.LayerNorm((5, 3)), nn.Linear(3, 2))
    >>> [tuple(p.shape) for p in hidden_matrices(net)]
    [(3, 4)]
    """
    spared = undecayed(model)
    for m in model.modules():
        if isinstance(m, nn.Embedding | nn.EmbeddingBag):
            spared.add(id(m.weight))
    matrices = [p for p in model.parameters() if p.requires_grad and p.numel() and p.ndim > 1 and id(p) not in spared]
    return matrices[:-1]


@register("muon")
def muon(
    model: nn.Module,
    lr: float = 1e-3,
    weight_decay: float = 0.1,
    momentum: float = 0.95,
    loss: nn.Module | None = None,
    clip_norm: float | None = None,
    decay_biases: bool = True,
) -> Backprop:
    """Backprop with torch.optim.Muon on the matrices of hidden layers: the momentum's singular values are brought to
    about one, by Newton-Schulz iterations in bfloat16. An entry moves by 0.2 lr in the mean square, as with AdamW
    ("match_rms_adamw"). Embeddings, normalisation, biases and the output layer move by AdamW with the same lr. Weight
    decay is decoupled. momentum: Nesterov's. clip_norm, decay_biases: as in `adam`.

    Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; Liu et al. 2025, "Muon is Scalable
    for LLM Training"."""
    if not hasattr(torch.optim, "Muon"):
        given = torch.__version__
        raise ValueError(f"muon needs torch.optim.Muon, which torch {given} lacks; install torch 2.11 or newer")
    demand_fraction("muon", momentum=momentum)
    numbers = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
    parameter_groups("muon", model, decay_biases, **numbers)
    matrices = hidden_matrices(model)
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    parts = [{**_defaults(), **numbers, "params": matrices}] * bool(matrices)
    parts += groups(others, () if decay_biases else undecayed(model))
    return Backprop(model, MuonAdamW(parts, lr, weight_decay), loss, clip_norm)
