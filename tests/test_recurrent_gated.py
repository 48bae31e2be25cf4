"""Codes in time of `nn.RNN`, `nn.GRU` and `nn.LSTM`, trained in place: against loops over time written from the
formulas of the cells, in float64, and against backprop through time."""

import pytest
import torch
from conftest import residuals_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin.calculus import BidirectionalRecurrence, Recurrence, map_of
from altmin.calculus.context import Context
from altmin.calculus.numbers import Tensors
from altmin.core.losses import adapt
from altmin.core.step import move_codes
from altmin.layers import BothDirections, Last, LastReal, LayerDropout, Outputs, RecurrentLayer

KINDS = [nn.RNN, nn.GRU, nn.LSTM]
MU, F64 = 0.7, torch.float64
close = torch.testing.assert_close


# -- the cells, from their formulas -----------------------------------------------------------------------------------


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


def layer(kind: type, hidden: int = 4, seed: int = 0) -> tuple[RecurrentLayer, list[Tensor], Tensor]:
    torch.manual_seed(seed)
    rnn = kind(3, hidden, batch_first=True).double()
    with torch.no_grad():
        for p in rnn.parameters():
            p.copy_(0.8 * torch.randn_like(p))
    return RecurrentLayer(rnn), [p.detach() for p in rnn.parameters()], torch.randn(5, 6, 3, dtype=F64)


# -- the map ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_forward_and_codes_are_the_loop_over_time(kind):
    module, p, x = layer(kind)
    m = map_of(module)
    h, saved = m.forward(p, x)
    for i in range(len(x)):
        codes, wanted = run(kind, p, x[i])
        close(h[i], wanted)
        close(m.replay(p, saved, x)[0][i], codes)
    close(module(x).detach(), h)


@pytest.mark.parametrize("kind", KINDS)
def test_the_local_map_is_linear_in_its_input_and_has_the_gradients_of_one_step(kind):
    module, p, x = layer(kind)
    m = map_of(module)
    h, saved = m.forward(p, x)
    before = F.pad(h, (0, 0, 1, 0))[:, :-1]

    def local(x, *p):
        rows = [torch.stack([codes_of(kind, list(p), x[i, t], before[i, t]) for t in range(6)]) for i in range(5)]
        return torch.stack(rows)

    c, back = torch.func.vjp(local, x, *p)
    u, v = torch.randn_like(x), torch.randn_like(c)
    dx, *grads = back(v)
    close(m.vjp(p, saved, v), dx)
    close([*m.grads(p, saved, v)], grads)
    close(m.jvp(p, saved, u), local(x + u, *p) - c)
    quotient, moved = m.quotient(p, saved, u, torch.tensor(0.5, dtype=F64))
    close(quotient, 2 * (c - local(x - 0.5 * u, *p)))
    close(m.replay(p, moved, x)[0], local(x - 0.5 * u, *p))


@pytest.mark.parametrize("kind", KINDS)
def test_the_activation_follows_all_codes_over_any_distance(kind):
    module, p, x = layer(kind)
    m = map_of(module)
    saved = m.forward(p, x)[1]
    codes, activation = m.replay(p, saved, x)[0], m.activation(p, saved)
    u = torch.randn_like(codes)
    for i in range(len(x)):
        of_codes = lambda c: h_of(kind, c, 4)  # noqa: E731
        close(activation.jvp(u)[i], torch.func.jvp(of_codes, (codes[i],), (u[i],))[1])
        for e in (0.01, 0.5, 3.0):
            wanted = (of_codes(codes[i]) - of_codes(codes[i] - e * u[i])) / e
            close(activation.quotient(u, torch.tensor(e, dtype=F64))[i], wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_short_moves_do_not_cancel_in_float32(kind):
    module, p, x = layer(kind)
    m = map_of(module)
    u = torch.randn(5, 6, len(p[0]) + 4 * (kind is nn.GRU), dtype=F64)
    wanted = m.activation(p, m.forward(p, x)[1]).jvp(u)
    single = [t.float() for t in p]
    activation = m.activation(single, m.forward(single, x.float())[1])
    for e in (0.0, 1e-20, 1e-7):
        close(activation.quotient(u.float(), torch.tensor(e)).double(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_sweep_is_the_gradient_at_the_codes_of_backprop_through_time(kind):
    module, p, x = layer(kind)
    m = map_of(module)
    h, saved = m.forward(p, x)
    e = torch.randn_like(h)
    g = m.activation(p, saved).sweep(e)
    for i in range(len(x)):
        added = torch.zeros_like(g[i])
        close(g[i], torch.func.vjp(lambda a, i=i: run(kind, p, x[i], a)[1], added)[1](e[i])[0])


# -- moving the codes -------------------------------------------------------------------------------------------------


def problem(kind: type, seed: int = 0, size: float = 1.0) -> tuple[nn.Sequential, Tensor, Tensor]:
    torch.manual_seed(seed)
    body = Outputs(kind(3, 4, batch_first=True)), Last(), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)
    model = nn.Sequential(*body).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(size * 0.7 * torch.randn_like(p))
    return model, torch.randn(4, 6, 3, dtype=F64), torch.randint(3, (4,))


@pytest.mark.parametrize("order", ["codes-first", "weights-first"])
@pytest.mark.parametrize("share", [0.1, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_codes_move_by_the_best_length_along_backprop_through_time(kind, share, order):
    model, x, y = problem(kind)
    p, V = [q.detach() for q in model[0].rnn.parameters()], model[2].weight.detach()
    above = residuals_of(model, altmin.RecurrentCodes(share=share), x, y, MU)[1]
    m, delta = float(above.scale), above.delta
    paths = [run(kind, p, s) for s in x]
    g, q, left = [], [], []
    for (codes, h), s, d in zip(paths, x, delta, strict=True):
        e = torch.zeros_like(h)
        e[-1] = V.T @ d
        g.append(torch.func.vjp(lambda a, s=s: run(kind, p, s, a)[1], torch.zeros_like(codes))[1](e)[0])
        q.append(torch.func.jvp(lambda c: h_of(kind, c, 4), (codes,), (g[-1],))[1])

    def rest(g, q):
        """g_t - W q_{t-1}."""
        before = [torch.zeros(4, dtype=F64), *q[:-1]]
        without_bias = [p[0], p[1], torch.zeros_like(p[2]), torch.zeros_like(p[3])]
        zero = torch.zeros(3, dtype=F64)
        return torch.stack([g[t] - codes_of(kind, without_bias, zero, before[t]) for t in range(len(g))])

    Vq = torch.stack([V @ each[-1] for each in q])
    square = sum(float(rest(*each).square().sum()) for each in zip(g, q, strict=True))
    a = float((delta * Vq).sum()) / (float(Vq.square().sum()) + square)
    a = min(a, share * float(delta.norm() / Vq.norm()))
    layer, above, _ = residuals_of(model, altmin.RecurrentCodes(share=share, order=order), x, y, MU)
    close(float(layer.scale), m * a)
    for i, (codes, h) in enumerate(paths):
        moved = h_of(kind, codes - m * a * g[i], 4)
        close(layer.saved[0].h[:, i], moved)
        Q = (h - moved) / (m * a)
        left.append(rest(g[i], Q))
        close(layer.delta[i], left[-1] if order == "codes-first" else g[i])
        close(above.saved[0][i], moved[-1])
        close(above.delta[i], delta[i] - a * (V @ Q[-1]) if order == "codes-first" else delta[i])
    close(float(layer.cost), (m * a) ** 2 * sum(float(each.square().sum()) for each in left))
    close(float(layer.moved), (m * a) ** 2 * sum(float(each.square().sum()) for each in g))


@settings(deadline=None)
@given(*(st.integers(0, 10_000), st.sampled_from(KINDS), st.floats(0.05, 20), st.floats(0.1, 4), st.floats(0, 1)))
def test_no_step_raises_the_objective(seed, kind, mu, size, share):
    model, x, y = problem(kind, seed, size)
    short = nn.Sequential(*model[:2], nn.Linear(4, 3).double())  # the codes lie right below the loss's block
    for net in (model, short):
        metrics = altmin.AltMin(net, codes=altmin.RecurrentCodes(share=share), penalty=mu).step(x, y)
        assert metrics.objective <= float(metrics.loss) * (1 + 1e-12)


class Net(nn.Module):
    """A recurrent module called as users call it."""

    def __init__(self, kind, reads="last", **options):
        super().__init__()
        self.rnn = kind(3, 5, batch_first=True, **options)
        self.head, self.reads = nn.Linear(5 * (1 + self.rnn.bidirectional), 4), reads

    def forward(self, x):
        if self.reads == "state":
            state = self.rnn(x)[1]
            return self.head((state[0] if isinstance(self.rnn, nn.LSTM) else state)[-1])
        h, _ = self.rnn(x)
        return self.head(h[:, -1] if self.reads == "last" else h.mean(1))


OPTIONS = [{}, {"num_layers": 3}, {"bias": False}, {"bidirectional": True}, {"bidirectional": True, "num_layers": 2}]
USES = [(reads, options) for options in OPTIONS for reads in ("last", "state", "mean")]
USES = [use for use in USES if use[0] != "state" or "bidirectional" not in use[1]]


def gradients(model, x, y) -> tuple[list[Tensor], list[nn.Parameter]]:
    """Those of a step in which no code moves, and the parameters they belong to."""
    chain, found = altmin.split(model), residuals_of(model, altmin.RecurrentCodes(share=0.0), x, y, MU)
    ours = [
        g
        for block, p, r in zip(chain, chain.parameters(), found, strict=True)
        for g in block.core.grads([q.detach() for q in p], r.saved, r.delta)
    ]
    return ours, [p for block in chain.parameters() for p in block]


@pytest.mark.parametrize("reads, options", USES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_without_code_moves_gradients_are_those_of_backprop_through_time(kind, reads, options):
    torch.manual_seed(1)
    model = Net(kind, reads, **options).double()
    x, y = torch.randn(6, 7, 3, dtype=F64), torch.randint(4, (6,))
    in_time = [isinstance(block.core.maps[0], Recurrence | BidirectionalRecurrence) for block in altmin.split(model)]
    assert in_time == [True] * options.get("num_layers", 1) + [False]
    ours, parameters = gradients(model, x, y)
    assert {id(p) for p in parameters} == {id(p) for p in model.parameters()}
    theirs = torch.autograd.grad(F.cross_entropy(model(x), y), parameters)
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).norm() <= 1e-12 * b.norm()


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_backprop_through_time_in_float32_over_hundreds_of_steps(kind):
    torch.manual_seed(0)
    model = nn.Sequential(Outputs(kind(2, 16, batch_first=True)), Last(), nn.Linear(16, 3)).double()
    x, y = torch.randn(4, 300, 2), torch.randint(3, (4,))
    theirs = torch.autograd.grad(F.cross_entropy(model(x.double()), y), [*model.parameters()])
    for a, b in zip(gradients(model.float(), x, y)[0], theirs, strict=True):
        assert (a - b).norm() <= 1e-4 * b.norm()


@pytest.mark.parametrize("kind", KINDS)
def test_members_of_an_ensemble_move_as_each_does_alone(kind):
    members = [problem(kind, seed) for seed in range(3)]
    x, y = members[0][1:]
    chain, codes = altmin.split(members[0][0]), altmin.RecurrentCodes()
    thetas = [altmin.split(model).parameters() for model, _, _ in members]
    together = [[torch.stack(ps).detach() for ps in zip(*blocks, strict=True)] for blocks in zip(*thetas, strict=True)]

    def step(theta):
        mu, context = torch.tensor(MU, dtype=F64), Context(numbers=Tensors, traced=True)
        moved = move_codes(chain, theta, codes, adapt(nn.CrossEntropyLoss()), x, y, mu, context)
        return moved.objective, [each.delta for each in moved.problems]

    with torch.no_grad():
        objectives, deltas = torch.func.vmap(step)(together)
    for i, (model, _, _) in enumerate(members):
        for a, b in zip(deltas, residuals_of(model, codes, x, y, MU), strict=True):
            close(a[i], b.delta)
        assert float(objectives[i]) < float(F.cross_entropy(model(x), y))


# -- modules and models -----------------------------------------------------------------------------------------------


class Opaque(nn.Module):
    """A use of a recurrent module that has no codes in time."""

    def __init__(self, rnn, first=None):
        super().__init__()
        self.rnn, self.head = rnn, nn.Linear(5, 4)
        self.register_buffer("first", first)

    def forward(self, x):
        x = x if self.rnn.batch_first else x.transpose(0, 1)
        h = (self.rnn(x) if self.first is None else self.rnn(x, self.first))[0]
        return self.head(h[:, -1] if self.rnn.batch_first else h[-1])


@pytest.mark.parametrize(
    "model",
    [
        Opaque(nn.RNN(3, 5, nonlinearity="relu", batch_first=True)),
        Opaque(nn.LSTM(3, 9, proj_size=5, batch_first=True)),
        Opaque(nn.GRU(3, 5)),
        Opaque(nn.GRU(3, 5, batch_first=True), torch.ones(1, 6, 5)),
    ],
    ids=["relu", "projection", "steps first", "a first state"],
)
def test_other_uses_train_as_one_block_through_autograd(model):
    assert not altmin.split(model).recurrent
    x, y = torch.randn(6, 7, 3), torch.randint(4, (6,))
    before = model.rnn.weight_hh_l0.detach().clone()
    altmin.AltMin(model).step(x, y)
    assert not torch.equal(model.rnn.weight_hh_l0, before)


def check_gradients(model, in_time: list[bool]) -> None:
    """A step without code moves has the gradients of backprop through time, with codes in time in these blocks."""
    model = model.double()
    x, y = torch.randn(6, 7, 3, dtype=F64), torch.randint(4, (6,))
    found = [isinstance(block.core.maps[0], Recurrence | BidirectionalRecurrence) for block in altmin.split(model)]
    assert found == in_time
    trained = [(g, p) for g, p in zip(*gradients(model, x, y), strict=True) if p.requires_grad]
    theirs = torch.autograd.grad(F.cross_entropy(model(x), y), [p for _, p in trained])
    close([g for g, _ in trained], [*theirs])


def outputs(*sizes: int, **options) -> Outputs:
    return Outputs(nn.GRU(*sizes, batch_first=True, **options))


def test_a_normalisation_may_follow_a_recurrent_layer():
    body = outputs(3, 5), nn.LayerNorm(5), outputs(5, 4), nn.ReLU(), Last(), nn.Linear(4, 4)
    check_gradients(nn.Sequential(*body), [True, False, True, False])


def test_the_last_layer_of_a_model_and_one_inside_a_block_go_through_autograd():
    check_gradients(nn.Sequential(outputs(3, 4, num_layers=2), Last()), [True, False])
    check_gradients(nn.Sequential(altmin.Recurrent(3, 4), Last()), [False])
    model = nn.Sequential(nn.Linear(3, 3), outputs(3, 5), Last(), nn.Linear(5, 4))
    assert not altmin.split(model, at=["1"]).recurrent
    model = nn.Sequential(outputs(3, 4, bidirectional=True), Last(), nn.Softplus())
    x, y = torch.randn(6, 7, 3), torch.randint(4, (6,))
    am = altmin.AltMin(model, weights=altmin.LocalAdam(lr=0.01))
    losses = [float(am.step(x, y).loss) for _ in range(30)]
    assert losses[-1] < losses[0]


def test_methods_without_a_derivative_through_time_refuse_it():
    with pytest.raises(TypeError, match="gauss-newton does not differentiate through time; train a recurrent net"):
        altmin.methods.create("gauss-newton", altmin.models.gru(4))
    for model in (altmin.models.gru(4), altmin.models.lstm(4, bidirectional=True)):
        with pytest.raises(ValueError, match=r"PrintedCodes moves the codes in time of one altmin.Recurrent"):
            altmin.methods.create("am-adam-printed", model)


def test_dropout_between_layers_has_the_mode_of_the_module():
    rnn = nn.GRU(3, 4, num_layers=2, dropout=0.5, batch_first=True)
    dropout, x = LayerDropout(rnn), torch.ones(100)
    assert (dropout(x) == 0).any()
    rnn.eval()
    close(dropout(x), x)
    dropout.train()
    close(dropout(x), x)


def test_a_stack_with_dropout_trains_and_moves_all_its_weights():
    torch.manual_seed(0)
    model = altmin.models.lstm(6, layers=2, inputs=3, outputs=4, dropout=0.3)
    before = [p.detach().clone() for p in model.parameters()]
    x, y = torch.randn(50, 9, 3), torch.randint(4, (50,))
    am = altmin.AltMin(model, weights=altmin.LocalAdam(lr=0.01))
    first = float(am.step(x, y).loss)
    for _ in range(120):
        last = float(am.step(x, y).loss)
    assert last < 0.5 * first
    assert all(not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


def test_embedding_and_head_stand_around_the_layers():
    model = nn.Sequential(nn.Embedding(11, 3), Outputs(nn.GRU(3, 5, batch_first=True)), nn.Linear(5, 11))
    assert [str(block) for block in altmin.split(model)] == ["Embedding", "GRU", "Linear"]
    x = torch.randint(11, (4, 6))
    loss = lambda output, y: F.cross_entropy(output.flatten(0, 1), y.flatten())  # noqa: E731
    metrics = altmin.AltMin(model, loss=loss).step(x, x)
    assert metrics.objective < float(metrics.loss)


def test_a_reversed_layer_is_the_layer_on_reversed_sequences():
    rnn = nn.LSTM(3, 4, batch_first=True, bidirectional=True).double()
    x = torch.randn(2, 5, 3, dtype=F64)
    both = BothDirections(RecurrentLayer(rnn), RecurrentLayer(rnn, reverse=True))
    close(both(x), rnn(x)[0])
    h, _ = map_of(both).forward([p.detach() for p in both.parameters()], x)
    close(h, rnn(x)[0])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_can_be_mapped_over_members(kind, options):
    members = [Outputs(kind(3, 4, batch_first=True, **options).double()) for _ in range(2)]
    x = torch.randn(5, 6, 3, dtype=F64)
    weights = {
        n: torch.stack([dict(m.named_parameters())[n] for m in members]) for n, _ in members[0].named_parameters()
    }
    found = torch.func.vmap(lambda p: torch.func.functional_call(members[0], p, (x,)))(weights)
    for each, h in zip(members, found, strict=True):
        close(h, each(x))


def ragged(samples: int = 5, length: int = 7) -> tuple[list[Tensor], Tensor]:
    """Sequences of one to `length` steps, and these padded."""
    torch.manual_seed(2)
    each = [torch.randn(1 + (2 * i) % length, 3, dtype=F64) for i in range(samples)]
    return each, altmin.models.pad(each, length)


@pytest.mark.parametrize("make", [altmin.models.gru, altmin.models.lstm])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_padded_model_gives_for_every_sequence_what_it_gives_for_it_alone(make, layers):
    model = make(4, layers, inputs=3, outputs=2, padded=True).double()
    each, x = ragged()
    alone = [model[2](model[0].rnn(s[None])[0][:, -1])[0] for s in each]
    close(model(x), torch.stack(alone))
    x[..., :-1] += 7 * (1 - x[..., -1:])
    close(model(x), torch.stack(alone))


@pytest.mark.parametrize("make", [altmin.models.gru, altmin.models.lstm])
@pytest.mark.parametrize("layers", [1, 2])
def test_padding_has_neither_codes_nor_gradients(make, layers):
    model = make(4, layers, inputs=3, outputs=2, padded=True).double()
    each, x = ragged()
    y = torch.randint(2, (len(each),))
    ours, parameters = gradients(model, x, y)
    loss = sum(F.cross_entropy(model(altmin.models.pad([s], len(s))), t[None]) for s, t in zip(each, y, strict=True))
    for a, b in zip(ours, torch.autograd.grad(loss / len(each), parameters), strict=True):
        close(a, b)
    for r in residuals_of(model, altmin.RecurrentCodes(share=1.0, order="codes-first"), x, y, MU)[:layers]:
        assert not r.delta[x[..., -1] == 0].any()
        assert not r.saved[0].h.transpose(0, 1)[x[..., -1] == 0].any()
        assert r.delta[x[..., -1] == 1].abs().max() > 1e-5


def test_the_last_real_step_has_a_closed_form():
    _, x = ragged()
    m = map_of(LastReal())
    y, saved = m.forward((), x)
    close(y, torch.stack([s[int(s[:, -1].sum()) - 1, :-1] for s in x]))
    close(LastReal()(x), y)
    u, v = torch.randn_like(x), torch.randn_like(y)
    close((m.jvp((), saved, u) * v).sum(), (m.vjp((), saved, v) * u).sum())
    moved = x - torch.cat([u[..., :-1], torch.zeros_like(u[..., -1:])], -1)
    close(m.jvp((), saved, u), y - LastReal()(moved))


def test_bad_arguments_are_answered_in_one_sentence():
    with pytest.raises(ValueError, match="padded sequences are read in one direction; give"):
        altmin.models.gru(4, padded=True, bidirectional=True)
    with pytest.raises(ValueError, match=r"would drop the mark of padded sequences; give dropout=0"):
        altmin.models.gru(4, layers=2, padded=True, dropout=0.1)
    with pytest.raises(ValueError, match=r"GRU reads .* 3 features and 1 that marks the real steps, 4 in all; given"):
        altmin.models.gru(4, inputs=3, padded=True)(torch.zeros(2, 5, 3))
    with pytest.raises(ValueError, match=r"an nn.RNN, nn.GRU or nn.LSTM with batch_first=True, given GRU"):
        Outputs(nn.GRU(2, 3))
    with pytest.raises(ValueError, match=r"GRU reads sequences .* with 3 features; given shape \(4, 3\)"):
        altmin.AltMin(altmin.models.gru(5, inputs=3)).step(torch.zeros(4, 3), torch.zeros(4).long())
    with pytest.raises(ValueError, match=r"codes in time take one step of the best length, given the fixed step 0.1"):
        altmin.AltMin(altmin.models.gru(5), codes=0.1)
