"""A model cut into blocks is the same model, and each block's calculus is that of the modules in it."""

import copy

import pytest
import torch
from torch import Tensor, nn

import altmin


class Residual(nn.Module):
    """A branching part, which altmin does not know."""

    def __init__(self, width: int):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.inner(x))


class Scale(nn.Module):
    """An unknown module without parameters."""

    def forward(self, x: Tensor) -> Tensor:
        return 1.5 * x.abs().sqrt()


ACTIVATIONS = [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.ELU, nn.SiLU, nn.Softplus, nn.Hardtanh, nn.LeakyReLU]

# A model, the shape of one sample, and the names of the modules that each block should hold.
CHAINS = {
    "one linear layer": (lambda: nn.Sequential(nn.Linear(5, 3)), (5,), ["Linear"]),
    "nested": (
        lambda: nn.Sequential(
            nn.Sequential(nn.Linear(5, 4), nn.Sequential(nn.ReLU(), nn.Identity())), nn.Sequential(nn.Linear(4, 3))
        ),
        (5,),
        ["Linear", "ReLU, Linear"],
    ),
    "batch norm": (
        lambda: nn.Sequential(
            *(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 4)),
            *(nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 3)),
        ),
        (5,),
        ["Linear, BatchNorm1d", "ReLU, Dropout, Linear, LayerNorm", "Tanh, Linear"],
    ),
    "convolutions in one dimension": (
        lambda: nn.Sequential(
            *(nn.Conv1d(2, 3, 3, padding=1), nn.BatchNorm1d(3), nn.GELU(), nn.MaxPool1d(2)),
            *(nn.Conv1d(3, 2, 2), nn.Sigmoid(), nn.Flatten(), nn.Linear(6, 3)),
        ),
        (2, 8),
        ["Conv1d, BatchNorm1d", "GELU, MaxPool1d, Conv1d", "Sigmoid, Flatten, Linear"],
    ),
    "convolutions in two dimensions": (
        lambda: nn.Sequential(
            *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2), nn.Dropout2d(0.2)),
            *(nn.Conv2d(4, 3, 2), nn.ELU(), nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(12, 3)),
        ),
        (1, 8, 8),
        ["Conv2d, BatchNorm2d", "ReLU, AvgPool2d, Dropout2d, Conv2d", "ELU, AdaptiveMaxPool2d, Flatten, Linear"],
    ),
    "modules that altmin does not know": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 4), Scale(), Residual(4), nn.PReLU(), nn.Linear(4, 3)),
        (2, 3),
        ["Flatten, Linear", "Scale, Residual", "PReLU", "Linear"],
    ),
    "a prelude before the first and a module after the last layer": (
        lambda: nn.Sequential(nn.Tanh(), nn.Linear(5, 4), nn.SiLU(), nn.Linear(4, 3), nn.Softmax(1), nn.Sigmoid()),
        (5,),
        ["Tanh, Linear", "SiLU, Linear, Softmax, Sigmoid"],
    ),
    "normalisation not right after an affine layer": (
        lambda: nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 4), nn.ReLU(), nn.LayerNorm(4), nn.Linear(4, 3)),
        (5,),
        ["BatchNorm1d, Linear", "ReLU, LayerNorm, Linear"],
    ),
    "batch norm without parameters": (
        lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, affine=False), nn.ReLU(), nn.Linear(4, 3)),
        (5,),
        ["Linear, BatchNorm1d", "ReLU, Linear"],
    ),
    "many activations": (
        lambda: nn.Sequential(*(m for a in ACTIVATIONS for m in (nn.Linear(5, 5), a())), nn.Linear(5, 3)),
        (5,),
        ["Linear", *(f"{a.__name__}, Linear" for a in ACTIVATIONS)],
    ),
}
EVERY_CHAIN = pytest.mark.parametrize("name", CHAINS)


def build(name: str, training: bool = False) -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(0)
    make, shape, _ = CHAINS[name]
    model = make().double()
    x = torch.randn(6, *shape, dtype=torch.float64)
    model(x)  # running statistics other than zero and one
    return model.train(training), x


@EVERY_CHAIN
def test_split_then_compose_is_exactly_the_model(name):
    model, x = build(name)
    assert torch.equal(altmin.split(model)(x), model(x))


@EVERY_CHAIN
def test_every_block_holds_the_modules_it_should(name):
    model, _ = build(name)
    chain = altmin.split(model)
    held = [", ".join(type(m.module).__name__ for m in block.maps) for block in chain]
    assert held == CHAINS[name][2]
    assert len(chain) == len(held)
    ours = [p for block in chain.parameters() for p in block]
    assert [id(p) for p in ours] == [id(p) for p in model.parameters()], "the model's own, each once, in order"


def stands_in(block, training: bool):
    """The block as one PyTorch module, in a copy."""
    return copy.deepcopy(nn.Sequential(*(m.module for m in block.maps))).train(training)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@EVERY_CHAIN
def test_a_blocks_calculus_is_autograds(name, training):
    model, x = build(name, training)
    for module in model.modules():
        if isinstance(module, nn.Dropout | nn.Dropout2d):
            module.p = 0.0  # masks are held by the tests of the maps
    chain = altmin.split(model)
    code = x
    for block, p in zip(chain, chain.parameters(), strict=True):
        p = [q.detach() for q in p]
        f = stands_in(block, training)
        c = code.clone().requires_grad_()
        y = f(c)
        u, v = torch.randn_like(c), torch.randn_like(y)
        on_c, *grads = torch.autograd.grad(y, [c, *f.parameters()], v)
        out, state = block.forward(p, code)
        y = y.detach()
        torch.testing.assert_close(out, y)
        torch.testing.assert_close(block.vjp(p, state, v), on_c)
        torch.testing.assert_close((block.jvp(p, state, u) * v).sum(), (u * on_c).sum())
        torch.testing.assert_close([*block.core.grads(p, state.core, v)], [*grads])
        c = (code - u).requires_grad_()
        other, moved = block.replay(p, state, c.detach())
        torch.testing.assert_close(other, f(c).detach())
        after = torch.autograd.grad(f(c), [c, *f.parameters()], v)
        torch.testing.assert_close(block.vjp(p, moved, v), after[0])
        torch.testing.assert_close([*block.core.grads(p, moved.core, v)], [*after[1:]])
        code = y


def test_a_replay_keeps_the_mask_of_the_pass_it_repeats():
    torch.manual_seed(0)
    block = altmin.split(nn.Sequential(nn.Linear(5, 20), nn.Dropout(0.5)).double()).blocks[0]
    core = block.core
    p = [torch.randn(20, 5, dtype=torch.float64), torch.randn(20, dtype=torch.float64)]
    output, (_, saved) = block.forward(p, torch.randn(7, 5, dtype=torch.float64))
    again, kept = core.replay(p, saved)
    assert torch.equal(again, output)
    assert torch.equal(core.replay([2 * q for q in p], kept)[0], 2 * output)


def test_a_rectifier_before_a_pool_goes_after_it_and_changes_nothing():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(1, 2, 3), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(6, 2))
    chain = altmin.split(model)
    assert str(chain.blocks[1]) == "MaxPool1d, ReLU, Flatten, Linear"
    x = torch.randn(4, 1, 8)
    assert torch.equal(chain(x), model(x))


def test_a_table_shows_blocks_codes_and_parameters():
    model = nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.Flatten(), nn.Linear(6, 1000), Residual(1000))
    assert str(altmin.split(model)).splitlines() == [
        "block  modules                code       parameters",
        "0      Conv2d                 6 x ? x ?         156",
        "1      ReLU, Flatten, Linear  1000            7,000",
        "2      Residual               output      1,001,000",
        "                                          1,008,156",
    ]


@EVERY_CHAIN
def test_only_batch_norm_in_training_couples_samples(name):
    for training in (True, False):
        model, _ = build(name, training)
        for block in altmin.split(model):
            norms = any(isinstance(m.module, nn.BatchNorm1d | nn.BatchNorm2d) for m in block.maps)
            assert block.mixes_samples == (training and norms)


def test_a_model_that_fx_has_traced_is_trained_as_the_model_itself():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    x, y = torch.randn(6, 3, dtype=torch.float64), torch.randint(2, (6,))
    traced = torch.fx.symbolic_trace(copy.deepcopy(model))
    for each in (model, traced):
        altmin.AltMin(each, weights=altmin.LocalSGD(lr=0.5)).step(x, y)
    torch.testing.assert_close(list(traced.parameters()), list(model.parameters()), rtol=1e-12, atol=1e-12)


def test_parameters_that_blocks_have_in_common_are_known_by_name():
    layer, other = nn.Linear(3, 3), nn.Linear(3, 3)
    chain = altmin.split(nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(3, 2)))
    assert chain.tied == {id(layer.weight): "0.weight", id(layer.bias): "0.bias"}
    other.weight = layer.weight
    assert list(altmin.split(nn.Sequential(layer, nn.ReLU(), other)).tied.values()) == ["0.weight"]
    assert not altmin.split(nn.Sequential(layer, nn.ReLU(), nn.Linear(3, 2))).tied


@pytest.mark.parametrize("model", [nn.Sequential(), nn.Sequential(nn.Flatten(), nn.ReLU())], ids=["empty", "no layer"])
def test_a_model_with_nothing_to_train_is_refused(model):
    with pytest.raises(ValueError, match="no layer with parameters"):
        altmin.split(model)


class Branching(nn.Module):
    """Two layers that no tracing opens."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(20, 20), nn.Linear(20, 20)

    def forward(self, x):
        return self.b(self.a(x).relu()) if bool(x.sum() > 0) else self.a(x)


def test_table_names_a_block_that_has_most_parameters():
    inner, ends = Branching(), (nn.Linear(4, 20), nn.Linear(20, 2))  # 840 of 840 + 100 + 42
    *_, last = repr(altmin.split(nn.Sequential(ends[0], inner, ends[1]))).splitlines()
    assert last.startswith("block 1 holds 86%")
    for even in (nn.Sequential(nn.Linear(4, 90), nn.ReLU(), nn.Linear(90, 2)), nn.Sequential(nn.LSTM(3, 5))):
        assert "holds" not in repr(altmin.split(even))
