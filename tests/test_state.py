"""A state that does not fit is refused as a whole, in one sentence that names the entry; nothing has changed then."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from trainer_cases import RULES, batch, equal, mlp

import altmin
from altmin.common.state import (
    check_like,
    check_optimizer,
    demand_count,
    demand_number,
    load_optimizer,
)

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


def set_moment(name: str, value: Callable[[Tensor], Any]) -> Callable[[State], None]:
    def edit(state: State) -> None:
        entry = optimizer_of(state)["state"][1]
        entry[name] = value(entry[name])

    return edit


def set_option(name: str, value: Any) -> Callable[[State], None]:
    return lambda state: optimizer_of(state)["param_groups"][0].update({name: value})


def gathered(state: State, change: Callable[[Any], Any]) -> None:
    state["weights"]["gathered"][0] = change(state["weights"]["gathered"][0])


EDITS: dict[str, tuple[Callable[[State], Any], str]] = {
    "shape": (set_moment("exp_avg", lambda t: t[:1]), r"exp_avg of parameter 1 must be torch.float64 of shape \(8,\)"),
    "dtype": (set_moment("exp_avg_sq", lambda t: t.float()), "exp_avg_sq of parameter 1 must be torch.float64"),
    "device": (set_moment("exp_avg", lambda t: t.to("meta")), "exp_avg of parameter 1 belongs on cpu, given .* meta"),
    "nan": (set_moment("exp_avg", lambda t: t * math.nan), "exp_avg of parameter 1 holds numbers that are not finite"),
    "no tensor": (set_moment("exp_avg", lambda t: None), "exp_avg of parameter 1 must be a tensor, given None"),
    "sparse": (set_moment("exp_avg", lambda t: t.to_sparse()), "exp_avg of parameter 1 must be torch.float64"),
    "negative step": (
        set_moment("step", lambda t: t - 5),
        "step of parameter 1 must be a whole number of at least 0, given -4",
    ),
    "half a step": (
        set_moment("step", lambda t: t - 0.5),
        "step of parameter 1 must be a whole number of at least 0, given 0.5",
    ),
    "nan step": (set_moment("step", lambda t: t * math.nan), "step of parameter 1 holds numbers that are not finite"),
    "many steps": (
        set_moment("step", lambda t: t.expand(8)),
        r"step of parameter 1 must be torch.float32 of shape \(\)",
    ),
    "step a number": (set_moment("step", lambda t: 1), "step of parameter 1 must be a tensor, given 1"),
    "moment missing": (lambda s: optimizer_of(s)["state"][1].pop("exp_avg"), "parameter 1: it lacks exp_avg"),
    "moment extra": (lambda s: optimizer_of(s)["state"][1].update(more=1), "parameter 1: it has more besides"),
    "entry": (lambda s: optimizer_of(s)["state"].update({1: 3}), "the state of parameter 1 is a dict, given int"),
    "parameter missing": (lambda s: optimizer_of(s)["state"].pop(1), "the state lacks parameter 1, and has others"),
    "parameter extra": (
        lambda s: optimizer_of(s)["state"].update({6: {}}),
        "the state is of a parameter 6, this optimizer has those from 0 to 5",
    ),
    "parameters": (
        lambda s: optimizer_of(s)["param_groups"][0]["params"].pop(),
        "group 0 of the optimizer is of 5 parameters in the state, here of 6",
    ),
    "groups": (
        lambda s: optimizer_of(s)["param_groups"].append({}),
        "the state is of 2 groups of parameters, this optimizer has 1",
    ),
    "group": (lambda s: optimizer_of(s)["param_groups"].__setitem__(0, 7), "group 0 of the optimizer must be a dict"),
    "option missing": (lambda s: optimizer_of(s)["param_groups"][0].pop("eps"), "group 0 of the optimizer lacks eps"),
    "negative lr": (
        set_option("lr", -0.1),
        "lr of group 0 of the optimizer must be a finite number of at least 0, given -0.1",
    ),
    "nan lr": (
        set_option("lr", math.nan),
        "lr of group 0 of the optimizer must be a finite number of at least 0, given nan",
    ),
    "text for lr": (
        set_option("lr", "0.1"),
        "lr of group 0 of the optimizer must be a finite number of at least 0, given '0.1'",
    ),
    "true for lr": (
        set_option("lr", True),
        "lr of group 0 of the optimizer must be a finite number of at least 0, given True",
    ),
    "eps": (set_option("eps", -1e-8), "eps of group 0 of the optimizer must be a finite number of at least 0"),
    "weight decay": (
        set_option("weight_decay", math.inf),
        "weight_decay of group 0 .* finite number of at least 0, given inf",
    ),
    "beta": (set_option("betas", (0.9, "x")), "entry 1 of betas of group 0 of the optimizer must be a finite number"),
    "betas": (set_option("betas", (0.9,)), "betas of group 0 of the optimizer must be 2 entries"),
    "flag": (set_option("amsgrad", True), "amsgrad of group 0 of the optimizer is True in the state, here it is False"),
    "fused": (set_option("fused", None), "fused of group 0 of the optimizer is None in the state, here it is True"),
    "unknown option": (
        set_option("more", "x"),
        "more of group 0 of the optimizer must be a finite number of at least 0, given 'x'",
    ),
    "optimizer": (lambda s: s["weights"].update(optimizer=[]), "the state of an optimizer is a dict, given list"),
    "states": (lambda s: optimizer_of(s).update(state=[]), "the state of an optimizer's parameters is a dict"),
    "mu": (lambda s: s["penalty"].update(value=-5.0), "mu must be a finite number of at least 0, given -5.0"),
    "nan mu": (lambda s: s["penalty"].update(value=math.nan), "mu must be a finite number of at least 0, given nan"),
    "no mu": (lambda s: s["penalty"].clear(), "not the state of a Penalty: it lacks value"),
    "rest of it": (lambda s: s.update(more=1), "not the state of an AltMin: it has more besides"),
    "gathered shape": (
        lambda s: gathered(s, lambda grads: (torch.zeros(2, 2), *grads[1:])),
        r"entry 0 of what was gathered for block 0 must be torch.float64 of shape \(8, 4\), given torch.float32",
    ),
    "gathered count": (lambda s: gathered(s, lambda grads: grads[:1]), "gathered for block 0 must be 2 entries, given"),
    "gathered nan": (
        lambda s: gathered(s, lambda grads: [g * math.nan for g in grads]),
        "entry 0 of what was gathered for block 0 holds numbers that are not finite",
    ),
    "gathered samples": (
        lambda s: s["weights"].update(samples=-1),
        "the number of samples gathered must be a whole number of at least 0, given -1",
    ),
    "gathered block": (
        lambda s: s["weights"]["gathered"].update({9: s["weights"]["gathered"][0]}),
        r"the state has what was gathered for block 9, here the blocks are \[0, 1, 2\]",
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_state_that_does_not_fit_is_refused_by_name_and_changes_nothing(edit: str) -> None:
    am, state = trained(parts=True), copy.deepcopy(trained(parts=True).state_dict())
    am.step(*batch(5))
    before = everything(am)
    change, message = EDITS[edit]
    change(state)
    with pytest.raises(ValueError, match=message):
        am.check_state(state)
    with pytest.raises(ValueError, match=message) as error:
        am.load_state_dict(state)
    assert "\n" not in str(error.value)
    assert equal(everything(am), before)


MEMORY_EDITS: dict[str, tuple[Callable[[State], Any], str]] = {
    "A": (lambda m: m.update(A=m["A"][:3]), r"A of block 1 must be torch.float64 of shape \(9, 9\), given"),
    "R": (lambda m: m.update(R=m["R"].mT), r"R of block 1 must be torch.float64 of shape \(6, 9\), given"),
    "nan": (lambda m: m["A"].fill_(math.nan), "A of block 1 holds numbers that are not finite"),
    "samples": (lambda m: m.update(samples=-1), "samples of block 1 must be a tensor, given -1"),
    "missing": (lambda m: m.pop("R"), "not the state of block 1: it lacks R"),
}


@pytest.mark.parametrize("name", ["states", "gathered"])
@pytest.mark.parametrize("edit", MEMORY_EDITS)
def test_a_memory_that_does_not_fit_is_refused_and_changes_nothing(edit: str, name: str) -> None:
    am = trained("memory", parts=True)
    state, before = copy.deepcopy(am.state_dict()), everything(am)
    change, message = MEMORY_EDITS[edit]
    change(state["weights"][name][1])
    with pytest.raises(ValueError, match=message if name == "states" else "what was gathered for block 1"):
        am.load_state_dict(state)
    assert equal(everything(am), before)


def test_a_memory_of_an_unknown_block_or_a_bad_rest_is_refused_and_changes_nothing() -> None:
    am = trained("memory")
    state, before = copy.deepcopy(am.state_dict()), everything(am)
    state["weights"]["states"][5] = state["weights"]["states"][1]
    with pytest.raises(ValueError, match=r"the state is of block 5, here the blocks are \[0, 1, 2\]"):
        am.load_state_dict(state)
    state = copy.deepcopy(am.state_dict())
    state["weights"]["states"][0]["A"] += 1
    optimizer_of(state)["state"][0]["exp_avg"] = torch.zeros(1)
    for refuse in (am.check_state, am.load_state_dict):
        with pytest.raises(ValueError, match="exp_avg of parameter 0"):
            refuse(state)
    assert equal(everything(am), before)


def wide(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 2000), nn.ReLU(), nn.Linear(2000, 3)).double()


@pytest.mark.parametrize("name", ["am-adam", "am-sgd", "am-mem", "am-adam-offline", "am-mem-offline", "adam", "sgd"])
def test_the_state_of_another_net_is_refused_by_every_method(name: str) -> None:
    """A fused kernel would write past the end of its moments."""
    options = {"fused": True} if name in ("adam", "sgd") else {}
    small, large = (altmin.methods.create(name, make(), **options) for make in (mlp, wide))
    for method in (small, large):
        method.step(*batch())
        method.end_epoch()
    before = everything(large)
    with pytest.raises(ValueError, match=r"parameter|block|group"):
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
        for refuse in (ensemble.check_state, ensemble.load_state_dict):
            with pytest.raises(ValueError, match=message):
                refuse(wrong)
        assert equal(everything(ensemble), after)
    for name, value, message in (
        ("taken", [1, 1], "the state is of 2 taken, this Ensemble has 3"),
        ("taken", [1, 1, -1], "the number of steps that member 2 has taken must be a whole number of at least 0"),
        ("alive", [True, True, 5], "whether member 2 is alive is True or False, given 5"),
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
    load_optimizer(plain, state)
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
        ValueError, match=r"row_var of parameter 0 must be torch.float32 of shape \(3, 1\), given torch"
    ):
        check_optimizer(optimizer, state)
    state["state"][0]["row_var"] = torch.full((3, 1), math.nan)
    with pytest.raises(ValueError, match="row_var of parameter 0 holds numbers that are not finite"):
        check_optimizer(optimizer, state)


def test_a_velocity_of_gradient_descent_is_checked_like_any_moment() -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, fused=True)
    state = {"state": {0: {"momentum_buffer": torch.zeros(2)}}, "param_groups": optimizer.state_dict()["param_groups"]}
    with pytest.raises(ValueError, match=r"momentum_buffer of parameter 0 must be torch.float32 of shape \(3, 4\)"):
        check_optimizer(optimizer, state)
    velocity = {"momentum_buffer": torch.zeros(3, 4)}
    for entry, message in (
        ({**velocity, "exp_avg": torch.zeros(3, 4)}, "parameter 0: it has exp_avg besides"),
        ({"momentum_buffer": None}, "momentum_buffer of parameter 0 must be a tensor, given None"),
        ({}, "parameter 0: it lacks momentum_buffer"),
    ):
        with pytest.raises(ValueError, match=message):
            check_optimizer(optimizer, {**state, "state": {0: entry}})
    check_optimizer(optimizer, {**state, "state": {0: velocity}})
    plain = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(ValueError, match="parameter 0: it has momentum_buffer besides"):
        check_optimizer(plain, {"state": {0: velocity}, "param_groups": plain.state_dict()["param_groups"]})


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
        check_like(state, TREE, "it")
        return
    with pytest.raises(ValueError, match=message):
        check_like(state, TREE, "it")


def test_numbers_are_finite_and_in_range() -> None:
    assert demand_number(torch.tensor(2.0), "n") == demand_number(2, "n") == 2.0
    assert demand_count(3.0, "n") == 3
    for value in (True, "1", None, math.nan, torch.ones(2), torch.ones((), device="meta")):
        with pytest.raises(ValueError, match="n must be a finite number"):
            demand_number(value, "n")
