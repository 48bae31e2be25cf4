"""`Distributed`: what several ranks compute is what one process computes, for every method, net and loss."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import ranks
import torch
from distributed_cases import PROCESSES, THREADS, Case, by_name, far, mlp, points, train

import altmin
from altmin.calculus.context import LOCAL, Context
from altmin.methods import create
from altmin.runners.distributed import Distributed
from altmin.runners.rowwise import Rowwise

TOLERANCE = 1e-10


@functools.cache
def alone(make: Callable[[], Case]) -> list[torch.Tensor]:
    case = make()
    torch.manual_seed(5)
    return train(case, case.method)


# Processes


def on_rank(rank: int) -> dict[str, Any]:
    """All cases, then a run that changes the number of ranks."""
    torch.manual_seed(100 + rank)
    found: dict[str, Any] = {}
    for name, make in PROCESSES.items():
        case = make()
        method = Distributed(case.method)
        torch.manual_seed(5)
        found[name] = train(case, method)
    for name in ("admm", "bcd"):
        found[f"{name} continued"] = continued(twice(name), Distributed, Distributed)
    return found


@pytest.fixture(scope="module")
def spread() -> list[dict[str, Any]]:
    """What each of three ranks, one of which has no sample of the smallest batch, has computed of all cases."""
    return ranks.run(3, on_rank)


@pytest.mark.parametrize("name", PROCESSES)
def test_ranks_compute_what_one_process_does(spread: list[dict[str, Any]], name: str) -> None:
    """Weights, buffers, state, and the metrics of every step. All ranks have the very same numbers."""
    expected = alone(PROCESSES[name])
    for rank in spread:
        assert far(rank[name], expected) < TOLERANCE
        assert all(map(torch.equal, rank[name], spread[0][name]))


# Threads


def in_thread(method: Any, of: ranks.ThreadRanks) -> Distributed:
    """As `Distributed(method)`, of a rank that is a thread."""
    made = Distributed.__new__(Distributed)
    made.method, made.ranks, made.rowwise = method, of, Rowwise()  # type: ignore[assignment]
    return made


@pytest.mark.parametrize("name", THREADS)
def test_options_nets_and_losses_are_those_of_one_process(name: str) -> None:
    expected = alone(THREADS[name])
    cases = [THREADS[name]() for _ in range(3)]
    found = ranks.threads(3, lambda of: train(cases[of.rank], in_thread(cases[of.rank].method, of)))
    for each in found:
        assert far(each, expected) < TOLERANCE
        assert all(map(torch.equal, each, found[0]))


def twice(name: str) -> tuple[Case, Case]:
    return by_name(name)(), by_name(name)()


def continued(
    cases: tuple[Case, Case], first: Callable[[Any], Any], second: Callable[[Any], Any]
) -> list[torch.Tensor]:
    """A pass and a half of one method, from whose state another goes on. first, second: what is made of a method to
    train it."""
    case, other = cases
    begun = first(case.method)
    train(case, begun, epochs=1)
    for x, y, how in case.batches[:2]:
        begun.step(x, y, **how)
    state = begun.state_dict()
    other.method.model.load_state_dict(case.method.model.state_dict())
    last = second(other.method)
    last.load_state_dict(state)
    for x, y, how in case.batches[2:]:
        last.step(x, y, **how)
    last.end_epoch()
    return train(other, last, epochs=1)


@pytest.mark.parametrize("name", ["admm", "bcd"])
def test_variables_of_samples_move_to_another_number_of_ranks_within_a_pass(
    spread: list[dict[str, Any]], name: str
) -> None:
    expected = continued(twice(name), lambda m: m, lambda m: m)
    assert far(spread[0][f"{name} continued"], expected) < TOLERANCE
    for first, second in ((4, 1), (1, 4)):
        found = changing(name, first, second)
        assert far(found, expected) < TOLERANCE


def changing(name: str, first: int, second: int) -> list[torch.Tensor]:
    """As `continued`, from so many ranks to so many, one of which is 1."""
    cases = [twice(name) for _ in range(max(first, second))]

    def call(of: ranks.ThreadRanks) -> list[torch.Tensor]:
        def many(method: Any) -> Any:
            return in_thread(method, of)

        return continued(cases[of.rank], many if first > 1 else lambda m: m, many if second > 1 else lambda m: m)

    return ranks.threads(len(cases), call)[0]


def test_a_pass_that_leaves_samples_out_is_refused_on_all_ranks() -> None:
    x, y = points(9)
    rows = torch.arange(9)

    def call(of: ranks.ThreadRanks) -> None:
        method = in_thread(methods[of.rank], of)
        method.step(x, y, rows=rows)
        method.end_epoch()
        method.step(x[:3], y[:3], rows=rows[:3])
        with pytest.raises(ValueError):
            method.end_epoch()

    methods = [create("admm", mlp()) for _ in range(2)]
    ranks.threads(2, call)


def test_without_rows_a_batch_is_all_the_data() -> None:
    x, y = points(9)
    one, *several = [create("bcd", mlp()) for _ in range(3)]
    for _ in range(2):
        one.step(x, y)
        one.end_epoch()

    def call(of: ranks.ThreadRanks) -> None:
        method = in_thread(several[of.rank], of)
        for _ in range(2):
            method.step(x, y)
            method.end_epoch()

    ranks.threads(2, call)
    for method in several:
        assert far([*method.model.state_dict().values()], [*one.model.state_dict().values()]) < TOLERANCE


def messages(make: Callable[[], Any], **how: Any) -> int:
    """How many sums a step takes on two ranks."""
    methods = [make() for _ in range(2)]

    def call(of: ranks.ThreadRanks) -> int:
        in_thread(methods[of.rank], of).step(*points(9), **how)
        return of.messages

    (found,) = set(ranks.threads(2, call))
    return found


@pytest.mark.parametrize(
    "name, expected",
    [
        ("adam", 2),
        ("straight-through", 2),
        ("proxprop", 2),
        ("dtp", 2),
        ("predictive-coding", 2),
        ("admm", 1),
        ("bcd", 1),
    ],
)
def test_a_step_sums_the_loss_and_then_all_gradients_at_once(name: str, expected: int) -> None:
    """Of variables of samples only whether all are finite."""
    options, how = {"noise": 0.0} if name == "dtp" else {}, {"rows": torch.arange(9)} if expected == 1 else {}
    assert messages(lambda: create(name, mlp(), **options), **how) == expected


@pytest.mark.parametrize(
    "x, y, how",
    [
        (points(9)[0], points(9)[1], {"sample_weight": torch.zeros(9)}),
        (points(9)[0], torch.full((9,), -100), {}),
        (points(9)[0], points(10)[1], {}),
        ([[1.0]], [0], {}),
    ],
    ids=["weights of zero", "no label counts", "more targets", "lists"],
)
def test_what_no_rank_can_take_is_refused(x: Any, y: Any, how: Any) -> None:
    methods = [altmin.AltMin(mlp()) for _ in range(2)]
    with pytest.raises((ValueError, TypeError)):
        ranks.threads(2, lambda of: in_thread(methods[of.rank], of).step(x, y, **how))


def test_parts_of_a_batch_are_gathered_as_in_one_process() -> None:
    def gathered(am: Any) -> list[torch.Tensor]:
        for n in (9, 7):
            am.gather(*points(n))
        am.apply()
        return [p.detach().clone() for p in am.model.parameters()]

    def made() -> altmin.AltMin:
        torch.manual_seed(2)
        return altmin.AltMin(mlp())

    methods = [made() for _ in range(2)]
    expected = gathered(made())
    of_ranks = ranks.threads(2, lambda of: (gathered(in_thread(methods[of.rank], of)), of.messages))
    for found, messages in of_ranks:
        assert messages > 0
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


# One process


def test_without_other_ranks_a_step_is_the_methods_own() -> None:
    case, same = PROCESSES["am-adam"](), PROCESSES["am-adam"]()
    torch.testing.assert_close([*train(case, Distributed(case.method))], [*train(same, same.method)], rtol=0, atol=0)


class Mean:
    """A method of one's own: the weights of a linear model follow the mean of the inputs."""

    optimizer = None

    def __init__(self) -> None:
        self.model = torch.nn.Linear(6, 1)

    @torch.no_grad()
    def step(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        self.model.weight.copy_(x.mean(0, keepdim=True))


class MeanOverRanks(Mean):
    @torch.no_grad()
    def step(self, x: torch.Tensor, y: torch.Tensor, *, context: Context = LOCAL) -> Any:
        self.model.weight.copy_(context.sum(x.sum(0, keepdim=True))[0] / context.count(len(x)))
        return context.weights


def test_a_method_of_ones_own_sums_by_its_context() -> None:
    x, y = points(9)
    methods = [MeanOverRanks() for _ in range(2)]
    context = Context(weights=torch.ones(5))
    seen = ranks.threads(2, lambda of: in_thread(methods[of.rank], of).step(x, y, context=context))
    assert seen[0] is seen[1] is context.weights, "what else a context says stays"
    for method in methods:
        torch.testing.assert_close(method.model.weight[0], x.float().mean(0))


@pytest.mark.parametrize(
    "method",
    [
        Mean,
        lambda: Distributed(altmin.AltMin(mlp())),
        lambda: altmin.Ensemble([create("am-adam", mlp()) for _ in range(2)]),
    ],
    ids=["a step without context", "Distributed", "Ensemble"],
)
def test_what_cannot_be_spread_is_refused(method: Any) -> None:
    with pytest.raises(TypeError):
        Distributed(method())
