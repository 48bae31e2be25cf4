"""Blocks over ranks: a step is that of one process which gathers the parts of a mini-batch and applies them."""

import copy
import itertools
from typing import Any

import layer_cases as cases
import pytest
import ranks
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import altmin
from altmin.core.cutting import split
from altmin.runners.layer_parallel import LayerParallel, boundaries

PARTS = (1, 5)
OF = ((3, 1), (4, 2))
"""Ranks, and chains of them."""
EXACT = {"rtol": 1e-10, "atol": 1e-12}


def _tensors(am: Any) -> list[Tensor]:
    """Weights, buffers and state, without graphs."""
    held = pytree.tree_leaves((am.model.state_dict(), am.state_dict()))
    return [torch.as_tensor(t).detach().double().clone() for t in held if isinstance(t, Tensor | float)]


def train(rank: int, data_ranks: int, names: list[str], every: tuple[int, ...]) -> dict[Any, Any]:
    """Metrics of every step, the tensors at the end and the bytes sent, of every case and number of parts."""
    found = {}
    for name, parts in itertools.product(names, every):
        run = LayerParallel(cases.trainer(name), parts, data_ranks)
        torch.manual_seed(5)
        seen = [cases.numbers(run.step(x, y)) for x, y in cases.batches()]
        run.end_epoch()
        run.synchronize()
        found[name, parts] = seen, _tensors(run)
    return found


@pytest.fixture(scope="module")
def spread() -> dict[tuple[int, int], list[Any]]:
    """By ranks and data ranks."""
    names = [*cases.CASES, "dropped"]
    return {of: ranks.run(of[0], train, of[1], names, PARTS) for of in OF}


@pytest.mark.parametrize("of", OF, ids=str)
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("name", cases.CASES)
def test_a_step_is_that_of_one_process_which_gathers_the_parts(spread: Any, name: str, parts: int, of: Any) -> None:
    am = cases.trainer(name)
    least = 1 + (name in ("normed", "branching"))
    if parts == 1:
        expected: list[Any] = [cases.numbers(am.step(x, y)) for x, y in cases.batches()]
    else:
        expected = [cases.in_parts(am, x, y, parts, least) for x, y in cases.batches()]
    am.end_epoch()
    for result in spread[of]:
        seen, tensors = result[name, parts]
        seen = seen if parts == 1 else [each[0] for each in seen]
        torch.testing.assert_close(torch.tensor(seen), torch.tensor(expected), rtol=1e-8, atol=1e-10)
        torch.testing.assert_close([*tensors], [*_tensors(am)], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("of", OF, ids=str)
@pytest.mark.parametrize("parts", PARTS)
def test_dropout_does_not_depend_on_the_number_of_ranks(spread: Any, parts: int, of: Any) -> None:
    seen, expected = train(0, 1, ["dropped"], (parts,))["dropped", parts]
    for result in spread[of]:
        torch.testing.assert_close(torch.tensor(result["dropped", parts][0]), torch.tensor(seen), **EXACT)
        torch.testing.assert_close([*result["dropped", parts][1]], [*expected], **EXACT)


def go_on(rank: int, state: Any, name: str) -> tuple[Any, Any, int]:
    """Two more steps after a state, and how much of the optimizer's state a rank has."""
    run = LayerParallel(cases.trainer(name), 2)
    if state is not None:
        run.model.load_state_dict(state[0])
        run.load_state_dict(state[1])
    for x, y in cases.batches()[:2]:
        run.step(x, y)
    run.synchronize()
    return run.model.state_dict(), run.state_dict(), sum(map(bool, run.optimizer.state.values()))


@pytest.mark.parametrize("name", ["straight", "memory"])
def test_a_state_goes_on_with_another_number_of_ranks(name: str) -> None:
    model, state, held = ranks.run(3, go_on, None, name)[1]
    assert held < len(state["weights"].get("rest", state["weights"])["optimizer"]["state"]) or name == "memory"
    further = ranks.run(2, go_on, (model, state), name)[0]
    again = go_on(0, go_on(0, None, name)[:2], name)
    for a, b in zip(pytree.tree_leaves(further[:2]), pytree.tree_leaves(again[:2]), strict=True):
        if isinstance(a, Tensor):
            torch.testing.assert_close(a, b, **EXACT)


def refused(rank: int) -> list[Any]:
    """Texts of errors for bad batches, and whether anything has changed; then a good step."""
    found = []
    x, y = cases.batches()[0]
    nan, wrong = x.clone(), y.clone()
    nan[7, 2] = torch.nan
    wrong[8] = 4
    run = LayerParallel(cases.trainer("straight"), 3)
    before = [p.clone() for p in run.model.parameters()]
    for batch in ((nan, y), (x, wrong)):
        try:
            run.step(*batch)
            text = "none"
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        found.append(text)
    same = all(torch.equal(a, b) for a, b in zip(before, run.model.parameters(), strict=True))
    return [*found, same, run.penalty.value]


def test_an_error_on_one_rank_stops_all_and_changes_nothing() -> None:
    for nan, wrong, same, mu in ranks.run(2, refused):
        assert "the input holds NaN" in nan
        assert "label 4 is out of range" in wrong
        assert "rank 1" in wrong
        assert same
        assert mu == 10.0


def differing(rank: int) -> str:
    x, y = cases.batches()[0]
    run = LayerParallel(cases.trainer("straight"))
    try:
        run.step(x + rank, y)
    except ValueError as error:
        return str(error)
    return "none"


def test_ranks_with_other_batches_are_refused() -> None:
    assert all("different batches" in text for text in ranks.run(2, differing))


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_the_rank_with_most_parameters_has_as_few_as_possible(stages: int) -> None:
    chain = split(altmin.models.mlp(5, (2, 20, 3, 40), 6))
    sizes = [sum(p.numel() for p in block.parameters()) for block in chain]

    def most(cuts: Any) -> int:
        return max(sum(sizes[a:b]) for a, b in itertools.pairwise(cuts))

    found = boundaries(chain, stages)
    every = [(0, *cuts, 5) for cuts in itertools.combinations(range(1, 5), stages - 1)]
    assert len(found) == stages + 1
    assert most(found) == min(map(most, every))


def test_a_recurrent_block_stays_with_the_one_above() -> None:
    chain = split(
        nn.Sequential(altmin.Recurrent(1, 4), altmin.Readout(4, 3), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    )
    assert boundaries(chain, 3)[1:3] == [2, 3]
    with pytest.raises(ValueError, match="4 ranks need a net with at least as many blocks to spread, this one has 3"):
        boundaries(chain, 4)


@pytest.mark.parametrize(
    "make, kind, text",
    [
        (lambda: altmin.methods.create("adam", cases.straight()), TypeError, "takes an altmin.AltMin"),
        (lambda: altmin.methods.create("am-adam", cases.straight(), steps=2), ValueError, "steps=2 of LocalAdam"),
        (lambda: altmin.methods.create("am-adam", cases.straight(), clip_norm=1.0), ValueError, "clip_norm=1.0"),
        (
            lambda: altmin.methods.create("am-mem", cases.straight(), clip_norm=1.0),
            ValueError,
            "clip_norm=1.0 of CoAct",
        ),
    ],
)
def test_what_needs_all_blocks_at_once_is_refused(make: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        LayerParallel(make())


def test_cuts_and_numbers_that_do_not_fit_are_refused() -> None:
    am = altmin.methods.create("am-adam", cases.straight())
    with pytest.raises(ValueError, match="cuts of LayerParallel are 0 rising numbers"):
        LayerParallel(am, cuts=[2])
    with pytest.raises(ValueError, match="micro_batches of LayerParallel must be a whole number of at least 1"):
        LayerParallel(am, 0)
    with pytest.raises(ValueError, match="1 ranks cannot be divided into 2 chains"):
        LayerParallel(am, data_ranks=2)


def other_uses(rank: int) -> dict[str, Any]:
    """Texts of errors of what ranks with some of the blocks cannot do, and the state of a trainer that had trained."""
    x, y = cases.batches()[0]
    am = cases.trainer("straight")
    am.step(x, y)
    run = LayerParallel(am, 1)
    run.step(x, y)

    def text(call: Any) -> str:
        try:
            call()
        except (TypeError, ValueError) as error:
            return str(error)
        return "none"

    found: dict[str, Any] = {"unsynchronized": text(lambda: LayerParallel(altmin.AltMin(run.model)))}
    run.synchronize()
    found["synchronized"] = text(lambda: LayerParallel(altmin.AltMin(run.model)))
    found["again"] = text(lambda: LayerParallel(am, 1, cuts=[3]))
    found["gather"] = text(lambda: run.gather(x, y))
    found["apply"] = text(run.apply)
    found["copy"] = text(lambda: copy.deepcopy(run))
    found["data-parallel"] = text(lambda: altmin.Distributed(run))
    found["lists"] = text(lambda: run.step(x.tolist(), y.tolist()))
    return {**found, "tensors": _tensors(run)}


def test_a_trainer_that_has_trained_goes_on_and_what_needs_all_blocks_on_a_rank_is_refused() -> None:
    x, y = cases.batches()[0]
    am = cases.trainer("straight")
    am.step(x, y)
    am.step(x, y)
    for found in ranks.run(2, other_uses):
        torch.testing.assert_close([*found["tensors"]], [*_tensors(am)], rtol=1e-9, atol=1e-10)
        assert "call synchronize() of the LayerParallel" in found["unsynchronized"]
        assert found["synchronized"] == "none"
        assert "spread by another LayerParallel" in found["again"]
        assert "has no gather and apply" in found["gather"]
        assert "has no gather and apply" in found["apply"]
        assert "belongs to its processes" in found["copy"]
        assert "takes one method itself, given LayerParallel" in found["data-parallel"]
        assert "step takes tensors, given list and list" in found["lists"]


def differing_chains(rank: int) -> str:
    x, y = cases.batches()[0]
    run = LayerParallel(cases.trainer("straight"), 2, data_ranks=2)
    try:
        run.step(x + rank // 2, y)
    except (ValueError, ConnectionError) as error:
        return str(error)
    return "none"


def test_chains_of_ranks_with_other_batches_are_refused() -> None:
    """A rank of a slow machine may find the others gone before it has heard why."""
    found = ranks.run(4, differing_chains)
    assert "none" not in found
    assert sum("different batches" in text for text in found) >= 2
