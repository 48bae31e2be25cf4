"""Embeddings against autograd on the module itself in float64, what they fall back on, and integers out of range."""

import copy

import pytest
import torch
from calculus_cases import close, parameters
from torch import Tensor, nn
from torch.func import vmap

import altmin
from altmin.calculus import AnyModule, Embedding, EmbeddingBag, embedding, map_of

ROWS = 7
CASES = {
    "embedding": (lambda **k: nn.Embedding(ROWS, 4, **k), (5, 3)),
    "embedding of one integer": (lambda **k: nn.Embedding(ROWS, 4, **k), (5,)),
    "embedding of images": (lambda **k: nn.Embedding(ROWS, 4, **k), (2, 3, 4)),
    "padded embedding": (lambda **k: nn.Embedding(ROWS, 4, padding_idx=2, **k), (5, 3)),
    "padded from the end": (lambda **k: nn.Embedding(ROWS, 4, padding_idx=-1, **k), (5, 3)),
    "sums": (lambda **k: nn.EmbeddingBag(ROWS, 4, mode="sum", **k), (5, 6)),
    "means": (lambda **k: nn.EmbeddingBag(ROWS, 4, mode="mean", **k), (5, 6)),
    "padded sums": (lambda **k: nn.EmbeddingBag(ROWS, 4, mode="sum", padding_idx=2, **k), (5, 6)),
    "padded means": (lambda **k: nn.EmbeddingBag(ROWS, 4, mode="mean", padding_idx=2, **k), (5, 6)),
}


def case(name: str, **options) -> tuple[nn.Module, Tensor]:
    """A module with random rows, that of the padding too, and integers of which the first sample's are all 2."""
    torch.manual_seed(0)
    make, shape = CASES[name]
    module = make(**options).double()
    nn.init.normal_(module.weight)
    x = torch.randint(ROWS, shape)
    x[0] = 2
    return module, x


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_rows_and_gradients_are_those_of_autograd(name, dtype):
    module, x = case(name)
    m, p, x = map_of(module), parameters(module), x.to(dtype)
    y, saved = m.forward(p, x)
    close(y, module(x).detach())
    v = torch.randn_like(y)
    wanted = torch.autograd.grad((module(x) * v).sum(), module.weight)[0]
    close(m.grads(p, saved, v)[0], wanted)
    again, other = m.replay([2 * p[0]], saved, m.input(saved))
    close(again, 2 * y)
    close(m.grads(p, other, v)[0], wanted)


@pytest.mark.parametrize("name", CASES)
def test_integers_do_not_move(name):
    module, x = case(name)
    m, p = map_of(module), parameters(module)
    y, saved = m.forward(p, x)
    v, u = torch.randn_like(y), torch.randn(x.shape, dtype=torch.float64)
    assert torch.equal(m.vjp(p, saved, v), torch.zeros_like(u))
    assert torch.equal(m.jvp(p, saved, u), torch.zeros_like(y))
    assert torch.equal(m.input(saved), x)


@pytest.mark.parametrize("name", CASES)
def test_many_members_at_once_give_what_each_gives(name):
    module, x = case(name)
    m, p, x = map_of(module), torch.randn(2, ROWS, 4, dtype=torch.float64), torch.stack([x, x.flip(0)])

    def outcome(table: Tensor, x: Tensor, v: Tensor, functional: bool = True) -> tuple[Tensor, Tensor]:
        used = m.functional() if functional else m
        y, saved = used.forward([table], x)
        return y, used.grads([table], saved, v)[0]

    v = torch.randn(2, *m.forward([p[0]], x[0])[0].shape, dtype=torch.float64)
    together = vmap(outcome)(p, x, v)
    shared = vmap(lambda table, v: outcome(table, x[0], v))(p, v)
    for i in range(2):
        alone, with_first = (outcome(p[i], x[j], v[i], False) for j in (i, 0))
        for n in range(2):
            close(together[n][i], alone[n])
            close(shared[n][i], with_first[n])


def test_what_is_more_than_a_look_up_goes_through_autograd():
    plain = (
        nn.Embedding(5, 2),
        nn.EmbeddingBag(5, 2),
        nn.EmbeddingBag(5, 2, mode="sum"),
    )
    assert [type(map_of(module)) for module in plain] == [Embedding, EmbeddingBag, EmbeddingBag]
    for module in (
        *(nn.Embedding(5, 2, max_norm=1.0), nn.Embedding(5, 2, scale_grad_by_freq=True)),
        *(nn.EmbeddingBag(5, 2, mode="max"), nn.EmbeddingBag(5, 2, max_norm=1.0)),
        *(nn.EmbeddingBag(5, 2, scale_grad_by_freq=True, mode="sum"), nn.EmbeddingBag(5, 2, include_last_offset=True)),
    ):
        assert type(map_of(module)) is AnyModule


def test_where_gradients_are_scaled_by_frequency_they_are_autograds():
    torch.manual_seed(0)
    module = nn.Embedding(5, 2, scale_grad_by_freq=True).double()
    m, x = map_of(module), torch.tensor([[0, 1, 1], [1, 3, 0]])
    y, saved = m.forward(parameters(module), x)
    v = torch.randn_like(y)
    close(m.grads(parameters(module), saved, v)[0], torch.autograd.grad((module(x) * v).sum(), module.weight)[0])


# -- in a chain -------------------------------------------------------------------------------------------------------


def net(first: nn.Module, width: int = 12) -> nn.Sequential:
    return nn.Sequential(first, nn.Flatten(), nn.ReLU(), nn.Linear(width, 3))


class Averaged(nn.Module):
    """Not a Sequential: traced, and its embedding is a module of the chain."""

    def __init__(self):
        super().__init__()
        self.rows, self.last = nn.Embedding(ROWS, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.rows(x).mean(1))


def test_a_traced_model_trains_its_embedding_as_the_bag_that_it_is():
    torch.manual_seed(0)
    traced = Averaged().double()
    bag = nn.Sequential(nn.EmbeddingBag(ROWS, 4, mode="mean"), nn.Linear(4, 3)).double()
    bag.load_state_dict(dict(zip(bag.state_dict(), copy.deepcopy(traced.state_dict()).values(), strict=True)))
    x, y = torch.randint(ROWS, (8, 6)), torch.randint(3, (8,))
    for model in (traced, bag):
        am = altmin.AltMin(model, codes=altmin.GradientCodes(share=0.0), weights=altmin.LocalSGD(0.5))
        assert type(am.chain.blocks[0].core.maps[0]) in (Embedding, EmbeddingBag)
        for _ in range(3):
            am.step(x, y)
    close([*traced.parameters()], [*bag.parameters()])


def words(samples: int, classes: int = 4, length: int = 10) -> tuple[Tensor, Tensor]:
    """Texts of 5 to 10 words and padding, 0: half of the words are of the class's own 20, the others of all."""
    y, vocabulary = torch.randint(classes, (samples,)), 20 * classes
    own = 1 + 20 * y[:, None] + torch.randint(20, (samples, length))
    x = torch.where(torch.rand(samples, length) < 0.5, own, 1 + torch.randint(vocabulary, (samples, length)))
    return torch.where(torch.arange(length) < torch.randint(5, length + 1, (samples, 1)), x, 0), y


def test_texts_are_classified_nearly_as_well_as_can_be_and_as_by_backprop():
    """Of such texts the best guess is the class with the most words."""
    torch.manual_seed(0)
    train, (x, y) = words(1600), words(1000)
    bag = nn.EmbeddingBag(81, 16, padding_idx=0, mode="mean")
    model = nn.Sequential(bag, nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    backprop = altmin.methods.create("adam", copy.deepcopy(model), lr=0.01)
    methods = [altmin.AltMin(model, weights=altmin.LocalAdam(0.01)), backprop]
    votes = torch.stack([((x - 1) // 20 == c).sum(1) for c in range(4)], 1)
    best = (votes.argmax(1) == y).double().mean()
    found = []
    for method in methods:
        for _ in range(4):
            for a, b in zip(train[0].split(50), train[1].split(50), strict=True):
                method.step(a, b)
        found.append((method.model(x).argmax(1) == y).double().mean())
    assert found[0] > found[-1] - 0.01
    assert min(found) > best - 0.03
    assert not model[0].weight[0].any(), "the row of the padding stays zero"


@pytest.mark.parametrize(
    "first, x",
    [
        (nn.Embedding(ROWS, 4), torch.tensor([[0, 7, 1]])),
        (nn.Embedding(ROWS, 4), torch.tensor([[0, -1, 1]])),
        (nn.EmbeddingBag(ROWS, 12), torch.tensor([[9, 6, 1]])),
        (nn.Embedding(ROWS, 4), torch.ones(1, 3)),
        (nn.EmbeddingBag(ROWS, 12), torch.tensor([3])),
    ],
    ids=["above", "below", "bag", "floats", "no bag"],
)
def test_what_is_no_row_of_the_table_is_refused_and_changes_nothing(first, x):
    model = net(first)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError):
        altmin.AltMin(model).step(x, torch.tensor([1]))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("each", [False, True])
def test_an_ensemble_refuses_it_too(each):
    ensemble = altmin.Ensemble([altmin.AltMin(net(nn.Embedding(ROWS, 4))) for _ in range(2)])
    x, y = torch.tensor([[[0, 7, 1]]]).expand(2, 1, 3), torch.ones(2, 1, dtype=torch.int64)
    with pytest.raises(ValueError):
        ensemble.step(*((x, y) if each else (x[0], y[0])), each=each)


@pytest.mark.parametrize("first", [nn.Embedding(ROWS, 4), nn.EmbeddingBag(ROWS, 12)], ids=["rows", "bag"])
def test_where_the_device_is_not_waited_for_unknown_rows_are_nan_and_the_step_is_refused(monkeypatch, first):
    """As on a GPU, where an index out of range would end the process."""
    monkeypatch.setattr(embedding, "_in_range", lambda x, table: x.clamp(0, len(table) - 1))
    model, x = net(first), torch.tensor([[0, 7, 1], [2, 3, 4]])
    before = copy.deepcopy(model.state_dict())
    y = map_of(first).forward(parameters(first), x)[0]
    assert y.isnan().flatten(1).any(1).tolist() == [True, False]
    am = altmin.AltMin(model)
    with pytest.raises(ValueError, match="from 0 to 6"):
        am.step(x, torch.tensor([1, 0]))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    am.step(x.clamp_max(6), torch.tensor([1, 0]))


@pytest.mark.cuda
@pytest.mark.parametrize("first", [nn.Embedding(ROWS, 4), nn.EmbeddingBag(ROWS, 12)], ids=["rows", "bag"])
def test_on_a_gpu_an_integer_out_of_range_is_refused_and_the_next_step_is_taken(first):
    model, y = net(copy.deepcopy(first)).cuda(), torch.tensor([1, 0]).cuda()
    am, x = altmin.AltMin(model), torch.tensor([[0, 7, 1], [2, 3, 4]]).cuda()
    with pytest.raises(ValueError, match="from 0 to 6"):
        am.step(x, y)
    before = copy.deepcopy(model.state_dict())
    am.step(x.clamp_max(6), y)
    assert not torch.equal(before["0.weight"], model[0].weight)


def test_the_gradient_of_an_embedding_is_backprops_where_codes_do_not_move():
    torch.manual_seed(0)
    model = net(nn.Embedding(ROWS, 4)).double()
    x, y = torch.randint(6, (10, 3)), torch.randint(3, (10,))
    am = altmin.AltMin(model, codes=altmin.GradientCodes(share=0.0), weights=altmin.LocalSGD(0.0))
    am.step(x, y)
    found = [p.grad.clone() for p in model.parameters()]
    wanted = torch.autograd.grad(nn.CrossEntropyLoss()(model(x), y), list(model.parameters()))
    close(found, wanted)
    assert not found[0][6].any(), "a token that does not occur asks for nothing"
