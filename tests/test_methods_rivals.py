"""The contract of every method that is not alternating minimization or plain backprop, passed by being registered."""

import copy
import inspect
import pickle
from typing import Any

import pytest
import torch
from method_cases import NAMES, RANDOM, RIVALS, accuracy, net, problem
from trainer_cases import equal

import altmin
from altmin.training import fit
from altmin.training.resumed import method_settings

EVERY = pytest.mark.parametrize("name", RIVALS)


def trained(name: str, epochs: int = 2, batch_size: int = 25, **options: Any) -> altmin.methods.Method:
    method = altmin.methods.create(name, net(name), **options)
    fit(method, problem(), epochs=epochs, batch_size=batch_size)
    return method


def numbers(method: Any) -> dict[str, Any]:
    return copy.deepcopy({"model": method.model.state_dict(), "method": method.state_dict()})


@pytest.mark.parametrize("name", [*RIVALS, "am-adam", "am-sgd", "am-mem", "am-mem-fitted"])
def test_learns_what_a_linear_model_cannot(name: str) -> None:
    x, y = problem(400)
    faster = name in ("pc-alm", "predictive-coding")  # whose steps take long
    method = altmin.methods.create(name, net(name, 4, 40, 40, 3), **({"lr": 0.005} if faster else {}))
    first = accuracy(method.model, x, y)
    fit(method, (x, y), epochs=20 if faster else 60, batch_size=50)
    assert accuracy(method.model, x, y) > max(0.85, first + 0.3)


@pytest.mark.parametrize("name", ["dtp", "pc-alm", "predictive-coding", "proxprop", "straight-through"])
def test_autocast_rounds_the_operands_of_products_and_a_little_of_the_step(name: str) -> None:
    x, y = problem()
    methods = [altmin.methods.create(name, net(name)) for _ in range(2)]
    losses = []
    for method, rounded in zip(methods, (False, True), strict=True):
        torch.manual_seed(5)
        with torch.autocast("cpu", torch.bfloat16, enabled=rounded):
            losses.append(method.step(x, y).loss.item())
    assert 0 < abs(losses[1] - losses[0]) < 0.01 * losses[0]
    moved = [torch.cat([p.detach().flatten() for p in method.model.parameters()]) for method in methods]
    assert 0 < (moved[1] - moved[0]).abs().max() < 0.02


@EVERY
def test_two_runs_from_the_same_weights_and_seed_are_the_same(name: str) -> None:
    torch.manual_seed(3)
    first = numbers(trained(name))
    torch.manual_seed(3)
    assert equal(numbers(trained(name)), first)


@pytest.mark.parametrize("name", NAMES)
def test_a_copied_or_pickled_method_goes_on_as_the_original(name: str) -> None:
    method = trained(name)
    x, y = problem()
    for other in (copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        again = copy.deepcopy(method)
        for each in (again, other):
            torch.manual_seed(5)
            each.step(x, y)
            each.end_epoch()
        assert equal(numbers(again), numbers(other))
        assert repr(other) == repr(method)


@EVERY
def test_a_state_of_another_net_is_refused_and_nothing_changes(name: str) -> None:
    method, other = trained(name), altmin.methods.create(name, net(name, 4, 7, 8, 3))
    fit(other, problem(), epochs=1, batch_size=25)
    before = numbers(method)
    for wrong in (other.state_dict(), {}, {"nonsense": 1}):
        if equal(wrong, method.state_dict()):  # a method without a state of its own
            continue
        with pytest.raises(ValueError):
            method.load_state_dict(wrong)
        assert equal(numbers(method), before)


BAD = {
    "NaN": lambda x, y: (x.clone().index_fill_(0, torch.tensor([2]), torch.nan), y),
    "one feature more": lambda x, y: (torch.cat([x, x[:, :1]], 1), y),
    "a label too high": lambda x, y: (x, torch.where(torch.arange(len(y)) == 1, 3, y)),
    "fewer labels": lambda x, y: (x, y[:-1]),
}


@EVERY
@pytest.mark.parametrize("kind", BAD)
def test_a_bad_batch_is_refused_and_nothing_changes(name: str, kind: str) -> None:
    method = trained(name)
    before = numbers(method)
    with pytest.raises((ValueError, TypeError, RuntimeError, IndexError)):
        method.step(*BAD[kind](*problem()))
    assert equal(numbers(method), before)


@EVERY
@pytest.mark.parametrize("scale", [1e25, 1e38])
def test_numbers_that_overflow_are_said_to_diverge_and_weights_stay(name: str, scale: float) -> None:
    x, y = problem()
    method = trained(name)
    with torch.no_grad():
        if name not in ("admm", "bcd"):  # which solve for their weights
            method.model[-1].weight.mul_(3e38 / method.model[-1].weight.abs().max())
    before = copy.deepcopy(method.model.state_dict())
    with pytest.raises(altmin.Diverged):
        fit(method, (scale * x, y), epochs=2, batch_size=60)
    assert equal(method.model.state_dict(), before)


@EVERY
def test_every_option_tells_runs_apart(name: str) -> None:
    plain = method_settings(altmin.methods.create(name, net(name)))
    defaults = inspect.signature(altmin.methods.factory(name)).parameters
    for option in altmin.methods.options(name):
        default = defaults[option].default
        if isinstance(default, bool) or not isinstance(default, int | float):
            continue
        other = default + 1 if isinstance(default, int) else default / 2 or 0.01
        changed = method_settings(altmin.methods.create(name, net(name), **{option: other}))
        assert changed != plain, option


@pytest.mark.parametrize("name", [name for name in RIVALS if name != "straight-through"])
def test_a_model_whose_layer_was_replaced_is_refused_and_stays_as_it_is(name: str) -> None:
    """Else the old layer would be trained on, and the one in the model never."""
    method = trained(name)
    method.model[3] = copy.deepcopy(method.model[3])
    before = numbers(method)
    with pytest.raises(ValueError):
        method.step(*problem())
    assert equal(numbers(method), before)


@EVERY
def test_a_model_that_it_cannot_train_is_refused_in_words(name: str) -> None:
    if name != "straight-through":
        with pytest.raises((ValueError, TypeError)):
            altmin.methods.create(name, net(name).requires_grad_(False))
    with pytest.raises((ValueError, TypeError)):
        altmin.methods.create(name, net(name).half())


@EVERY
@pytest.mark.cuda
def test_on_a_gpu_it_takes_the_steps_it_takes_on_the_processor(name: str) -> None:
    if name in RANDOM:
        pytest.skip("it draws random numbers, and a GPU draws others")
    results = []
    for device in ("cpu", "cuda"):
        method = altmin.methods.create(name, net(name, dtype=torch.float64).to(device))
        x, y = problem(dtype=torch.float64)
        fit(method, (x.to(device), y.to(device)), epochs=2, batch_size=25)
        results.append([p.detach().cpu() for p in method.model.parameters()])
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, rtol=1e-6, atol=1e-9)
