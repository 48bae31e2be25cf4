"""A graph of maps keeps the contract of a map, for modules whose values go to several others."""

import copy

import torch
from branching import MODULES, Basic, PreNorm
from calculus_cases import build, close, contract, gradients, parameters
from torch import nn

from altmin.calculus import map_of as closed_form
from altmin.calculus.cut_values import CutValues
from altmin.calculus.graph import Ends, Graph, Node
from altmin.calculus.multi_input import Sum
from altmin.graph.maps import map_of

TestMaps = contract(MODULES, map_of)


def test_modules_that_branch_have_graphs():
    assert all(isinstance(map_of(make()), Graph) for make, _ in MODULES)


def test_a_graph_commits_what_its_batch_norms_keep_once():
    module = build(Basic)
    other, m = copy.deepcopy(module), map_of(module)
    x = torch.randn(3, 2, 6, 6, dtype=torch.float64)
    other(x)
    saved = m.forward(parameters(module), x)[1]
    m.replay(parameters(module), saved, 2 * x)
    m.commit(m.kept(saved))
    for key, value in other.state_dict().items():
        close(module.state_dict()[key], value)
    assert m.mixes_samples
    module.eval()
    assert m.kept(m.forward(parameters(module), x)[1]) is None
    assert not m.mixes_samples


def test_statistics_that_are_not_finite_are_seen():
    module = build(Basic)
    m = map_of(module)
    x = torch.full((3, 2, 6, 6), torch.inf, dtype=torch.float64)
    kept = m.kept(m.forward(parameters(module), x)[1])
    assert not all(bool(t.isfinite().all()) for t in m.checked(kept))


def test_a_replay_with_other_parameters_draws_no_new_numbers():
    torch.manual_seed(0)
    module = PreNorm().double()
    module.project = nn.Sequential(module.project, nn.Dropout(0.5))
    m, p = map_of(module), parameters(module)
    x = torch.randn(3, 4, dtype=torch.float64)
    y, saved = m.forward(p, x)
    close(m.replay(p, saved, x)[0], y)
    twice = [2 * q if name.startswith("project.0") else q for name, q in zip(m.names, p, strict=True)]
    close(m.replay(twice, saved, x)[0] - x, 2 * (y - x))


def test_two_values_pass_from_one_graph_to_the_next():
    """x and W x as one code, then V tanh(W x) + x: together they are one module, and so are their derivatives."""
    torch.manual_seed(0)
    first, second = nn.Linear(4, 3).double(), nn.Linear(3, 4).double()
    cut = CutValues(2, "here")
    below = Graph(first, [Node(closed_form(first), (0,), ("weight", "bias"))], Ends(1, (1, 0), exit=cut))
    nodes = [
        Node(closed_form(nn.Tanh()), (0,)),
        Node(closed_form(second), (2,), ("weight", "bias")),
        Node(Sum(), (3, 1)),
    ]
    above = Graph(second, nodes, Ends(2, (4,), entry=cut))
    p, q = parameters(first), parameters(second)
    x, u = torch.randn(2, 5, 4, dtype=torch.float64)

    def f(x, W, b, V, c):
        return torch.tanh(x @ W.T + b) @ V.T + c + x

    code, low = below.forward(p, x)
    y, high = above.forward(q, code)
    v = torch.randn_like(y)
    assert code.shape == (5, 7)
    close(y, f(x, *p, *q))
    on_x, *on_p = gradients(f, x, [*p, *q], v)
    sent = above.vjp(q, high, v)
    close(below.vjp(p, low, sent), on_x)
    found = [*below.grads(p, low, sent), *above.grads(q, high, v)]
    close(found, on_p)
    close(above.jvp(q, high, below.jvp(p, low, u)), torch.func.jvp(lambda x: f(x, *p, *q), (x,), (u,))[1])
    code, moved = below.replay(p, low, x - u)
    close(above.replay(q, high, code)[0], f(x - u, *p, *q))
    close(below.input(moved), x - u)


def test_parameters_on_which_the_output_does_not_depend_have_no_gradient():
    layer = nn.Linear(2, 2)
    m = Graph(layer, [Node(closed_form(layer), (0,), ("weight", "bias"))], Ends(1, (0,)))
    p, x = parameters(layer), torch.randn(3, 2)
    y, saved = m.forward(p, x)
    assert torch.equal(y, x)
    assert [g.abs().sum().item() for g in m.grads(p, saved, torch.ones_like(y))] == [0.0, 0.0]
