"""Several values as one code: nothing is lost, and what cannot be one code is refused in a sentence."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from altmin.calculus.cut_values import CutValues, flat, parts


@given(st.integers(1, 4), st.lists(st.lists(st.integers(1, 3), min_size=0, max_size=3), min_size=1, max_size=4))
def test_what_is_joined_comes_apart_as_it_was(samples, shapes):
    values = [torch.randn(samples, *shape) for shape in shapes]
    cut = CutValues(len(values), "here")
    code, layout = cut.join([*values, "aside", 3]), cut.take()
    assert layout.aside == ["aside", 3]
    assert code.numel() == sum(v.numel() for v in values)
    assert all(torch.equal(a, b) for a, b in zip(parts(code, layout.shapes), values, strict=True))
    assert torch.equal(flat(parts(code, layout.shapes)), code)


REFUSED = {
    "integers": [torch.ones(4, 2), torch.ones(4, 2, dtype=torch.int64)],
    "two types": [torch.ones(4, 2), torch.ones(4, 2, dtype=torch.float64)],
    "other samples": [torch.ones(4, 2), torch.ones(5, 2)],
    "no tensor": [torch.ones(4, 2), "text"],
}


@pytest.mark.parametrize("case", REFUSED)
def test_values_that_cannot_be_one_code_are_refused_with_what_they_are(case):
    with pytest.raises(ValueError, match=r"several values pass after 'x' and cannot be one code: .*; .*cut elsewhere"):
        CutValues(2, "after 'x'").join(REFUSED[case])
