"""A state that does not fit is refused as a whole, in one sentence that names the entry; nothing has changed then."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from trainer_cases import RULES, batch, convolutional, equal, mlp

import altmin
from altmin.common.state import fitted, fitted_optimizer, module_form, number

State = dict[str, Any]


def trained(rule: str = "adam", parts: bool = False, model: Any = mlp) -> altmin.AltMin:
    am = altmin.AltMin(model(), weights=RULES[rule](), penalty=altmin.Penalty(0.5, increment=0.1))
    am.step(*batch(0))
    if parts:
        am.gather(*batch(1))
    return am


def optimizer_of(state: State) -> State:
    weights = state.get("weights", state)
    found: State = weights.get("rest", weights)["optimizer"]
    return found


def everything(method: Any) -> Any:
    return copy.deepcopy((method.model.state_dict(), method.state_dict()))


def check_optimizer(optimizer: torch.optim.Optimizer, state: Any) -> State:
    return fitted_optimizer(state, "the optimizer", optimizer, complete=False)


def set_moment(name: str, value: Callable[[Tensor], Any]) -> Callable[[State], None]:
    def edit(state: State) -> None:
        entry = optimizer_of(state)["state"][1]
        entry[name] = value(entry[name])

    return edit


def set_option(name: str, value: Any) -> Callable[[State], None]:
    return lambda state: optimizer_of(state)["param_groups"][0].update({name: value})


def gathered(state: State, change: Callable[[Any], Any]) -> None:
    state["weights"]["gathered"][0] = change(state["weights"]["gathered"][0])


GROUP = "of entry 0 of param_groups of optimizer of weights of AltMin"
MOMENT = "of parameter 1 of state of optimizer of weights of AltMin"
GATHERED = "block 0 of gathered of weights of AltMin"
EDITS: dict[str, tuple[Callable[[State], Any], str]] = {
    "shape": (set_moment("exp_avg", lambda t: t[:1]), rf"exp_avg {MOMENT} must be torch.float64 of shape \(8,\)"),
    "dtype": (set_moment("exp_avg_sq", lambda t: t.float()), f"exp_avg_sq {MOMENT} must be torch.float64"),
    "device": (set_moment("exp_avg", lambda t: t.to("meta")), f"exp_avg {MOMENT} belongs on cpu, given .* meta"),
    "nan": (set_moment("exp_avg", lambda t: t * math.nan), f"exp_avg {MOMENT} holds numbers that are not finite"),
    "no tensor": (set_moment("exp_avg", lambda t: None), f"exp_avg {MOMENT} must be a tensor, given None"),
    "sparse": (set_moment("exp_avg", lambda t: t.to_sparse()), f"exp_avg {MOMENT} must be .* given sparse"),
    "negative step": (set_moment("step", lambda t: t - 5), f"step {MOMENT} must be a whole number of at least 0"),
    "half a step": (set_moment("step", lambda t: t - 0.5), f"step {MOMENT} must be a whole number of at least 0"),
    "many steps": (set_moment("step", lambda t: t.expand(8)), rf"step {MOMENT} must be torch.float32 of shape \(\)"),
    "negative square": (set_moment("exp_avg_sq", lambda t: t - 1), f"exp_avg_sq {MOMENT} is a mean of squares"),
    "moment missing": (lambda s: optimizer_of(s)["state"][1].pop("exp_avg"), f"state {MOMENT}: it lacks exp_avg"),
    "moment extra": (lambda s: optimizer_of(s)["state"][1].update(more=1), f"state {MOMENT}: it has more besides"),
    "entry": (lambda s: optimizer_of(s)["state"].update({1: 3}), f"the state {MOMENT} is a dict, given 3"),
    "parameter missing": (
        lambda s: optimizer_of(s)["state"].pop(1),
        "state of optimizer of weights of AltMin: it lacks 1",
    ),
    "parameter extra": (
        lambda s: optimizer_of(s)["state"].update({6: {}}),
        "state of optimizer of weights of AltMin: it has 6 besides",
    ),
    "parameters": (lambda s: optimizer_of(s)["param_groups"][0]["params"].pop(), f"params {GROUP} is .* in the state"),
    "groups": (lambda s: optimizer_of(s)["param_groups"].append({}), "param_groups of optimizer .* must be 1 entries"),
    "group": (lambda s: optimizer_of(s)["param_groups"].__setitem__(0, 7), f"the state {GROUP} is a dict"),
    "option missing": (lambda s: optimizer_of(s)["param_groups"][0].pop("eps"), f"state {GROUP}: it lacks eps"),
    "negative lr": (set_option("lr", -0.1), f"lr {GROUP} must be a finite number of at least 0, given -0.1"),
    "text for lr": (set_option("lr", "0.1"), f"lr {GROUP} must be a finite number of at least 0, given '0.1'"),
    "weight decay": (set_option("weight_decay", math.inf), f"weight_decay {GROUP} must be a finite number"),
    "beta": (set_option("betas", (0.9, "x")), f"entry 1 of betas {GROUP} must be a finite number"),
    "beta of 1": (set_option("betas", (0.9, 1.0)), f"betas {GROUP} must be at least 0 and below 1, given"),
    "negative beta": (set_option("betas", (-0.1, 0.9)), f"betas {GROUP} must be at least 0 and below 1, given"),
    "betas": (set_option("betas", (0.9,)), f"betas {GROUP} must be 2 entries"),
    "flag": (set_option("amsgrad", True), f"amsgrad {GROUP} is True in the state, here it is False"),
    "unknown option": (set_option("more", "x"), f"more {GROUP} must be a finite number of at least 0, given 'x'"),
    "optimizer": (lambda s: s["weights"].update(optimizer=[]), r"the state of optimizer of .* is a dict, given \[\]"),
    "states": (lambda s: optimizer_of(s).update(state=[]), "state of optimizer of weights of AltMin is a dict"),
    "mu": (lambda s: s["penalty"].update(value=-5.0), "mu must be a finite number of at least 0, given -5.0"),
    "no mu": (lambda s: s["penalty"].clear(), "not the state of penalty of AltMin: it lacks value"),
    "rest of it": (lambda s: s.update(more=1), "not the state of AltMin: it has more besides"),
    "gathered shape": (
        lambda s: gathered(s, lambda grads: (torch.zeros(2, 2), *grads[1:])),
        rf"entry 0 of {GATHERED} must be torch.float64 of shape \(8, 4\), given torch.float32",
    ),
    "gathered count": (lambda s: gathered(s, lambda grads: grads[:1]), f"{GATHERED} must be 2 entries, given"),
    "gathered samples": (lambda s: s["weights"].update(samples=-1), "samples of weights of AltMin must be a whole"),
    "gathered block": (
        lambda s: s["weights"]["gathered"].update({9: s["weights"]["gathered"][0]}),
        "gathered of weights of AltMin: it has 9 besides",
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_state_that_does_not_fit_is_refused_by_name_and_changes_nothing(edit: str) -> None:
    am, state = trained(parts=True), copy.deepcopy(trained(parts=True).state_dict())
    am.step(*batch(5))
    before = everything(am)
    change, message = EDITS[edit]
    change(state)
    with pytest.raises(ValueError, match=message) as error:
        am.load_state_dict(state)
    assert "\n" not in str(error.value)
    assert equal(everything(am), before)


MEMORY_EDITS: dict[str, tuple[Callable[[State], Any], str]] = {
    "A": (
        lambda m: m.update(A=m["A"][:3]),
        r"A of block 1 of states .* must be torch.float64 of shape \(9, 9\), given",
    ),
    "R": (lambda m: m.update(R=m["R"].mT), r"R of block 1 of states .* must be torch.float64 of shape \(6, 9\), given"),
    "nan": (lambda m: m["A"].fill_(math.nan), "A of block 1 of states .* holds numbers that are not finite"),
    "samples": (lambda m: m.update(samples=-1), "samples of block 1 of states .* must be a tensor, given -1"),
    "missing": (lambda m: m.pop("R"), "not the state of block 1 of states .*: it lacks R"),
}


@pytest.mark.parametrize("name", ["states", "gathered"])
@pytest.mark.parametrize("edit", MEMORY_EDITS)
def test_a_memory_that_does_not_fit_is_refused_and_changes_nothing(edit: str, name: str) -> None:
    am = trained("memory", parts=True)
    state, before = copy.deepcopy(am.state_dict()), everything(am)
    change, message = MEMORY_EDITS[edit]
    change(state["weights"][name][1])
    with pytest.raises(ValueError, match=message if name == "states" else "block 1 of gathered"):
        am.load_state_dict(state)
    assert equal(everything(am), before)


def test_a_memory_of_an_unknown_block_or_a_bad_rest_is_refused_and_changes_nothing() -> None:
    am = trained("memory")
    state, before = copy.deepcopy(am.state_dict()), everything(am)
    state["weights"]["states"][5] = state["weights"]["states"][1]
    with pytest.raises(ValueError, match="states of weights of AltMin: it has 5 besides"):
        am.load_state_dict(state)
    state = copy.deepcopy(am.state_dict())
    state["weights"]["states"][0]["A"] += 1
    optimizer_of(state)["state"][0]["exp_avg"] = torch.zeros(1)
    with pytest.raises(ValueError, match="exp_avg of parameter 0"):
        am.load_state_dict(state)
    assert equal(everything(am), before)


def wide(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 2000), nn.ReLU(), nn.Linear(2000, 3)).double()


ONLINE = ("am-adam", "am-sgd", "am-mem", "am-mem-fitted", "am-mem-printed", "adam", "sgd")


@pytest.mark.parametrize("name", [*ONLINE, "am-adam-offline", "am-mem-offline", "am-mem-fitted-offline"])
def test_the_state_of_another_net_is_refused_by_every_method(name: str) -> None:
    """A fused kernel would write past the end of its moments."""
    options = {"fused": True} if name in ("adam", "sgd") else {}
    small, large = (altmin.methods.create(name, make(), **options) for make in (mlp, wide))
    for method in (small, large):
        method.step(*batch())
        method.end_epoch()
    before = everything(large)
    with pytest.raises(ValueError, match=r"parameter|block|group|not the state of states of weights"):
        large.load_state_dict(copy.deepcopy(small.state_dict()))
    assert equal(everything(large), before)


def test_an_ensemble_refuses_all_if_one_members_state_does_not_fit() -> None:
    ensemble = altmin.Ensemble([altmin.methods.create("am-adam", mlp(seed=i)) for i in range(3)])
    ensemble.step(*batch())
    state, before = copy.deepcopy(ensemble.state_dict()), everything(ensemble)
    ensemble.step(*batch(3))
    after = everything(ensemble)
    edits: list[tuple[Callable[[State], Any], str]] = [
        (set_moment("exp_avg", lambda t: t[:1]), "exp_avg of parameter 1"),
        (lambda s: s["penalty"].update(value=-1.0), "mu must be a finite number of at least 0"),
    ]
    for edit, message in edits:
        wrong = copy.deepcopy(state)
        edit(wrong["members"][2])
        with pytest.raises(ValueError, match=message):
            ensemble.load_state_dict(wrong)
        assert equal(everything(ensemble), after)
    for name, value, message in (
        ("taken", [1, 1], "taken of Ensemble must be 3 entries, given"),
        ("taken", [1, 1, -1], "entry 2 of taken of Ensemble must be a whole number of at least 0"),
        ("alive", [True, True, 5], "entry 2 of alive of Ensemble must be like True, given 5"),
    ):
        with pytest.raises(ValueError, match=message):
            ensemble.load_state_dict({**state, name: value})
        assert equal(everything(ensemble), after)
    ensemble.load_state_dict(state)
    assert equal(ensemble.state_dict(), before[1])


@pytest.mark.parametrize("rule", RULES)
def test_a_loaded_state_is_not_shared_with_the_trainer_it_came_from(rule: str) -> None:
    first, second = trained(rule), trained(rule)
    second.load_state_dict(first.state_dict())
    before = everything(first)
    second.step(*batch(2))
    assert equal(everything(first), before)


def test_parameters_that_share_a_count_of_steps_share_it_after_loading_only_where_they_may() -> None:
    am = trained()
    state = am.state_dict()["weights"]["optimizer"]
    am.load_state_dict(am.state_dict())
    steps = {id(entry["step"]) for entry in am.optimizer.state.values()}
    assert len(steps) == 1
    plain = torch.optim.Adam(am.model.parameters(), fused=True)
    plain.load_state_dict(check_optimizer(plain, state))
    assert len({id(entry["step"]) for entry in plain.state.values()}) == 6


def test_how_an_optimizer_is_executed_is_not_part_of_a_state() -> None:
    am, state = trained(), copy.deepcopy(trained().state_dict())
    optimizer_of(state)["param_groups"][0].update(capturable=True, foreach=True)
    am.load_state_dict(state)
    assert (am.optimizer.param_groups[0]["capturable"], am.optimizer.param_groups[0]["foreach"]) == (False, None)


def test_what_a_scheduler_adds_to_a_group_is_kept() -> None:
    am, other = trained(), trained()
    torch.optim.lr_scheduler.StepLR(am.optimizer, 3)
    other.load_state_dict(copy.deepcopy(am.state_dict()))
    assert other.optimizer.param_groups[0]["initial_lr"] == 0.02


def test_moments_are_those_that_a_step_of_the_optimizer_makes() -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.Adafactor(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    torch.optim.lr_scheduler.StepLR(optimizer, 3)  # which wraps the step of its optimizer
    weights, before = (
        copy.deepcopy(model.state_dict()),
        copy.deepcopy((vars(optimizer)["defaults"], optimizer.state_dict())),
    )
    check_optimizer(optimizer, optimizer.state_dict())
    assert equal((model.state_dict(), optimizer.defaults, optimizer.state_dict()), (weights, *before))
    state = copy.deepcopy(optimizer.state_dict())
    state["state"][0]["row_var"] = torch.zeros(5, 1)
    with pytest.raises(
        ValueError, match=r"row_var of parameter 0 of .* must be torch.float32 of shape \(3, 1\), given torch"
    ):
        check_optimizer(optimizer, state)
    state["state"][0]["row_var"] = torch.full((3, 1), math.nan)
    with pytest.raises(ValueError, match=r"row_var of parameter 0 of .* holds numbers that are not finite"):
        check_optimizer(optimizer, state)


def test_a_velocity_of_gradient_descent_is_checked_like_any_moment() -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, fused=True)
    state = {"state": {0: {"momentum_buffer": torch.zeros(2)}}, "param_groups": optimizer.state_dict()["param_groups"]}
    with pytest.raises(
        ValueError, match=r"momentum_buffer of parameter 0 of .* must be torch.float32 of shape \(3, 4\)"
    ):
        check_optimizer(optimizer, state)
    velocity = {"momentum_buffer": torch.zeros(3, 4)}
    for entry, message in (
        ({**velocity, "exp_avg": torch.zeros(3, 4)}, "parameter 0 of .*: it has exp_avg besides"),
        ({"momentum_buffer": None}, "momentum_buffer of parameter 0 of .* must be a tensor, given None"),
    ):
        with pytest.raises(ValueError, match=message):
            check_optimizer(optimizer, {**state, "state": {0: entry}})
    check_optimizer(optimizer, {**state, "state": {0: velocity}})
    plain = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(ValueError, match=r"parameter 0 of .*: it has momentum_buffer besides"):
        check_optimizer(plain, {"state": {0: velocity}, "param_groups": plain.state_dict()["param_groups"]})


def test_a_models_state_has_its_names_shapes_types_and_finite_parameters() -> None:
    model = convolutional()
    fitted(model.state_dict(), module_form(model), "the model")
    edits: list[tuple[Callable[[State], Any], str]] = [
        (lambda s: s.pop("1.bias"), "the model: it lacks 1.bias"),
        (lambda s: s.update(more=torch.zeros(1)), "the model: it has more besides"),
        (lambda s: s.update({"1.bias": torch.zeros(4)}), r"1.bias of the model must be torch.float64 of shape \(4,\)"),
        (lambda s: s["1.bias"].fill_(math.inf), "1.bias of the model holds numbers that are not finite"),
        (lambda s: s["2.running_var"].fill_(math.nan), "2.running_var of the model holds numbers that are not finite"),
        (lambda s: s.update({"2.num_batches_tracked": 3}), "2.num_batches_tracked of the model must be a tensor"),
    ]
    for edit, message in edits:
        state = copy.deepcopy(dict(model.state_dict()))
        edit(state)
        with pytest.raises(ValueError, match=message):
            fitted(state, module_form(model), "the model")


TREE: State = {
    "mask": torch.tensor([0.0, -math.inf]),
    "rows": [{"n": 3, "loss": -0.5}, None],
    "alive": True,
    "to": "cpu",
}


@pytest.mark.parametrize(
    "edit, message",
    [
        (lambda s: s.update(mask=torch.tensor([1.0, -math.inf])), None),
        (lambda s: s["rows"].__setitem__(0, {"n": 9, "loss": 2}), None),
        (lambda s: s.update(rows=tuple(s["rows"]), alive=False, to="cuda"), None),
        (lambda s: s.update(mask=torch.zeros(3)), r"mask of it must be torch.float32 of shape \(2,\), given"),
        (lambda s: s["rows"].pop(), "rows of it must be 2 entries, given"),
        (lambda s: s.update(rows={}), "rows of it must be 2 entries, given {}"),
        (
            lambda s: s["rows"][0].update(n=2.5),
            "n of entry 0 of rows of it must be a whole number of at least 0, given 2.5",
        ),
        (
            lambda s: s["rows"][0].update(n=-1),
            "n of entry 0 of rows of it must be a whole number of at least 0, given -1",
        ),
        (lambda s: s["rows"][0].update(loss=math.inf), "loss of entry 0 of rows of it must be a finite number"),
        (lambda s: s["rows"][0].pop("n"), "not the state of entry 0 of rows of it: it lacks n"),
        (lambda s: s["rows"].__setitem__(1, 0), "entry 1 of rows of it must be like None, given 0"),
        (lambda s: s.update(alive=1), "alive of it must be like True, given 1"),
        (lambda s: s.update(to=None), "to of it must be like 'cpu', given None"),
    ],
)
def test_a_tree_fits_where_names_types_and_shapes_do(edit: Callable[[State], Any], message: str | None) -> None:
    state = copy.deepcopy(TREE)
    edit(state)
    if message is None:
        assert equal(fitted(state, TREE, "it"), state)
        return
    with pytest.raises(ValueError, match=message):
        fitted(state, TREE, "it")


def test_numbers_are_finite_and_in_range() -> None:
    assert number(torch.tensor(2.0), "n") == number(2, "n") == 2.0
    assert repr(number(3.0, "n", whole=True)) == "3"
    for value in (True, "1", None, math.nan, torch.ones(2), torch.ones((), device="meta")):
        with pytest.raises(ValueError, match="n must be a finite number"):
            number(value, "n")


def test_a_loaded_optimizer_has_its_options_in_their_order() -> None:
    am = altmin.AltMin(mlp())
    options = list(am.optimizer.state_dict()["param_groups"][0])
    am.load_state_dict(am.state_dict())
    assert list(am.optimizer.state_dict()["param_groups"][0]) == options, "runs are compared by them"
