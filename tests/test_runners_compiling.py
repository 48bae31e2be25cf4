"""Compiled steps: the options of the compiler that are tried, and that a step is compiled as a whole.

Their numbers are in test_runners_matrix.py."""

import copy
import gc
import pickle
import shutil
from typing import Any

import pytest
import torch
from runner_cases import F64, NETS, RULES, build, mlp, same, same_models, state

import altmin
from altmin import Recorded
from altmin.runners.capture import WITH_ADAM
from altmin.runners.compiling import FullGraph


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
@pytest.mark.parametrize("rule", ["adam", "solved memory"])
def test_a_compiled_step_is_the_ordinary_step_whatever_the_layout_and_the_shape(rule: str) -> None:
    ordinary, other = (build("normed", rule) for _ in range(2))
    recorded = Recorded(other)
    for i, (x, y) in enumerate(NETS["normed"].batches(10)):
        x = x.T.contiguous().T if i == 2 else x
        x, y = (x[:3], y[:3]) if i == 3 else (x, y)
        assert float(recorded.step(x, y).loss) == pytest.approx(float(ordinary.step(x, y).loss), rel=1e-9)
    assert recorded.captured.compiled[0].works
    assert recorded.others == 1
    same(state(recorded), state(ordinary), 1e-7)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
@pytest.mark.parametrize("rule", ["adam", "solved memory"])
def test_a_compiled_step_refuses_statistics_that_are_not_finite(rule: str) -> None:
    """Batch norm makes the loss of large inputs finite, not the square of them."""
    ordinary, other = (altmin.AltMin(NETS["normed"].model().float(), **RULES[rule](0)) for _ in range(2))
    recorded = Recorded(other)
    for x, y in NETS["normed"].batches(10):
        ordinary.step(x.float(), y)
        recorded.step(x.float(), y)
    before = state(recorded)
    with pytest.raises(altmin.Diverged):
        ordinary.step(1e20 * x.float(), y)
    recorded.step(1e20 * x.float(), y)
    with pytest.raises(altmin.Diverged):
        recorded.synchronize()
    assert recorded.captured.compiled[0].works
    same(state(recorded), before, 0.0)


def test_a_large_compiled_model_refuses_what_the_ordinary_step_refuses(
    traced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights follow outside the compiled step."""
    monkeypatch.setitem(WITH_ADAM, "cpu", 0)
    ordinary, other = (altmin.AltMin(NETS["normed"].model(), weights=altmin.LocalSGD(1e160)) for _ in range(2))
    recorded, ((x, y),) = Recorded(other), NETS["normed"].batches(1)
    recorded.step(x, y)
    for step in (lambda: ordinary.step(x, y), recorded.synchronize):
        with pytest.raises(altmin.Diverged):
            step()
    assert recorded.captured.compiled[0].works
    same(state(recorded), state(ordinary), 0.0)


def test_a_compiled_step_with_channels_last_that_is_refused_changes_nothing(
    traced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("altmin.runners.capture._gains_by_channels_last", lambda model: True)
    ordinary, other = (build("convolutions", "adam") for _ in range(2))
    recorded, (first, second) = Recorded(other), NETS["convolutions"].batches(2)
    for method in (ordinary, recorded):
        method.step(*first)
    recorded.step(first[0] * torch.nan, first[1])
    same_models(other.model, ordinary.model, 1e-7)
    with pytest.raises(altmin.Diverged):
        recorded.synchronize()
    for method in (ordinary, recorded):
        method.step(*second)
    same(state(recorded), state(ordinary), 1e-7)
    assert recorded.captured.compiled[0].works


def test_frozen_layers_stay(traced: None) -> None:
    model = NETS["normed"].model()
    model[3].requires_grad_(False)
    ordinary, other = (altmin.AltMin(copy.deepcopy(model), weights=altmin.LocalAdam(2.0**-6)) for _ in range(2))
    recorded = Recorded(other)
    for x, y in NETS["normed"].batches(3):
        for method in (ordinary, recorded):
            method.step(x, y)
    assert recorded.captured.with_adam
    assert torch.equal(recorded.model[3].weight, model[3].weight)
    same(state(recorded), state(ordinary), 1e-7)


class Owner:
    def add(self, a: Any, b: Any) -> Any:
        return a + b


def test_methods_of_many_owners_in_one_process_are_compiled(traced: None) -> None:
    """Torch compiles one function at most eight times."""
    for _ in range(10):
        whole = FullGraph(Owner.add, Owner(), torch.device("cpu"))
        assert float(whole(torch.ones(()), torch.ones(()))) == 2
        assert whole.works


@pytest.mark.parametrize("works", [True, False])
def test_a_step_is_compiled_once_as_a_whole_or_not_at_all(works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.exc import TorchDynamoException

    made, calls = [], []

    def compiler(function: Any, **options: Any) -> Any:
        def call(*args: Any) -> Any:
            calls.append(args)
            if not works:
                raise TorchDynamoException("not this one")
            return function(*args)

        made.append(options)
        return call

    monkeypatch.setattr("torch.compile", compiler)
    ordinary, recorded = build("12 layers", "adam"), Recorded(build("12 layers", "adam"))
    for i, (x, y) in enumerate(NETS["12 layers"].batches(3)):
        ordinary.step(x, y)
        if works or i:
            recorded.step(x, y)
        else:
            with pytest.warns(UserWarning, match="without being compiled"):
                recorded.step(x, y)
    same_models(ordinary.model, recorded.model)
    assert [(options["fullgraph"], options["dynamic"]) for options in made] == [(True, False)]
    assert len(calls) == (3 if works else 1)
    long = Recorded(altmin.AltMin(mlp(*[2] * 64).to(F64)))
    long.step(*NETS["normed"].batches(1)[0])
    assert len(made) == 1, "65 blocks are too many"


def test_where_the_compiler_fails_with_one_set_of_options_it_tries_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.exc import TorchDynamoException

    tried = []

    def compiler(function: Any, options: Any, **settings: Any) -> Any:
        def call(*args: Any) -> Any:
            tried.append(set(options))
            if "combo_kernels" in options:
                raise TorchDynamoException("not these")
            return function(*args)

        return call

    monkeypatch.setattr("torch.compile", compiler)
    whole = FullGraph(Owner.add, Owner(), torch.device("cuda"))
    assert whole.works is None
    assert [whole(1, 2), whole(3, 4)] == [3, 7]
    assert whole.works
    assert ["combo_kernels" in options for options in tried] == [True, True, False, False]
    assert all(options >= {"fallback_random"} for options in tried)


@pytest.mark.parametrize("rule", ["adam", "solved memory"])
def test_a_trainer_that_compiles_takes_the_steps_of_one_that_does_not(rule: str, traced: None) -> None:
    """Also by a scheduler's rates, with fewer samples, after a batch that is refused, as a copy and from a file."""
    ordinary, plain = build("normed", rule), build("normed", rule)
    compiled = altmin.AltMin(plain.model, weights=plain.weights, penalty=plain.penalty, compile=True)
    data = NETS["normed"].batches(20)
    plans = [torch.optim.lr_scheduler.StepLR(each.optimizer, 8, 0.5) for each in (ordinary, compiled)]
    for i, (x, y) in enumerate(data):
        x, y = (x[:3], y[:3]) if i == 18 else (x, y)
        metrics, expected = compiled.step(x, y), ordinary.step(x, y)
        assert float(metrics.loss) == pytest.approx(float(expected.loss), rel=1e-9)
        assert metrics.objective == pytest.approx(float(expected.objective), rel=1e-9)
        assert compiled.penalty.value == pytest.approx(ordinary.penalty.value)
        for plan in plans:
            plan.step()
    with pytest.raises(ValueError, match="the input holds NaN"):
        compiled.step(data[0][0] * torch.nan, data[0][1])
    same(state(compiled), state(ordinary), 1e-7)
    copied, pickled = copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))
    for each in (ordinary, compiled, copied, pickled):
        each.step(*data[0])
    for each in (compiled, copied, pickled):
        same(state(each), state(ordinary), 1e-7)
    assert compiled.compiled.captured.compiled[0].works


def test_a_trainer_that_compiles_sees_new_settings_of_layers(traced: None) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.LeakyReLU(0.1), torch.nn.Linear(6, 3)).to(F64)
    ordinary, compiled = (altmin.AltMin(copy.deepcopy(model), compile=whether) for whether in (False, True))
    for i, (x, y) in enumerate(NETS["normed"].batches(6)):
        for method in (ordinary, compiled):
            method.model[1].negative_slope = 0.1 if i < 2 else 0.9
            method.step(x, y)
    assert compiled.compiled.captured.compiled[0].works
    same(state(compiled), state(ordinary), 1e-7)


def test_a_trainer_whose_steps_torch_cannot_compile_takes_them_as_ever(traced: None) -> None:
    ordinary, plain = build("autograd", "adam"), build("autograd", "adam")
    compiled = altmin.AltMin(plain.model, weights=plain.weights, penalty=plain.penalty, compile=True)
    data = NETS["autograd"].batches(3)
    with pytest.warns(UserWarning, match="torch cannot"):
        compiled.step(*data[0])
    ordinary.step(*data[0])
    for x, y in data[1:]:
        assert float(compiled.step(x, y).loss) == pytest.approx(float(ordinary.step(x, y).loss), rel=1e-12)
    assert not compiled.compiled.programs
    gc.collect()  # what the failed trace has left must not change how torch works
    p = torch.ones(2, 5, dtype=F64, requires_grad=True)
    y = torch.func.functional_call(torch.nn.Linear(5, 2, bias=False, dtype=F64), {"weight": p}, data[0][0])
    torch.testing.assert_close(torch.autograd.grad(y.sum(), p)[0], data[0][0].sum(0).expand(2, 5))
    same(state(compiled), state(ordinary), 1e-7)


class Backwards(torch.autograd.Function):
    """The identity, whose gradient is turned around."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return -g


class Turned(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turned: torch.Tensor = Backwards.apply(x)
        return turned


def turned_loss(o: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(Backwards.apply(o), y)


@pytest.mark.filterwarnings("ignore:a step is recorded without")
@pytest.mark.parametrize("loss", [None, turned_loss], ids=["in a block", "in the loss"])
def test_a_gradient_of_ones_own_is_never_lost(loss: Any, traced: None) -> None:
    """Compiled, an autograd.Function would be its forward alone."""
    model = torch.nn.Sequential(*mlp(5, 5)[:-1], *([] if loss else [Turned()]), mlp(5, 5)[-1]).to(F64)
    ordinary, compiled, recorded = (
        altmin.AltMin(copy.deepcopy(model), loss, compile=whether) for whether in (False, True, False)
    )
    for x, y in NETS["normed"].batches(2):
        assert float(compiled.step(x, y).loss) == float(ordinary.step(x, y).loss)
    same_models(compiled.model, ordinary.model, 0.0)
    with pytest.raises(ValueError, match=r"autograd\.Function"):
        Recorded(recorded).step(x, y)
    assert recorded.updates.count == 0
    same_models(recorded.model, model, 0.0)


def hooked_loss(o: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if o.requires_grad:
        o.register_hook(lambda g: 2 * g)
    return torch.nn.functional.cross_entropy(o, y)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
@pytest.mark.filterwarnings("ignore:a step is recorded without")
def test_hooks_of_a_loss_on_its_output_are_never_lost() -> None:
    sgd = altmin.LocalSGD(0.5)
    made = [
        altmin.AltMin(mlp(5, 5).to(F64), hooked_loss, weights=sgd, codes=altmin.GradientCodes(0.0)) for _ in range(2)
    ]
    made[1].model.load_state_dict(made[0].model.state_dict())
    ordinary, recorded = made[0], Recorded(made[1])
    for x, y in NETS["normed"].batches(2):
        ordinary.step(x, y)
        recorded.step(x, y)
    same_models(recorded.model, ordinary.model, 1e-7)


def test_a_loss_that_torch_func_cannot_differentiate_is_refused() -> None:
    seen = torch.zeros((), dtype=F64)

    def loss(o: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.add_(1)
        return o.square().mean()

    recorded = Recorded(altmin.AltMin(mlp(5, 5).to(F64), loss), fuse=False)
    with pytest.raises(ValueError, match="loss"):
        recorded.step(*NETS["normed"].batches(1)[0])


class Margin(torch.nn.Module):
    margin = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.margin = 0.5

    def forward(self, o: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (o + self.margin).square().mean()


@pytest.mark.parametrize("loss", [Margin, lambda: lambda o, y: o.square().mean()], ids=["setting", "function"])
def test_a_loss_of_ones_own_stays_as_recorded(loss: Any) -> None:
    recorded, (x, y) = Recorded(altmin.AltMin(mlp(5, 5).to(F64), loss()), fuse=False), NETS["normed"].batches(1)[0]
    recorded.step(x, y)
    if loss is Margin:
        vars(recorded.method)["loss"].margin = 0.9
    else:
        recorded.method.loss = lambda o, y: (o - 1).square().mean()
    with pytest.raises(ValueError, match="changed"):
        recorded.step(x, y)
