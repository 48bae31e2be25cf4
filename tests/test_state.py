"""State in files comes back bit for bit or is refused; a state that does not fit an object changes nothing of it."""

import copy
import math
import os
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from trainer_cases import RULES, batch, equal, mlp

import altmin
from altmin.training import checkpoint

State = dict[str, Any]

# -- files ------------------------------------------------------------------------------------------------------------


def same(a: Any, b: Any) -> bool:
    """Equal in value and in type, all the way down; tensors bit by bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


TENSORS = [torch.tensor(3), torch.ones(2, 0), torch.tensor(True), torch.ones(2, dtype=torch.bfloat16).float()]
leaves = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(codec="utf-8"))),
    *(st.lists(st.floats(width=32), max_size=3).map(torch.tensor), st.sampled_from(TENSORS)),
)
keys = st.one_of(st.text(st.characters(codec="utf-8")), st.integers(), st.booleans(), st.tuples(st.integers()))
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
    ),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None)
@given(trees)
def test_any_nested_state_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, state: Any) -> None:
    path = tmp_path_factory.mktemp("checkpoint") / "state"
    checkpoint.save(path, state)
    assert same(checkpoint.load(path), state)


def test_views_are_stored_by_value_and_sorted_or_counting_dicts_as_they_are(tmp_path: Path) -> None:
    whole = torch.arange(6000.0).reshape(2, 3000)
    counted = Counter({3: 2})
    checkpoint.save(tmp_path / "c", {"b": whole[:, :2].T, "c": whole[0, :1], "d": OrderedDict(z=1, b=2), "n": counted})
    state = checkpoint.load(tmp_path / "c")
    assert state["b"].tolist() == [[0, 3000], [1, 3001]]
    assert (list(state["d"]), type(state["n"])) == (["z", "b"], Counter)
    assert (tmp_path / "c").stat().st_size < 8000
    state["b"].zero_()
    assert checkpoint.load(tmp_path / "c")["c"].tolist() == [0]


def test_what_cannot_be_stored_is_named_and_the_old_file_stays(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "c", {"a": 1})
    with pytest.raises(ValueError, match=r"state\.method\.2"):
        checkpoint.save(tmp_path / "c", {"method": [1, 2, {3}]})
    assert checkpoint.load(tmp_path / "c") == {"a": 1}
    assert os.listdir(tmp_path) == ["c"]


def test_a_file_that_is_cut_changed_or_of_another_kind_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "c"
    checkpoint.save(path, {"a": torch.arange(5.0), "b": "text"})
    whole = path.read_bytes()
    spoilt = [whole[:length] for length in (0, 1, 13, 20, 79, 80, len(whole) // 2, len(whole) - 1)]
    for place in range(0, len(whole), 5):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        spoilt.append(bytes(changed))
    torch.save({"a": 1}, path)
    for content in (*spoilt, path.read_bytes(), b"altmin checkpoint 4\n"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="c is") as error:
            checkpoint.load(path)
        assert "\n" not in str(error.value)
    with pytest.raises(FileNotFoundError):
        checkpoint.load(tmp_path / "nowhere")


# -- loading into an object -------------------------------------------------------------------------------------------


def trained(rule: str = "adam", parts: bool = False, model: Any = mlp) -> altmin.AltMin:
    am = altmin.AltMin(model(), weights=RULES[rule](), penalty=altmin.Penalty(0.5, increment=0.1))
    am.step(*batch(0))
    if parts:
        am.gather(*batch(1))
    return am


def everything(method: Any) -> Any:
    return copy.deepcopy((method.model.state_dict(), method.state_dict()))


def optimizer_of(state: State) -> State:
    found: State = state["weights"]["optimizer"]
    return found


def moments_of(state: State) -> list[Any]:
    found: list[Any] = state["weights"]["states"][0]["exp_avg"]
    return found


EDITS: dict[str, Callable[[State], Any]] = {
    "moment's shape": lambda s: moments_of(s).__setitem__(1, moments_of(s)[1][:1]),
    "no tensor": lambda s: moments_of(s).__setitem__(1, "text"),
    "moments": lambda s: moments_of(s).pop(),
    "parameter": lambda s: optimizer_of(s)["state"].update({6: {}}),
    "parameters": lambda s: optimizer_of(s)["param_groups"][0]["params"].pop(),
    "groups": lambda s: optimizer_of(s)["param_groups"].append({}),
    "option": lambda s: optimizer_of(s)["param_groups"][0].pop("lr"),
    "optimizer": lambda s: s["weights"].update(optimizer=[]),
    "mu": lambda s: s["penalty"].update(value="much"),
    "no mu": lambda s: s["penalty"].clear(),
    "more": lambda s: s.update(more=1),
    "weights": lambda s: s["weights"].pop("samples"),
    "block": lambda s: s["weights"]["gathered"].update({9: s["weights"]["gathered"][0]}),
}
MEMORY_EDITS: dict[str, Callable[[State], Any]] = {
    "A": lambda s: s["weights"]["states"][1].update(A=torch.zeros(3, 9).double()),
    "dtype": lambda s: s["weights"]["states"][1].update(A=s["weights"]["states"][1]["A"].float()),
    "missing": lambda s: s["weights"]["states"][1].pop("R"),
    "block": lambda s: s["weights"]["states"].update({5: s["weights"]["states"][1]}),
}


@pytest.mark.parametrize("rule, edit", [*(("adam", e) for e in EDITS), *(("memory", e) for e in MEMORY_EDITS)])
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(rule: str, edit: str) -> None:
    am, state = trained(rule, parts=True), copy.deepcopy(trained(rule, parts=True).state_dict())
    am.step(*batch(5))
    before = everything(am)
    (EDITS if rule == "adam" else MEMORY_EDITS)[edit](state)
    with pytest.raises(ValueError) as error:
        am.load_state_dict(state)
    assert "\n" not in str(error.value)
    assert equal(everything(am), before)


def wide(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 2000), nn.ReLU(), nn.Linear(2000, 3)).double()


ONLINE = ("am-adam", "am-sgd", "am-mem", "am-mem-fitted", "am-mem-printed", "adam", "sgd", "dtp", "gauss-newton")


@pytest.mark.parametrize("name", [*ONLINE, "am-adam-offline", "am-mem-fitted-offline"])
def test_the_state_of_another_net_is_refused_by_every_method(name: str) -> None:
    """A fused kernel would write past the end of its moments."""
    options = {"fused": True} if name in ("adam", "sgd") else {}
    small, large = (altmin.methods.create(name, make(), **options) for make in (mlp, wide))
    for method in (small, large):
        method.step(*batch())
        method.end_epoch()
    before = everything(large)
    with pytest.raises(ValueError):
        large.load_state_dict(copy.deepcopy(small.state_dict()))
    assert equal(everything(large), before)


def test_an_ensemble_refuses_all_if_one_members_state_does_not_fit() -> None:
    ensemble = altmin.Ensemble([altmin.methods.create("am-adam", mlp(seed=i)) for i in range(3)])
    ensemble.step(*batch())
    state, before = copy.deepcopy(ensemble.state_dict()), everything(ensemble)
    ensemble.step(*batch(3))
    after = everything(ensemble)
    wrong = copy.deepcopy(state)
    wrong["members"][2]["penalty"]["value"] = None
    for each in (wrong, {**state, "steps": [1, 1]}, {**state, "alive": [True, True, 5]}):
        with pytest.raises(ValueError):
            ensemble.load_state_dict(each)
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


def test_how_an_optimizer_is_executed_is_not_part_of_a_state_and_what_a_scheduler_adds_is() -> None:
    method = altmin.methods.create("adam", mlp())
    state = copy.deepcopy(method.state_dict())
    state["optimizer"]["param_groups"][0].update(capturable=True, foreach=True, initial_lr=0.02)
    method.load_state_dict(state)
    group = method.optimizer.param_groups[0]
    assert (group["capturable"], group["foreach"], group["initial_lr"]) == (False, None, 0.02)


# -- where parameters and moments are in memory -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["am-adam", "am-sgd", "adam"])
def test_moments_of_weights_that_lie_otherwise_in_memory_are_put_where_they_belong(name: str) -> None:
    """A fused kernel goes through weights and moments side by side."""
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)
    model = nn.Sequential(*layers).to(memory_format=torch.channels_last)
    x, y = torch.randn(5, 2, 8, 8), torch.tensor([0, 1, 2, 0, 1])
    options = {"fused": True} if name == "adam" else {}
    am = altmin.methods.create(name, model, lr=0.01, **options)
    am.step(x, y)
    state = tree_map_only(Tensor, lambda t: t.contiguous(), copy.deepcopy(am.state_dict()))
    twin = copy.deepcopy(model)
    other = altmin.methods.create(name, twin, lr=0.01, **options)
    other.load_state_dict(state)
    for each in (am, other):
        each.step(x, y)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), twin.parameters(), strict=True))


@pytest.mark.parametrize("weight", [torch.zeros(1, 1).expand(8, 4), torch.zeros(8, 9)[:, :4]])
def test_parameters_that_are_expanded_or_have_gaps_are_refused(weight: Tensor) -> None:
    model = mlp(dtype=torch.float32)
    model[0].weight = nn.Parameter(weight)
    for make in (altmin.AltMin, lambda model: altmin.methods.create("adam", model, fused=True)):
        with pytest.raises(ValueError, match="clone"):
            make(model)
    altmin.methods.create("sgd", model)  # torch's own steps go by strides
    model[0].weight.data = weight.clone(memory_format=torch.contiguous_format)
    altmin.AltMin(model).step(*batch(dtype=torch.float32))
