"""A captured step as torch compiles it: traced as a whole, with the numbers of the ordinary step."""

import copy
import shutil

import pytest
import torch
from capture_cases import NETS, batches, both, mlp, same
from torch import nn

import altmin
from altmin.calculus.context import LOCAL
from altmin.runners.capture import captured
from altmin.runners.full_graph import FullGraph


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
def test_compiled_chains_of_operations_give_the_same_numbers():
    torch.manual_seed(0)
    ordinary, step = both(mlp(6, 6, 6), data=list(batches(3)), fuse=True)
    assert step.am.penalty.value == ordinary.penalty.value


@pytest.mark.parametrize(
    "net, rule", [("mixed", "adam"), ("no biases", "adam"), ("two layers", "memory"), ("mixed", "solved memory")]
)
def test_torch_can_trace_a_step_as_a_whole(net, rule, traced):
    """Or a capture would quietly not be compiled. Of the solved memory's first steps the third and fifth are."""
    _, step = both(NETS[net](), rule, data=list(batches(6)), fuse=True)
    assert step.compiled.works


@pytest.mark.parametrize(
    "model",
    [
        lambda: altmin.models.elman(5, length=6, inputs=2, outputs=3),
        lambda: altmin.models.gru(5, inputs=2, outputs=3, layers=2),
        lambda: altmin.models.lstm(5, inputs=2, outputs=3, bidirectional=True),
        lambda: altmin.models.min_gru(5, inputs=2, outputs=3),
    ],
    ids=["elman", "gru", "lstm", "mingru"],
)
def test_torch_can_trace_a_step_of_recurrent_layers_as_a_whole(model, traced):
    torch.manual_seed(0)
    data = [(torch.randn(4, 6, 2, dtype=torch.float64), torch.randint(3, (4,))) for _ in range(3)]
    _, step = both(model().double(), data=data, fuse=True)
    assert step.compiled.works


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_traced_step_of_images_writes_statistics_once_and_not_if_it_is_refused(channels_last, traced, monkeypatch):
    monkeypatch.setattr("altmin.runners.capture._gains_by_channels_last", lambda model, context: channels_last)
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.AdaptiveAvgPool2d(1)
    )
    net = nn.Sequential(*net, nn.Flatten(), nn.Linear(3, 3)).double()
    _, step = both(net, data=list(batches(4, (2, 6, 6))), fuse=True)
    assert step.compiled.works
    before = copy.deepcopy(step.am.model)
    x, y = next(batches(1, (2, 6, 6), seed=1))
    step.run(x * torch.nan, y)
    same(step.am.model, before, 0.0)
    assert step.pull() == 0


@pytest.mark.parametrize("method", ["am-adam", "am-mem", "adam"])
@pytest.mark.parametrize("each", [False, True])
def test_a_traced_step_of_an_ensemble_has_the_numbers_of_its_own(method, each, traced):
    def crew() -> altmin.Ensemble:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(7, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).double()
        rates = (2**-7, 2**-6, 1e30)
        return altmin.Ensemble([altmin.methods.create(method, copy.deepcopy(net), lr=lr) for lr in rates])

    ordinary, other = crew(), crew()
    step = captured(other, True, LOCAL)
    for x, y in batches(6):
        x, y = (x.expand(3, -1, -1), y.expand(3, -1)) if each else (x, y)
        expected = ordinary.advance(x, y, each)
        torch.testing.assert_close(step.run(x, y, step.begin_step(), each=each), expected, equal_nan=True)
    assert step.compiled.works
    assert other.alive.tolist() == ordinary.alive.tolist()
    for i in range(2):
        same(ordinary.member(i), other.member(i))


def test_steps_of_many_trainers_in_one_process_are_compiled(traced):
    """Torch compiles one function at most eight times."""
    for _ in range(10):
        _, step = both(mlp(4), data=list(batches(3)), fuse=True)
        assert step.compiled.works


@pytest.mark.parametrize("works", [True, False], ids=["compiled", "torch cannot compile it"])
def test_a_step_is_compiled_once_as_a_whole_or_not_at_all(monkeypatch, works):
    from torch._dynamo.exc import TorchDynamoException

    made, calls = [], []

    def compiler(function, **options):
        def call(*args):
            calls.append(args)
            if not works:
                raise TorchDynamoException("not this one")
            return function(*args)

        made.append(options)
        return call

    monkeypatch.setattr("torch.compile", compiler)
    both(NETS["a run"](), data=list(batches(4)), fuse=True)
    assert [(options["fullgraph"], options["dynamic"]) for options in made] == [(True, False)]
    assert len(calls) == (4 if works else 1)
    monkeypatch.setattr("altmin.runners.capture.WHOLE", 5)
    both(NETS["a run"](), data=list(batches(2)), fuse=True)
    assert len(made) == 1, "six blocks are too many then"


def test_where_the_compiler_fails_with_one_set_of_options_it_tries_the_next(monkeypatch):
    from torch._dynamo.exc import TorchDynamoException

    tried = []

    def compiler(function, options, **settings):
        def call(*args):
            tried.append(set(options))
            if "combo_kernels" in options:
                raise TorchDynamoException("not these")
            return function(*args)

        return call

    class Owner:
        def add(self, a, b):
            return a + b

    monkeypatch.setattr("torch.compile", compiler)
    whole = FullGraph(Owner.add, Owner(), torch.device("cuda"))
    assert whole.works is None
    assert [whole(1, 2), whole(3, 4)] == [3, 7]
    assert whole.works
    joined = {"combo_kernels", "post_grad_custom_pre_pass", "fallback_random"}
    assert tried == [joined, joined | {"loop_ordering_after_fusion"}, {"fallback_random"}, {"fallback_random"}]


@pytest.mark.filterwarnings("ignore:a batch of .* takes the ordinary step")
def test_a_recorded_step_on_a_cpu_takes_any_layout_and_the_ordinary_step_for_other_shapes(traced):
    torch.manual_seed(0)
    ordinary = altmin.methods.create("am-adam", altmin.models.mlp(7, (5, 5), 3).double(), lr=2**-7)
    method = altmin.Recorded(copy.deepcopy(ordinary))
    for i, (x, y) in enumerate(batches(5)):
        x = x.T.contiguous().T if i == 2 else x
        x, y = (x[:6], y[:6]) if i == 3 else (x, y)
        assert float(method.step(x, y).loss) == pytest.approx(float(ordinary.step(x, y).loss), rel=1e-12)
    same(ordinary.model, method.model)
    assert method.captured.compiled.works
    assert method.others == 1
