"""Blocks over ranks: a step is that of one process which gathers the parts of a mini-batch and applies them."""

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
from altmin.runners import pipelined
from altmin.runners.layer_parallel import LayerParallel, boundaries

PARTS = (1, 5)
EXACT = {"rtol": 1e-10, "atol": 1e-12}


def _tensors(am: Any) -> list[Tensor]:
    """Weights, buffers and state, without graphs."""
    held = pytree.tree_leaves((am.model.state_dict(), am.state_dict()))
    return [torch.as_tensor(t).detach().double().clone() for t in held if isinstance(t, Tensor | float)]


def train(name: str, parts: int) -> tuple[list[list[float]], list[Tensor]]:
    """Metrics of every step, and the tensors at the end."""
    run = LayerParallel(cases.trainer(name), parts)
    torch.manual_seed(5)
    seen = [cases.numbers(run.step(x, y)) for x, y in cases.batches()]
    run.end_epoch()
    run.synchronize()
    return seen, _tensors(run)


def go_on(state: Any, name: str) -> tuple[Any, Any, int]:
    """Two more steps after a state, and of how many blocks a rank has the rules' states."""
    run = LayerParallel(cases.trainer(name), 2)
    if state is not None:
        run.model.load_state_dict(state[0])
        run.load_state_dict(state[1])
    for x, y in cases.batches()[:2]:
        run.step(x, y)
    run.synchronize()
    return run.model.state_dict(), run.state_dict(), len(run.method.updates.states)


def refused(parts: int, spoil: Any) -> list[Any]:
    """The error of a step on a batch or model that is spoiled, whether it has changed anything, and then the loss of a
    good step."""
    run = LayerParallel(cases.trainer("straight"), parts)
    x, y = cases.batches()[0]
    restore = spoil(run, x := x.clone())
    before = [p.clone() for p in run.model.parameters()]
    kind = ""
    try:
        run.step(x, y)
    except Exception as error:
        kind = type(error).__name__
    same = all(torch.equal(a, b) for a, b in zip(before, run.model.parameters(), strict=True))
    restore()
    return [kind, same, float(run.penalty.value), float(run.step(*cases.batches()[0]).loss)]


def nan_input(run: Any, x: Tensor) -> Any:
    x[7, 2] = torch.nan
    return lambda: None


def other_batch(run: Any, x: Tensor) -> Any:
    x += run.ranks.rank
    return lambda: None


def infinite_weight(run: Any, x: Tensor) -> Any:
    weight = run.chain.blocks[-1].parameters()[0].detach()
    good = weight.clone()
    weight.fill_(torch.inf)
    return lambda: weight.copy_(good)


SPOILED = (nan_input, other_batch, infinite_weight)


def after_one_process() -> list[Tensor]:
    """A trainer that has made a step by itself goes on over ranks."""
    x, y = cases.batches()[0]
    am = cases.trainer("straight")
    am.step(x, y)
    run = LayerParallel(am, 1)
    run.step(x, y)
    run.synchronize()
    return _tensors(run)


def on_rank(rank: int, state: Any) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for name, parts in itertools.product([*cases.CASES, "dropped"], PARTS):
        found[name, parts] = train(name, parts)
    for name in ("straight", "memory"):
        found[name, "state"] = go_on(None, name), go_on(state[name], name)
    for spoil in SPOILED:
        found[spoil.__name__] = refused(2, spoil)
    found["after one process"] = after_one_process()
    return found


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """States of one process after two steps."""
    return {name: go_on(None, name) for name in ("straight", "memory")}


@pytest.fixture(scope="module")
def spread(alone: Any) -> list[dict[Any, Any]]:
    return ranks.run(3, on_rank, alone)


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("name", cases.CASES)
def test_a_step_is_that_of_one_process_which_gathers_the_parts(spread: Any, name: str, parts: int) -> None:
    am = cases.trainer(name)
    least = 1 + (name in ("normed", "branching"))
    if parts == 1:
        expected: list[Any] = [cases.numbers(am.step(x, y)) for x, y in cases.batches()]
    else:
        expected = [cases.in_parts(am, x, y, parts, least) for x, y in cases.batches()]
    am.end_epoch()
    for result in spread:
        seen, tensors = result[name, parts]
        seen = seen if parts == 1 else [each[0] for each in seen]
        torch.testing.assert_close(torch.tensor(seen), torch.tensor(expected), rtol=1e-8, atol=1e-10)
        torch.testing.assert_close([*tensors], [*_tensors(am)], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("parts", PARTS)
def test_dropout_does_not_depend_on_the_number_of_ranks(spread: Any, parts: int) -> None:
    seen, expected = train("dropped", parts)
    for result in spread:
        torch.testing.assert_close(torch.tensor(result["dropped", parts][0]), torch.tensor(seen), **EXACT)
        torch.testing.assert_close([*result["dropped", parts][1]], [*expected], **EXACT)


@pytest.mark.parametrize("name", ["straight", "memory"])
def test_a_state_goes_on_with_another_number_of_ranks(name: str, spread: Any, alone: Any) -> None:
    expected = go_on(alone[name], name)
    for result in spread:
        begun, on = result[name, "state"]
        assert begun[2] < alone[name][2], "a rank has the states of its own blocks"
        for found in (on, go_on(begun, name)):
            for a, b in zip(pytree.tree_leaves(found[:2]), pytree.tree_leaves(expected[:2]), strict=True):
                if isinstance(a, Tensor):
                    torch.testing.assert_close(a, b, **EXACT)


@pytest.mark.parametrize("name, kind", [("nan_input", "ValueError"), ("infinite_weight", "Diverged")])
def test_numbers_that_are_not_finite_on_one_rank_are_refused_by_all_which_can_go_on(
    spread: Any, name: str, kind: str
) -> None:
    am = cases.trainer("straight")
    loss = cases.in_parts(am, *cases.batches()[0], 2, 1)
    for result in spread:
        assert result[name][:3] == [kind, True, 10.0]
        assert abs(result[name][3] - loss) < 1e-12


def test_ranks_with_other_batches_are_refused(spread: Any) -> None:
    assert [result["other_batch"][:2] for result in spread] == [["ValueError", True]] * 3


def test_a_trainer_that_has_trained_goes_on(spread: Any) -> None:
    x, y = cases.batches()[0]
    am = cases.trainer("straight")
    am.step(x, y)
    am.step(x, y)
    for result in spread:
        torch.testing.assert_close([*result["after one process"]], [*_tensors(am)], rtol=1e-9, atol=1e-10)


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
    with pytest.raises(ValueError):
        boundaries(chain, 4)


def method(name: str, **options: Any) -> Any:
    return altmin.methods.create(name, cases.straight(), **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LayerParallel(method("adam")),
        lambda: LayerParallel(method("am-adam", steps=2)),
        lambda: LayerParallel(method("am-adam", clip_norm=1.0)),
        lambda: LayerParallel(method("am-mem", clip_norm=1.0)),
        lambda: LayerParallel(method("am-adam"), cuts=[2]),
        lambda: LayerParallel(method("am-adam"), 0),
        lambda: LayerParallel(method("am-adam")).gather(torch.zeros(1, 6), torch.zeros(1)),
    ],
)
def test_what_ranks_with_some_of_the_blocks_cannot_do_is_refused(make: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        make()


# The order in which a rank takes the parts of a mini-batch


def finished(stages: int, parts: int, f: float, d: float, w: float) -> tuple[float, int]:
    """When all stages are done, if a pass of a part takes f upwards and d downwards and waits for those that it needs,
    and its weights w; and how many parts the first stage holds at most."""
    orders = [pipelined.schedule(stage, stages, parts) for stage in range(stages)]
    done: dict[tuple[int, bool, int], float] = {}
    free, owed = [0.0] * stages, [0] * stages
    held = most = 0
    while any(orders):
        before = len(done)
        for stage in range(stages):
            while orders[stage]:
                forward, i = orders[stage][0]
                back = (stage, True, i) if stage == stages - 1 else (stage + 1, False, i)
                needed = [(stage - 1, True, i)] * (stage > 0) if forward else [back]
                if not all(each in done for each in needed):
                    break
                ready = max([0.0, *(done[each] for each in needed)])
                done[stage, forward, i] = free[stage] = max(free[stage], ready) + (f if forward else d)
                owed[stage] += not forward
                if owed[stage] > 2 * stage:
                    owed[stage] -= 1
                    free[stage] += w
                orders[stage].pop(0)
                if stage == 0:
                    held += 1 if forward else -1
                    most = max(most, held)
        assert len(done) > before, "ranks wait for one another"
    return max(t + w * n for t, n in zip(free, owed, strict=True)), most


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 7, 20])
@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_parts_pass_in_the_shortest_time_and_few_are_held(stages: int, parts: int) -> None:
    """No order is shorter: the last stage begins after (P - 1) f and has all parts to do; and the last part to come
    down is sent there after all the others have been up and down, and has its weights left."""
    f, d, w = 1.0, 2.0, 1.0
    time, most = finished(stages, parts, f, d, w)
    assert time == max((stages - 1) * f + parts * (f + d + w), (parts + stages - 1) * (f + d) + w)
    assert most == min(parts, 2 * stages - 1)
    for stage in range(stages):
        order = pipelined.schedule(stage, stages, parts)
        assert (
            [i for forward, i in order if forward] == [i for forward, i in order if not forward] == list(range(parts))
        )


def test_dropout_draws_anew_for_each_part_and_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are alike, so that the output of a part tells its mask."""
    seen, encode = [], pipelined.encode

    def watched(*args: Any) -> Any:
        found = encode(*args)
        seen.append(found[0][1].clone())
        return found

    monkeypatch.setattr(pipelined, "encode", watched)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Dropout(0.5), nn.Linear(9, 4)).double()
    run = LayerParallel(altmin.AltMin(model, weights=altmin.LocalSGD(lr=0.0)), 2)
    for _ in range(2):
        run.step(torch.ones(6, 6, dtype=torch.float64), torch.zeros(6, dtype=torch.int64))
    outputs = seen[1::2]
    assert len(outputs) == 4
    for a, b in itertools.combinations(outputs, 2):
        assert not torch.equal(a, b)
