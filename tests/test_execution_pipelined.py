"""The order in which a rank takes the parts of a mini-batch, and how ranks agree on a step."""

import itertools
from typing import Any

import layer_cases as cases
import pytest
import ranks
import torch
from torch import nn

import altmin
from altmin.codes.gradient import encode
from altmin.execution import pipelined
from altmin.execution.layer_parallel import LayerParallel
from altmin.execution.pipelined import schedule


def finished(stages: int, parts: int) -> tuple[int, int]:
    """After how many units of time all stages are done, if every pass of a part through one takes a unit and waits for
    those that it needs; and how many parts the first stage holds at most."""
    orders = [schedule(stage, stages, parts) for stage in range(stages)]
    done: dict[tuple[int, bool, int], int] = {}
    free, held, most = [0] * stages, 0, 0
    while any(orders):
        before = len(done)
        for stage in range(stages):
            if not orders[stage]:
                continue
            forward, i = orders[stage][0]
            last = stage == stages - 1
            needed = (
                [(stage - 1, True, i)] * (stage > 0)
                if forward
                else [(stage, True, i) if last else (stage + 1, False, i)]
            )
            if all(each in done for each in needed):
                free[stage] = max([free[stage], *(done[each] for each in needed)]) + 1
                done[stage, forward, i] = free[stage]
                orders[stage].pop(0)
                if stage == 0:
                    held += 1 if forward else -1
                    most = max(most, held)
        assert len(done) > before, "ranks wait for one another"
    return max(free), most


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_parts_pass_in_the_shortest_time_and_few_are_held(stages: int, parts: int) -> None:
    """No order is shorter: the first part is at the last stage after stages units, which then has 2 parts - 1 more to
    do, and the last part comes back through the other stages."""
    time, most = finished(stages, parts)
    assert time == 2 * (parts + stages - 1)
    assert most == min(parts, stages)


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_every_part_goes_up_and_down_once_in_order(stage: int) -> None:
    order = schedule(stage, 3, 5)
    assert [i for forward, i in order if forward] == list(range(5))
    assert [i for forward, i in order if not forward] == list(range(5))


def diverging(rank: int) -> list[object]:
    """A weight of the last block that is not finite: all ranks refuse, and go on once it is."""
    run = LayerParallel(cases.trainer("straight"), 2)
    x, y = cases.batches()[0]
    weight = run.chain.blocks[-1].parameters()[0]
    good = weight.detach().clone()
    with torch.no_grad():
        weight.fill_(torch.inf)
    found: list[object] = []
    try:
        run.step(x, y)
    except Exception as error:
        found.append(f"{type(error).__name__}: {error}")
    with torch.no_grad():
        weight.copy_(good)
    before = run.penalty.value
    found += [before, float(run.step(x, y).loss), run.penalty.value]
    return found


def test_numbers_that_are_not_finite_on_one_rank_are_refused_by_all_which_can_go_on() -> None:
    am = cases.trainer("straight")
    x, y = cases.batches()[0]
    loss = cases.in_parts(am, x, y, 2, 1)
    for text, before, found, after in ranks.run(2, diverging):
        assert "Diverged: training diverged: a number of block" in text
        assert (before, after) == (10.0, 10.2)
        assert abs(found - loss) < 1e-12


def test_dropout_draws_anew_for_each_part_and_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are alike, so that the output of a part tells its mask."""
    seen = []

    def watched(*args: Any) -> Any:
        found = encode(*args)
        seen.append(found.values[0].clone())
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
