"""The order in which a rank takes the parts of a mini-batch, and how ranks agree on a step."""

import itertools
from typing import Any

import layer_cases as cases
import pytest
import ranks
import torch
from torch import nn

import altmin
from altmin.core.step import encode
from altmin.runners import pipelined
from altmin.runners.layer_parallel import LayerParallel
from altmin.runners.pipelined import schedule


def finished(stages: int, parts: int, f: float, d: float, w: float) -> tuple[float, int]:
    """When all stages are done, if a pass of a part takes f upwards and d downwards and waits for those that it needs,
    and weights take w of a stage wherever it would wait; and how many parts the first stage holds at most."""
    orders = [schedule(stage, stages, parts) for stage in range(stages)]
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
                while owed[stage] and free[stage] < ready:
                    free[stage] += w
                    owed[stage] -= 1
                done[stage, forward, i] = free[stage] = max(free[stage], ready) + (f if forward else d)
                owed[stage] += not forward
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
