"""Variables by row number, and sums of least squares."""

import copy

import pytest
import torch
from splitting_reference import F64, least_squares
from torch import Tensor
from trainer_cases import equal

from altmin.common.errors import Diverged
from altmin.methods.per_sample import Gram, Table, demand_whole_pass


def samples(n: int = 40, seed: int = 0, dtype: torch.dtype = F64) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=g, dtype=dtype), torch.randn(n, 3, generator=g, dtype=dtype)


def add(to: Gram, a: Tensor, z: Tensor) -> None:
    to.add_inputs(a)
    to.add_products(a, z)


def gram(a: Tensor, z: Tensor, bias: bool = True) -> Gram:
    found = Gram(4, 3, bias)
    add(found, a, z)
    return found


@pytest.mark.parametrize("ridge, proximal", [(0.0, 0.0), (2.0, 0.0), (0.0, 3.0), (0.5, 0.7)])
def test_weights_are_those_of_a_stacked_least_squares_problem(ridge: float, proximal: float) -> None:
    a, z = samples()
    old = torch.randn(3, 5, generator=torch.Generator().manual_seed(1), dtype=F64)
    expected = least_squares(a, z, ridge, proximal, old)
    assert torch.allclose(gram(a, z).solve(ridge, proximal, old), expected, atol=1e-10)


def test_without_bias_there_is_no_constant() -> None:
    a, z = samples()
    expected = torch.linalg.lstsq(a, z).solution.mT
    assert torch.allclose(gram(a, z, bias=False).solve(), expected, atol=1e-10)


def test_samples_in_parts_have_the_sums_of_all() -> None:
    a, z = samples()
    whole, parts = gram(a, z), Gram(4, 3)
    for part in (slice(0, 11), slice(11, 40)):
        add(parts, a[part], z[part])
    assert torch.allclose(parts.inputs, whole.inputs, rtol=1e-13)
    assert torch.allclose(parts.products, whole.products, rtol=1e-13)


def test_sums_of_single_precision_are_kept_in_double() -> None:
    """4096 chunks of one number: in float32, 1e8 + 1 is 1e8."""
    found = Gram(1, 1, bias=False)
    add(found, torch.tensor([[1e4]]), torch.tensor([[1e4]]))
    for _ in range(64):
        add(found, torch.ones(1, 1), torch.ones(1, 1))
    assert found.inputs.item() == found.products.item() == 1e8 + 64


@pytest.mark.parametrize("case", ["singular", "not finite"])
def test_a_fit_without_an_answer_is_said_to_diverge(case: str) -> None:
    a, z = samples()
    if case == "singular":
        a[:, 1] = 3.0  # the same as the bias
    else:
        z[0, 0] = torch.inf
    with pytest.raises(Diverged, match="raise the ridge"):
        gram(a, z).solve()


def table() -> Table:
    return Table({"z": 2, "a": 1}, torch.zeros(1, dtype=F64))


def rows_and_values(*rows: int) -> tuple[Tensor, dict[str, Tensor]]:
    r = torch.tensor(rows)
    return r, {"z": torch.stack([r, -r], 1).to(F64), "a": r.to(F64).unsqueeze(1) / 2}


def test_variables_are_found_again_by_row_in_any_order() -> None:
    kept = table()
    for rows in ((7, 2), (0, 30, 3), (1,)):
        kept.write(*rows_and_values(*rows))
    rows, expected = rows_and_values(3, 7, 1, 30, 0, 2)
    assert equal(kept.read(rows), expected)
    assert kept.new(torch.tensor([3, 4, 30, 31, 1000])).tolist() == [False, True, False, True, True]
    assert kept.new(torch.tensor([5])).tolist() == [True]


def test_before_the_first_sample_every_row_is_new() -> None:
    assert table().new(torch.tensor([0, 5])).tolist() == [True, True]


BAD_ROWS = {
    "a float": (torch.tensor([0.0, 1.0]), "one int64 number for each of the 2 samples"),
    "one more": (torch.tensor([4, 5, 6]), "one int64 number for each"),
    "a list": ([4, 5], "given list"),
    "negative": (torch.tensor([4, -1]), "given -1"),
    "twice in a batch": (torch.tensor([4, 4]), "seen twice"),
    "seen before": (torch.tensor([4, 2]), "seen twice"),
    "none": (None, "give the numbers of its samples as rows"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows_are_refused_in_words_and_nothing_changes(case: str) -> None:
    kept = table()
    kept.write(*rows_and_values(2, 0))
    before = copy.deepcopy(kept.state_dict())
    rows, words = BAD_ROWS[case]
    with pytest.raises(ValueError, match=words):
        kept.find(rows, 2)  # type: ignore[arg-type]
    assert equal(kept.state_dict(), before)


def test_a_pass_takes_all_samples_of_the_one_before() -> None:
    kept = table()
    kept.write(*rows_and_values(0, 1, 2))
    assert demand_whole_pass(*kept.counts()) == 3
    kept.end_pass()
    assert demand_whole_pass(*kept.counts()) == 0
    assert kept.find(None, 3).tolist() == [0, 1, 2]
    kept.write(*rows_and_values(2, 0))
    with pytest.raises(ValueError, match="2 of 3 samples"):
        demand_whole_pass(*kept.counts())
    kept.write(*rows_and_values(1, 3))
    assert demand_whole_pass(*kept.counts()) == 4


def test_a_state_in_the_middle_of_a_pass_is_taken_whole_or_not_at_all() -> None:
    kept, other = table(), table()
    kept.write(*rows_and_values(5, 1))
    kept.end_pass()
    kept.write(*rows_and_values(1))
    state = copy.deepcopy(kept.state_dict())
    other.set_state(other.matched(state, "the table"))
    assert equal(other.state_dict(), kept.state_dict())
    other.write(*rows_and_values(5))
    assert equal(kept.state_dict(), state), "nothing is shared"
    assert not equal(other.state_dict(), state)
    for wrong in (
        {**state, "known": state["known"][:-1]},
        {**state, "known": state["known"].double()},
        {**state, "values": {"z": state["values"]["z"]}},
        {**state, "known": 3},
    ):
        with pytest.raises(ValueError):
            kept.matched(wrong, "the table")
