"""Backprop with torch's Muon on the matrices of hidden layers, and AdamW on all other parameters."""

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from altmin.core.weights.decay import groups, undecayed
from altmin.methods.backprop import Backprop
from altmin.methods.protocol import register


class MuonAdamW(AdamW):
    """Pair of torch's optimizers in one, so that a scheduler and a checkpoint have one to do with.

    A group that has `ns_steps` takes the step of `torch.optim.Muon`, with weights of convolutions as matrices (output
    channels, all else); any other that of `torch.optim.AdamW`. params: groups, those for Muon with all of its options.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        groups = self.param_groups
        self.param_groups = [group for group in groups if "ns_steps" not in group]
        loss = super().step(closure)
        self.param_groups = groups
        for group in groups:
            if "ns_steps" in group:
                self._muon([p for p in group["params"] if p.grad is not None], group)
        return loss

    def _muon(self, params: list[Tensor], group: Mapping[str, Any]) -> None:
        from torch.optim._muon import muon

        for p in params:
            if not self.state[p]:  # Adam asks every state that it loads for its step
                self.state[p] |= {"step": torch.zeros(()), "momentum_buffer": torch.zeros_like(p)}
        tensors = [*params, *(self.state[p]["momentum_buffer"] for p in params)]
        matrices = [t.reshape(len(t), -1) for t in tensors]
        grads = [p.grad.reshape(len(p), -1) for p in params if p.grad is not None]
        options = {name: group[name] for name in _defaults()}
        muon(matrices[: len(params)], grads, matrices[len(params) :], has_complex=False, **options)
        for t, matrix in zip(tensors, matrices, strict=True):
            if matrix.data_ptr() != t.data_ptr():  # a copy, as of channels that lie last
                t.copy_(matrix.view_as(t))


@functools.cache
def _defaults() -> dict[str, Any]:
    """Return the options of this version's `torch.optim.Muon`, with the length of AdamW's steps."""
    options: dict[str, Any] = torch.optim.Muon([torch.zeros(1, 1)], adjust_lr_fn="match_rms_adamw").defaults
    return options


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """Return the trained weights of a model that are matrices or convolutions, but for those of embeddings, of
    normalisation and of the last layer that has any.

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
    numbers = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
    matrices = hidden_matrices(model)
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    parts = [{**_defaults(), **numbers, "params": matrices}] * bool(matrices)
    parts += groups(others, () if decay_biases else undecayed(model))
    return Backprop(model, MuonAdamW(parts, lr, weight_decay=weight_decay), loss, clip_norm)
