"""Processes of a run: what they sum and send, and how the failure of one stops all of them."""

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import ranks
import torch
import torch.distributed as dist
from distributed_cases import F64, far, mlp, points
from torch import Tensor, nn

import altmin
from altmin.common.errors import Diverged
from altmin.runners.distributed import Distributed
from altmin.runners.ranks import RankFailed, Ranks, bounds, digest, start


@pytest.mark.parametrize("samples, size", [(7, 3), (4, 4), (10, 4), (1, 1), (5, 2)])
def test_every_row_belongs_to_one_rank_and_no_rank_has_two_more_than_another(samples: int, size: int) -> None:
    cuts = [bounds(samples, rank, size) for rank in range(size)]
    assert [row for first, end in cuts for row in range(first, end)] == list(range(samples))
    lengths = [end - first for first, end in cuts]
    assert max(lengths) - min(lengths) <= 1


def test_without_other_processes_there_is_one_rank_and_nothing_is_told() -> None:
    alone = Ranks()
    error = ValueError("as it is")
    assert (alone.rank, alone.size, alone.publish(error)) == (0, 1, error)


def test_a_process_without_a_gpu_of_its_own_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "run")
    monkeypatch.setenv("LOCAL_RANK", "2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match=r"process 2 of this machine, .* torch finds 2; start as many"):
        start("cuda")


@pytest.mark.parametrize("place", [0, 4095])
def test_a_digest_tells_batches_apart_by_their_first_entries(place: int) -> None:
    x = torch.arange(5000.0)
    other = x.clone()
    other[place] += 1
    assert digest(x) == digest(x.clone()) != digest(other)
    assert digest(x, x) != digest(x)


# Several processes, one trainer after the other


def told(function: Callable[[], Any]) -> tuple[str, str]:
    """The kind and the text of the error that a function ends with."""
    try:
        function()
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def trainer() -> Distributed:
    return Distributed(altmin.AltMin(mlp()))


def failing(give: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]) -> Callable[[int], dict[str, Any]]:
    """One step of each rank on what it is given, and a second one on a sound batch."""

    def on_rank(rank: int) -> dict[str, Any]:
        am, (x, y) = trainer(), points(9)
        before = [p.detach().clone() for p in am.model.parameters()]
        first = told(lambda: am.step(*give(rank, x, y)))
        changed = far([p.detach() for p in am.model.parameters()], before)
        second = told(lambda: am.step(x, y))
        return {"first": first, "changed": changed, "second": second, "weights": [*am.model.parameters()]}

    return on_rank


def with_nan(rank: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone()
    x[8, 2] = torch.nan  # a row of the last rank
    return x, y


def too_large(rank: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x * 1e200, y


def other_batch(rank: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x, y.roll(rank)


def other_numbers(rank: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    torch.manual_seed(rank)
    return x, y


def late(rank: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    if rank == 0:
        time.sleep(1.5)  # longer than a rank waits before it looks what the others do
    return x, y


def bad_label(rank: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    y = y.clone()
    y[8] = 4
    return x, y


STEPS = {f.__name__: f for f in (bad_label, with_nan, too_large, other_batch, other_numbers, late)}
"""A bad label comes first: no trainer goes on after it, and new ones in the same processes do."""


def failures(rank: int) -> dict[str, Any]:
    found: dict[str, Any] = {"sent": sent(rank)}
    for name, give in STEPS.items():
        if name == "late":
            torch.manual_seed(0)
        found[name] = failing(give)(rank)
    return found


def sent(rank: int) -> tuple[list[float], int, int]:
    group = Ranks()
    share = group.share(0, 1, 2)
    first = share.begin(torch.tensor([1.0 + rank, 2.0, 3.0], dtype=F64))()
    wait = share.begin(torch.tensor([5.0 * rank] * 4))
    return [*first.tolist(), *wait().tolist()], group.messages, group.bytes


@pytest.fixture(scope="module")
def both() -> list[dict[str, Any]]:
    return ranks.run(2, failures)


def test_sums_are_over_ranks_and_what_is_sent_is_counted(both: list[dict[str, Any]]) -> None:
    """With the first sum of a step goes one number more, by which ranks see that they are in the same step."""
    expected = [3.0, 4.0, 6.0, 5.0, 5.0, 5.0, 5.0]
    assert [each["sent"] for each in both] == [(expected, 2, 4 * 8 + 4 * 4)] * 2


@pytest.mark.parametrize("name", ["with_nan", "too_large", "other_batch", "other_numbers", "bad_label"])
def test_a_step_that_one_rank_cannot_take_changes_nothing_on_any(both: list[dict[str, Any]], name: str) -> None:
    assert [each[name]["changed"] for each in both] == [0.0, 0.0]
    assert all(each[name]["first"][0] for each in both)


@pytest.mark.parametrize("name, words", [("with_nan", "the input holds NaN"), ("bad_label", "label 4 is out of range")])
def test_the_rank_with_bad_rows_is_named_on_all(both: list[dict[str, Any]], name: str, words: str) -> None:
    (kind, text), (own_kind, own_text) = (each[name]["first"] for each in both)
    assert (kind, own_kind) == ("RankFailed", "ValueError")
    assert f"rank 1: {words}" in text
    assert own_text.startswith(f"rank 1 of 2: {words}")


def test_numbers_too_large_on_all_ranks_diverge_as_in_one_process(both: list[dict[str, Any]]) -> None:
    assert {each["too_large"]["first"][0] for each in both} == {Diverged.__name__}


@pytest.mark.parametrize("name", ["other_batch", "other_numbers"])
def test_ranks_that_are_not_in_the_same_step_are_refused(both: list[dict[str, Any]], name: str) -> None:
    assert all(each[name]["first"][0] == "ValueError" for each in both)
    assert all("different batches, or have drawn different random numbers" in each[name]["first"][1] for each in both)


def test_a_rank_that_is_late_is_waited_for(both: list[dict[str, Any]]) -> None:
    assert [each["late"]["first"] for each in both] == [("", "")] * 2


@pytest.mark.parametrize("name", ["with_nan", "too_large", "late"])
def test_ranks_that_have_all_refused_a_step_go_on_as_one_process_would(both: list[dict[str, Any]], name: str) -> None:
    """The batch that was refused leaves no trace; one that was late has made a step before."""
    am = altmin.AltMin(mlp())
    for _ in range(2 if name == "late" else 1):
        am.step(*points(9))
    for each in both:
        assert each[name]["second"] == ("", "")
        assert far([p.detach() for p in each[name]["weights"]], [p.detach() for p in am.model.parameters()]) < 1e-13


def test_after_one_rank_has_left_the_others_in_a_sum_no_step_is_taken(both: list[dict[str, Any]]) -> None:
    assert [each["bad_label"]["second"][0] for each in both] == ["RankFailed"] * 2
    assert all("label 4 is out of range" in each["bad_label"]["second"][1] for each in both)


def begun_again(rank: int) -> list[tuple[str, float]]:
    """What comes of one good step of runs over rows and over blocks, before each of which one has been broken off."""
    found = []
    for broken, good in ((True, False), (True, True), (False, False), (False, True)):
        for layers, label in ((broken, 4), (good, 0)):
            am, (x, y) = altmin.AltMin(mlp()), points(9)
            run: Any = altmin.LayerParallel(am, 2) if layers else Distributed(am)
            y[8] = label
            said = told(partial(run.step, x, y))[0]
        run.synchronize() if layers else None
        alone = altmin.AltMin(mlp())
        (alone.gather(x[:5], y[:5]), alone.gather(x[5:], y[5:]), alone.apply()) if layers else alone.step(x, y)
        found.append((said, far([p.detach() for p in run.model.parameters()], [*alone.model.parameters()])))
    return found


def test_after_a_rank_has_left_a_run_new_ones_in_the_same_processes_are_as_in_one_process() -> None:
    for each in ranks.run(2, begun_again):
        assert [said for said, _ in each] == [""] * 4
        assert max(distance for _, distance in each) < 1e-13


# A process that dies


def dying(rank: int, which: int) -> tuple[tuple[str, str], float]:
    am, (x, y) = trainer(), points(9)

    def loss(output: Tensor, y: Tensor) -> Tensor:
        if dist.get_rank() == which:
            os._exit(1)
        return torch.nn.functional.cross_entropy(output, y)

    am.step(x, y)
    before = [p.detach().clone() for p in am.model.parameters()]
    am.method.loss = altmin.core.losses.adapt(loss)
    found = told(lambda: am.step(x, y))
    return found, far([p.detach() for p in am.model.parameters()], before)


@pytest.mark.parametrize("which", [0, 2])
def test_a_rank_that_dies_in_a_step_is_noticed_by_all_others(which: int) -> None:
    """Also where it is the first, on which the processes' store lies."""
    found = ranks.run(3, dying, which)
    assert found.pop(which) is None
    for (kind, _), changed in found:
        assert (kind, changed) == (RankFailed.__name__, 0.0)


def lost(rank: int) -> list[str]:
    """What rank 0 raises in each exchange of whole tensors after rank 1 has gone."""
    torch.manual_seed(0)
    layered = altmin.LayerParallel(altmin.AltMin(altmin.models.mlp(4, (3, 3), 2)), 1)
    if rank == 1:
        os._exit(0)
    found = []
    for exchange in (layered.synchronize, layered.state_dict, lambda: layered.ranks.equalise([torch.zeros(3)])):
        try:
            for _ in range(20):  # a message may leave before it is known that nobody receives it
                exchange()
                time.sleep(0.05)
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}"[:40])
    return found


def test_a_rank_that_is_gone_while_weights_or_states_are_exchanged_is_told_in_one_sentence() -> None:
    assert ranks.run(2, lost)[0] == ["RankFailed: rank 0 has lost the others: "[:40]] * 3


class Stopping:
    """The mean loss; raises `error` unless it is None."""

    error: BaseException | None = None

    def __call__(self, output: Any, y: Any) -> Any:
        if self.error is not None:
            raise self.error
        return nn.functional.cross_entropy(output, y)


def first_alone(send: Any) -> Any:
    """Sends the first part of a batch and fails at the second."""

    def call(kind: Any, i: int, *what: Any) -> None:
        if i > 0:
            raise ZeroDivisionError("the second part")
        send(kind, i, *what)

    return call


def stopped_within(rank: int, layers: bool, error: BaseException) -> list[str]:
    """Kinds and texts of what two steps raise: one that rank 1 is stopped in, and a good one. Where blocks are over
    ranks and the error is no interruption, rank 0 fails too, while messages are on their way to it."""
    x, y = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3
    loss, texts = Stopping(), []
    am = altmin.AltMin(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), loss=loss)
    run: Any = altmin.LayerParallel(am, 3) if layers else Distributed(am)
    for good in (False, True):
        loss.error = error if rank == 1 and not good else None
        with pytest.MonkeyPatch.context() as patch:
            if layers and rank == 0 and not good and isinstance(error, Exception):
                patch.setattr(run.neighbours, "send_code", first_alone(run.neighbours.send_code))
            try:
                run.step(x, y)
                texts.append("none")
            except BaseException as raised:
                texts.append(f"{type(raised).__name__}: {raised}")
    return texts


@pytest.mark.parametrize("layers", [False, True])
def test_ctrl_c_on_one_rank_is_told_to_the_others_and_none_goes_on(layers: bool) -> None:
    (told, after), (own, later) = ranks.run(2, stopped_within, layers, KeyboardInterrupt())
    assert "rank 1: KeyboardInterrupt" in told
    assert own.startswith("KeyboardInterrupt")
    assert after.startswith("RankFailed")
    assert later.startswith("RankFailed")


def test_ranks_that_fail_with_messages_on_their_way_do_not_go_on() -> None:
    (own, after), (other, later) = ranks.run(2, stopped_within, True, ValueError("the loss"))
    assert own.startswith("ZeroDivisionError: rank 0 of 2")
    assert other.startswith("ValueError: rank 1 of 2: the loss")
    assert after.startswith("RankFailed")
    assert later.startswith("RankFailed")
