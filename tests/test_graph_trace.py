"""A traced model is the same model: values, parameters, modes, and in the limit of small steps its gradients."""

import copy

import pytest
import torch
from graph_cases import CASES, F64, Net, Plain, ResNet, Transformer, as_backprop, sequential
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import altmin
from altmin.graph.trace import trace

EVERY = pytest.mark.parametrize("name", CASES)
torch.set_num_threads(1)


def composed(model: nn.Module, x: Tensor) -> Tensor:
    for part in trace(model):
        x = part.module(x)
    return x


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@EVERY
def test_the_parts_compose_to_the_model_bit_for_bit(name, training):
    model, x, _ = CASES[name].build()
    model(x)  # running statistics other than zero and one
    model.train(training)
    other = copy.deepcopy(model)
    torch.manual_seed(1)
    wanted = other(x)
    torch.manual_seed(1)
    assert torch.equal(composed(model, x), wanted)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))
    model.load_state_dict(other.state_dict())
    torch.manual_seed(2)
    wanted = other(x)
    torch.manual_seed(2)
    assert torch.equal(altmin.split(model)(x), wanted)


@EVERY
def test_a_trace_holds_the_models_own_parameters_each_once_and_changes_nothing(name):
    model, _, _ = CASES[name].build()
    held, state = [dict(vars(m)) for m in model.modules()], torch.get_rng_state()
    parts = trace(model)
    assert sorted(id(p) for part in parts for p in part.module.parameters()) == sorted(map(id, model.parameters()))
    buffers = {id(b) for b in model.buffers()}
    assert all(id(b) in buffers for part in parts for b in part.module.buffers())
    assert [dict(vars(m)) for m in model.modules()] == held
    assert torch.equal(torch.get_rng_state(), state)


@EVERY
def test_blocks_end_where_everything_passes_through_one_tensor(name):
    assert [str(block) for block in altmin.split(CASES[name].build()[0])] == CASES[name].blocks


def affine(model: nn.Module) -> list[str]:
    """The names of all affine maps of a model but the last: the finest cut."""
    return [name for name, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)][:-1]


@pytest.mark.parametrize("cut", ["default", "coarse", "fine"])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@EVERY
def test_as_codes_move_less_gradients_become_autograds(name, training, cut):
    model, x, y = CASES[name].build()
    model.train(training)
    for m in model.modules():
        m.p = 0.0 if isinstance(m, nn.Dropout) else getattr(m, "p", None)
    at = {"default": None, "coarse": CASES[name].at, "fine": affine(model)}[cut]
    if cut == "fine":
        assert len(altmin.split(model, at=at)) == len(at) + 1
        torch.testing.assert_close(altmin.split(model, at=at)(x), model(x), rtol=1e-12, atol=1e-12)
    as_backprop(model, x, y, CASES[name].loss, at=at)


@pytest.mark.parametrize("fine", [False, True], ids=["default", "fine"])
@EVERY
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1000), share=st.sampled_from([0.1, 1.0]), mu=st.sampled_from([0.1, 10.0]))
def test_f_never_rises_over_a_code_update(name, fine, seed, share, mu):
    model, x, y = CASES[name].build(seed)
    codes = altmin.GradientCodes(share=share)
    at = affine(model) if fine else None
    metrics = altmin.AltMin(model, CASES[name].loss, codes, penalty=mu, at=at).step(x, y)
    assert metrics.objective <= float(metrics.loss) * (1 + 1e-12)


def test_a_forward_that_calls_layers_in_turn_trains_as_the_sequential_of_these_layers_bit_for_bit():
    torch.manual_seed(0)
    model = Plain().double()
    other = sequential(copy.deepcopy(model))
    assert str(altmin.split(model)) == str(altmin.split(other))
    pair = [altmin.AltMin(model), altmin.AltMin(other)]
    for seed in range(3):
        torch.manual_seed(seed)
        x, y = torch.randn(6, 1, 8, 8, dtype=F64), torch.randint(3, (6,))
        losses = [am.step(x, y).loss for am in pair]
        assert torch.equal(*losses)
    ours, theirs = model.state_dict().values(), other.state_dict().values()
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_model_cut_in_evaluation_follows_its_mode_and_keeps_one_set_of_statistics():
    model, x, y = CASES["residual"].build()
    trained = altmin.AltMin(model.eval())
    before = copy.deepcopy(model)
    trained.step(x, y)
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), before.buffers(), strict=True))
    before.load_state_dict(model.state_dict())
    model.train()
    before.train()(x)
    trained.step(x, y)
    torch.testing.assert_close([*model.buffers()], [*before.buffers()], rtol=1e-12, atol=1e-12)


def test_names_say_after_which_modules_to_cut_and_nowhere_else():
    chain = altmin.split(ResNet(), at=["layer1", "layer2.0"])
    assert [str(block) for block in chain] == [
        "Conv2d, BatchNorm2d, ReLU, Basic, Basic",
        "Basic",
        "AdaptiveAvgPool2d, Flatten, Linear",
    ]
    assert len(altmin.split(ResNet(), at=[])) == 1
    assert len(altmin.split(ResNet(), at=["fc"])) == 1
    names = ["0", "2"]
    fine = altmin.split(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), nn.Linear(3, 2)), at=names)
    assert [str(block) for block in fine] == ["Linear", "ReLU, Linear", "Linear"]


class Inner(nn.Module):
    """One block by itself, with a place to cut inside."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return x + self.layer(x)


def test_a_name_inside_a_module_opens_it():
    model = nn.Sequential(nn.Linear(4, 4), Inner(), nn.Linear(4, 2))
    assert [str(b) for b in altmin.split(model, at=["0", "1"])] == ["Linear", "Inner", "Linear"]
    assert [str(b) for b in altmin.split(model, at=["1.norm"])] == ["Linear, LayerNorm", "(Linear, add), Linear"]


def encoder() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.TransformerEncoderLayer(4, 2, 8), nn.Linear(4, 2))


ERRORS = {
    "inside torch's": (encoder, ["1.linear1"], r"'1\.linear1', which .* lies inside a module that stays whole"),
    "uncalled": (Transformer, ["blocks"], r"cannot be cut after 'blocks', which is not called once"),
    "unknown": (ResNet, ["layr1"], r"unknown module 'layr1'; did you mean 'layer1'\? The choices are: fc, layer1, "),
    "no weights": (ResNet, ["norm", "layer2", "pool"], r"would have no parameters \(AdaptiveAvgPool2d\); give fewer"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_a_place_where_the_model_cannot_be_cut_is_answered_by_where_it_can(case):
    make, at, said = ERRORS[case]
    with pytest.raises(ValueError, match=said):
        altmin.AltMin(make(), at=at)


def test_one_name_is_no_list_of_names():
    for names in ({"at": "a"}, {"inputs": "x"}):
        with pytest.raises(TypeError):
            altmin.split(Net(), **names)


def test_a_layer_used_twice_in_one_block_goes_through_autograd():
    torch.manual_seed(0)
    model = Net(lambda net, h: net.b(torch.tanh(net.b(h)))).double()
    assert str(altmin.split(model, at=["a"]).blocks[1]) == "(Linear, Tanh, Linear, Tanh, Linear)"
    as_backprop(model, torch.randn(6, 4, dtype=F64), torch.randint(3, (6,)), at=["a"])


def test_a_new_hook_inside_a_branch_is_refused_and_one_from_before_is_honoured():
    model, x, y = CASES["residual"].build()
    am = altmin.AltMin(model)
    model.layer1[0].conv1.register_forward_hook(lambda module, given, out: 2 * out)
    with pytest.raises(ValueError, match="the model has changed since it was cut"):
        am.step(x, y)
    as_backprop(model, x, y)


class Gated(nn.Module):
    """Values that are no tensors: chunks, and what a recurrent layer returns."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.gru, self.b = nn.Linear(3, 8), nn.GRU(4, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        left, right = torch.relu(self.a(x)).chunk(2, dim=-1)
        out, _ = self.gru(left * right)
        return self.b(out[:, -1])


def test_tuples_are_not_handed_from_block_to_block():
    torch.manual_seed(0)
    model, x = Gated().double(), torch.randn(6, 5, 3, dtype=F64)
    chain = altmin.split(model)
    assert [str(block) for block in chain] == ["Linear", "ReLU, (chunk, mul, GRU)", "Last, Linear"]
    assert torch.equal(chain(x), model(x))
    altmin.AltMin(model).step(x, torch.randint(2, (6,)))


class Noise(Net):
    """A mask that is drawn once and used early and late."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        mask = self.drop(self.scale)
        return self.b(torch.tanh(self.a(x) * mask)) * mask


def test_a_module_is_called_once_where_the_model_calls_it_once():
    model, x = Noise().double(), torch.randn(6, 4, dtype=F64)
    assert len(altmin.split(model)) == 1
    torch.manual_seed(0)
    wanted = model(x)
    torch.manual_seed(0)
    assert torch.equal(composed(model, x), wanted)


class Counts(nn.Module):
    """Sizes of the input, and numbers made of them, to the end."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.layer, self.last = nn.Linear(6, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        samples, steps, width = x.shape
        h = self.first(x)
        h = (h + torch.tanh(self.layer(h))).reshape(samples * steps, 4) * steps / (2 * width)
        twice = 2 * steps
        h = torch.tanh(h.view(samples, steps, 4) + twice) * twice
        return self.last(h.sum(1) / steps)


@pytest.mark.parametrize("at", [["first"], ["layer"], ["first", "layer"]], ids=str)
def test_sizes_pass_beside_a_code_and_are_computed_with(at):
    torch.manual_seed(0)
    model, x, y = Counts().double(), torch.randn(6, 2, 6, dtype=F64), torch.randint(3, (6,))
    assert torch.equal(altmin.split(model, at=at)(x), model(x))
    as_backprop(model, x, y, at=at)


# -- random graphs -----------------------------------------------------------------------------------------------------


class Random(nn.Module):
    """program: for each value its operation and the two earlier values it takes; 0 is the input. Values that nobody
    uses are added up at the end."""

    def __init__(self, program: list[tuple[str, int, int]]):
        super().__init__()
        self.program = program
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in program])

    def forward(self, x: Tensor) -> Tensor:
        values, used = [x], set()
        for layer, (op, i, j) in zip(self.layers, self.program, strict=True):
            i, j = i % len(values), j % len(values)
            used |= {i, j} if op == "add" else {i}
            a, b = values[i], values[j]
            values.append(
                {"linear": layer, "tanh": torch.tanh, "double": lambda a: 2 * a}.get(op, lambda a, b=b: a + b)(a)
            )
        loose = [v for i, v in enumerate(values) if i not in used]
        return sum(loose[1:], start=loose[0])

    def edges(self) -> tuple[list[set[int]], set[int]]:
        """For each value those it takes, the sum at the end last; and which are outputs of a layer."""
        takes: list[set[int]] = [set()]
        for op, i, j in self.program:
            n = len(takes)
            takes.append({i % n, j % n} if op == "add" else {i % n})
        loose = set(range(len(takes))) - set().union(*takes)
        return [*takes, loose], {n for n, (op, *_) in enumerate(self.program, 1) if op == "linear"}


def without(takes: list[set[int]], removed: int) -> bool:
    """Whether the last value still depends on the input."""
    reached = {0} - {removed}
    for n in range(1, len(takes)):
        if n != removed and takes[n] & reached:
            reached.add(n)
    return len(takes) - 1 in reached


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["linear", "linear", "tanh", "double", "add"]), st.integers(0, 20), st.integers(0, 20)
        ),
        min_size=1,
        max_size=9,
    )
)
def test_random_graphs_are_cut_at_the_values_without_which_the_output_does_not_depend_on_the_input(program):
    torch.manual_seed(0)
    model, x = Random(program).double(), torch.randn(4, 3, dtype=F64)
    takes, layers = model.edges()
    assert torch.equal(composed(model, x), model(x))
    if not layers:
        with pytest.raises(ValueError, match="no layer with parameters"):
            altmin.split(model)
        return
    needed = [n for n in range(1, len(takes)) if not without(takes, n)]
    blocks = sum(any(a < n <= b for n in layers) for a, b in zip([0, *needed], needed, strict=False))
    assert len(altmin.split(model)) == blocks
