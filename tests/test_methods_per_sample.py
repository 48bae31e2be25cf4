"""Variables by row number."""

import copy

import pytest
import torch
from splitting_reference import F64
from torch import Tensor
from trainer_cases import equal

from altmin.methods.rivals.per_sample import Table


def table() -> Table:
    return Table({"z": 2, "a": 1}, torch.zeros(1, dtype=F64))


def rows_and_values(*rows: int) -> tuple[Tensor, dict[str, Tensor]]:
    r = torch.tensor(rows)
    return r, {"z": torch.stack([r, -r], 1).to(F64), "a": r.to(F64).unsqueeze(1) / 2}


BAD_ROWS = {
    "a float": torch.tensor([0.0, 1.0]),
    "one more": torch.tensor([4, 5, 6]),
    "a list": [4, 5],
    "negative": torch.tensor([4, -1]),
    "twice in a batch": torch.tensor([4, 4]),
    "seen before": torch.tensor([4, 2]),
    "none": None,
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows_are_refused_in_words_and_nothing_changes(case: str) -> None:
    kept = table()
    kept.write(*rows_and_values(2, 0))
    before = copy.deepcopy(kept.state_dict())
    with pytest.raises(ValueError):
        kept.find(BAD_ROWS[case], 2)
    assert equal(kept.state_dict(), before)
