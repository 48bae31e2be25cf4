"""The cells of `nn.RNN`, `nn.GRU` and `nn.LSTM` from their formulas, in float64, one sequence and step at a time."""

import torch
from torch import Tensor, nn

KINDS = [nn.RNN, nn.GRU, nn.LSTM]
F64 = torch.float64


def codes_of(kind: type, p: list[Tensor], x_t: Tensor, h: Tensor) -> Tensor:
    """c_t from x_t and h_{t-1}; of a GRU the two products in its candidate are codes of their own."""
    U, W, b, b2 = p
    x, s = U @ x_t + b, W @ h + b2
    if kind is nn.GRU:
        n = len(h)
        return torch.cat([x[: 2 * n] + s[: 2 * n], x[2 * n :], s[2 * n :]])
    return x + s


def cell(kind: type, c: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The next state, whose first entry is h_t, from c_t and the state before."""
    if kind is nn.RNN:
        return (torch.tanh(c),)
    if kind is nn.GRU:
        r, z, k, m = c.chunk(4)
        r, z = 1 / (1 + torch.exp(-r)), 1 / (1 + torch.exp(-z))
        return ((1 - z) * torch.tanh(k + r * m) + z * state[0],)
    i, f, g, o = c.chunk(4)
    i, f, o = (1 / (1 + torch.exp(-t)) for t in (i, f, o))
    s = f * state[1] + i * torch.tanh(g)
    return o * torch.tanh(s), s


def start(kind: type, n: int) -> tuple[Tensor, ...]:
    return (torch.zeros(n, dtype=F64),) * (2 if kind is nn.LSTM else 1)


def h_of(kind: type, codes: Tensor, hidden: int) -> Tensor:
    """h_1..h_T of one sequence, from all its codes."""
    state, found = start(kind, hidden), []
    for c in codes:
        state = cell(kind, c, state)
        found.append(state[0])
    return torch.stack(found)


def run(kind: type, p: list[Tensor], x: Tensor, added: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """c_1..c_T and h_1..h_T of one sequence; added: to every code."""
    state, codes, found = start(kind, p[1].shape[1]), [], []
    for t, x_t in enumerate(x):
        c = codes_of(kind, p, x_t, state[0])
        codes.append(c if added is None else c + added[t])
        state = cell(kind, codes[-1], state)
        found.append(state[0])
    return torch.stack(codes), torch.stack(found)
