"""Recurrent modules of torch as users call them: codes in time where they have some, backprop through time's gradients
in every form, padded sequences, and a GPU."""

import copy

import pytest
import torch
from conftest import gradients_of, residuals_of
from reference_recurrent import F64, KINDS
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin.calculus import Recurrence, map_of
from altmin.layers import Last, LastReal, LayerDropout, Outputs
from altmin.runners import Recorded

MU = 0.7
close = torch.testing.assert_close


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
USES = [use for use in USES if "bidirectional" not in use[1]]


def gradients(model, x, y) -> tuple[list[Tensor], list[nn.Parameter]]:
    """Those of a step in which no code moves, and the parameters they belong to."""
    parameters = [p for block in altmin.split(model).parameters() for p in block]
    return gradients_of(model, altmin.RecurrentCodes(share=0.0), x, y, MU), parameters


@pytest.mark.parametrize("reads, options", USES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_without_code_moves_gradients_are_those_of_backprop_through_time(kind, reads, options):
    torch.manual_seed(1)
    model = Net(kind, reads, **options).double()
    x, y = torch.randn(6, 7, 3, dtype=F64), torch.randint(4, (6,))
    in_time = [isinstance(block.core.maps[0], Recurrence) for block in altmin.split(model)]
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
    found = [isinstance(block.core.maps[0], Recurrence) for block in altmin.split(model)]
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


def test_dropout_between_layers_has_the_mode_of_the_module():
    rnn = nn.GRU(3, 4, num_layers=2, dropout=0.5, batch_first=True)
    dropout, x = LayerDropout(rnn), torch.ones(100)
    assert (dropout(x) == 0).any()
    rnn.eval()
    close(dropout(x), x)
    dropout.train()
    close(dropout(x), x)


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


@pytest.mark.parametrize(
    "call",
    [
        lambda: altmin.methods.create("gauss-newton", altmin.models.gru(4)),
        lambda: altmin.methods.create("am-adam-printed", altmin.models.gru(4)),
        lambda: altmin.models.gru(4, padded=True, bidirectional=True),
        lambda: altmin.models.gru(4, layers=2, padded=True, dropout=0.1),
        lambda: altmin.models.gru(4, inputs=3, padded=True)(torch.zeros(2, 5, 3)),
        lambda: Outputs(nn.GRU(2, 3)),
        lambda: altmin.AltMin(altmin.models.gru(5, inputs=3)).step(torch.zeros(4, 3), torch.zeros(4).long()),
    ],
)
def test_what_cannot_be_is_refused(call):
    with pytest.raises((TypeError, ValueError)):
        call()


# -- on a GPU ---------------------------------------------------------------------------------------------------------


@pytest.mark.cuda
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_on_a_gpu_a_step_and_a_recorded_one_are_those_of_the_processor(kind, options):
    torch.manual_seed(0)
    model = Net(kind, **options).double()
    models = [model, copy.deepcopy(model).cuda(), copy.deepcopy(model).cuda()]
    trainers = [altmin.AltMin(m, weights=altmin.LocalSGD(lr=0.1)) for m in models]
    trainers[2] = Recorded(trainers[2], fuse=not options)
    for seed in range(4):
        torch.manual_seed(seed)
        x, y = torch.randn(6, 70, 3, dtype=F64), torch.randint(4, (6,))
        losses = [
            float(am.step(x.to(d), y.to(d)).loss) for am, d in zip(trainers, ("cpu", "cuda", "cuda"), strict=True)
        ]
        close(losses[1:], losses[:1] * 2)
    for other in (models[1], trainers[2].model):
        close([p.cpu() for p in other.parameters()], [*model.parameters()])
